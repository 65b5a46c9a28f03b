// Network levels of a communicator: one scale-up domain, several domains, several pods.
#pragma once

#include <algorithm>
#include <numeric>

#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel {

/// Shape of a communicator on the levels of the network.
struct GroupShape {
  int ranks = 1;
  int per_domain = 1;  ///< ranks that share a scale-up domain
  int domains = 1;
  bool leaves_pod = false;  ///< whether some pair communicates over the oversubscribed tier
  double share = 1;         ///< share of the fabric's bandwidth of its slowest flow, 0 to 1
  /// Accelerators from one rank to the next inside a domain; 1 where the domain has no levels.
  int apart = 1;

  bool operator==(const GroupShape&) const = default;
};

/// Shape of the communicator of a mesh axis of `degree` ranks, `stride` apart: `stride` is the
/// product of the degrees inside it, so the axes placed first are on the fastest level.
constexpr GroupShape group_shape(const Cluster& cluster, int degree, int stride, double share = 1) {
  const int domain = std::min(cluster.scale_up.domain, cluster.accelerators);
  GroupShape shape;
  shape.ranks = degree;
  shape.per_domain = std::clamp(domain / stride, 1, degree);
  shape.domains = (degree + shape.per_domain - 1) / shape.per_domain;
  shape.leaves_pod =
      cluster.fabric.pod > 0 && static_cast<long long>(degree) * stride > cluster.fabric.pod;
  shape.share = share;
  // Only the levels of a host tell ranks apart that share a domain.
  if (shape.per_domain > 1 && cluster.scale_up.levels.any()) shape.apart = stride;
  return shape;
}

/// Ranks of the parts of a group that lie inside domains, where all parts are equal.
constexpr int node_ranks(const GroupShape& group) {
  return std::gcd(group.ranks, group.per_domain);
}
/// Such a part.
constexpr GroupShape node_part(GroupShape group) {
  group.ranks = group.per_domain = node_ranks(group);
  group.domains = 1;
  group.leaves_pod = false;
  return group;
}
/// The ranks in the same place of all parts.
constexpr GroupShape rail_part(GroupShape group) {
  const int part = node_ranks(group);
  group.ranks /= part;
  group.per_domain /= part;
  group.apart *= part;
  return group;
}

/// What a group moves between the switches and sockets of a host, at most; none of its levels
/// crossed: 0. Groups that lie between its ranks cross at the same time, and share the path.
constexpr BytesPerSecond crossing_bandwidth(const ScaleUp& up, const GroupShape& group) noexcept {
  const HostLevels& levels = up.levels;
  const long long reach = static_cast<long long>(group.per_domain - 1) * group.apart + 1;
  BytesPerSecond least;
  const auto crosses = [&](int below, BytesPerSecond beyond) {
    if (group.per_domain < 2 || below <= 0 || reach <= below) return;
    const BytesPerSecond share = beyond / std::min(group.apart, below);
    if (least <= BytesPerSecond{} || share < least) least = share;
  };
  crosses(levels.switched, levels.beyond_switch);
  crosses(levels.socket, levels.beyond_socket);
  return least;
}

/// Bandwidth per accelerator on the fabric for a communicator, one direction.
constexpr BytesPerSecond fabric_bandwidth(const Fabric& fabric, const GroupShape& group) {
  const BytesPerSecond ideal =
      group.leaves_pod ? fabric.bandwidth / fabric.oversubscription : fabric.bandwidth;
  return group.share * ideal;
}

}  // namespace scalemodel
