// Weights, activations and optimizer states in host memory.
#pragma once

#include "scalemodel/estimator/optimizer_step.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {

/// Weights and activations in host memory travel once each way per micro-batch, under compute;
/// `share`: of the weights that a micro-batch meets.
inline void add_host_traffic(StageCost& cost, const StepContext& c, const StageClass& stage,
                             double share) {
  const Strategy& s = c.strategy;
  if (c.free_host || (!s.offload_weights && !s.offload_activations)) return;
  const Bytes weights{s.offload_weights ? share * c.storage_bytes * (cost.dense + cost.expert) : 0};
  const Bytes activations = s.offload_activations ? share * saved_bytes(c, stage) : Bytes{};
  const Seconds one_way = host_transfer_time(weights + activations, c.cluster().accelerator);
  const Seconds forward_exposed = excess(one_way, overlappable_left(c, cost.forward));
  const Seconds backward_exposed = excess(one_way, overlappable_left(c, cost.backward));
  cost.offload_exposed = forward_exposed + backward_exposed;
  cost.forward_offload = forward_exposed;
  cost.forward.hidden += one_way - forward_exposed;
  cost.backward.hidden += one_way - backward_exposed;
}

/// Optimizer states that wait in host memory travel in and out of the accelerator once per step.
inline Seconds optimizer_transfer(const StepContext& c, const StageClass& layers,
                                  const StageParameters& stage) {
  if (c.free_host) return Seconds{};
  return 2 * host_transfer_time(optimizer_states(c, layers, stage), c.cluster().accelerator);
}

}  // namespace scalemodel
