#include "scalemodel/routing/exact/cdcl_solver.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

constexpr std::int32_t kUndefined = -1;                     ///< value, atom
constexpr std::int32_t kNoReason = -1, kFirstLiteral = -2;  ///< reasons that are no clause
constexpr std::int32_t kEnd = -1;                           ///< end mark of a clause
constexpr double kActivityDecay = 0.95;                     ///< factor from conflict to conflict
constexpr double kLargestIncrement = 1e100;
constexpr std::int64_t kVariablesPerWork = 4;  ///< variables skipped in the time of one inspection
constexpr std::int64_t kRestartUnit = 50;      ///< conflicts of the shortest interval

/// The Luby sequence 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, ... from `index` 1 on.
std::int64_t luby(std::int64_t index) {
  std::int64_t length = 1;
  while (2 * length - 1 < index) length *= 2;
  return 2 * length - 1 == index ? length : luby(index - length + 1);
}

}  // namespace

CdclSolver::CdclSolver(std::vector<double> weights, std::int32_t auxiliary, std::int32_t values)
    : values_(values),
      weights_(std::move(weights)),
      truth_((weights_.size() + static_cast<std::size_t>(auxiliary)) *
                 static_cast<std::size_t>(values),
             Truth::unassigned),
      level_(truth_.size(), 0),
      reason_(truth_.size(), kNoReason),
      value_(weights_.size(), kUndefined),
      saved_value_(weights_.size(), kUndefined),
      domain_size_(weights_.size(), values),
      watchers_(2 * truth_.size()),
      conflict_(kNoReason),
      seen_(truth_.size(), 0),
      activity_(weights_.size(), 0.0) {}

/// A clause watches its first two literals. A clause of a single literal is a fact.
CdclSolver::Reason CdclSolver::store_clause(std::span<const Literal> clause) {
  if (clause.size() < 2) {
    if (clause.empty()) feasible_ = false;
    for (const Literal only : clause) enqueue(only, kNoReason);
    return kNoReason;
  }
  const auto number = static_cast<Reason>(first_.size());
  first_.push_back(literals_.size());
  literals_.insert(literals_.end(), clause.begin(), clause.end());
  literals_.push_back(kEnd);
  watchers_[clause[0]].push_back(number);
  watchers_[clause[1]].push_back(number);
  return number;
}

/// Assigns the literal unless it is true already. Precondition: it is not false.
void CdclSolver::enqueue(Literal literal, Reason reason) {
  const std::int32_t atom = literal / 2, variable = variable_of(literal);
  if (truth_[atom] != Truth::unassigned) return;
  const bool positive = is_positive(literal);
  truth_[atom] = positive ? Truth::yes : Truth::no;
  level_[atom] = static_cast<std::int32_t>(level_start_.size());
  reason_[atom] = reason;
  trail_.push_back(literal);
  if (!is_decision_variable(variable)) return;
  if (positive) {
    value_[variable] = saved_value_[variable] = value_of(literal);
  } else {
    --domain_size_[variable];
  }
}

/// A variable with a value has no other one; the problem adds its own implications.
CdclSolver::Status CdclSolver::propagate_implications(Literal assigned) {
  implied_.clear();
  const std::int32_t atom = assigned / 2;
  if (is_positive(assigned)) {
    const std::int32_t first = atom - atom % values_;
    for (std::int32_t other = first; other < first + values_; ++other) {
      if (other != atom) implied_.push_back(2 * other + 1);
    }
  }
  append_implications(assigned, implied_);
  work_ += static_cast<std::int64_t>(implied_.size());
  for (const Literal implied : implied_) {
    if (is_false(implied)) {
      conflict_ = kNoReason;
      conflicting_atoms_ = {implied / 2, atom};
      return Status::conflict;
    }
    enqueue(implied, kFirstLiteral - assigned);
  }
  return Status::consistent;
}

/// A clause that watches the falsified literal watches another one that is not false; where it has
/// none, its other watched literal must be true.
CdclSolver::Status CdclSolver::propagate_clauses(Literal falsified) {
  std::vector<Reason>& watchers = watchers_[falsified];
  work_ += static_cast<std::int64_t>(watchers.size());
  Status status = Status::consistent;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < watchers.size(); ++i) {
    const Reason number = watchers[i];
    Literal* const watched = &literals_[first_[number]];
    if (watched[0] == falsified) std::swap(watched[0], watched[1]);
    if (status == Status::conflict || is_true(watched[0])) {
      watchers[kept++] = number;
      continue;
    }
    Literal* next = watched + 2;
    while (*next != kEnd && is_false(*next)) ++next;
    if (*next != kEnd) {
      std::swap(watched[1], *next);
      watchers_[watched[1]].push_back(number);
      continue;
    }
    watchers[kept++] = number;
    if (is_false(watched[0])) {
      conflict_ = number;
      status = Status::conflict;
    } else {
      enqueue(watched[0], number);
    }
  }
  watchers.resize(kept);
  return status;
}

/// Derives everything that the literals on the trail imply.
CdclSolver::Status CdclSolver::propagate() {
  Status status = Status::consistent;
  while (status == Status::consistent && propagated_ < trail_.size()) {
    const Literal literal = trail_[propagated_++];
    status = propagate_implications(literal);
    if (status == Status::consistent) status = propagate_clauses(negation(literal));
  }
  return status;
}

/// Visits the atoms that made `atom` follow; for a clause in conflict `atom` is none.
template <class Visit>
void CdclSolver::for_each_antecedent(Reason reason, std::int32_t atom, Visit visit) const {
  if (reason <= kFirstLiteral) return visit((kFirstLiteral - reason) / 2);
  for (const Literal* literal = &literals_[first_[reason]]; *literal != kEnd; ++literal) {
    if (*literal / 2 != atom) visit(*literal / 2);
  }
}

/// An antecedent of an earlier level joins the learnt clause; one of the current level is resolved.
void CdclSolver::mark_antecedent(std::int32_t atom) {
  ++work_;
  if (seen_[atom] != 0 || level_[atom] == 0) return;
  seen_[atom] = 1;
  seen_atoms_.push_back(atom);
  const std::int32_t variable = variable_of(2 * atom);
  if (is_decision_variable(variable)) activity_[variable] += activity_increment_;
  if (level_[atom] == static_cast<std::int32_t>(level_start_.size())) {
    ++unresolved_;
  } else {
    learnt_.push_back(false_literal(atom));
  }
}

/// Derives the clause of the conflict: the first unique implication point of the current level
/// comes first, then antecedents of earlier levels. Returns the level at which the clause
/// propagates that point.
std::size_t CdclSolver::analyse() {
  learnt_.assign(1, kEnd);
  seen_atoms_.clear();
  unresolved_ = 0;
  const auto mark = [&](std::int32_t atom) { mark_antecedent(atom); };
  if (conflict_ == kNoReason) {
    for (const std::int32_t atom : conflicting_atoms_) mark_antecedent(atom);
  } else {
    for_each_antecedent(conflict_, kUndefined, mark);
  }
  std::size_t at = trail_.size();
  const auto last_seen = [&] {
    while (seen_[trail_[--at] / 2] == 0) {
    }
    return trail_[at] / 2;
  };
  std::int32_t latest = last_seen();
  for (; --unresolved_ > 0; latest = last_seen()) {
    for_each_antecedent(reason_[latest], latest, mark);
  }
  learnt_[0] = false_literal(latest);
  minimise();
  for (const std::int32_t atom : seen_atoms_) seen_[atom] = 0;
  std::int32_t level = 0;
  for (std::size_t i = 1; i < learnt_.size(); ++i) {
    if (level_[learnt_[i] / 2] <= level) continue;
    level = level_[learnt_[i] / 2];
    std::swap(learnt_[1], learnt_[i]);
  }
  activity_increment_ /= kActivityDecay;
  if (activity_increment_ > kLargestIncrement) {
    for (double& activity : activity_) activity /= activity_increment_;
    activity_increment_ = 1;
  }
  return static_cast<std::size_t>(level);
}

/// Removes literals whose antecedents are all in the clause or facts.
void CdclSolver::minimise() {
  const auto is_redundant = [&](Literal literal) {
    const Reason reason = reason_[literal / 2];
    bool all = reason != kNoReason;
    if (all) {
      for_each_antecedent(reason, literal / 2, [&](std::int32_t atom) {
        ++work_;
        all = all && (seen_[atom] != 0 || level_[atom] == 0);
      });
    }
    return all;
  };
  learnt_.erase(std::remove_if(learnt_.begin() + 1, learnt_.end(), is_redundant), learnt_.end());
}

/// Undoes all assignments above the level.
void CdclSolver::backtrack(std::size_t level) {
  if (level_start_.size() <= level) return;
  for (; trail_.size() > level_start_[level]; trail_.pop_back()) {
    const Literal literal = trail_.back();
    const std::int32_t variable = variable_of(literal);
    truth_[literal / 2] = Truth::unassigned;
    if (!is_decision_variable(variable)) continue;
    if (is_positive(literal)) {
      value_[variable] = kUndefined;
    } else {
      ++domain_size_[variable];
    }
  }
  level_start_.resize(level);
  propagated_ = trail_.size();
}

/// The saved value where it is in the domain, otherwise a random one of the domain.
std::int32_t CdclSolver::select_value(std::int32_t variable, SplitMix& random) const {
  const auto is_open = [&](std::int32_t value) {
    return truth_[literal(variable, value) / 2] == Truth::unassigned;
  };
  const std::int32_t saved = saved_value_[variable];
  if (saved != kUndefined && is_open(saved)) return saved;
  std::int32_t skipped = random.below(domain_size_[variable]), value = 0;
  while (!is_open(value) || skipped-- > 0) ++value;
  return value;
}

/// Opens a level with a decision; false where every decision variable has a value.
bool CdclSolver::decide(SplitMix& random) {
  double most = 0;
  std::int32_t next = kUndefined;
  for (std::int32_t v = 0; is_decision_variable(v); ++v) {
    if (value_[v] != kUndefined) continue;
    const double weight = weights_[v] + activity_[v] / activity_increment_;
    if (weight <= most * domain_size_[v]) continue;
    most = weight / domain_size_[v];
    next = v;
  }
  work_ += static_cast<std::int64_t>(weights_.size()) / kVariablesPerWork;
  if (next == kUndefined) return false;
  const std::int32_t value = select_value(next, random);
  level_start_.push_back(trail_.size());
  enqueue(literal(next, value), kNoReason);
  return true;
}

std::optional<std::vector<std::int32_t>> CdclSolver::solve(std::int64_t work, SplitMix& random) {
  std::int64_t conflicts_left = kRestartUnit, intervals = 1;
  for (std::int64_t before = work_; feasible_ && work_ < work; before = work_) {
    const Status status = propagate();
    poll_point(1 + (work_ - before) / 16);
    if (status == Status::conflict) {
      if (level_start_.empty()) return std::nullopt;
      backtrack(analyse());
      enqueue(learnt_[0], store_clause(learnt_));
      --conflicts_left;
    } else if (conflicts_left <= 0) {
      conflicts_left = kRestartUnit * luby(++intervals);
      backtrack(0);
    } else if (!decide(random)) {
      return value_;
    }
  }
  return std::nullopt;
}

}  // namespace scalemodel
