#include "scalemodel/estimator/stage_parts.hpp"

#include "scalemodel/estimator/pass_times.hpp"
#include "scalemodel/estimator/stage_memory.hpp"
#include "scalemodel/estimator/step_traffic.hpp"

namespace scalemodel {

StageParts stage_parts(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                       const Cell& cell, const StageLayout& stages, const StageClass& stage,
                       double gradient_compression) {
  const StepContext c = make_context(tables, strategy, degrees, cell, stages);
  StepContext wire = c;
  wire.gradient_bytes *= gradient_compression;
  LayerGathers gathers(wire);
  const StageCost cost = stage_cost(wire, stage, gathers);
  const double share = stages.mirrored ? 0.5 : 1;
  StageParts parts;
  parts.forward = cost.forward;
  parts.backward = cost.backward;
  parts.recompute = cost.recompute;
  parts.weight_gradient = cost.weight_gradient;
  parts.first_gather = cost.first_gather;
  parts.last_reduce = cost.last_reduce;
  parts.forward_dp = cost.forward_gather;
  parts.backward_dp = cost.gather_exposed - cost.forward_gather;
  parts.forward_offload = cost.forward_offload;
  parts.backward_offload = cost.offload_exposed - cost.forward_offload;
  parts.saved = share * saved_bytes(c, stage);
  if (stage.embedding) parts.saved += share * cell.embedding.saved;
  if (stage.head) {
    parts.head_saved = cell.head.saved;
    parts.logits = cell.head.working;
  }
  const double stored = cost.dense + cost.expert;
  parts.trainable_dense = cost.trainable_dense;
  parts.trainable_expert = cost.trainable_expert;
  const double trainable = cost.trainable_dense + cost.trainable_expert;
  const Bytes weights{c.storage_bytes * stored};
  parts.parameter_bytes = quantizes_gather(c) ? Bytes{kGatheredWithScale * stored} : weights;
  parts.gradient_bytes = Bytes{
      (quantizes_reduce(c, c.groups.dense_shard) ? reduced_with_scale(c) : wire.gradient_bytes) *
      trainable};
  if (strategy.offload_weights) parts.host_bytes += share * weights;
  if (strategy.offload_activations) parts.host_bytes += parts.saved;
  parts.host_one_way = host_transfer_time(parts.host_bytes, c.cluster().accelerator);
  if (c.gathered) {
    const EndParameters ends = end_parameters(c, stage);
    const double firsts = first_share(wire, share);
    const EachGather of_ends = end_gather_times(wire, ends);
    parts.pass_gather = share * of_ends.mean(firsts);
    parts.pass_again = share * of_ends.again;
    parts.pass_reduce = share * reduce_time(wire, ends.trainable, 0, 1);
    for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
      parts.pass_gather += share * stage.layers[k] * gathers[k].gather.mean(firsts);
      parts.pass_again += share * stage.layers[k] * gathers[k].gather.again;
      parts.pass_reduce += share * stage.layers[k] * gathers[k].reduce;
    }
  } else {
    const double dense = cost.trainable_dense, expert = cost.trainable_expert;
    const double layers = stage.total_layers();
    if (strategy.sharding != Sharding::ddp) {
      parts.step_gather = gather_time(wire, dense, expert, layers);
      parts.expert_gather = gather_time(wire, 0, expert, layers);
    }
    const Seconds reduce = reduce_time(wire, dense, expert, layers);
    const bool every_pass = strategy.sharding == Sharding::zero2;
    (every_pass ? parts.pass_reduce : parts.step_reduce) = every_pass ? share * reduce : reduce;
    if (!every_pass) parts.expert_reduce = reduce_time(wire, 0, expert, layers);
  }
  if (gradient_compression < 1) {
    const Accelerator& accelerator = c.cluster().accelerator;
    parts.encode = memory_time(Bytes{c.gradient_bytes * trainable} + parts.gradient_bytes,
                               accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                               accelerator);
  }
  parts.optimizer = optimizer_time(c, stage, cost);
  if (c.strategy.offload_optimizer) parts.optimizer_transfer = optimizer_transfer(c, stage, cost);
  parts.memory = peak_memory(c, stage, cost);
  parts.in_flight = in_flight(c, stage);
  parts.head_in_flight = head_in_flight(c.schedule, degrees.pp, degrees.micro_batches, false);
  return parts;
}

PipelineParts pipeline_parts(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                             const Cell& cell, const StageLayout& stages) {
  const StepContext c = make_context(tables, strategy, degrees, cell, stages);
  PipelineParts parts;
  if (degrees.pp > 1) parts.hop = hop_time(c);
  parts.boundary = boundary(c);
  parts.transfers_overlap = transfers_overlap(c);
  parts.transfers_serial = transfers_serial(c);
  parts.gathered = c.gathered;
  parts.hide_gather = enabled(strategy.overlap_param_gather, c.stack().overlap_param_gather);
  parts.hide_reduce = enabled(strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  return parts;
}

}  // namespace scalemodel
