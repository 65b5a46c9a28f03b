#include "scalemodel/routing/set_colouring.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace scalemodel {
namespace {

constexpr double kRounding = 1e-9;
constexpr std::int32_t kNowhere = -1;
constexpr std::int32_t kClosed = 1 << 20;  ///< rows: more than any fabric has
/// Moves that a plane left stays tabu, the first times a random number; all times a factor that
/// changes from period to period: graphs of many and of few planes want different ones.
constexpr double kTenure = 20, kTenurePerConflict = 1.5, kLeastFactor = 0.3;
constexpr std::int64_t kPeriod = 4000;  ///< moves
/// In looks at a plane of a set: what a move costs beside them; sets that are passed by in one.
constexpr std::int64_t kPerMove = 50, kListed = 4;

}  // namespace

SetColouring::SetColouring(std::span<const std::vector<RowLoad>> sets, std::span<const double> room,
                           std::int32_t planes)
    : sets_(sets),
      planes_(planes),
      edges_(sets.size()),
      plane_(sets.size(), kNowhere),
      own_(sets.size(), 0),
      overfull_(sets.size() * static_cast<std::size_t>(planes), 0),
      tabu_(overfull_.size(), 0) {
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    for (std::int32_t plane = 0; plane < planes; ++plane) {
      const bool open = std::ranges::all_of(sets[set], [&](const RowLoad& row) {
        return row.load <= room[row.row * planes + plane] * (1 + kRounding);
      });
      if (!open) overfull_[at(set, plane)] = kClosed;
    }
  }
  join(room);
}

/// Edges between sets that are too much for a row together.
void SetColouring::join(std::span<const double> room) {
  struct User {
    std::int32_t set;
    double load;
  };
  std::vector<std::vector<User>> users(room.size() / static_cast<std::size_t>(planes_));
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    for (const auto& [row, load] : sets_[set]) users[row].push_back({set, load});
  }
  std::vector<std::int32_t> rows(sets_.size(), 0);
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    for (const auto& [row, load] : sets_[set]) {
      const double most =
          std::ranges::max(room.subspan(static_cast<std::size_t>(row) * planes_, planes_));
      for (const User& user : users[row]) {
        if (user.set != set && load + user.load > most * (1 + kRounding)) ++rows[user.set];
      }
    }
    for (std::int32_t other = 0; other < static_cast<std::int32_t>(sets_.size()); ++other) {
      if (rows[other] > 0) edges_[set].push_back({other, rows[other]});
      rows[other] = 0;
    }
  }
}

void SetColouring::put(std::int32_t set, std::int32_t plane) {
  plane_[set] = plane;
  own_[set] = overfull_[at(set, plane)];
  conflicts_ += own_[set];
  std::int32_t* overfull = &overfull_[at(0, plane)];
  for (const Edge& edge : edges_[set]) {
    overfull[edge.set] += edge.rows;
    own_[edge.set] += plane_[edge.set] == plane ? edge.rows : 0;
  }
}

void SetColouring::take(std::int32_t set) {
  const std::int32_t plane = plane_[set];
  conflicts_ -= own_[set];
  std::int32_t* overfull = &overfull_[at(0, plane)];
  for (const Edge& edge : edges_[set]) {
    overfull[edge.set] -= edge.rows;
    own_[edge.set] -= plane_[edge.set] == plane ? edge.rows : 0;
  }
}

/// Largest set first; whether each found an open plane.
bool SetColouring::start() {
  std::vector<std::int32_t> order(sets_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::int32_t set) { return sets_[set].size(); });
  return std::ranges::all_of(order, [&](std::int32_t set) {
    std::int32_t best = 0;
    for (std::int32_t plane = 1; plane < planes_; ++plane) {
      if (overfull_[at(set, plane)] < overfull_[at(set, best)]) best = plane;
    }
    put(set, best);
    return own_[set] < kClosed;
  });
}

void SetColouring::list_conflicts() {
  in_conflict_.clear();
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(own_.size()); ++set) {
    if (own_[set] > 0) in_conflict_.push_back(set);
  }
}

/// Of a set in conflict; one of equals at random. Tabu only unless it beats the best so far.
SetColouring::Move SetColouring::best_move(std::int64_t now, std::int32_t least, SplitMix& random) {
  Move best{kNowhere, kNowhere, kClosed / 2};
  std::int32_t equals = 0;
  for (const std::int32_t set : in_conflict_) {
    const std::int32_t own = own_[set];
    for (std::int32_t plane = 0; plane < planes_; ++plane) {
      const std::size_t there = at(set, plane);
      const std::int32_t change = overfull_[there] - own;
      if (change > best.change || plane == plane_[set]) continue;
      if (tabu_[there] > now && conflicts_ + change >= least) continue;
      if (change < best.change) equals = 0;
      if (random.below(++equals) == 0) best = {set, plane, change};
    }
  }
  return best;
}

std::optional<std::vector<std::int32_t>> SetColouring::solve(std::int64_t work, SplitMix& random) {
  if (!start()) return std::nullopt;
  std::int32_t least = conflicts_;
  double factor = 1;
  for (std::int64_t now = 0; conflicts_ > 0; ++now) {
    list_conflicts();
    const auto listed = static_cast<std::int64_t>(in_conflict_.size());
    work -= static_cast<std::int64_t>(own_.size()) / kListed + listed * planes_ + kPerMove;
    if (work <= 0) return std::nullopt;
    const Move move = best_move(now, least, random);
    if (move.set == kNowhere) continue;
    work -= static_cast<std::int64_t>(edges_[move.set].size());
    if (now % kPeriod == kPeriod - 1) factor = kLeastFactor + random.unit();
    const double tenure =
        factor * (kTenure * random.unit() + kTenurePerConflict * static_cast<double>(listed));
    tabu_[at(move.set, plane_[move.set])] = now + 1 + static_cast<std::int64_t>(tenure);
    take(move.set);
    put(move.set, move.to);
    least = std::min(least, conflicts_);
  }
  return plane_;
}

}  // namespace scalemodel
