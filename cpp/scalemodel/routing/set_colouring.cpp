#include "scalemodel/routing/set_colouring.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace scalemodel {
namespace {

constexpr double kRounding = 1e-9;
constexpr std::int32_t kNowhere = -1;
constexpr std::int32_t kNoReason = -1, kFirstStatement = -2;  ///< reasons that are no clause
constexpr std::int32_t kEnd = -1;                             ///< of a clause
constexpr double kDecay = 0.95;  ///< of activity, from conflict to conflict
constexpr double kLarge = 1e100;
constexpr std::int64_t kPassedBy = 4;  ///< sets passed by in the time of a look at a statement
constexpr std::int64_t kRun = 50;      ///< conflicts of the shortest run

/// 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, ... from `index` 1 on.
std::int64_t luby(std::int64_t index) {
  std::int64_t length = 1;
  while (2 * length - 1 < index) length *= 2;
  return 2 * length - 1 == index ? length : luby(index - length + 1);
}

}  // namespace

SetColouring::SetColouring(std::span<const std::vector<RowLoad>> sets, std::span<const double> room,
                           std::int32_t planes)
    : sets_(sets),
      planes_(planes),
      edges_(sets.size()),
      truth_(sets.size() * static_cast<std::size_t>(planes), Truth::open),
      depth_(truth_.size(), 0),
      reason_(truth_.size(), kNoReason),
      plane_(sets.size(), kNowhere),
      last_plane_(sets.size(), kNowhere),
      choices_(sets.size(), planes),
      watchers_(2 * truth_.size()),
      broken_(kNoReason),
      blamed_(truth_.size(), 0),
      activity_(sets.size(), 0.0) {
  std::vector<RowSets> rows(room.size() / static_cast<std::size_t>(planes));
  for (std::size_t set = 0; set < sets.size(); ++set) {
    for (const auto& [row, load] : sets[set]) {
      rows[row].sets.push_back(static_cast<std::int32_t>(set));
    }
  }
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(rows.size()); ++row) {
    std::vector<double> loads;
    for (const std::int32_t set : rows[row].sets) loads.push_back(load_on(set, row));
    std::ranges::sort(loads);
    const double most =
        std::ranges::max(room.subspan(static_cast<std::size_t>(row) * planes, planes));
    rows[row].exclusive = loads.size() < 2 || loads[0] + loads[1] > most * (1 + kRounding);
  }
  join(rows, room);
  state(rows, room);
}

double SetColouring::load_on(std::int32_t set, std::int32_t row) const {
  return std::ranges::find(sets_[set], row, &RowLoad::row)->load;
}

/// Edges between sets that are too much for a row together.
void SetColouring::join(std::span<const RowSets> rows, std::span<const double> room) {
  std::vector<std::int32_t> joined(sets_.size(), kNowhere);
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    joined[set] = set;
    for (const auto& [row, load] : sets_[set]) {
      const double most =
          std::ranges::max(room.subspan(static_cast<std::size_t>(row) * planes_, planes_));
      for (const std::int32_t other : rows[row].sets) {
        if (joined[other] == set) continue;
        if (!rows[row].exclusive && load + load_on(other, row) <= most * (1 + kRounding)) continue;
        joined[other] = set;
        edges_[set].push_back(other);
      }
    }
  }
}

/// Which planes are open to a set, that it takes one, and that rows take all.
void SetColouring::state(std::span<const RowSets> rows, std::span<const double> room) {
  std::vector<Literal> clause;
  bool alike = true;
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    clause.clear();
    for (std::int32_t plane = 0; plane < planes_; ++plane) {
      const bool open = std::ranges::all_of(sets_[set], [&](const RowLoad& row) {
        return row.load <= room[row.row * planes_ + plane] * (1 + kRounding);
      });
      alike = alike && open;
      if (open) {
        clause.push_back(2 * statement(set, plane));
      } else {
        make(2 * statement(set, plane) + 1, kNoReason);
      }
    }
    require(clause);
  }
  for (const RowSets& row : rows) {
    if (!row.exclusive) continue;
    std::vector<std::vector<Literal>> users(planes_);
    for (const std::int32_t set : row.sets) {
      for (std::int32_t plane = 0; plane < planes_; ++plane) {
        const std::int32_t there = statement(set, plane);
        if (truth_[there] != Truth::no) users[plane].push_back(2 * there);
      }
    }
    std::erase_if(users, [](const auto& of_plane) { return of_plane.empty(); });
    possible_ = possible_ && row.sets.size() <= users.size();
    if (row.sets.size() != users.size()) continue;
    for (const auto& of_plane : users) require(of_plane);
  }
  if (alike && possible_) spread(rows);
}

/// Where all planes are alike: the sets of a row that share none take the first ones.
void SetColouring::spread(std::span<const RowSets> rows) {
  const auto rows_held = [&](const RowSets& row) {
    if (!row.exclusive) return std::size_t{0};
    return std::accumulate(
        row.sets.begin(), row.sets.end(), std::size_t{0},
        [&](std::size_t sum, std::int32_t set) { return sum + sets_[set].size(); });
  };
  const auto tightest = std::ranges::max_element(rows, {}, rows_held);
  if (!tightest->exclusive) return;
  std::int32_t plane = 0;
  for (const std::int32_t set : tightest->sets) make(2 * statement(set, plane++), kNoReason);
}

/// Adds a clause; the first two of its literals are watched. One of a single literal is a fact.
SetColouring::Reason SetColouring::require(std::span<const Literal> clause) {
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
void SetColouring::make(Literal literal, Reason reason) {
  const std::int32_t of = literal / 2, set = of / planes_;
  if (truth_[of] != Truth::open) return;
  const bool yes = literal % 2 == 0;
  truth_[of] = yes ? Truth::yes : Truth::no;
  depth_[of] = static_cast<std::int32_t>(decisions_.size());
  reason_[of] = reason;
  trail_.push_back(literal);
  if (yes) {
    plane_[set] = last_plane_[set] = of % planes_;
  } else {
    --choices_[set];
  }
}

SetColouring::Status SetColouring::exclude(std::int32_t excluded, std::int32_t by) {
  if (truth_[excluded] == Truth::yes) {
    broken_ = kNoReason;
    exclude_each_other_ = {excluded, by};
    return Status::contradiction;
  }
  make(2 * excluded + 1, kFirstStatement - by);
  return Status::consistent;
}

/// No other plane for the set, and this one for no neighbour.
SetColouring::Status SetColouring::follow_plane(std::int32_t chosen) {
  const std::int32_t set = chosen / planes_, plane = chosen % planes_;
  work_ += planes_ + static_cast<std::int64_t>(edges_[set].size());
  for (std::int32_t other = 0; other < planes_; ++other) {
    if (other == plane) continue;
    if (exclude(statement(set, other), chosen) == Status::contradiction) {
      return Status::contradiction;
    }
  }
  for (const std::int32_t neighbour : edges_[set]) {
    if (exclude(statement(neighbour, plane), chosen) == Status::contradiction) {
      return Status::contradiction;
    }
  }
  return Status::consistent;
}

/// Clauses that watch what has just failed watch something else, or leave their last literal.
SetColouring::Status SetColouring::follow_clauses(Literal failed) {
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
SetColouring::Status SetColouring::follow() {
  Status status = Status::consistent;
  while (status == Status::consistent && followed_ < trail_.size()) {
    const Literal literal = trail_[followed_++];
    if (literal % 2 == 0) status = follow_plane(literal / 2);
    if (status == Status::consistent) status = follow_clauses(literal ^ 1);
  }
  return status;
}

template <class Visit>
void SetColouring::because(Reason reason, std::int32_t of, Visit visit) const {
  if (reason <= kFirstStatement) return visit(kFirstStatement - reason);
  for (const Literal* literal = &literals_[first_[reason]]; *literal != kEnd; ++literal) {
    if (*literal / 2 != of) visit(*literal / 2);
  }
}

void SetColouring::blame(std::int32_t cause) {
  ++work_;
  if (blamed_[cause] != 0 || depth_[cause] == 0) return;
  blamed_[cause] = 1;
  all_blamed_.push_back(cause);
  activity_[cause / planes_] += bump_;
  if (depth_[cause] == static_cast<std::int32_t>(decisions_.size())) {
    ++blamed_now_;
  } else {
    learnt_.push_back(opposite_of(cause));
  }
}

/// The clause that the contradiction proves: what the last decision led to by one statement, which
/// comes first, and what was blamed of before. Returns the decisions after which the clause decides
/// that statement.
std::size_t SetColouring::learn() {
  learnt_.assign(1, kEnd);
  all_blamed_.clear();
  blamed_now_ = 0;
  const auto blame_it = [&](std::int32_t cause) { blame(cause); };
  if (broken_ == kNoReason) {
    for (const std::int32_t cause : exclude_each_other_) blame(cause);
  } else {
    because(broken_, kNowhere, blame_it);
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
void SetColouring::shorten() {
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

void SetColouring::undo(std::size_t decisions) {
  if (decisions_.size() <= decisions) return;
  for (; trail_.size() > decisions_[decisions]; trail_.pop_back()) {
    const Literal literal = trail_.back();
    truth_[literal / 2] = Truth::open;
    if (literal % 2 == 0) {
      plane_[literal / 2 / planes_] = kNowhere;
    } else {
      ++choices_[literal / 2 / planes_];
    }
  }
  decisions_.resize(decisions);
  followed_ = trail_.size();
}

/// The plane that the set had before, otherwise any.
std::int32_t SetColouring::plane_for(std::int32_t set, SplitMix& random) const {
  const std::int32_t last = last_plane_[set];
  if (last != kNowhere && truth_[statement(set, last)] == Truth::open) return last;
  std::int32_t open = random.below(choices_[set]), plane = 0;
  while (truth_[statement(set, plane)] != Truth::open || open-- > 0) ++plane;
  return plane;
}

/// Whether there was anything left to decide.
bool SetColouring::decide(SplitMix& random) {
  double most = 0;
  std::int32_t next = kNowhere;
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    if (plane_[set] != kNowhere) continue;
    const double weight = 1 + static_cast<double>(sets_[set].size()) + activity_[set] / bump_;
    if (weight <= most * choices_[set]) continue;
    most = weight / choices_[set];
    next = set;
  }
  work_ += static_cast<std::int64_t>(sets_.size()) / kPassedBy;
  if (next == kNowhere) return false;
  const std::int32_t plane = plane_for(next, random);
  decisions_.push_back(trail_.size());
  make(2 * statement(next, plane), kNoReason);
  return true;
}

std::optional<std::vector<std::int32_t>> SetColouring::solve(std::int64_t work, SplitMix& random) {
  std::int64_t left_of_run = kRun, runs = 1;
  while (possible_ && work_ < work) {
    if (follow() == Status::contradiction) {
      if (decisions_.empty()) return std::nullopt;
      undo(learn());
      make(learnt_[0], require(learnt_));
      --left_of_run;
    } else if (left_of_run <= 0) {
      left_of_run = kRun * luby(++runs);
      undo(0);
    } else if (!decide(random)) {
      return plane_;
    }
  }
  return std::nullopt;
}

}  // namespace scalemodel
