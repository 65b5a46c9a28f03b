#include "scalemodel/routing/exact/few_sizes.hpp"

#include <algorithm>
#include <cstddef>

#include "scalemodel/routing/exact/exact_packing.hpp"

namespace scalemodel {

std::optional<FewSizes> few_sizes(const RoutingInstance& instance, double drain_s) {
  const TwoTier& tiers = instance.graph.two_tier();
  FewSizes few;
  few.sides = 2 * tiers.leaves;
  const double capacity = side_capacity(instance.graph, 0, 0);
  for (std::int32_t side = 0; side < few.sides; ++side) {
    for (std::int32_t plane = 0; plane < tiers.planes; ++plane) {
      if (side_capacity(instance.graph, side, plane) != capacity) return std::nullopt;
    }
  }
  few.full = capacity * drain_s * (1 + kRounding);
  for (std::int32_t f = 0; f < static_cast<std::int32_t>(instance.size()); ++f) {
    if (instance.paths_of(f) == 0) continue;
    const double bytes = instance.flows.bytes[f];
    const auto place = std::ranges::lower_bound(few.sizes, bytes);
    if (place == few.sizes.end() || *place != bytes) few.sizes.insert(place, bytes);
    if (few.sizes.size() > kMaxFlowSizes) return std::nullopt;
    few.flow.push_back(f);
    few.up.push_back(instance.graph.leaf_of(instance.flows.source[f]));
    few.down.push_back(tiers.leaves + instance.graph.leaf_of(instance.flows.destination[f]));
  }
  for (const std::int32_t f : few.flow) {
    const auto place = std::ranges::lower_bound(few.sizes, instance.flows.bytes[f]);
    few.size.push_back(static_cast<std::int32_t>(place - few.sizes.begin()));
  }
  return few;
}

}  // namespace scalemodel
