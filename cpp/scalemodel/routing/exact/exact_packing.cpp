#include "scalemodel/routing/exact/exact_packing.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/routing/exact/spine_assignment.hpp"
#include "scalemodel/routing/exact/subset_sums.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr double kSumTolerance = 1e-12;   ///< relative to a full link; sums of sizes round to less
constexpr double kLoadTolerance = 1e-9;   ///< relative excess of a link that still fits
constexpr std::size_t kMaxHalfItems = 5;  ///< of one half of a packing
constexpr std::size_t kMaxHalves = 50'000;       ///< listed for one side and number of items
constexpr std::size_t kMaxHalvesOfAll = 20'000;  ///< listed for one side over all numbers of items
constexpr std::size_t kMaxPackings = 4'000;      ///< listed for one side
constexpr std::size_t kMaxPackingAtoms = 250'000;  ///< packings of all sides times planes
/// Work in filter lookups: of a listed half with a given number of items or with any, of the last
/// item of a half, and of sorting a half.
constexpr std::size_t kWorkPerHalf = 32, kWorkPerHalfOfAll = 3, kWorkPerLastItem = 4;
constexpr std::size_t kWorkPerSortedHalf = 64;
/// An effort of one: filter lookups of the deduction, literal inspections of the solver.
constexpr double kLookupsPerEffort = 38'000'000, kInspectionsPerEffort = 7'000'000;

/// Disjoint sets of flows (union-find); the smallest member represents a set.
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t flows) : parent_(flows) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  std::int32_t find(std::int32_t flow) {
    while (parent_[flow] != flow) flow = parent_[flow] = parent_[parent_[flow]];
    return flow;
  }
  void unite(std::int32_t a, std::int32_t b) {
    const auto [low, high] = std::minmax({find(a), find(b)});
    parent_[high] = low;
  }

 private:
  Numbers parent_;
};

/// The flows that leave, or that enter, one leaf.
struct Side {
  Numbers flows;
  double bytes = 0;
  double full_bytes = 0;           ///< of a full link; 0: links differ, or some need not be full
  std::size_t items = 0;           ///< number of items at the last search
  std::size_t searched_items = 1;  ///< packings of up to this many items were searched
};

/// The flows of one set on one side.
struct Item {
  double bytes;
  std::int32_t set;
};

/// One half of the items of a packing.
struct Half {
  double bytes = 0;
  std::size_t count = 0;  ///< items chosen so far
  std::array<std::int16_t, kMaxHalfItems> item{};
};

class Deduction {
 public:
  Deduction(const RoutingInstance& instance, double drain_s, double effort)
      : instance_(instance), drain_s_(drain_s), effort_(effort), sets_(instance.size()) {
    const TwoTier& tiers = instance.graph.two_tier();
    sides_.resize(2 * static_cast<std::size_t>(tiers.leaves));
    sides_of_.assign(instance.size(), {PathSets::kNone, PathSets::kNone});
    for (std::int32_t f = 0; f < static_cast<std::int32_t>(instance.size()); ++f) {
      if (instance.paths_of(f) == 0) continue;
      sides_of_[f] = {instance.graph.leaf_of(instance.flows.source[f]),
                      tiers.leaves + instance.graph.leaf_of(instance.flows.destination[f])};
      for (const std::int32_t side : sides_of_[f]) {
        sides_[side].flows.push_back(f);
        sides_[side].bytes += instance.flows.bytes[f];
      }
    }
    for (std::int32_t side = 0; side < 2 * tiers.leaves; ++side) measure(side);
  }

  bool any_full() const {
    return std::ranges::any_of(sides_, [](const Side& side) { return side.full_bytes > 0; });
  }

  void deduce() {
    for (const Side& side : sides_) {
      if (side.full_bytes > 0) unite_certain(side);
    }
    for (std::size_t count = 2; count <= 2 * kMaxHalfItems && !exhausted() && !ambiguous_;) {
      bool progress = false;
      for (Side& side : sides_) {
        if (side.full_bytes > 0) progress |= search_packings(side, count);
      }
      count = progress ? 2 : count + 1;
    }
  }

  FlowSets flow_sets();

 private:
  bool exhausted() const { return static_cast<double>(work_) > effort_ * kLookupsPerEffort; }
  void measure(std::int32_t number);
  void list_items(const Side& side);
  std::optional<std::vector<SubsetOfSizes>> list_packings(const Side& side);
  void unite_certain(const Side& side);
  bool append_packings(std::int32_t side, std::span<const std::int32_t> number, FlowSets& result);
  bool search_packings(Side& side, std::size_t max_items);
  bool unite_packings(const Side& side, std::size_t count);
  bool list_smaller_halves(std::size_t count, double max_bytes);
  bool list_larger_halves(std::size_t count, double min_bytes);
  template <class Accepts>
  bool list_halves(std::size_t count, std::size_t from, double min_bytes, double max_bytes,
                   const Accepts& accepts, std::vector<Half>& into);

  const RoutingInstance& instance_;
  double drain_s_, effort_;
  DisjointSets sets_;
  std::vector<Side> sides_;
  std::vector<std::array<std::int32_t, 2>> sides_of_;  ///< by flow
  std::size_t work_ = 0;                               ///< filter lookups so far
  std::size_t sorted_ = 0;                             ///< halves sorted so far
  /// The fewest items of a side that have too many packings to list.
  std::size_t unlistable_items_ = std::numeric_limits<std::size_t>::max();
  bool ambiguous_ = false;     ///< most packings of some search share flows with others
  std::vector<Item> items_;    ///< of the current side
  std::vector<double> sizes_;  ///< of `items_`
  double full_bytes_ = 0;      ///< of the current side
  Half chosen_;
  std::vector<Half> smaller_, larger_;
  SumFilter complements_{0, 1};  ///< bytes that complete the halves of `smaller_`
};

void Deduction::measure(std::int32_t number) {
  Side& side = sides_[number];
  double widest = 0, sum = 0;
  std::int32_t links = 0;
  for (std::int32_t plane = 0; plane < instance_.graph.two_tier().planes; ++plane) {
    const double of_link = side_capacity(instance_.graph, number, plane);
    if (of_link <= 0) continue;
    widest = std::max(widest, of_link);
    sum += of_link;
    ++links;
  }
  const bool equal = sum >= widest * links * (1 - kSumTolerance);
  const bool full = side.bytes >= sum * drain_s_ * (1 - kLoadTolerance);
  if (equal && full) side.full_bytes = widest * drain_s_;
}

/// Lists the sets that do not fill a link of the side alone, the smallest first.
void Deduction::list_items(const Side& side) {
  items_.clear();
  for (const std::int32_t f : side.flows) {
    items_.push_back({instance_.flows.bytes[f], sets_.find(f)});
  }
  std::ranges::sort(items_, {}, &Item::set);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items_.size();) {
    Item item = items_[i];
    for (++i; i < items_.size() && items_[i].set == item.set; ++i) item.bytes += items_[i].bytes;
    if (item.bytes < side.full_bytes * (1 - kSumTolerance)) items_[kept++] = item;
  }
  items_.resize(kept);
  std::ranges::sort(items_, {}, &Item::bytes);
  sizes_.clear();
  for (const Item& item : items_) sizes_.push_back(item.bytes);
}

/// Lists the halves that add `count` items from position `from` on to the chosen ones, have
/// `min_bytes` to `max_bytes` in total and pass the filter `accepts`; false where the effort is
/// spent.
template <class Accepts>
bool Deduction::list_halves(std::size_t count, std::size_t from, double min_bytes, double max_bytes,
                            const Accepts& accepts, std::vector<Half>& into) {
  const double chosen_bytes = chosen_.bytes;
  const std::size_t position = chosen_.count;
  poll_point();
  if (count == 1) {
    const auto begin = sizes_.begin() + static_cast<std::ptrdiff_t>(from);
    const auto first = std::lower_bound(begin, sizes_.end(), min_bytes - chosen_bytes);
    auto i = static_cast<std::size_t>(first - sizes_.begin());
    const std::size_t start = i;
    for (; i < sizes_.size() && chosen_bytes + sizes_[i] <= max_bytes; ++i) {
      if (!accepts(chosen_bytes + sizes_[i]) || into.size() > kMaxHalves) continue;
      into.push_back(chosen_);
      into.back().bytes += sizes_[i];
      into.back().item[position] = static_cast<std::int16_t>(i);
    }
    work_ += i - start + kWorkPerLastItem;
    return !exhausted();
  }
  ++chosen_.count;
  bool all = true;
  for (std::size_t i = from; all && i + count <= sizes_.size(); ++i) {
    // All later items are at least as large.
    if (chosen_bytes + static_cast<double>(count) * sizes_[i] > max_bytes) break;
    chosen_.bytes = chosen_bytes + sizes_[i];
    chosen_.item[position] = static_cast<std::int16_t>(i);
    all = list_halves(count - 1, i + 1, min_bytes, max_bytes, accepts, into);
  }
  chosen_.bytes = chosen_bytes;
  --chosen_.count;
  return all;
}

/// Lists the halves of the smaller items and filters the bytes that complete them.
bool Deduction::list_smaller_halves(std::size_t count, double max_bytes) {
  smaller_.clear();
  const auto any = [](double) { return true; };
  if (!list_halves(count, 0, 0, max_bytes, any, smaller_) || smaller_.size() > kMaxHalves) {
    return false;
  }
  work_ += kWorkPerHalf * smaller_.size();
  complements_ = SumFilter(smaller_.size(), full_bytes_ * (1 + 2 * kSumTolerance));
  for (const Half& half : smaller_) {
    complements_.insert(full_bytes_ - half.bytes, kSumTolerance * full_bytes_);
  }
  return true;
}

/// Lists the halves of the larger items that, according to the filter, complete a smaller half.
bool Deduction::list_larger_halves(std::size_t count, double min_bytes) {
  const auto completes = [&](double bytes) { return complements_.may_contain(bytes); };
  larger_.clear();
  return list_halves(count, 0, min_bytes, full_bytes_, completes, larger_) &&
         larger_.size() <= kMaxHalves;
}

/// Lists all packings of a link of the side by items that do not fill one alone.
std::optional<std::vector<SubsetOfSizes>> Deduction::list_packings(const Side& side) {
  list_items(side);
  if (items_.size() >= unlistable_items_) return std::nullopt;
  std::size_t halves = 0;
  auto found = subsets_of_sum(sizes_, side.full_bytes, kSumTolerance * side.full_bytes,
                              kMaxHalvesOfAll, kMaxPackings, halves);
  work_ += kWorkPerHalfOfAll * halves;
  if (!found) unlistable_items_ = items_.size();
  return found;
}

/// Unites the items of certain packings: those that are the only one with some item.
void Deduction::unite_certain(const Side& side) {
  auto packings = list_packings(side);
  if (!packings) return;
  Numbers uses(items_.size(), 0);
  for (const SubsetOfSizes& packing : *packings) {
    for (const std::int32_t i : packing) ++uses[i];
  }
  const auto is_certain = [&](const SubsetOfSizes& packing) {
    return std::ranges::any_of(packing, [&](std::int32_t i) { return uses[i] == 1; });
  };
  while (true) {
    const auto certain = std::ranges::find_if(*packings, is_certain);
    if (certain == packings->end()) break;
    std::iter_swap(certain, packings->end() - 1);
    const SubsetOfSizes packing = std::move(packings->back());
    packings->pop_back();
    for (const std::int32_t i : packing) {
      sets_.unite(items_[i].set, items_[packing.front()].set);
    }
    std::erase_if(*packings, [&](const SubsetOfSizes& other) {
      if (std::ranges::find_first_of(other, packing) == other.end()) return false;
      for (const std::int32_t i : other) --uses[i];
      return true;
    });
  }
  ambiguous_ |= !packings->empty();
}

/// Searches packings of up to `max_items` items, those of few items first, until some are certain.
bool Deduction::search_packings(Side& side, std::size_t max_items) {
  list_items(side);
  if (items_.size() != side.items) side.searched_items = 1;
  side.items = items_.size();
  while (side.searched_items < max_items) {
    if (unite_packings(side, ++side.searched_items)) return true;
  }
  return false;
}

/// Unites the items of packings of `count` items that share no item with another one.
bool Deduction::unite_packings(const Side& side, std::size_t count) {
  if (items_.size() < count || exhausted()) return false;
  full_bytes_ = side.full_bytes;
  double sum = 0;
  for (const Item& item : items_) sum += item.bytes;
  if (sum <= full_bytes_ * (1 + kSumTolerance)) {  // one link is left, and it takes all items
    for (const Item& item : items_) sets_.unite(item.set, items_.front().set);
    return true;
  }
  const std::size_t first = count / 2, rest = count - first;
  // The smaller half holds the smaller items: it has at most its share of the bytes.
  const double share = full_bytes_ * static_cast<double>(first) / static_cast<double>(count);
  const double tolerance = kSumTolerance * full_bytes_;
  if (!list_smaller_halves(first, share + tolerance)) return false;
  if (!list_larger_halves(rest, full_bytes_ - share - tolerance)) return false;
  sorted_ += smaller_.size() + larger_.size();
  std::ranges::sort(smaller_, {}, &Half::bytes);
  std::ranges::sort(larger_, {}, &Half::bytes);
  std::vector<std::pair<const Half*, const Half*>> packings;
  Numbers uses(items_.size(), 0);
  std::size_t end = larger_.size();
  for (const Half& small : smaller_) {
    const double missing = full_bytes_ - small.bytes;
    while (end > 0 && larger_[end - 1].bytes > missing + tolerance) --end;
    for (std::size_t h = end; h > 0 && larger_[h - 1].bytes >= missing - tolerance; --h) {
      const Half& large = larger_[h - 1];
      if (small.item[first - 1] >= large.item[0]) continue;
      packings.emplace_back(&small, &large);
      for (std::size_t i = 0; i < first; ++i) ++uses[small.item[i]];
      for (std::size_t i = 0; i < rest; ++i) ++uses[large.item[i]];
    }
    if (packings.size() > items_.size()) break;
  }
  std::size_t united = 0;
  for (const auto& [small, large] : packings) {
    const auto is_unshared = [&](std::int16_t i) { return uses[i] == 1; };
    if (!std::all_of(small->item.begin(), small->item.begin() + first, is_unshared) ||
        !std::all_of(large->item.begin(), large->item.begin() + rest, is_unshared)) {
      continue;
    }
    const std::int32_t set = items_[small->item[0]].set;
    for (std::size_t i = 1; i < first; ++i) sets_.unite(set, items_[small->item[i]].set);
    for (std::size_t i = 0; i < rest; ++i) sets_.unite(set, items_[large->item[i]].set);
    ++united;
  }
  // Where sizes repeat, packings of one number of items are certain only once all others are known.
  ambiguous_ |= 2 * united < packings.size();
  return united > 0;
}

/// Appends the packings of a side on which some sets do not fill a link alone; false where they are
/// too many.
bool Deduction::append_packings(std::int32_t side, std::span<const std::int32_t> number,
                                FlowSets& result) {
  list_items(sides_[side]);
  if (items_.empty()) return true;
  const auto packings = list_packings(sides_[side]);
  const auto planes = static_cast<std::size_t>(instance_.graph.two_tier().planes);
  if (!packings) return false;
  if ((result.packings.size() + packings->size()) * planes > kMaxPackingAtoms) return false;
  for (const SubsetOfSizes& packing : *packings) {
    ExactPacking& added = result.packings.emplace_back();
    added.side = side;
    for (const std::int32_t i : packing) added.sets.push_back(number[items_[i].set]);
  }
  return true;
}

FlowSets Deduction::flow_sets() {
  FlowSets result;
  // Sorting ends no deduction, but what follows has less time.
  result.effort = static_cast<double>(work_ + kWorkPerSortedHalf * sorted_) / kLookupsPerEffort;
  Numbers number(instance_.size(), PathSets::kNone);  // of the set that a flow represents
  for (std::int32_t f = 0; f < static_cast<std::int32_t>(instance_.size()); ++f) {
    if (instance_.paths_of(f) == 0) continue;
    std::int32_t& of_set = number[sets_.find(f)];
    if (of_set == PathSets::kNone) {
      of_set = static_cast<std::int32_t>(result.members.size());
      result.members.emplace_back();
      result.loads.emplace_back();
    }
    result.members[of_set].push_back(f);
    auto& loads = result.loads[of_set];
    for (const std::int32_t side : sides_of_[f]) {
      const auto found = std::ranges::find(loads, side, &SideLoad::side);
      if (found == loads.end()) {
        loads.push_back({side, instance_.flows.bytes[f]});
      } else {
        found->load += instance_.flows.bytes[f];
      }
    }
  }
  result.complete = any_full();
  const auto sides = static_cast<std::int32_t>(sides_.size());
  for (std::int32_t side = 0; result.complete && side < sides; ++side) {
    if (sides_[side].full_bytes > 0) result.complete = append_packings(side, number, result);
  }
  return result;
}

}  // namespace

double side_capacity(const LinkGraph& graph, std::int32_t side, std::int32_t plane) {
  const TwoTier& tiers = graph.two_tier();
  const std::int32_t link = side < tiers.leaves ? tiers.up[tiers.at(side, plane)]
                                                : tiers.down[tiers.at(side - tiers.leaves, plane)];
  return graph.capacity(link).base();
}

FlowSets single_flow_sets(const RoutingInstance& instance) {
  return Deduction(instance, 0, 0).flow_sets();
}

FlowSets deduce_flow_sets(const RoutingInstance& instance, double drain_s, double effort) {
  Deduction deduction(instance, drain_s, effort);
  if (deduction.any_full()) deduction.deduce();
  return deduction.flow_sets();
}

std::optional<Choice> assign_spines(const RoutingInstance& instance, const FlowSets& sets,
                                    double drain_s, double effort) {
  if (!sets.complete) return std::nullopt;
  const std::int32_t planes = instance.graph.two_tier().planes;
  const std::int32_t sides = 2 * instance.graph.two_tier().leaves;
  std::vector<double> capacity;
  capacity.reserve(static_cast<std::size_t>(sides) * static_cast<std::size_t>(planes));
  for (std::int32_t side = 0; side < sides; ++side) {
    for (std::int32_t plane = 0; plane < planes; ++plane) {
      capacity.push_back(side_capacity(instance.graph, side, plane) * drain_s);
    }
  }
  const double widest = std::ranges::max(capacity);
  SplitMix random(1);
  const auto work = static_cast<std::int64_t>(effort * kInspectionsPerEffort);
  const auto assigned =
      SpineAssignment(sets.loads, capacity, planes, sets.packings).solve(work, random);
  if (!assigned) return std::nullopt;
  // No two sets overload a link, but three or more may where it need not be full.
  for (std::size_t set = 0; set < assigned->size(); ++set) {
    for (const auto& [side, load] : sets.loads[set]) {
      capacity[side * planes + (*assigned)[set]] -= load;
    }
  }
  if (std::ranges::min(capacity) < -kLoadTolerance * widest) return std::nullopt;
  return choice_of_planes(instance, sets, *assigned);
}

Choice choice_of_planes(const RoutingInstance& instance, const FlowSets& sets,
                        std::span<const std::int32_t> planes) {
  Choice choice(instance.size(), PathSets::kNone);
  for (std::size_t s = 0; s < sets.members.size(); ++s) {
    for (const std::int32_t f : sets.members[s]) {
      choice[f] = instance.position_of_plane(f, planes[s]);
    }
  }
  return choice;
}

}  // namespace scalemodel
