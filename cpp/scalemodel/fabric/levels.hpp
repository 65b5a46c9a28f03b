// Where the ranks of a communicator sit: in one scale-up domain, in several, beyond one pod.
#pragma once

#include <algorithm>

#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel {

/// A communicator as the network sees it.
struct GroupShape {
  int ranks = 1;
  int per_domain = 1;  ///< ranks that share a scale-up domain
  int domains = 1;
  bool leaves_pod = false;  ///< some pair talks over the oversubscribed tier
  double share = 1;         ///< of the fabric's bandwidth that its slowest flow gets

  bool operator==(const GroupShape&) const = default;
};

/// Shape of the communicator of a mesh axis of `degree` ranks, `stride` apart: `stride` is the
/// product of the degrees inside it, so that axes placed first stay on the fastest level.
constexpr GroupShape group_shape(const Cluster& cluster, int degree, int stride, double share = 1) {
  const int domain = std::min(cluster.scale_up.domain, cluster.accelerators);
  GroupShape shape;
  shape.ranks = degree;
  shape.per_domain = std::clamp(domain / stride, 1, degree);
  shape.domains = (degree + shape.per_domain - 1) / shape.per_domain;
  shape.leaves_pod =
      cluster.fabric.pod > 0 && static_cast<long long>(degree) * stride > cluster.fabric.pod;
  shape.share = share;
  return shape;
}

/// Bandwidth of one accelerator's share of the fabric for this communicator, one direction.
constexpr BytesPerSecond fabric_bandwidth(const Fabric& fabric, const GroupShape& group) {
  const BytesPerSecond ideal =
      group.leaves_pod ? fabric.bandwidth / fabric.oversubscription : fabric.bandwidth;
  return group.share * ideal;
}

}  // namespace scalemodel
