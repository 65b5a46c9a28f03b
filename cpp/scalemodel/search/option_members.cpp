#include "scalemodel/search/option_members.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/search/strategy_fields.hpp"

namespace scalemodel {
namespace {

void add_freedom(Freedom& freedom, const Strategy& s) {
  const bool gathers = gathers_parameters(s.sharding);
  freedom.shards_weights = freedom.shards_weights || gathers;
  freedom.shards_gradients = freedom.shards_gradients || gathers || s.sharding == Sharding::zero2;
  freedom.offloads_weights = freedom.offloads_weights || s.offload_weights;
  freedom.offloads_activations = freedom.offloads_activations || s.offload_activations;
  freedom.offloads_optimizer = freedom.offloads_optimizer || s.offload_optimizer;
}

}  // namespace

MemberLists::MemberLists(std::vector<OptionMembers>& lists, std::vector<Strategy> every,
                         std::vector<Exclusion> exclusions, int node_shard)
    : lists_(lists),
      every_(std::move(every)),
      exclusions_(std::move(exclusions)),
      node_shard_(node_shard) {
  for (Exclusion& exclusion : exclusions_) exclusion.values = meant(exclusion.values);
}

/// A shard degree means what it says however it is spelled.
Strategy MemberLists::meant(Strategy member) const {
  if (member.shard_degree == node_shard_) member.shard_degree = 0;
  return member;
}

std::uint32_t MemberLists::of(const Strategy& group) {
  constexpr std::uint32_t kGroupFields = ~(kPointFields | kFreeFields);
  std::uint64_t applied = 0;
  for (std::size_t i = 0; i < exclusions_.size(); ++i) {
    const Exclusion& exclusion = exclusions_[i];
    const bool speaks = agree(exclusion.values, group, exclusion.fields & kGroupFields);
    if (speaks) applied |= std::uint64_t{1} << i;
  }
  const auto [at, fresh] = known_.try_emplace(applied, 0);
  if (fresh) at->second = kept(applied);
  return at->second;
}

std::uint32_t MemberLists::kept(std::uint64_t applied) const {
  OptionMembers members;
  for (const Strategy& row : every_) {
    bool excluded = false;
    for (std::size_t i = 0; i < exclusions_.size() && !excluded; ++i) {
      const Exclusion& exclusion = exclusions_[i];
      excluded = (applied >> i & 1) != 0 &&
                 agree(exclusion.values, meant(row), exclusion.fields & kFreeFields);
    }
    if (excluded) continue;
    const bool first = members.rows.empty();
    members.changes.push_back(first ? Change::shards : change_between(members.rows.back(), row));
    members.rows.push_back(row);
    add_freedom(members.freedom, row);
  }
  return number_of(std::move(members));
}

/// Equal lists are one: groups are compared by its number.
std::uint32_t MemberLists::number_of(OptionMembers members) const {
  const auto same = std::ranges::find(lists_, members.rows, &OptionMembers::rows);
  const auto number = static_cast<std::uint32_t>(same - lists_.begin());
  if (same == lists_.end()) lists_.push_back(std::move(members));
  return number;
}

}  // namespace scalemodel
