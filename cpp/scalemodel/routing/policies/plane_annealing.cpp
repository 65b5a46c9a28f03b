#include "scalemodel/routing/policies/plane_annealing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {
namespace {

constexpr std::int32_t kNowhere = -1;
// Shares of the least possible time.
constexpr double kWarm = 0.05, kCold = 3e-4, kFirstLimit = 1.02;
constexpr double kJoinAt = 1.0 / 32;  ///< temperature over the size of the set that joins
constexpr double kSlowStart = 0.7;    ///< exponent on the moves that have passed
constexpr double kAllJoined = 0.9;    ///< of the moves
constexpr double kHopeless = 16;      ///< temperatures: accepted once in ten million times
constexpr std::int64_t kLook = 256;   ///< moves between two looks at the longest time

bool accepts(double worse, double temperature, SplitMix& random) {
  if (worse <= 0) return true;
  return worse < kHopeless * temperature && random.unit() < std::exp(-worse / temperature);
}

}  // namespace

PlaneAnnealing::PlaneAnnealing(std::span<const std::vector<RowLoad>> sets,
                               std::vector<double> per_byte, std::vector<char> allowed,
                               std::int32_t planes)
    : planes_(planes),
      largest_(sets.size(), 0.0),
      order_(sets.size()),
      of_row_(per_byte.size() / static_cast<std::size_t>(planes)),
      per_byte_(std::move(per_byte)),
      load_(per_byte_.size(), 0.0),
      net_(of_row_.size(), 0.0),
      allowed_(std::move(allowed)),
      plane_(sets.size(), kNowhere),
      least_(kInfinity) {
  for (std::size_t set = 0; set < sets.size(); ++set) {
    for (const auto& [row, bytes] : sets[set]) {
      const std::int32_t first_cell = row * planes;
      const auto shares = std::span(per_byte_).subspan(first_cell, planes);
      largest_[set] = std::max(largest_[set], bytes * *std::ranges::min_element(shares));
      entries_.push_back({row, first_cell, bytes});
    }
    first_.push_back(static_cast<std::int32_t>(entries_.size()));
  }
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, std::ranges::greater{},
                           [&](std::int32_t set) { return largest_[set]; });
}

double PlaneAnnealing::excess(std::int32_t cell, double bytes) const {
  const double over = load_[cell] + bytes * per_byte_[cell] - limit_;
  return 0.5 * (over + std::abs(over));
}

double PlaneAnnealing::change_between(std::int32_t first_cell, std::int32_t from, std::int32_t to,
                                      double bytes) const {
  const std::int32_t a = first_cell + from, b = first_cell + to;
  return excess(a, -bytes) - excess(a, 0) + excess(b, bytes) - excess(b, 0);
}

double PlaneAnnealing::change_of_move(std::int32_t set, std::int32_t to) const {
  double change = 0;
  for (const auto& [row, cell, bytes] : entries(set)) {
    change += change_between(cell, plane_[set], to, bytes);
  }
  return change;
}

double PlaneAnnealing::change_of_exchange(std::int32_t set, std::int32_t other) {
  for (const Entry& entry : entries(set)) net_[entry.row] = entry.bytes;
  for (const Entry& entry : entries(other)) net_[entry.row] -= entry.bytes;
  double change = 0;
  for (const std::int32_t s : {set, other}) {
    for (const Entry& entry : entries(s)) {
      if (net_[entry.row] == 0.0) continue;  // of both, and counted
      change += change_between(entry.first_cell, plane_[set], plane_[other], net_[entry.row]);
      net_[entry.row] = 0;
    }
  }
  return change;
}

void PlaneAnnealing::move(std::int32_t set, std::int32_t to) {
  for (const auto& [row, cell, bytes] : entries(set)) {
    const std::int32_t a = cell + plane_[set], b = cell + to;
    load_[a] -= bytes * per_byte_[a];
    load_[b] += bytes * per_byte_[b];
  }
  plane_[set] = to;
}

/// On the plane where it adds the least excess, of equal ones where it meets least.
void PlaneAnnealing::join(std::int32_t set) {
  double least_added = kInfinity, least_met = 0;
  for (std::int32_t plane = 0; plane < planes_; ++plane) {
    if (!may_use(set, plane)) continue;
    double added = 0, met = 0;
    for (const auto& [row, cell, bytes] : entries(set)) {
      added += excess(cell + plane, bytes) - excess(cell + plane, 0);
      met += load_[cell + plane];
    }
    if (added > least_added || (added == least_added && met >= least_met)) continue;
    least_added = added;
    least_met = met;
    plane_[set] = plane;
  }
  for (const auto& [row, cell, bytes] : entries(set)) {
    load_[cell + plane_[set]] += bytes * per_byte_[cell + plane_[set]];
    of_row_[row].push_back(set);
  }
}

void PlaneAnnealing::try_other_plane(std::int32_t set, double temperature, SplitMix& random) {
  std::int32_t to = random.below(planes_ - 1);
  to += to >= plane_[set] ? 1 : 0;
  if (may_use(set, to) && accepts(change_of_move(set, to), temperature, random)) move(set, to);
}

void PlaneAnnealing::try_exchange(std::int32_t set, double temperature, SplitMix& random) {
  const auto own = entries(set);
  const auto& met = of_row_[own[random.below(static_cast<std::int32_t>(own.size()))].row];
  const std::int32_t other = met[random.below(static_cast<std::int32_t>(met.size()))];
  const std::int32_t from = plane_[set], to = plane_[other];
  if (from == to || !may_use(set, to) || !may_use(other, from)) return;
  if (!accepts(change_of_exchange(set, other), temperature, random)) return;
  move(set, to);
  move(other, from);
}

/// Keeps the best, and lowers the limit where all links keep it.
void PlaneAnnealing::look() {
  const double longest = *std::ranges::max_element(load_);
  if (longest < least_) {
    least_ = longest;
    best_ = plane_;
  }
  if (longest <= limit_) limit_ = 1 + (longest - 1) / 2;
}

void PlaneAnnealing::run(std::int64_t moves, SplitMix& random) {
  if (order_.empty()) return;
  const double warm = std::min(kWarm, largest_[order_.front()] * kJoinAt);
  const double cold = std::min(kCold, warm / 10);
  limit_ = kFirstLimit;
  double temperature = warm;
  for (std::int64_t i = 0; i < moves && least_ > 1 + kRounding; ++i) {
    if (i % kLook == 0) {
      const double passed = static_cast<double>(i) / static_cast<double>(moves);
      temperature = warm * std::pow(cold / warm, std::pow(passed, kSlowStart));
      while (joined_ < order_.size() &&
             (passed > kAllJoined || largest_[order_[joined_]] * kJoinAt >= temperature)) {
        join(order_[joined_++]);
      }
      if (joined_ == order_.size()) look();
    }
    const std::int32_t set = order_[random.below(static_cast<std::int32_t>(joined_))];
    if (planes_ > 1 && (random.next() & 1U) != 0) {
      try_other_plane(set, temperature, random);
    } else {
      try_exchange(set, temperature, random);
    }
  }
  while (joined_ < order_.size()) join(order_[joined_++]);
  look();
}

}  // namespace scalemodel
