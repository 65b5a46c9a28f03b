// Flows of few distinct sizes between leaves whose links are equal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/packing_bound.hpp"

namespace scalemodel {

/// Units of a common size that a link carries at most where ways to fill it are counted.
inline constexpr std::int32_t kMaxLinkUnits = 64;

/// Flows between sides (uplinks of leaves, then downlinks) of equal links, by number.
struct FewSizes {
  std::int32_t sides = 0;
  double full = 0;                     ///< bytes that a link carries
  std::vector<double> sizes;           ///< distinct, ascending
  std::vector<std::int32_t> flow;      ///< by entry
  std::vector<std::int32_t> up, down;  ///< by entry: the sides of its leaves
  std::vector<std::int32_t> size;      ///< by entry: number of its size
  double bytes(std::int32_t entry) const { return sizes[size[entry]]; }
  std::int32_t far(std::int32_t entry, std::int32_t side) const {
    return up[entry] == side ? down[entry] : up[entry];
  }
};

/// The flows with several paths, and what a link carries in `drain_s` seconds; nothing where links
/// differ or sizes are more than `kMaxFlowSizes`. Precondition: two tiers.
std::optional<FewSizes> few_sizes(const RoutingInstance& instance, double drain_s);

}  // namespace scalemodel
