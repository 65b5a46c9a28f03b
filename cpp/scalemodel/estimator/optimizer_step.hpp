// The update of the parameters, once per step.
#pragma once

#include <algorithm>
#include <cmath>

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

/// Bytes of a master weight that the stored one holds already.
inline double stored_master_bytes(const StepContext& c) {
  const bool shared = c.stack().master_remainders && c.storage_bytes == 2;
  return shared && separate_master_bytes(c.task(), c.storage_bytes) > 0 ? c.storage_bytes : 0;
}

/// Matrices that an optimizer updates as wholes, those of layers and those of embedding and head.
struct StageMatrices {
  MatrixUpdates dense, expert, ends;
};

inline StageMatrices stage_matrices(const StepContext& c, const StageClass& stage) {
  StageMatrices sum;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    const double n = stage.layers[k];
    sum.dense += n * c.cell.layers[k].dense_updates;
    sum.expert += n * c.cell.layers[k].expert_updates;
  }
  if (holds_embedding(c, stage)) sum.ends += c.cell.embedding.updates;
  if (stage.head) sum.ends += c.cell.head.updates;
  return sum;
}

/// Ranks that whole matrices are dealt out to: those that shard optimizer states, as
/// LayerWiseDistributedOptimizer of Megatron-Core and the distributors of Distributed Shampoo do.
/// Replicas that share nothing repeat each other's updates.
inline double dense_owners(const StepContext& c) {
  return c.strategy.sharding == Sharding::ddp ? 1 : c.groups.dense_shard_ranks;
}
inline double expert_owners(const StepContext& c) {
  return c.strategy.sharding == Sharding::ddp ? 1 : c.groups.expert_shard_ranks;
}

/// Of `matrices` that take `time` one after the other, whole ones dealt out to `owners`: the
/// busiest owner has the most of them.
inline Seconds owned_time(double matrices, Seconds time, double owners) {
  return matrices > 0 ? std::ceil(matrices / owners) / matrices * time : Seconds{};
}

/// The same of bytes that they hold.
inline Bytes owned_bytes(const MatrixUpdates& updates, double owners) {
  const double matrices = updates.matrices;
  return matrices > 0 ? std::ceil(matrices / owners) / matrices * updates.factors : Bytes{};
}

/// Bytes of Kronecker factors and of what is computed from them that a rank holds.
inline Bytes factor_bytes(const StepContext& c, const StageClass& layers) {
  StageMatrices all = stage_matrices(c, layers);
  all.dense += all.ends;
  return owned_bytes(all.dense, dense_owners(c)) + owned_bytes(all.expert, expert_owners(c));
}

/// Bytes of the optimizer states that a rank holds. Muon has one moment of the matrices of layers,
/// and Adam's two of embedding and head.
inline Bytes optimizer_states(const StepContext& c, const StageClass& layers,
                              const StageParameters& stage) {
  const double each = state_bytes(c.task(), c.storage_bytes) - stored_master_bytes(c);
  Bytes states{each * updated_parameters(c, stage)};
  if (c.conditions.matrix_optimizer) {
    const double ranks = dense_owners(c);
    states += Bytes{second_moment_bytes(c.task()) * end_parameters(c, layers).trainable / ranks};
    states += factor_bytes(c, layers);
  }
  return states;
}

/// Whether Adam copies moments narrower than FP32 before it updates them.
inline bool copies_moments(const StepContext& c) {
  return c.stack().update_copies_moments && c.task().optimizer == Optimizer::adam &&
         c.task().moment_bytes < 4;
}

/// Bytes that an update copies while it runs: FP32 gradients from the reduction to the next step's
/// zeroing; then, of dense parameters and of experts one after the other, FP32 moments before the
/// kernel runs and 16-bit weights before they are quantised. Ranks that shard weights update what
/// they reduced. Sources: NVIDIA/Megatron-LM, distrib_optimizer.py,
/// _copy_model_grads_to_main_grads; NVIDIA/TransformerEngine, pytorch/optimizers/fused_adam.py,
/// get_unscaled_state, and pytorch/tensor/utils.py, cast_master_weights_to_fp8.
inline Bytes update_copies(const StepContext& c, const StageClass& layers,
                           const StageParameters& stage) {
  if (c.weights_sharded) return {};
  const bool shared = c.strategy.sharding != Sharding::ddp;
  const double ranks = shared ? c.groups.dense_shard_ranks : 1;
  const double dense = stage.trainable_dense / ranks;
  const double expert = stage.trainable_expert / (shared ? c.groups.expert_shard_ranks : 1);
  const bool gradients = c.stack().update_copies_gradients && c.gradient_bytes < 4;
  const bool casts = c.stack().narrow_weights && !c.conditions.frozen_base &&
                     operand_bytes(c.conditions.precision) < c.storage_bytes;
  const double of_moments = copies_moments(c) ? 4.0 * moments(c.task().optimizer) : 0;
  const double of_layers = dense - end_parameters(c, layers).trainable / ranks;
  return Bytes{(gradients ? 4 : 0) * (dense + expert) +
               std::max(of_moments * std::max(dense, expert),
                        casts ? c.storage_bytes * std::max(of_layers, expert) : 0)};
}

/// What an optimizer computes with the whole matrices of a stage, whose owners gather what others
/// updated. No owner is done before the longest matrix that it has: one of embedding or head.
inline Seconds matrices_time(const StepContext& c, const StageClass& stage) {
  const StageMatrices all = stage_matrices(c, stage);
  MatrixUpdates dense = all.dense;
  dense += all.ends;
  return max(owned_time(dense.matrices, dense.time, dense_owners(c)),
             owned_time(all.ends.matrices, all.ends.time, dense_owners(c))) +
         owned_time(all.expert.matrices, all.expert.time, expert_owners(c));
}

/// Bytes that an optimizer of whole matrices moves beyond those of `update_bytes`, which counts
/// Adam's.
inline Bytes matrices_bytes(const StepContext& c, const StageClass& stage, double updated) {
  const bool ends = c.task().optimizer != Optimizer::muon;
  const double of_adam = ends ? 0 : end_parameters(c, stage).trainable / dense_owners(c);
  const double adam = update_bytes(1, 0, c.gradient_bytes, c.task(), c.storage_bytes) / Bytes{1};
  return Bytes{(updated - of_adam) *
               (matrix_update_bytes(c.task(), c.gradient_bytes, c.storage_bytes) - adam)};
}

/// Reading and writing of everything an update touches.
inline Seconds optimizer_time(const StepContext& c, const StageClass& layers,
                              const StageParameters& stage) {
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
  // Copied moments: FP32 written, read and written by the update, read, cast and copied back.
  const double casts = copies_moments(c) ? moments(c.task().optimizer) * (4.0 * 4 + 2 * 2) : 0;
  Bytes bytes = update_bytes(updated, held, c.gradient_bytes, c.task(), c.storage_bytes) +
                Bytes{held * (copies + additions) + updated * casts};
  Seconds computing;
  if (c.conditions.matrix_optimizer) {
    bytes += matrices_bytes(c, layers, updated);
    computing = matrices_time(c, layers);
  }
  const Accelerator& accelerator = c.cluster().accelerator;
  return computing + memory_time(bytes,
                                 accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                                 accelerator);
}

}  // namespace scalemodel
