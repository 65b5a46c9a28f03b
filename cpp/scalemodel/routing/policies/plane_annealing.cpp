#include "scalemodel/routing/policies/plane_annealing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {
namespace {

constexpr std::int32_t kUnassigned = -1;
/// Temperatures and the first limit, as shares of the least possible time.
constexpr double kWarm = 0.05, kCold = 3e-4, kFirstLimit = 1.02;
constexpr double kInsertionRatio = 1.0 / 32;  ///< temperature over the size of the inserted set
constexpr double kCoolingExponent = 0.7;      ///< of the share of moves done
constexpr double kInsertionEnd = 0.9;         ///< share of moves after which all sets are inserted
constexpr double kCutoff = 16;  ///< temperatures; larger increases pass once in ten million trials
constexpr std::int64_t kCheckInterval = 256;  ///< moves between checks of the longest time

bool accepts(double increase, double temperature, SplitMix& random) {
  if (increase <= 0) return true;
  return increase < kCutoff * temperature && random.unit() < std::exp(-increase / temperature);
}

}  // namespace

PlaneAnnealing::PlaneAnnealing(std::span<const std::vector<SideLoad>> sets,
                               std::vector<double> per_byte, std::vector<char> allowed,
                               std::int32_t planes)
    : planes_(planes),
      largest_(sets.size(), 0.0),
      order_(sets.size()),
      on_side_(per_byte.size() / static_cast<std::size_t>(planes)),
      per_byte_(std::move(per_byte)),
      load_(per_byte_.size(), 0.0),
      net_(on_side_.size(), 0.0),
      allowed_(std::move(allowed)),
      plane_(sets.size(), kUnassigned),
      least_(kInfinity) {
  for (std::size_t set = 0; set < sets.size(); ++set) {
    for (const auto& [side, bytes] : sets[set]) {
      const std::int32_t first_cell = side * planes;
      const auto shares = std::span(per_byte_).subspan(first_cell, planes);
      largest_[set] = std::max(largest_[set], bytes * *std::ranges::min_element(shares));
      entries_.push_back({side, first_cell, bytes});
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
  for (const auto& [side, cell, bytes] : entries(set)) {
    change += change_between(cell, plane_[set], to, bytes);
  }
  return change;
}

double PlaneAnnealing::change_of_exchange(std::int32_t set, std::int32_t other) {
  for (const Entry& entry : entries(set)) net_[entry.side] = entry.bytes;
  for (const Entry& entry : entries(other)) net_[entry.side] -= entry.bytes;
  double change = 0;
  for (const std::int32_t s : {set, other}) {
    for (const Entry& entry : entries(s)) {
      if (net_[entry.side] == 0.0) continue;  // an equal exchange, or a side counted before
      change += change_between(entry.first_cell, plane_[set], plane_[other], net_[entry.side]);
      net_[entry.side] = 0;
    }
  }
  return change;
}

void PlaneAnnealing::move(std::int32_t set, std::int32_t to) {
  for (const auto& [side, cell, bytes] : entries(set)) {
    const std::int32_t a = cell + plane_[set], b = cell + to;
    load_[a] -= bytes * per_byte_[a];
    load_[b] += bytes * per_byte_[b];
  }
  plane_[set] = to;
}

/// Inserts a set on the plane where it adds the least excess; a tie goes to the plane with the
/// least load.
void PlaneAnnealing::insert(std::int32_t set) {
  double least_added = kInfinity, least_load = 0;
  poll_point(planes_);
  for (std::int32_t plane = 0; plane < planes_; ++plane) {
    if (!may_use(set, plane)) continue;
    double added = 0, load = 0;
    for (const auto& [side, cell, bytes] : entries(set)) {
      added += excess(cell + plane, bytes) - excess(cell + plane, 0);
      load += load_[cell + plane];
    }
    if (added > least_added || (added == least_added && load >= least_load)) continue;
    least_added = added;
    least_load = load;
    plane_[set] = plane;
  }
  for (const auto& [side, cell, bytes] : entries(set)) {
    load_[cell + plane_[set]] += bytes * per_byte_[cell + plane_[set]];
    on_side_[side].push_back(set);
  }
}

void PlaneAnnealing::try_other_plane(std::int32_t set, double temperature, SplitMix& random) {
  std::int32_t to = random.below(planes_ - 1);
  to += to >= plane_[set] ? 1 : 0;
  if (may_use(set, to) && accepts(change_of_move(set, to), temperature, random)) move(set, to);
}

void PlaneAnnealing::try_exchange(std::int32_t set, double temperature, SplitMix& random) {
  const auto own = entries(set);
  const auto& sharing = on_side_[own[random.below(static_cast<std::int32_t>(own.size()))].side];
  const std::int32_t other = sharing[random.below(static_cast<std::int32_t>(sharing.size()))];
  const std::int32_t from = plane_[set], to = plane_[other];
  if (from == to || !may_use(set, to) || !may_use(other, from)) return;
  if (!accepts(change_of_exchange(set, other), temperature, random)) return;
  move(set, to);
  move(other, from);
}

/// Stores the state if it is the best, and lowers the limit where all links keep it.
void PlaneAnnealing::update_best() {
  const double longest = *std::ranges::max_element(load_);
  if (longest < least_) {
    least_ = longest;
    best_ = plane_;
  }
  if (longest <= limit_) limit_ = 1 + (longest - 1) / 2;
}

void PlaneAnnealing::run(std::int64_t moves, SplitMix& random) {
  if (order_.empty()) return;
  const double warm = std::min(kWarm, largest_[order_.front()] * kInsertionRatio);
  const double cold = std::min(kCold, warm / 10);
  limit_ = kFirstLimit;
  double temperature = warm;
  for (std::int64_t i = 0; i < moves && least_ > kNearEnough; ++i) {
    if (i % kCheckInterval == 0) {
      const double progress = static_cast<double>(i) / static_cast<double>(moves);
      temperature = warm * std::pow(cold / warm, std::pow(progress, kCoolingExponent));
      while (inserted_ < order_.size() &&
             (progress > kInsertionEnd ||
              largest_[order_[inserted_]] * kInsertionRatio >= temperature)) {
        insert(order_[inserted_++]);
      }
      if (inserted_ == order_.size()) update_best();
    }
    poll_point();
    const std::int32_t set = order_[random.below(static_cast<std::int32_t>(inserted_))];
    if (planes_ > 1 && (random.next() & 1U) != 0) {
      try_other_plane(set, temperature, random);
    } else {
      try_exchange(set, temperature, random);
    }
  }
  while (inserted_ < order_.size()) insert(order_[inserted_++]);
  update_best();
}

}  // namespace scalemodel
