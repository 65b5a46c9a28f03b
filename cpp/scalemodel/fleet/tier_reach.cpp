#include "scalemodel/fleet/tier_reach.hpp"

#include <algorithm>

namespace scalemodel {

CacheTier reached_tier(CacheTier settings, const TierReach& reach) {
  const bool links = reach.link > BytesPerSecond{};
  const BytesPerSecond over_links = reach.ranks * reach.reached * reach.link;
  const double of_node = reach.ranks / reach.node_accelerators;
  const BytesPerSecond read = links ? over_links : of_node * reach.node_read;
  const BytesPerSecond write = links ? over_links : of_node * reach.node_write;
  const double copies = settings.shared ? reach.replicas : 1;
  settings.read = copies * read;
  settings.write = copies * write;
  settings.link = settings.shared ? read : BytesPerSecond{};
  if (!(settings.capacity > Bytes{})) {
    settings.capacity = copies * reach.ranks * reach.rank_capacity;
  }
  return settings;
}

BytesPerSecond weights_bandwidth(const TierReach& reach) {
  if (reach.link > BytesPerSecond{}) return reach.ranks * reach.reached * reach.link;
  return std::max(1.0, reach.ranks / reach.node_accelerators) * reach.node_read;
}

}  // namespace scalemodel
