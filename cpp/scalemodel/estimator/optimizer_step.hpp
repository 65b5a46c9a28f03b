// The update of the parameters, once per step.
#pragma once

#include "scalemodel/costs/update.hpp"
#include "scalemodel/estimator/stage_terms.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {

/// What is gathered is cast from shards of the master weights; no other copy of the weights is
/// kept.
inline bool keeps_masters_only(const StepContext& c) {
  return c.weights_sharded && c.stack().master_shards &&
         separate_master_bytes(c.task(), c.storage_bytes) > 0 && !c.conditions.frozen_base;
}

/// Trainable parameters a rank holds optimizer states of.
inline double updated_parameters(const StepContext& c, const StageParameters& stage) {
  if (c.strategy.sharding == Sharding::ddp) return stage.trainable_dense + stage.trainable_expert;
  return stage.trainable_dense / c.groups.dense_shard_ranks +
         stage.trainable_expert / c.groups.expert_shard_ranks;
}

/// Reading and writing of everything an update touches.
inline Seconds optimizer_time(const StepContext& c, const StageParameters& stage) {
  const double updated = updated_parameters(c, stage);
  const double held = c.gathered || c.strategy.sharding == Sharding::zero2
                          ? updated
                          : stage.trainable_dense + stage.trainable_expert;
  // Gradients that are all-reduced in another format are flattened, divided, cast, cast back and
  // copied out: 24 bytes each at two bytes stored.
  const bool copied = c.stack().reduces_fp32 && c.gradient_bytes < 4 && c.groups.dense_ranks > 1;
  const double copies = copied ? 8 * c.gradient_bytes + 8 : 0;
  // Gradients of autocast weights are added up in FP32 by a kernel of its own, those of the first
  // micro-batch excepted.
  const double additions = c.stack().autocast ? 12 * (c.degrees.micro_batches - 1) : 0;
  const Bytes bytes = update_bytes(updated, held, c.gradient_bytes, c.task(), c.storage_bytes) +
                      Bytes{held * (copies + additions)};
  const Accelerator& accelerator = c.cluster().accelerator;
  return memory_time(bytes, accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                     accelerator);
}

}  // namespace scalemodel
