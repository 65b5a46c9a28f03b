#include "scalemodel/routing/exact/plane_extraction.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/exact/exact_packing.hpp"
#include "scalemodel/routing/exact/few_sizes.hpp"
#include "scalemodel/routing/exact/size_patterns.hpp"
#include "scalemodel/routing/exact/spine_assignment.hpp"
#include "scalemodel/routing/exact/subset_sums.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr int kMaxChains = 3;           ///< between two leaves in one repair
constexpr std::int32_t kRepairs = 150;  ///< of a plane; more where few planes are left
/// Planes that cannot be filled, in all, where chains are long and where they are short.
constexpr std::int32_t kFailures = 30, kFailuresOfShortChains = 4;
constexpr std::int32_t kRetries = 3;           ///< of one plane before the last one is emptied
constexpr double kTemperature = 0.8;           ///< of repairs, in smallest differences of sizes
constexpr std::int64_t kLastWork = 3'000'000;  ///< literal inspections for the last two planes
constexpr std::size_t kMaxSideHalves = 20'000, kMaxSidePackings = 4'000;  ///< listed for one side

/// Fills one plane from a pool of flows such that the others carry what is left.
class PlaneExtraction {
 public:
  PlaneExtraction(const FewSizes& few, const Numbers& pool, std::int32_t planes,
                  SizePatterns& patterns, SplitMix& random)
      : few_(few),
        planes_(planes),
        kinds_(static_cast<std::int32_t>(few.sizes.size())),
        patterns_(patterns),
        random_(random),
        load_(few.sides, 0.0),
        total_(few.sides, 0.0),
        at_(static_cast<std::size_t>(few.sides) * few.sizes.size()),
        left_(at_.size(), 0),
        taken_(few.flow.size(), 0),
        parent_(2 * few.sizes.size(), Numbers(few.sides)),
        stamp_(few.sides, 0),
        reached_(few.sides) {
    for (const std::int32_t entry : pool) {
      for (const std::int32_t side : {few.up[entry], few.down[entry]}) {
        total_[side] += few.bytes(entry);
        at_[cell(side, few.size[entry])].push_back(entry);
        ++left_[cell(side, few.size[entry])];
      }
    }
    step_ = few.sizes.front();
    for (std::size_t i = 1; i < few.sizes.size(); ++i) {
      step_ = std::min(step_, few.sizes[i] - few.sizes[i - 1]);
    }
    list_combinations();
    take_largest_first(pool);
  }

  bool run(std::int32_t repairs) {
    Numbers wrong;
    for (std::int32_t i = 0; i <= repairs; ++i) {
      wrong.clear();
      for (std::int32_t side = 0; side < few_.sides; ++side) {
        if (penalty(side, load_[side]) + packing_penalty(side) > 0) wrong.push_back(side);
      }
      if (wrong.empty()) return true;
      repair(wrong[random_.below(static_cast<std::int32_t>(wrong.size()))]);
    }
    return false;
  }
  bool is_taken(std::int32_t entry) const { return taken_[entry] != 0; }

 private:
  /// Chains that start together, one bit per size and direction, and the bytes that they add.
  struct Combination {
    std::uint32_t chains;
    double bytes;
  };
  struct Repair {
    double change = kInfinity;
    std::int32_t to = 0;
    std::uint32_t chains = 0;
  };

  std::size_t cell(std::int32_t side, std::int32_t size) const {
    return static_cast<std::size_t>(side) * few_.sizes.size() + static_cast<std::size_t>(size);
  }
  bool is_up(std::int32_t side) const { return side < few_.sides / 2; }
  /// Bytes above what the link carries, or above what the other planes can carry.
  double penalty(std::int32_t side, double load) const {
    const double rest = total_[side] - load;
    return std::max(load - few_.full, 0.0) + std::max(rest - (planes_ - 1) * few_.full, 0.0);
  }
  double packing_penalty(std::int32_t side) const {
    const std::span<const std::int32_t> count(left_.data() + cell(side, 0), few_.sizes.size());
    return patterns_.fit(count, planes_ - 1) ? 0 : step_;
  }
  /// The packing penalty once the chains start (or, for `sign` -1, end with opposite flows) here.
  double packing_penalty_after(std::int32_t side, std::uint32_t chains, int sign) {
    const auto change = [&](int by) {
      for (std::int32_t c = 0; c < 2 * kinds_; ++c) {
        if ((chains >> c & 1U) != 0) left_[cell(side, c / 2)] += c % 2 == 0 ? -by : by;
      }
    };
    change(sign);
    const double after = packing_penalty(side);
    change(-sign);
    return after;
  }

  void flip(std::int32_t entry) {
    const int sign = taken_[entry] != 0 ? -1 : 1;
    taken_[entry] = sign > 0 ? 1 : 0;
    for (const std::int32_t side : {few_.up[entry], few_.down[entry]}) {
      load_[side] += sign * few_.bytes(entry);
      left_[cell(side, few_.size[entry])] -= sign;
    }
  }

  void take_largest_first(const Numbers& pool) {
    Numbers order = pool;
    for (auto i = static_cast<std::int32_t>(order.size()) - 1; i > 0; --i) {
      std::swap(order[i], order[random_.below(i + 1)]);
    }
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::int32_t entry) { return few_.size[entry]; });
    for (const std::int32_t entry : order) {
      const double most = few_.full - few_.bytes(entry);
      if (load_[few_.up[entry]] <= most && load_[few_.down[entry]] <= most) flip(entry);
    }
  }

  void list_combinations() {
    for (std::uint32_t chains = 1; chains < 1U << 2 * kinds_; ++chains) {
      if (std::popcount(chains) > kMaxChains) continue;
      double bytes = 0;
      bool both = false;
      for (std::int32_t i = 0; i < kinds_; ++i) {
        const std::uint32_t of_size = chains >> 2 * i & 3U;
        both |= of_size == 3;
        bytes += of_size == 1 ? few_.sizes[i] : of_size == 2 ? -few_.sizes[i] : 0.0;
      }
      if (!both) combinations_.push_back({chains, bytes});
    }
  }

  /// Breadth-first search of alternating chains of one size from a side; the first flow enters the
  /// plane (even numbers of chains) or leaves it (odd ones).
  void find_chains(std::int32_t from, std::int32_t chain) {
    const bool enters = chain % 2 == 0;
    queue_.assign(1, from);
    stamp_[from] = ++now_;
    for (std::size_t next = 0; next < queue_.size(); ++next) {
      const std::int32_t side = queue_[next];
      const bool takes = (is_up(side) == is_up(from)) == enters;
      const Numbers& entries = at_[cell(side, chain / 2)];
      const auto count = static_cast<std::int32_t>(entries.size());
      const std::int32_t offset = count > 0 ? random_.below(count) : 0;
      for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t entry = entries[(i + offset) % count];
        if ((taken_[entry] == 0) != takes) continue;
        const std::int32_t far = few_.far(entry, side);
        if (stamp_[far] == now_) continue;
        stamp_[far] = now_;
        parent_[chain][far] = entry;
        reached_[far] |= 1U << chain;
        queue_.push_back(far);
      }
    }
  }

  /// The end of the chains with the least change of penalties; ties are decided at random.
  Repair best_repair(std::int32_t from) {
    Repair best;
    const double load = penalty(from, load_[from]);
    const double own = load + packing_penalty(from);
    const double tie = kRounding * few_.full;
    std::int32_t ties = 0;
    for (const Combination& one : combinations_) {
      const double at_start = penalty(from, load_[from] + one.bytes) - own;
      if (at_start > -tie) continue;
      poll_point(few_.sides);
      double packing = -1;
      for (std::int32_t to = 0; to < few_.sides; ++to) {
        if ((reached_[to] & one.chains) != one.chains || to == from) continue;
        const int sign = is_up(to) == is_up(from) ? -1 : 1;
        double change =
            at_start + penalty(to, load_[to] + sign * one.bytes) - penalty(to, load_[to]);
        if (change > best.change + tie + step_) continue;
        if (packing < 0) packing = packing_penalty_after(from, one.chains, 1);
        change += packing;
        if (change > best.change + tie) continue;
        change += packing_penalty_after(to, one.chains, sign) - packing_penalty(to);
        if (change < best.change - tie) {
          best = {change, to, one.chains};
          ties = 1;
        } else if (change <= best.change + tie && random_.below(++ties) == 0) {
          best = {change, to, one.chains};
        }
      }
    }
    return best;
  }

  void repair(std::int32_t from) {
    poll_point(few_.sides);
    std::ranges::fill(reached_, 0U);
    for (std::int32_t chain = 0; chain < 2 * kinds_; ++chain) find_chains(from, chain);
    const Repair best = best_repair(from);
    if (best.change == kInfinity) return;
    const double steps = best.change / step_;
    if (steps > kRounding && random_.unit() >= std::exp(-steps / kTemperature)) return;
    for (std::int32_t chain = 0; chain < 2 * kinds_; ++chain) {
      if ((best.chains >> chain & 1U) == 0) continue;
      for (std::int32_t side = best.to; side != from;) {
        const std::int32_t entry = parent_[chain][side];
        side = few_.far(entry, side);
        flip(entry);
      }
    }
  }

  const FewSizes& few_;
  std::int32_t planes_, kinds_;
  SizePatterns& patterns_;
  SplitMix& random_;
  double step_;                       ///< the smallest difference of sizes, or the smallest size
  std::vector<double> load_, total_;  ///< by side: bytes on the plane, and on all of them
  std::vector<Numbers> at_;           ///< entries of the pool, by side and size
  Numbers left_;                      ///< number of those that are not on the plane
  std::vector<char> taken_;           ///< by entry
  std::vector<Combination> combinations_;
  std::vector<Numbers> parent_;  ///< by chain and side: the last entry of the chain
  Numbers stamp_, queue_;
  std::int32_t now_ = 0;
  std::vector<std::uint32_t> reached_;  ///< by side: chains that reach it
};

/// Planes of the pool's entries, by its order, where the last two planes are left.
std::optional<Numbers> split_in_two(const FewSizes& few, const Numbers& pool, SplitMix& random) {
  constexpr std::int32_t kPlanes = 2;
  std::vector<std::vector<SideLoad>> sets;
  std::vector<Numbers> at(few.sides);
  for (const std::int32_t entry : pool) {
    for (const std::int32_t side : {few.up[entry], few.down[entry]}) {
      at[side].push_back(static_cast<std::int32_t>(sets.size()));
    }
    sets.push_back({{few.up[entry], few.bytes(entry)}, {few.down[entry], few.bytes(entry)}});
  }
  const double full = few.full / (1 + kRounding);
  std::vector<ExactPacking> packings;
  for (std::int32_t side = 0; side < few.sides; ++side) {
    Numbers& own = at[side];
    std::ranges::stable_sort(own, {}, [&](std::int32_t set) { return sets[set][0].load; });
    std::vector<double> sizes;
    for (const std::int32_t set : own) sizes.push_back(sets[set][0].load);
    const double sum = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    if (sum < kPlanes * full * (1 - kRounding)) continue;  // the links need not be full
    std::size_t work = 0;
    const auto found =
        subsets_of_sum(sizes, full, kRounding * full, kMaxSideHalves, kMaxSidePackings, work);
    if (!found || found->empty()) return std::nullopt;
    for (const SubsetOfSizes& packing : *found) {
      if (packing.size() < 2) continue;
      ExactPacking& added = packings.emplace_back();
      added.side = side;
      for (const std::int32_t i : packing) added.sets.push_back(own[i]);
    }
  }
  const std::vector<double> capacity(static_cast<std::size_t>(few.sides * kPlanes), full);
  auto planes = SpineAssignment(sets, capacity, kPlanes, packings).solve(kLastWork, random);
  if (!planes) return std::nullopt;
  std::vector<double> load(capacity.size(), 0.0);
  for (std::size_t set = 0; set < sets.size(); ++set) {
    for (const auto& [side, bytes] : sets[set]) load[side * kPlanes + (*planes)[set]] += bytes;
  }
  if (std::ranges::max(load) > few.full) return std::nullopt;
  return planes;
}

}  // namespace

std::optional<Choice> extract_planes(const RoutingInstance& instance, double drain_s,
                                     std::uint64_t seed) {
  const std::int32_t planes = instance.graph.two_tier().planes;
  const std::optional<FewSizes> few = few_sizes(instance, drain_s);
  if (!few || few->flow.empty() || planes < 2) return std::nullopt;
  SizePatterns patterns(few->sizes, few->full);
  SplitMix random(seed);
  Numbers pool(few->flow.size());
  std::iota(pool.begin(), pool.end(), 0);
  std::vector<Numbers> filled;
  const bool has_long_chains = static_cast<std::size_t>(planes) >= 2 * few->sizes.size();
  const std::int32_t most = has_long_chains ? kFailures : kFailuresOfShortChains;
  for (std::int32_t failures = 0; failures < most;) {
    const std::int32_t left = planes - static_cast<std::int32_t>(filled.size());
    if (left == 2) {
      if (const auto last = split_in_two(*few, pool, random)) {
        Choice choice(instance.size(), PathSets::kNone);
        for (std::size_t i = 0; i < pool.size(); ++i) {
          choice[few->flow[pool[i]]] = planes - 2 + (*last)[i];
        }
        for (std::size_t plane = 0; plane < filled.size(); ++plane) {
          for (const std::int32_t entry : filled[plane]) {
            choice[few->flow[entry]] = static_cast<std::int32_t>(plane);
          }
        }
        return choice;
      }
    } else {
      PlaneExtraction plane(*few, pool, left, patterns, random);
      if (plane.run(left <= 8 ? 4 * kRepairs : kRepairs)) {
        const auto is_taken = [&](std::int32_t entry) { return plane.is_taken(entry); };
        Numbers& taken = filled.emplace_back();
        std::ranges::copy_if(pool, std::back_inserter(taken), is_taken);
        std::erase_if(pool, is_taken);
        continue;
      }
    }
    if (++failures % kRetries != 0) continue;
    // One plane is emptied, then two, then three, and again.
    for (std::int32_t i = 0; i < failures / kRetries % kRetries + 1 && !filled.empty(); ++i) {
      pool.insert(pool.end(), filled.back().begin(), filled.back().end());
      filled.pop_back();
    }
  }
  return std::nullopt;
}

}  // namespace scalemodel
