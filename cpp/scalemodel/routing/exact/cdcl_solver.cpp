#include "scalemodel/routing/exact/cdcl_solver.hpp"

#include <algorithm>
#include <utility>

namespace scalemodel {
namespace {

constexpr std::int32_t kNone = -1;                          ///< value, statement
constexpr std::int32_t kNoReason = -1, kFirstLiteral = -2;  ///< reasons that are no clause
constexpr std::int32_t kEnd = -1;                           ///< of a clause
constexpr double kDecay = 0.95;  ///< of activity, from conflict to conflict
constexpr double kLarge = 1e100;
constexpr std::int64_t kPassedBy = 4;  ///< variables passed by in the time of a look at a statement
constexpr std::int64_t kRun = 50;      ///< conflicts of the shortest run

/// 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, ... from `index` 1 on.
std::int64_t luby(std::int64_t index) {
  std::int64_t length = 1;
  while (2 * length - 1 < index) length *= 2;
  return 2 * length - 1 == index ? length : luby(index - length + 1);
}

}  // namespace

ClauseSearch::ClauseSearch(std::vector<double> weights, std::int32_t helpers, std::int32_t values)
    : values_(values),
      weights_(std::move(weights)),
      truth_(
          (weights_.size() + static_cast<std::size_t>(helpers)) * static_cast<std::size_t>(values),
          Truth::open),
      depth_(truth_.size(), 0),
      reason_(truth_.size(), kNoReason),
      value_(weights_.size(), kNone),
      last_value_(weights_.size(), kNone),
      choices_(weights_.size(), values),
      watchers_(2 * truth_.size()),
      broken_(kNoReason),
      blamed_(truth_.size(), 0),
      activity_(weights_.size(), 0.0) {}

/// The first two literals of a clause are watched. One of a single literal is a fact.
ClauseSearch::Reason ClauseSearch::add(std::span<const Literal> clause) {
  if (clause.size() < 2) {
    if (clause.empty()) possible_ = false;
    for (const Literal only : clause) make(only, kNoReason);
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

/// Nothing where it is known already. Precondition: its opposite does not hold.
void ClauseSearch::make(Literal literal, Reason reason) {
  const std::int32_t of = literal / 2, variable = of / values_;
  if (truth_[of] != Truth::open) return;
  const bool yes = literal % 2 == 0;
  truth_[of] = yes ? Truth::yes : Truth::no;
  depth_[of] = static_cast<std::int32_t>(decisions_.size());
  reason_[of] = reason;
  trail_.push_back(literal);
  if (!needs_value(variable)) return;
  if (yes) {
    value_[variable] = last_value_[variable] = of % values_;
  } else {
    --choices_[variable];
  }
}

/// No other value for the variable, and what the problem adds.
ClauseSearch::Status ClauseSearch::follow_directly(Literal literal) {
  implied_.clear();
  if (literal % 2 == 0) {
    const std::int32_t own = literal / 2, first = own - own % values_;
    for (std::int32_t other = first; other < first + values_; ++other) {
      if (other != own) implied_.push_back(2 * other + 1);
    }
  }
  follow_from(literal, implied_);
  work_ += static_cast<std::int64_t>(implied_.size());
  for (const Literal implied : implied_) {
    if (fails(implied)) {
      broken_ = kNoReason;
      exclude_each_other_ = {implied / 2, literal / 2};
      return Status::contradiction;
    }
    make(implied, kFirstLiteral - literal);
  }
  return Status::consistent;
}

/// Clauses that watch what has just failed watch something else, or leave their last literal.
ClauseSearch::Status ClauseSearch::follow_clauses(Literal failed) {
  std::vector<Reason>& watchers = watchers_[failed];
  work_ += static_cast<std::int64_t>(watchers.size());
  Status status = Status::consistent;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < watchers.size(); ++i) {
    const Reason number = watchers[i];
    Literal* const watched = &literals_[first_[number]];
    if (watched[0] == failed) std::swap(watched[0], watched[1]);
    if (status == Status::contradiction || holds(watched[0])) {
      watchers[kept++] = number;
      continue;
    }
    Literal* next = watched + 2;
    while (*next != kEnd && fails(*next)) ++next;
    if (*next != kEnd) {
      std::swap(watched[1], *next);
      watchers_[watched[1]].push_back(number);
      continue;
    }
    watchers[kept++] = number;
    if (fails(watched[0])) {
      broken_ = number;
      status = Status::contradiction;
    } else {
      make(watched[0], number);
    }
  }
  watchers.resize(kept);
  return status;
}

/// All that follows from what holds.
ClauseSearch::Status ClauseSearch::follow() {
  Status status = Status::consistent;
  while (status == Status::consistent && followed_ < trail_.size()) {
    const Literal literal = trail_[followed_++];
    status = follow_directly(literal);
    if (status == Status::consistent) status = follow_clauses(literal ^ 1);
  }
  return status;
}

template <class Visit>
void ClauseSearch::because(Reason reason, std::int32_t of, Visit visit) const {
  if (reason <= kFirstLiteral) return visit((kFirstLiteral - reason) / 2);
  for (const Literal* literal = &literals_[first_[reason]]; *literal != kEnd; ++literal) {
    if (*literal / 2 != of) visit(*literal / 2);
  }
}

void ClauseSearch::blame(std::int32_t cause) {
  ++work_;
  if (blamed_[cause] != 0 || depth_[cause] == 0) return;
  blamed_[cause] = 1;
  all_blamed_.push_back(cause);
  if (needs_value(cause / values_)) activity_[cause / values_] += bump_;
  if (depth_[cause] == static_cast<std::int32_t>(decisions_.size())) {
    ++blamed_now_;
  } else {
    learnt_.push_back(opposite_of(cause));
  }
}

/// The clause that the contradiction proves: what the last decision led to by one statement, which
/// comes first, and what was blamed of before. Returns the decisions after which the clause decides
/// that statement.
std::size_t ClauseSearch::learn() {
  learnt_.assign(1, kEnd);
  all_blamed_.clear();
  blamed_now_ = 0;
  const auto blame_it = [&](std::int32_t cause) { blame(cause); };
  if (broken_ == kNoReason) {
    for (const std::int32_t cause : exclude_each_other_) blame(cause);
  } else {
    because(broken_, kNone, blame_it);
  }
  std::size_t at = trail_.size();
  const auto last_blamed = [&] {
    while (blamed_[trail_[--at] / 2] == 0) {
    }
    return trail_[at] / 2;
  };
  std::int32_t latest = last_blamed();
  for (; --blamed_now_ > 0; latest = last_blamed()) because(reason_[latest], latest, blame_it);
  learnt_[0] = opposite_of(latest);
  shorten();
  for (const std::int32_t cause : all_blamed_) blamed_[cause] = 0;
  std::int32_t back = 0;
  for (std::size_t i = 1; i < learnt_.size(); ++i) {
    if (depth_[learnt_[i] / 2] <= back) continue;
    back = depth_[learnt_[i] / 2];
    std::swap(learnt_[1], learnt_[i]);
  }
  bump_ /= kDecay;
  if (bump_ > kLarge) {
    for (double& activity : activity_) activity /= bump_;
    bump_ = 1;
  }
  return static_cast<std::size_t>(back);
}

/// Leaves out of the clause what follows from the rest of it.
void ClauseSearch::shorten() {
  const auto follows = [&](Literal literal) {
    const Reason reason = reason_[literal / 2];
    bool all = reason != kNoReason;
    if (all) {
      because(reason, literal / 2, [&](std::int32_t cause) {
        ++work_;
        all = all && (blamed_[cause] != 0 || depth_[cause] == 0);
      });
    }
    return all;
  };
  learnt_.erase(std::remove_if(learnt_.begin() + 1, learnt_.end(), follows), learnt_.end());
}

void ClauseSearch::undo(std::size_t decisions) {
  if (decisions_.size() <= decisions) return;
  for (; trail_.size() > decisions_[decisions]; trail_.pop_back()) {
    const Literal literal = trail_.back();
    const std::int32_t variable = literal / 2 / values_;
    truth_[literal / 2] = Truth::open;
    if (!needs_value(variable)) continue;
    if (literal % 2 == 0) {
      value_[variable] = kNone;
    } else {
      ++choices_[variable];
    }
  }
  decisions_.resize(decisions);
  followed_ = trail_.size();
}

/// The value that the variable had before, otherwise any.
std::int32_t ClauseSearch::value_for(std::int32_t variable, SplitMix& random) const {
  const std::int32_t last = last_value_[variable];
  if (last != kNone && truth_[statement(variable, last)] == Truth::open) return last;
  std::int32_t open = random.below(choices_[variable]), value = 0;
  while (truth_[statement(variable, value)] != Truth::open || open-- > 0) ++value;
  return value;
}

/// Whether there was anything left to decide.
bool ClauseSearch::decide(SplitMix& random) {
  double most = 0;
  std::int32_t next = kNone;
  for (std::int32_t v = 0; needs_value(v); ++v) {
    if (value_[v] != kNone) continue;
    const double weight = weights_[v] + activity_[v] / bump_;
    if (weight <= most * choices_[v]) continue;
    most = weight / choices_[v];
    next = v;
  }
  work_ += static_cast<std::int64_t>(weights_.size()) / kPassedBy;
  if (next == kNone) return false;
  const std::int32_t value = value_for(next, random);
  decisions_.push_back(trail_.size());
  make(2 * statement(next, value), kNoReason);
  return true;
}

std::optional<std::vector<std::int32_t>> ClauseSearch::solve(std::int64_t work, SplitMix& random) {
  std::int64_t left_of_run = kRun, runs = 1;
  while (possible_ && work_ < work) {
    if (follow() == Status::contradiction) {
      if (decisions_.empty()) return std::nullopt;
      undo(learn());
      make(learnt_[0], add(learnt_));
      --left_of_run;
    } else if (left_of_run <= 0) {
      left_of_run = kRun * luby(++runs);
      undo(0);
    } else if (!decide(random)) {
      return value_;
    }
  }
  return std::nullopt;
}

}  // namespace scalemodel
