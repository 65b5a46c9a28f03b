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

#include "scalemodel/routing/exact/spine_assignment.hpp"
#include "scalemodel/routing/exact/subset_sums.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr double kExact = 1e-12;  ///< of what a link carries; sums of sizes round to less
constexpr double kFits = 1e-9;
constexpr std::size_t kHalf = 5;              ///< items of half a set at most
constexpr std::size_t kHalves = 100'000;      ///< of one size and leaf, that are listed
constexpr std::size_t kHalvesOfAll = 20'000;  ///< of a leaf, where all sizes are looked at at once
constexpr std::size_t kFillings = 4'000;      ///< of a leaf
constexpr std::size_t kStatements = 250'000;  ///< fillings of all leaves times planes
/// In looks at the filter: a listed half, of one size or of all, and a choice of all items but one.
constexpr std::size_t kListing = 32, kListingAll = 3, kBranch = 4;
/// An effort of one: looks at the filter over all leaves and sizes; looks at statements while sets
/// are placed.
constexpr double kWork = 38'000'000, kLooks = 7'000'000;

/// Disjoint sets of flows with the smallest member as name.
class Together {
 public:
  explicit Together(std::size_t flows) : parent_(flows) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  std::int32_t name(std::int32_t flow) {
    while (parent_[flow] != flow) flow = parent_[flow] = parent_[parent_[flow]];
    return flow;
  }
  void join(std::int32_t a, std::int32_t b) {
    const auto [low, high] = std::minmax({name(a), name(b)});
    parent_[high] = low;
  }

 private:
  Numbers parent_;
};

/// What leaves or enters one leaf.
struct Side {
  Numbers flows;
  double sum = 0;
  double full = 0;          ///< bytes of a link; 0: links differ, or are not all full
  std::size_t items = 0;    ///< when last looked at
  std::size_t checked = 1;  ///< sizes of sets looked for among these items
};

/// The flows of one set at one leaf.
struct Item {
  double bytes;
  std::int32_t set;
};

struct Half {
  double bytes = 0;
  std::size_t count = 0;  ///< chosen so far
  std::array<std::int16_t, kHalf> item{};
};

class Deduction {
 public:
  Deduction(const RoutingInstance& instance, double drain_s, double effort)
      : instance_(instance), drain_s_(drain_s), effort_(effort), together_(instance.size()) {
    const TwoTier& tiers = instance.graph.two_tier();
    sides_.resize(2 * static_cast<std::size_t>(tiers.leaves));
    rows_.assign(instance.size(), {PathSets::kNone, PathSets::kNone});
    for (std::int32_t f = 0; f < static_cast<std::int32_t>(instance.size()); ++f) {
      if (instance.paths_of(f) == 0) continue;
      rows_[f] = {instance.graph.leaf_of(instance.flows.source[f]),
                  tiers.leaves + instance.graph.leaf_of(instance.flows.destination[f])};
      for (const std::int32_t row : rows_[f]) {
        sides_[row].flows.push_back(f);
        sides_[row].sum += instance.flows.bytes[f];
      }
    }
    for (std::int32_t row = 0; row < 2 * tiers.leaves; ++row) measure(row);
  }

  bool any_full() const {
    return std::ranges::any_of(sides_, [](const Side& side) { return side.full > 0; });
  }

  void deduce() {
    for (const Side& side : sides_) {
      if (side.full > 0) settle(side);
    }
    for (std::size_t count = 2; count <= 2 * kHalf && !tired() && !ambiguous_;) {
      bool more = false;
      for (Side& side : sides_) {
        if (side.full > 0) more |= find_sets(side, count);
      }
      count = more ? 2 : count + 1;
    }
  }

  FlowSets sets();

 private:
  bool tired() const { return static_cast<double>(work_) > effort_ * kWork; }
  void measure(std::int32_t row);
  void list_items(const Side& side);
  std::optional<std::vector<SubsetOfSizes>> all_fillings(const Side& side);
  void settle(const Side& side);
  bool list_fillings(std::int32_t row, std::span<const std::int32_t> number, FlowSets& result);
  bool find_sets(Side& side, std::size_t most);
  bool join_sets(const Side& side, std::size_t count);
  bool list_low(std::size_t count, double most);
  bool list_high(std::size_t count, double least);
  template <class Wanted>
  bool choose(std::size_t count, std::size_t from, double least, double most, const Wanted& wanted,
              std::vector<Half>& into);

  const RoutingInstance& instance_;
  double drain_s_, effort_;
  Together together_;
  std::vector<Side> sides_;
  std::vector<std::array<std::int32_t, 2>> rows_;  ///< by flow: sides
  std::size_t work_ = 0;
  std::size_t too_many_ = std::numeric_limits<std::size_t>::max();  ///< items of a side to list all
  bool ambiguous_ = false;  ///< most sets that fill a link share flows with others
  std::vector<Item> items_;
  std::vector<double> sizes_;  ///< of items_
  double full_ = 0;
  Half chosen_;
  std::vector<Half> low_, high_;
  SumFilter missing_{0, 1};  ///< to halves of low_
};

void Deduction::measure(std::int32_t row) {
  Side& side = sides_[row];
  double widest = 0, sum = 0;
  std::int32_t links = 0;
  for (std::int32_t plane = 0; plane < instance_.graph.two_tier().planes; ++plane) {
    const double of_link = capacity_of(instance_.graph, row, plane);
    if (of_link <= 0) continue;
    widest = std::max(widest, of_link);
    sum += of_link;
    ++links;
  }
  const bool equal = sum >= widest * links * (1 - kExact);
  if (equal && side.sum >= sum * drain_s_ * (1 - kFits)) side.full = widest * drain_s_;
}

/// Sets at this leaf that do not fill a link by themselves, smallest first.
void Deduction::list_items(const Side& side) {
  items_.clear();
  for (const std::int32_t f : side.flows) {
    items_.push_back({instance_.flows.bytes[f], together_.name(f)});
  }
  std::ranges::sort(items_, {}, &Item::set);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items_.size();) {
    Item item = items_[i];
    for (++i; i < items_.size() && items_[i].set == item.set; ++i) item.bytes += items_[i].bytes;
    if (item.bytes < side.full * (1 - kExact)) items_[kept++] = item;
  }
  items_.resize(kept);
  std::ranges::sort(items_, {}, &Item::bytes);
  sizes_.clear();
  for (const Item& item : items_) sizes_.push_back(item.bytes);
}

/// All choices of `count` more items from position `from` on whose bytes come to `least` to `most`
/// together with those chosen before, and are `wanted`; whether that ended before the effort was
/// spent.
template <class Wanted>
bool Deduction::choose(std::size_t count, std::size_t from, double least, double most,
                       const Wanted& wanted, std::vector<Half>& into) {
  const double have = chosen_.bytes;
  const std::size_t position = chosen_.count;
  if (count == 1) {
    const auto begin = sizes_.begin() + static_cast<std::ptrdiff_t>(from);
    const auto first = std::lower_bound(begin, sizes_.end(), least - have);
    auto i = static_cast<std::size_t>(first - sizes_.begin());
    const std::size_t start = i;
    for (; i < sizes_.size() && have + sizes_[i] <= most; ++i) {
      if (!wanted(have + sizes_[i]) || into.size() > kHalves) continue;
      into.push_back(chosen_);
      into.back().bytes += sizes_[i];
      into.back().item[position] = static_cast<std::int16_t>(i);
    }
    work_ += i - start + kBranch;
    return !tired();
  }
  ++chosen_.count;
  bool all = true;
  for (std::size_t i = from; all && i + count <= sizes_.size(); ++i) {
    // All others are at least as large.
    if (have + static_cast<double>(count) * sizes_[i] > most) break;
    chosen_.bytes = have + sizes_[i];
    chosen_.item[position] = static_cast<std::int16_t>(i);
    all = choose(count - 1, i + 1, least, most, wanted, into);
  }
  chosen_.bytes = have;
  --chosen_.count;
  return all;
}

/// Smaller halves, and a filter of what is missing to them.
bool Deduction::list_low(std::size_t count, double most) {
  low_.clear();
  const auto any = [](double) { return true; };
  if (!choose(count, 0, 0, most, any, low_) || low_.size() > kHalves) return false;
  work_ += kListing * low_.size();
  missing_ = SumFilter(low_.size(), full_ * (1 + 2 * kExact));
  for (const Half& low : low_) missing_.put(full_ - low.bytes, kExact * full_);
  return true;
}

/// Larger halves whose bytes are, as far as the filter can tell, missing to a smaller one.
bool Deduction::list_high(std::size_t count, double least) {
  const auto is_missing = [&](double bytes) { return missing_.may_have(bytes); };
  high_.clear();
  return choose(count, 0, least, full_, is_missing, high_) && high_.size() <= kHalves;
}

/// All that fill a link of this side, of items that do not fill one by themselves.
std::optional<std::vector<SubsetOfSizes>> Deduction::all_fillings(const Side& side) {
  list_items(side);
  if (items_.size() >= too_many_) return std::nullopt;
  std::size_t halves = 0;
  auto found =
      subsets_of_sum(sizes_, side.full, kExact * side.full, kHalvesOfAll, kFillings, halves);
  work_ += kListingAll * halves;
  if (!found) too_many_ = items_.size();
  return found;
}

/// Joins what only one filling has a place for.
void Deduction::settle(const Side& side) {
  auto fillings = all_fillings(side);
  if (!fillings) return;
  Numbers uses(items_.size(), 0);
  for (const SubsetOfSizes& filling : *fillings) {
    for (const std::int32_t i : filling) ++uses[i];
  }
  const auto is_certain = [&](const SubsetOfSizes& filling) {
    return std::ranges::any_of(filling, [&](std::int32_t i) { return uses[i] == 1; });
  };
  while (true) {
    const auto certain = std::ranges::find_if(*fillings, is_certain);
    if (certain == fillings->end()) break;
    std::iter_swap(certain, fillings->end() - 1);
    const SubsetOfSizes filling = std::move(fillings->back());
    fillings->pop_back();
    for (const std::int32_t i : filling) {
      together_.join(items_[i].set, items_[filling.front()].set);
    }
    std::erase_if(*fillings, [&](const SubsetOfSizes& other) {
      if (std::ranges::find_first_of(other, filling) == other.end()) return false;
      for (const std::int32_t i : other) --uses[i];
      return true;
    });
  }
  ambiguous_ |= !fillings->empty();
}

/// Looks for sets of up to `most` items that were not looked for yet, until some are found.
bool Deduction::find_sets(Side& side, std::size_t most) {
  list_items(side);
  if (items_.size() != side.items) side.checked = 1;
  side.items = items_.size();
  while (side.checked < most) {
    if (join_sets(side, ++side.checked)) return true;
  }
  return false;
}

/// Joins the sets of `count` items that fill a link and share no item with another one.
bool Deduction::join_sets(const Side& side, std::size_t count) {
  if (items_.size() < count || tired()) return false;
  full_ = side.full;
  double sum = 0;
  for (const Item& item : items_) sum += item.bytes;
  if (sum <= full_ * (1 + kExact)) {  // one link is left, and it takes what is left
    for (const Item& item : items_) together_.join(item.set, items_.front().set);
    return true;
  }
  const std::size_t first = count / 2, rest = count - first;
  // The items of the smaller half come first by size: they have no more than their share.
  const double share = full_ * static_cast<double>(first) / static_cast<double>(count);
  const double tolerance = kExact * full_;
  if (!list_low(first, share + tolerance)) return false;
  if (!list_high(rest, full_ - share - tolerance)) return false;
  std::ranges::sort(low_, {}, &Half::bytes);
  std::ranges::sort(high_, {}, &Half::bytes);
  std::vector<std::pair<const Half*, const Half*>> sets;
  Numbers uses(items_.size(), 0);
  std::size_t end = high_.size();
  for (const Half& low : low_) {
    const double missing = full_ - low.bytes;
    while (end > 0 && high_[end - 1].bytes > missing + tolerance) --end;
    for (std::size_t h = end; h > 0 && high_[h - 1].bytes >= missing - tolerance; --h) {
      const Half& high = high_[h - 1];
      if (low.item[first - 1] >= high.item[0]) continue;
      sets.emplace_back(&low, &high);
      for (std::size_t i = 0; i < first; ++i) ++uses[low.item[i]];
      for (std::size_t i = 0; i < rest; ++i) ++uses[high.item[i]];
    }
    if (sets.size() > items_.size()) break;
  }
  std::size_t joined = 0;
  for (const auto& [low, high] : sets) {
    const auto alone = [&](std::int16_t i) { return uses[i] == 1; };
    if (!std::all_of(low->item.begin(), low->item.begin() + first, alone) ||
        !std::all_of(high->item.begin(), high->item.begin() + rest, alone)) {
      continue;
    }
    const std::int32_t set = items_[low->item[0]].set;
    for (std::size_t i = 1; i < first; ++i) together_.join(set, items_[low->item[i]].set);
    for (std::size_t i = 0; i < rest; ++i) together_.join(set, items_[high->item[i]].set);
    ++joined;
  }
  // Where sizes repeat, sets of one size tell nothing before those of all others are known.
  ambiguous_ |= 2 * joined < sets.size();
  return joined > 0;
}

/// Adds what fills a row where sets do not do so by themselves; whether all of it is known.
bool Deduction::list_fillings(std::int32_t row, std::span<const std::int32_t> number,
                              FlowSets& result) {
  list_items(sides_[row]);
  if (items_.empty()) return true;
  const auto fillings = all_fillings(sides_[row]);
  const auto planes = static_cast<std::size_t>(instance_.graph.two_tier().planes);
  if (!fillings || (result.fillings.size() + fillings->size()) * planes > kStatements) return false;
  for (const SubsetOfSizes& filling : *fillings) {
    Filling& added = result.fillings.emplace_back();
    added.row = row;
    for (const std::int32_t i : filling) added.sets.push_back(number[items_[i].set]);
  }
  return true;
}

FlowSets Deduction::sets() {
  FlowSets result;
  result.effort = static_cast<double>(work_) / kWork;
  Numbers number(instance_.size(), PathSets::kNone);
  for (std::int32_t f = 0; f < static_cast<std::int32_t>(instance_.size()); ++f) {
    if (instance_.paths_of(f) == 0) continue;
    std::int32_t& of_set = number[together_.name(f)];
    if (of_set == PathSets::kNone) {
      of_set = static_cast<std::int32_t>(result.members.size());
      result.members.emplace_back();
      result.rows.emplace_back();
    }
    result.members[of_set].push_back(f);
    auto& rows = result.rows[of_set];
    for (const std::int32_t row : rows_[f]) {
      const auto found = std::ranges::find(rows, row, &RowLoad::row);
      if (found == rows.end()) {
        rows.push_back({row, instance_.flows.bytes[f]});
      } else {
        found->load += instance_.flows.bytes[f];
      }
    }
  }
  result.complete = any_full();
  for (std::int32_t row = 0; result.complete && row < static_cast<std::int32_t>(sides_.size());
       ++row) {
    if (sides_[row].full > 0) result.complete = list_fillings(row, number, result);
  }
  return result;
}

}  // namespace

double capacity_of(const LinkGraph& graph, std::int32_t row, std::int32_t plane) {
  const TwoTier& tiers = graph.two_tier();
  const std::int32_t link = row < tiers.leaves ? tiers.up[tiers.at(row, plane)]
                                               : tiers.down[tiers.at(row - tiers.leaves, plane)];
  return graph.capacity(link).base();
}

FlowSets single_flows(const RoutingInstance& instance) { return Deduction(instance, 0, 0).sets(); }

FlowSets deduce_sets(const RoutingInstance& instance, double drain_s, double effort) {
  Deduction deduction(instance, drain_s, effort);
  if (deduction.any_full()) deduction.deduce();
  return deduction.sets();
}

std::optional<Choice> place_sets(const RoutingInstance& instance, const FlowSets& sets,
                                 double drain_s, double effort) {
  if (!sets.complete) return std::nullopt;
  const std::int32_t planes = instance.graph.two_tier().planes;
  const std::int32_t rows = 2 * instance.graph.two_tier().leaves;
  std::vector<double> room;
  room.reserve(static_cast<std::size_t>(rows) * static_cast<std::size_t>(planes));
  for (std::int32_t row = 0; row < rows; ++row) {
    for (std::int32_t plane = 0; plane < planes; ++plane) {
      room.push_back(capacity_of(instance.graph, row, plane) * drain_s);
    }
  }
  const double widest = std::ranges::max(room);
  SplitMix random(1);
  const auto placed = SetColouring(sets.rows, room, planes, sets.fillings)
                          .solve(static_cast<std::int64_t>(effort * kLooks), random);
  if (!placed) return std::nullopt;
  // No two sets are too much for a link, but several may be where it need not be full.
  for (std::size_t set = 0; set < placed->size(); ++set) {
    for (const auto& [row, load] : sets.rows[set]) room[row * planes + (*placed)[set]] -= load;
  }
  if (std::ranges::min(room) < -kFits * widest) return std::nullopt;
  return choice_of(instance, sets, *placed);
}

Choice choice_of(const RoutingInstance& instance, const FlowSets& sets,
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
