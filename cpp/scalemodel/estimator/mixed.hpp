// Training steps on accelerators of several kinds: the slowest paces those that wait for it.
#pragma once

#include <vector>

#include "scalemodel/base/reason.hpp"
#include "scalemodel/costs/tables.hpp"

namespace scalemodel {

/// The accelerators of one kind: as many pipeline stages, or data-parallel replicas, as `share`.
struct MixedPart {
  Tables* tables;  ///< of a cluster with all accelerators of the job, each of this kind
  int share = 0;
};

struct MixedStep {
  Seconds step_time;
  std::vector<int> layers;            ///< of each stage
  std::vector<double> micro_batches;  ///< of the busiest replica of each part
  std::vector<Seconds> times;         ///< of each part: its step alone, or its kernels' last end
  std::vector<Bytes> memory;          ///< of each part: its fullest accelerator
  Reason verdict = Reason::ok;
};

/// A pipeline whose first stages run on the first kind, the next ones on the next. `balanced`:
/// layers go to stages so that the slowest takes the least time, else evenly. Simulated, because
/// stages are not alike.
///
/// Throws MalformedQuestion unless the shares sum to the stages, every stage gets a layer, and no
/// stage is cut into chunks. A strategy that cannot run has a verdict and no times.
MixedStep mixed_by_stage(const std::vector<MixedPart>& parts, const Strategy& strategy,
                         bool balanced);

/// Whole replicas on one kind each. `balanced`: micro-batches go to replicas so that the slowest
/// takes the least time, else evenly. Gradients are reduced over the slowest of the networks.
///
/// Throws MalformedQuestion unless the shares sum to the replicas.
MixedStep mixed_by_replica(const std::vector<MixedPart>& parts, const Strategy& strategy,
                           bool balanced);

/// The network of clusters that exchange data: the worse of each property.
Fabric slowest_fabric(const Fabric& a, const Fabric& b);

}  // namespace scalemodel
