// How fast a replica reaches what lies outside of it: tiers of prefixes, and weights as it starts.
#pragma once

#include <string_view>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/serving/cache_tiers.hpp"

namespace scalemodel {

/// What lies between the ranks of a replica and a tier: a link of each accelerator, of which
/// engines reach a share, or what a node reads and writes for all accelerators on it.
struct TierReach {
  double ranks = 1;        ///< of a replica
  BytesPerSecond link{0};  ///< of one accelerator; 0: the tier is reached by nodes
  double reached = 1;      ///< share of the link
  double node_accelerators = 1;
  BytesPerSecond node_read{0}, node_write{0};
  double replicas = 1;  ///< that share the tier
  /// Of the tier for each rank, where no capacity is given.
  Bytes rank_capacity{0};

  bool operator==(const TierReach&) const = default;
};

template <>
struct RecordOf<TierReach> {
  static constexpr std::string_view name = "TierReach";
  using T = TierReach;
  static constexpr FieldTable fields{
      field("ranks", &T::ranks, 1, 1e6, "accelerators of a replica"),
      field("link_bytes_per_s", &T::link, 0, 1e18, "of one accelerator; 0: reached by nodes"),
      field("reached_fraction", &T::reached, 0, 1, "of the link, by what engines use"),
      field("node_accelerators", &T::node_accelerators, 1, 1e6, "that share what a node reads"),
      field("node_read_bytes_per_s", &T::node_read, 0, 1e18, "of a node"),
      field("node_write_bytes_per_s", &T::node_write, 0, 1e18, "of a node"),
      field("replicas", &T::replicas, 1, 1e5, "that share the tier"),
      field("rank_capacity_bytes", &T::rank_capacity, 0, 1e21, "of the tier, for each rank")};
};

/// `settings` with the bandwidths, and where `capacity` is 0 the size, that the ranks of a replica
/// find. A shared tier lies on the servers of all replicas, each of which reads over its own ports.
CacheTier reached_tier(CacheTier settings, const TierReach& reach);

/// Bandwidth at which all ranks of a replica read their weights. A replica of several nodes reads
/// on all of them, one that is less than a node as fast as the node.
BytesPerSecond weights_bandwidth(const TierReach& reach);

}  // namespace scalemodel
