#include "scalemodel/estimator/stage_memory.hpp"

#include <algorithm>

#include "scalemodel/costs/update.hpp"
#include "scalemodel/estimator/optimizer_step.hpp"
#include "scalemodel/estimator/pass_times.hpp"

namespace scalemodel {

namespace {

/// Parameters, their gradients and optimizer states.
void add_states(ResidentMemory& memory, const StepContext& c, const StageClass& stage,
                const StageParameters& parameters) {
  const Strategy& s = c.strategy;
  const MemoryPolicy& stack = c.stack();
  const DataParallelGroups& g = c.groups;
  const auto shared = [&](double dense, double expert, bool sharded) {
    return sharded ? dense / g.dense_shard_ranks + expert / g.expert_shard_ranks : dense + expert;
  };
  const double narrow_bytes = operand_bytes(c.conditions.precision);
  const bool narrow = narrow_bytes < c.storage_bytes;
  // Narrow formats keep a quantised copy of the linear weights beside the stored one; frozen
  // weights need no other, nor do those that a stack casts from the master weights.
  const bool alone = narrow && stack.narrow_weights && !c.conditions.frozen_base;
  const double weight_bytes =
      c.conditions.frozen_base || alone
          ? narrow_bytes
          : c.storage_bytes + (narrow && !c.weights_sharded ? narrow_bytes : 0);
  // Where what is gathered is cast from the master weights, these are the shards. A lower bound
  // leaves them with the optimizer unless weights may go to the host.
  const bool masters_only = keeps_masters_only(c);
  if (!masters_only) {
    memory.weights =
        Bytes{weight_bytes * shared(parameters.dense, parameters.expert, c.weights_sharded)};
    if (alone) {  // embedding and LM head are never narrow
      memory.weights += Bytes{(c.storage_bytes - narrow_bytes) *
                              shared(end_parameters(c, stage).all, 0, c.weights_sharded)};
    }
  }
  const bool gradients_sharded = c.gathered || s.sharding == Sharding::zero2;
  memory.gradients =
      Bytes{c.gradient_bytes *
            shared(parameters.trainable_dense, parameters.trainable_expert, gradients_sharded)};
  if (stack.narrow_gradients && c.gradient_bytes > c.storage_bytes) {
    memory.gradients +=
        Bytes{c.storage_bytes * (parameters.trainable_dense + parameters.trainable_expert)};
  }
  // A lower bound must not copy either: it may stand for replicas that do not share states out.
  const bool copies = s.sharding != Sharding::ddp && !c.free_host;
  const double copy = copies ? stack.optimizer_copy.base() : 0;
  memory.optimizer =
      optimizer_states(c, stage, parameters) + Bytes{copy * updated_parameters(c, parameters)};
  if (masters_only && (c.gathered || s.offload_weights)) {
    memory.weights = Bytes{c.task().master_bytes * updated_parameters(c, parameters)};
    memory.optimizer = memory.optimizer - memory.weights;
  }
}

/// A second copy of the parameters, as wide as they are stored, which its group shards.
void add_secondary(ResidentMemory& memory, const StepContext& c,
                   const StageParameters& parameters) {
  if (const SecondaryGroups secondary = secondary_groups(c)) {
    memory.weights +=
        gathers_of(*secondary).shard({parameters.dense, parameters.expert}, c.storage_bytes);
  }
}

/// What micro-batches in flight save.
void add_activations(PassingMemory& memory, const StepContext& c, const StageClass& stage) {
  const double share = c.stages.mirrored ? 0.5 : 1;
  const double held = in_flight(c, stage);
  const Bytes per_micro_batch = share * saved_bytes(c, stage);
  memory.activations = held * per_micro_batch;
  const auto heads = [&](bool logits) {
    return head_in_flight(c.schedule, c.degrees.pp, c.degrees.micro_batches, logits);
  };
  if (stage.embedding) memory.activations += held * share * c.cell.embedding.saved;
  if (stage.head) memory.activations += heads(false) * c.cell.head.saved;
  if (c.stack().keep_stage_outputs && !stage.head) {
    memory.activations +=
        held * (c.strategy.sequence_parallel ? 1 : c.degrees.tp) * c.cell.boundary;
  }
  if (stage.head) memory.logits = heads(true) * c.cell.head.working;
  memory.held = held;
}

/// What layers work in, one after the other.
void add_working_sets(PassingMemory& memory, const StepContext& c, const StageClass& stage) {
  const Strategy& s = c.strategy;
  const auto none = static_cast<std::size_t>(Recompute::none);
  const auto mode = static_cast<std::size_t>(s.recompute);
  double distinct = 0;
  Bytes temporary;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    // A recomputed layer is whole again while its backward pass runs.
    const Bytes whole =
        s.recompute == Recompute::none ? Bytes{} : layer.saved[none] - layer.saved[mode];
    temporary = max(temporary, layer.working + whole);
    distinct = std::max(distinct, layer.distinct_parameters);
  }
  if (stage.embedding) temporary = max(temporary, c.cell.embedding.working);
  // Layers work before or after the head does, unless DualPipe runs the other direction meanwhile.
  const bool apart = stage.head && !c.stages.pairs;
  memory.temporary = max(Bytes{}, temporary - (apart ? c.cell.head.working : Bytes{}));
  if (c.stack().unused_gradients && c.gradient_bytes > c.storage_bytes &&
      !c.conditions.frozen_base) {
    memory.temporary +=
        Bytes{c.storage_bytes * (distinct + (stage.head ? c.cell.head.parameters : 0))};
  }
  // Sequence parallelism gathers the whole stream in front of a block.
  if (s.sequence_parallel && c.degrees.tp > 1) {
    memory.communication += c.degrees.tp * c.cell.boundary;
  }
  if (c.degrees.pp > 1) memory.communication += 2 * boundary(c);
}

/// Parameters of a layer and of the next one, and the gradients of one.
Bytes gathered_parameters(const StepContext& c, const StageClass& stage) {
  double widest_layer = 0, widest_trainable = 0;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    widest_layer = std::max(widest_layer, layer.dense_parameters + layer.expert_parameters);
    widest_trainable = std::max(widest_trainable, layer.trainable_dense + layer.trainable_expert);
  }
  return Bytes{c.storage_bytes * (2 * widest_layer + end_parameters(c, stage).all) +
               c.gradient_bytes * widest_trainable};
}

}  // namespace

PassingMemory passing_memory(const StepContext& c, const StageClass& stage) noexcept {
  PassingMemory memory;
  add_activations(memory, c, stage);
  add_working_sets(memory, c, stage);
  return memory;
}

ResidentMemory resident_memory(const StepContext& c, const StageClass& stage,
                               const StageParameters& parameters) noexcept {
  ResidentMemory memory;
  add_states(memory, c, stage, parameters);
  add_secondary(memory, c, parameters);
  memory.copies = update_copies(c, stage, parameters);
  if (c.gathered) memory.gathered = gathered_parameters(c, stage);
  memory.two_layers = std::min(1.0, 2.0 / std::max(1, stage.total_layers()));
  return memory;
}

MemoryByKind memory_by_kind(const StepContext& c, const StageClass& stage,
                            const StageParameters& parameters) noexcept {
  return resident_memory(c, stage, parameters)
      .offloaded(offload_of(c.strategy), passing_memory(c, stage));
}

MemoryKinds peak_memory(const StepContext& c, const StageClass& stage,
                        const StageParameters& parameters) {
  const MemoryByKind of_stage = memory_by_kind(c, stage, parameters);
  const MemoryByKind memory = of_stage.at_peak();
  return {
      memory.weights,       memory.gradients, memory.optimizer,
      memory.activations,   memory.logits,    memory.temporary,
      memory.communication, memory.gathered,  c.stack().reserve + of_stage.fragments(c.stack())};
}

}  // namespace scalemodel
