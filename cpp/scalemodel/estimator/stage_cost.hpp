// What one pipeline stage costs: the terms that estimates and timelines are summed up from. Private
// to the estimator; inline, because an evaluation calls everything here once or twice.
#pragma once

#include <algorithm>
#include <array>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/costs/update.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/ops/smooth_max.hpp"
#include "scalemodel/schedule/pipeline.hpp"
#include "scalemodel/timeline/step_costs.hpp"

namespace scalemodel::detail {

/// What an evaluation reads again and again.
struct Context {
  const Tables& tables;
  Strategy strategy;  ///< its sharding by what it means
  Degrees degrees;
  const Cell& cell;
  const StageLayout& stages;
  const Conditions& conditions;
  DataParallelGroups groups;
  Schedule schedule;
  double storage_bytes;   ///< of a weight or activation
  double gradient_bytes;  ///< of a gradient as accumulated and reduced
  double reach;           ///< share of compute that can hide communication
  bool gathered;          ///< parameters live sharded and are gathered layer by layer
  bool weights_sharded;   ///< the same but in a lower bound, which pays for no gathering
  bool free_host;         ///< lower bound: host transfers cost nothing
  RecentDurations* recent = nullptr;  ///< of the same stages, if kept

  const Cluster& cluster() const { return tables.cluster(); }
  const Stack& stack() const { return tables.stack(); }
  const Task& task() const { return tables.task(); }
};

/// Parameter-gathering traffic of one layer kind (or of the ends) per micro-batch.
struct GatherTimes {
  Seconds gather, reduce;
  // What of it a layer exposes, once asked for: the same in every stage that recomputes alike.
  double recomputed = -1;  ///< share of the layers
  Seconds forward_exposed, backward_exposed;
};

/// One pipeline stage, one micro-batch.
struct StageCost {
  Phase forward, backward, recompute;
  Seconds weight_gradient;
  Seconds gather_exposed;  ///< sharded parameters
  Seconds offload_exposed;
  Seconds forward_gather, forward_offload;  ///< parts of them in the forward pass
  Seconds first_gather, last_reduce;        ///< of sharded parameters: without a neighbour to hide
  Seconds ends;                             ///< part of the passes for token table and head
  Seconds paired_forward, paired_backward;  ///< exposed by passes that no other one runs beside
  double dense = 0, expert = 0;             ///< parameters
  double trainable_dense = 0, trainable_expert = 0;

  Phase passes() const { return forward + backward + recompute; }
  Seconds hidden() const { return passes().hidden; }
  Seconds forward_busy(double contention) const {
    return forward.total() + contention * forward.hidden + forward_gather + forward_offload;
  }
  Seconds busy(double contention) const {
    return passes().total() + contention * hidden() + gather_exposed + offload_exposed;
  }
};

inline Seconds uncovered(Seconds communication, Seconds cover) {
  return max(Seconds{}, communication - cover);
}

/// Large matrices of a dense layer: query-key-value, attention output, up and down.
inline constexpr double kLayerMatrices = 4;

/// Moving parameters or gradients of `size` over a shard group. Tensor by tensor a layer takes as
/// many collectives as it has large matrices, and each of them two copies per rank:
/// lists of tensors are copied from and to a flat buffer. ZeRO-2 moves `layers` one by one.
inline double shard_pieces(const Context& c, double layers) {
  if (c.gathered && c.stack().tensor_gathers) return kLayerMatrices;
  const bool by_layer = !c.gathered && c.strategy.sharding == Sharding::zero2;
  return by_layer ? std::max(1.0, layers) : 1;
}

inline Seconds shard_time(const Context& c, Collective op, Bytes size, const GroupShape& group,
                          double layers) {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  const bool tensors = c.gathered && c.stack().tensor_gathers;
  const double pieces = shard_pieces(c, layers);
  const Seconds copies = tensors ? 2.0 * group.ranks * c.stack().host_launch : Seconds{};
  return pieces * (collective_time(op, size / pieces, group, c.cluster()) + copies);
}

/// Gathering `dense` and `expert` parameters over their shard groups: calls
/// `shard(communicator, collective, size, group)` for both and adds up what it returns.
template <class Shard>
auto each_gather(const Context& c, double dense, double expert, const Shard& shard) {
  const auto run = [&](Communicator communicator, double parameters, const GroupShape& group) {
    return shard(communicator, Collective::all_gather, Bytes{c.storage_bytes * parameters}, group);
  };
  return run(Communicator::dense_shard, dense, c.groups.dense_shard) +
         run(Communicator::expert_shard, expert, c.groups.expert_shard);
}

/// Of `layers` layers.
inline Seconds gather_time(const Context& c, double dense, double expert, double layers) {
  return each_gather(c, dense, expert,
                     [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
                       return shard_time(c, op, size, group, layers);
                     });
}

/// Reducing the gradients of `dense` and `expert` parameters over their shard groups; across shard
/// groups (HSDP) the reduced shard is all-reduced. `shard` and `replica` as in `each_gather`.
template <class Shard, class Replica>
auto each_reduce(const Context& c, double dense, double expert, const Shard& shard,
                 const Replica& replica) {
  const DataParallelGroups& g = c.groups;
  const bool whole = !c.gathered && c.stack().all_reduces_gradients;
  const Collective reduction = whole ? Collective::all_reduce : Collective::reduce_scatter;
  const double kept_bytes = c.conditions.gradients_fp32 ? 4 : c.storage_bytes;
  const double travelling_bytes = c.gradient_bytes * (c.stack().reduces_fp32 ? 4 / kept_bytes : 1);
  const Bytes dense_size{travelling_bytes * dense}, expert_size{travelling_bytes * expert};
  return shard(Communicator::dense_shard, reduction, dense_size, g.dense_shard) +
         replica(Communicator::dense_replica, Collective::all_reduce,
                 dense_size / g.dense_shard_ranks, g.dense_replica) +
         (shard(Communicator::expert_shard, reduction, expert_size, g.expert_shard) +
          replica(Communicator::expert_replica, Collective::all_reduce,
                  expert_size / g.expert_shard_ranks, g.expert_replica));
}

inline Seconds reduce_time(const Context& c, double dense, double expert, double layers) {
  return each_reduce(
      c, dense, expert,
      [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return shard_time(c, op, size, group, layers);
      },
      [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return collective_time(op, size, group, c.cluster());
      });
}

/// Of one layer of each kind, where they are gathered layer by layer.
inline std::array<GatherTimes, kMaxLayerKinds> layer_gather_times(const Context& c) {
  std::array<GatherTimes, kMaxLayerKinds> gathers{};
  if (!c.gathered) return gathers;
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    const LayerCost& layer = c.cell.layers[k];
    gathers[k].gather = gather_time(c, layer.dense_parameters, layer.expert_parameters, 1);
    gathers[k].reduce = reduce_time(c, layer.trainable_dense, layer.trainable_expert, 1);
  }
  return gathers;
}

/// Parameters of the token table and head that a stage holds; the last stage of a pipeline keeps
/// its own copy of a shared token table.
struct EndParameters {
  double all = 0, trainable = 0;
};

inline EndParameters end_parameters(const Context& c, const StageClass& stage) {
  EndParameters ends;
  const auto add = [&](const EndCost& end) {
    ends.all += end.parameters;
    ends.trainable += end.trainable;
  };
  const bool copy = stage.head && !stage.embedding && c.tables.model().tied_embeddings;
  if (stage.embedding || copy) add(c.cell.embedding);
  if (stage.head) add(c.cell.head);
  return ends;
}

/// Share of a stage's layers that is recomputed.
inline double recompute_share(const Strategy& strategy, const StageClass& stage) {
  if (strategy.recompute == Recompute::none) return 0;
  if (strategy.recompute_layers == 0) return 1;
  const int own = stage.stage_layers > 0 ? stage.stage_layers : stage.total_layers();
  return std::min(1.0, strategy.recompute_layers / static_cast<double>(std::max(1, own)));
}

/// What stays in the open of a layer's `traffic` beside the compute of its neighbour:
///
///     (traffic^p + compute^p)^(1/p) - compute,  p = 1/(1 - overlap efficiency)
///
/// All of it at efficiency 0, only the excess over the compute at 1. In between the two take
/// turns at being late: ranks arrive one after another and kernels get in each other's way, more
/// often the nearer the traffic comes to the compute, so that exposure grows with the group
/// instead of setting in where the two are equal.
inline Seconds exposed_beside(Seconds traffic, Seconds compute, double efficiency) {
  if (efficiency >= 1 || compute <= Seconds{}) return uncovered(traffic, compute);
  if (efficiency <= 0 || traffic <= Seconds{}) return traffic;
  const double ratio = traffic / compute;
  return (smooth_max(ratio, 1, 1 / (1 - efficiency)) - 1) * compute;
}

/// A repeated forward pass that released its parameters gathers them once more.
inline double repeated_gathers(const Context& c, double recomputed) {
  return c.stack().tensor_gathers ? recomputed : 0;
}

/// Fully sharded parameters: each layer is gathered before its forward and before its backward
/// pass, its gradient reduced after; one layer ahead is in flight, beside its neighbour's compute.
/// The ends are gathered and reduced in the open.
inline void add_parameter_gathering(StageCost& cost, const Context& c, const StageClass& stage,
                                    std::array<GatherTimes, kMaxLayerKinds>& gathers,
                                    double share) {
  const bool hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const bool hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const double again_gathers = repeated_gathers(c, recomputed);
    const Seconds open = (hide_gather ? Seconds{} : (2 + again_gathers) * gathers[k].gather) +
                         (hide_reduce ? Seconds{} : gathers[k].reduce);
    const Seconds forward_traffic = hide_gather ? gathers[k].gather : Seconds{};
    const Seconds backward_traffic =
        (1 + again_gathers) * forward_traffic + (hide_reduce ? gathers[k].reduce : Seconds{});
    if (gathers[k].recomputed != recomputed) {
      // What tensor, context and expert parallelism hid already is no cover any more.
      const Phase again = recomputed * layer.recompute[mode];
      const Seconds forward_cover = uncovered(layer.forward.compute, layer.forward.hidden);
      const Seconds backward_cover =
          uncovered(layer.backward.compute + again.compute, layer.backward.hidden + again.hidden);
      gathers[k].recomputed = recomputed;
      gathers[k].forward_exposed = exposed_beside(forward_traffic, forward_cover, c.reach);
      gathers[k].backward_exposed = exposed_beside(backward_traffic, backward_cover, c.reach);
    }
    const Seconds forward_exposed = gathers[k].forward_exposed;
    const Seconds backward_exposed = gathers[k].backward_exposed;
    const double n = share * stage.layers[k];
    cost.gather_exposed += n * (open + forward_exposed + backward_exposed);
    cost.forward_gather += n * (hide_gather ? forward_exposed : gathers[k].gather);
    cost.forward.hidden += n * (forward_traffic - forward_exposed);
    cost.backward.hidden += n * (backward_traffic - backward_exposed);
    const double part = stage.layers[k] / static_cast<double>(stage.total_layers());
    if (hide_gather) cost.first_gather += part * (forward_traffic - forward_exposed);
    if (hide_reduce) {
      cost.last_reduce += part * min(gathers[k].reduce, backward_traffic - backward_exposed);
    }
  }
  const EndParameters ends = end_parameters(c, stage);
  const Seconds gather = gather_time(c, ends.all, 0, 1);
  const Seconds reduce = reduce_time(c, ends.trainable, 0, 1);
  cost.gather_exposed += share * (gather + reduce);
  cost.ends += share * (gather + reduce);
  cost.forward_gather += share * gather;
}

/// Compute of a pass that nothing runs under yet.
inline Seconds cover_left(const Context& c, const Phase& pass) {
  return uncovered(c.reach * pass.compute, pass.hidden);
}

/// Bytes a stage keeps of one micro-batch.
inline Bytes saved_bytes(const Context& c, const StageClass& stage) {
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  Bytes saved;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    const BytesByRecompute& bytes = c.cell.layers[k].saved;
    saved +=
        stage.layers[k] * (recomputed * bytes[mode] +
                           (1 - recomputed) * bytes[static_cast<std::size_t>(Recompute::none)]);
  }
  return saved;
}

/// Weights and activations in host memory travel once each way per micro-batch, under compute;
/// `share`: of the weights that a micro-batch meets.
inline void add_host_traffic(StageCost& cost, const Context& c, const StageClass& stage,
                             double share) {
  const Strategy& s = c.strategy;
  if (c.free_host || (!s.offload_weights && !s.offload_activations)) return;
  const Bytes weights{s.offload_weights ? share * c.storage_bytes * (cost.dense + cost.expert) : 0};
  const Bytes activations = s.offload_activations ? share * saved_bytes(c, stage) : Bytes{};
  const Seconds one_way = host_transfer_time(weights + activations, c.cluster().accelerator);
  const Seconds forward_exposed = uncovered(one_way, cover_left(c, cost.forward));
  const Seconds backward_exposed = uncovered(one_way, cover_left(c, cost.backward));
  cost.offload_exposed = forward_exposed + backward_exposed;
  cost.forward_offload = forward_exposed;
  cost.forward.hidden += one_way - forward_exposed;
  cost.backward.hidden += one_way - backward_exposed;
}

/// What stays in the open of `traffic` in as many buckets as the stage has layers: at least one,
/// and all but one layer's compute cover the others.
inline Seconds exposed_traffic(Seconds traffic, Seconds cover, double buckets, bool hide) {
  if (!hide) return traffic;
  return max(uncovered(traffic, (1 - 1 / buckets) * cover), traffic / buckets);
}

/// Chunks of a stage, or of one of its chunks: what passes of their own reduce.
inline double chunks_of(const Context& c, const StageClass& stage) {
  if (stage.stage_layers > 0) return 1;
  return c.stages.mirrored ? 2 : c.degrees.vpp;
}

/// ZeRO-2 keeps only a shard of the gradients, so every micro-batch reduces them chunk by chunk,
/// each under its own backward pass.
inline void add_repeated_reduction(StageCost& cost, const Context& c, const StageClass& stage,
                                   double share, const EndParameters& ends) {
  const bool hide = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double chunks = chunks_of(c, stage);
  const double layers = std::max(1.0, stage.total_layers() / chunks);
  const Seconds each =
      reduce_time(c, cost.trainable_dense / chunks, cost.trainable_expert / chunks, layers);
  const Seconds reduce = share * chunks * each;
  const Seconds cover = cover_left(c, cost.backward + cost.recompute);
  const Seconds exposed = exposed_traffic(reduce, cover, layers, hide);
  cost.gather_exposed += exposed;
  cost.backward.hidden += reduce - exposed;
  // Token table and head reduce theirs in the chunks that they are in.
  const double trainable = cost.trainable_dense + cost.trainable_expert;
  if (trainable > 0) cost.ends += (ends.trainable / trainable) * exposed;
}

inline StageCost stage_cost(const Context& c, const StageClass& stage,
                            std::array<GatherTimes, kMaxLayerKinds>& gathers) {
  // A DualPipe stage holds two chunks and runs half of the micro-batches through each.
  const double share = c.stages.mirrored ? 0.5 : 1;
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  StageCost cost;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const double n = stage.layers[k];
    cost.forward = cost.forward + share * n * layer.forward;
    cost.backward = cost.backward + share * n * layer.backward;
    cost.recompute = cost.recompute + share * n * recomputed * layer.recompute[mode];
    cost.weight_gradient += share * n * layer.weight_gradient;
    cost.dense += n * layer.dense_parameters;
    cost.expert += n * layer.expert_parameters;
    cost.trainable_dense += n * layer.trainable_dense;
    cost.trainable_expert += n * layer.trainable_expert;
  }
  const auto add_end = [&](const EndCost& end) {
    cost.forward = cost.forward + share * end.forward;
    cost.backward = cost.backward + share * end.backward;
    cost.weight_gradient += share * end.weight_gradient;
    cost.ends += share * (end.forward.total() + end.backward.total());
  };
  if (stage.embedding) add_end(c.cell.embedding);
  if (stage.head) add_end(c.cell.head);
  const EndParameters ends = end_parameters(c, stage);
  cost.dense += ends.all;
  cost.trainable_dense += ends.trainable;
  if (c.gathered) {
    add_parameter_gathering(cost, c, stage, gathers, share);
  }
  add_host_traffic(cost, c, stage, share);
  if (c.strategy.sharding == Sharding::zero2) add_repeated_reduction(cost, c, stage, share, ends);
  if (c.stages.mirrored) {
    // DualPipe runs one direction's dispatch and combine under the other direction's compute.
    const Seconds ep = cost.forward.ep + cost.backward.ep + cost.recompute.ep;
    const Seconds cover = cover_left(c, cost.forward) + cover_left(c, cost.backward);
    const double covered = ep > Seconds{} ? std::min(1.0, cover / ep) : 0;
    cost.paired_forward = covered * cost.forward.ep;
    cost.paired_backward = covered * (cost.backward.ep + cost.recompute.ep);
    cost.forward.hidden += cost.paired_forward;
    cost.backward.hidden += cost.paired_backward;
    cost.forward.ep = (1 - covered) * cost.forward.ep;
    cost.backward.ep = (1 - covered) * cost.backward.ep;
    cost.recompute.ep = (1 - covered) * cost.recompute.ep;
  }
  return cost;
}

/// Traffic of gradients and parameters once per step (not sharded layer by layer).
struct StepTraffic {
  Seconds gather, reduce;
  bool hide_gather, hide_reduce;
  Seconds at_ends;       ///< what the first and last layer of a step leave open, gathered by layer
  Seconds hidden;        ///< under passes, which it slows
  Seconds drain_hidden;  ///< under the last backward pass, for which the stage before waits
};

/// Chunks of a stage: each sends its own share.
inline double chunks_of_stage(const Context& c) { return c.stages.mirrored ? 2 : c.degrees.vpp; }

/// What hides of a stage's traffic, in as many buckets as it has layers, when chunk after chunk
/// takes its part: all but the critical chunk's under whole groups of up to pp micro-batches, that
/// one under a single pass but for a bucket. `cover`: of a pass through all chunks.
inline Seconds hidden_by_chunk(const Context& c, Seconds traffic, Seconds cover, double buckets) {
  const double chunks = chunks_of_stage(c);
  const double group = std::min(c.degrees.micro_batches, static_cast<double>(c.degrees.pp));
  const double passes = std::max(0.0, 1 - chunks / buckets + (chunks - 1) * group) / chunks;
  return min((1 - 1 / buckets) * traffic, passes * cover);
}

/// Gradient reduction hides under the last micro-batch's backward pass, parameter gathering under
/// the first one's forward pass: at least one bucket stays in the open. A schedule that defers
/// weight gradients reduces under nothing else. Parameters gathered layer by layer hide under their
/// neighbours, which the first and the last layer of a step lack.
inline StepTraffic step_traffic(const Context& c, const StageClass& stage, const StageCost& cost) {
  StepTraffic traffic{};
  const Sharding sharding = c.strategy.sharding;
  if (c.gathered) {
    traffic.at_ends = cost.first_gather + cost.last_reduce;
    traffic.hidden = Seconds{} - traffic.at_ends;
    return traffic;
  }
  traffic.hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  traffic.hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const double buckets = std::max(1, stage.total_layers());
  const double dense = cost.trainable_dense, expert = cost.trainable_expert;
  if (sharding != Sharding::zero2) traffic.reduce = reduce_time(c, dense, expert, buckets);
  if (sharding != Sharding::ddp) traffic.gather = gather_time(c, dense, expert, buckets);
  const bool deferred =
      c.degrees.pp > 1 && (c.schedule == Schedule::zero_bubble || c.schedule == Schedule::dualpipe);
  // The first and the last passes run alone.
  const Seconds backward = cover_left(c, cost.backward + cost.recompute) + cost.paired_backward;
  const Seconds last = deferred ? c.reach * cost.weight_gradient : backward;
  const Seconds forward = cover_left(c, cost.forward) + cost.paired_forward;
  if (traffic.hide_gather) {
    traffic.hidden += hidden_by_chunk(c, traffic.gather, forward, buckets);
  }
  if (traffic.hide_reduce) {
    traffic.hidden += hidden_by_chunk(c, traffic.reduce, last, buckets);
    const double others = std::max(0.0, 1 - chunks_of_stage(c) / buckets);
    if (!deferred) traffic.drain_hidden = others * min(traffic.reduce, last);
  }
  return traffic;
}

/// What is gathered is cast from shards of the master weights; no other copy of the weights is
/// kept.
inline bool keeps_masters_only(const Context& c) {
  return c.weights_sharded && c.stack().master_shards && c.task().master_bytes > 0 &&
         !c.conditions.frozen_base;
}

/// Trainable parameters a rank holds optimizer states of.
inline double updated_parameters(const Context& c, const StageCost& cost) {
  if (c.strategy.sharding == Sharding::ddp) return cost.trainable_dense + cost.trainable_expert;
  return cost.trainable_dense / c.groups.dense_shard_ranks +
         cost.trainable_expert / c.groups.expert_shard_ranks;
}

/// Reading and writing of everything an update touches.
inline Seconds optimizer_time(const Context& c, const StageCost& cost) {
  const double updated = updated_parameters(c, cost);
  const double held = c.gathered || c.strategy.sharding == Sharding::zero2
                          ? updated
                          : cost.trainable_dense + cost.trainable_expert;
  // Gradients that are all-reduced in another format are flattened, divided, cast, cast back and
  // copied out: 24 bytes each at two bytes stored.
  const bool copied = c.stack().reduces_fp32 && c.gradient_bytes < 4 && c.groups.dense_ranks > 1;
  const double copies = copied ? 8 * c.gradient_bytes + 8 : 0;
  const Bytes bytes =
      update_bytes(updated, held, c.gradient_bytes, state_bytes(c.task()), c.storage_bytes) +
      Bytes{held * copies};
  const Accelerator& accelerator = c.cluster().accelerator;
  return memory_time(bytes, accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                     accelerator);
}

/// Offloaded optimizer states travel in and out of the accelerator once per step.
inline Seconds optimizer_transfer(const Context& c, const StageCost& cost) {
  if (c.free_host || !c.strategy.offload_optimizer) return Seconds{};
  const Bytes states{updated_parameters(c, cost) * state_bytes(c.task())};
  return 2 * host_transfer_time(states, c.cluster().accelerator);
}

/// What one rank sends to the next stage: tensor ranks hold the same tokens and may send a part
/// each, gathered on the other side; under sequence parallelism each holds only its part.
inline Bytes boundary(const Context& c) {
  const bool parts = (c.strategy.split_p2p && !c.stack().whole_p2p) || c.strategy.sequence_parallel;
  return parts ? c.cell.boundary : c.degrees.tp * c.cell.boundary;
}

/// Neighbouring stages. The slowest pair sets the pace: once the pipeline spans domains, some pair
/// talks over the fabric.
inline GroupShape stage_pair(const Context& c) {
  const int stride = axis_strides(c.strategy.placement, c.degrees).pp;
  GroupShape pair = group_shape(c.cluster(), c.degrees.pp, stride, c.cluster().fabric.shares.pp);
  pair.ranks = 2;
  return pair;
}

inline Seconds hop_time(const Context& c) {
  return p2p_time(boundary(c), stage_pair(c), c.cluster());
}

inline bool transfers_overlap(const Context& c) {
  return scalemodel::transfers_overlap(c.stack(), c.schedule);
}

inline bool transfers_serial(const Context& c) {
  return scalemodel::transfers_serial(c.stack(), c.schedule, c.degrees.pp);
}

/// Passes of a chunk; `scale`: how often the cost counts for them.
inline PartTimes part_times(const Context& c, const StageCost& cost, double scale) {
  const double contention = c.stack().contention;
  const Seconds busy = cost.busy(contention), forward = cost.forward_busy(contention);
  PartTimes t;
  t[kPairedForward] = scale * forward;
  t[kPairedBackward] = scale * (busy - forward);
  // Alone, nothing runs under them.
  t[kForward] = t[kPairedForward] + (scale * (1 - contention)) * cost.paired_forward;
  const Seconds backward = t[kPairedBackward] + (scale * (1 - contention)) * cost.paired_backward;
  t[kWeightGradient] = min(backward, scale * cost.weight_gradient);
  t[kInputGradient] = backward - t[kWeightGradient];
  const Seconds forward_cover = scale * cover_left(c, cost.forward);
  const Seconds backward_cover = scale * cover_left(c, cost.backward + cost.recompute);
  // A backward pass in one piece covers no more than what its other traffic leaves.
  const bool splits = c.schedule == Schedule::zero_bubble || c.schedule == Schedule::dualpipe;
  const Seconds of_weights = (scale * c.reach) * cost.weight_gradient;
  const Seconds weight_cover = splits ? of_weights : min(of_weights, backward_cover);
  t[kPairedForwardCover] = forward_cover;
  t[kPairedBackwardCover] = backward_cover;
  t[kForwardCover] = forward_cover + scale * cost.paired_forward;
  t[kWeightGradientCover] = weight_cover;
  t[kInputGradientCover] = uncovered(backward_cover + scale * cost.paired_backward, weight_cover);
  return t;
}

/// Passes of single layers and ends as parts of the chunks of `stage`, for critical paths to count.
/// A layer takes its share of chunks of its kind, because a chunk hides the traffic of its layers
/// together (host transfers, repeated reductions); an end takes what it adds to a mean chunk.
inline PipelineTimes pipeline_times(const Context& c, const StageClass& stage,
                                    std::array<GatherTimes, kMaxLayerKinds>& gathers) {
  // A pass of a mirrored layout counts for half of the micro-batches.
  const double whole = c.stages.mirrored ? 2 : 1;
  const auto passes_of = [&](const StageClass& part) {
    return part_times(c, stage_cost(c, part, gathers), whole);
  };
  PipelineTimes times;
  StageClass chunk;  // one that is like the stage
  chunk.stage_layers = std::max(1, stage.total_layers());
  const double chunks = chunks_of(c, stage);
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    chunk.layers[k] = static_cast<int>(std::lround(stage.layers[k] / chunks));
  }
  if (chunk.total_layers() == 0) chunk.layers[0] = 1;
  const double layers = chunk.total_layers();
  const PartTimes plain = passes_of(chunk);
  const std::size_t kinds = c.tables.model().kinds.size();
  const auto passes_of_alike = [&](std::size_t kind, int count) {
    StageClass alike;
    alike.stage_layers = chunk.stage_layers;
    alike.layers[kind] = count;
    return passes_of(alike);
  };
  // Where layers do not divide into the chunks, some chunks have one more than others.
  const double mean_layers =
      std::max(1.0, static_cast<double>(c.tables.model().layers()) / (c.stages.pp * c.stages.vpp));
  const int fewer = static_cast<int>(mean_layers);
  const double have_more = mean_layers - fewer;
  for (std::size_t k = 0; k < kinds; ++k) {
    PartTimes mean = passes_of_alike(k, fewer);
    if (have_more > 0)
      mean = mean.share(1 - have_more).plus(passes_of_alike(k, fewer + 1), have_more);
    times.parts[k] = mean.share(1 / mean_layers);
  }
  if (kinds > 1) {
    // Where layers of several kinds are mixed, some cover traffic of others.
    PartTimes mixed = plain;
    for (std::size_t k = 0; k < kinds; ++k) {
      if (chunk.layers[k] == 0) continue;
      mixed = mixed.plus(passes_of_alike(k, chunk.total_layers()), -chunk.layers[k] / layers);
    }
    for (std::size_t k = 0; k < kinds; ++k) {
      times.parts[k] = times.parts[k].plus(mixed, 1 / layers).share(1);
    }
  }
  chunk.embedding = true;
  times.parts[kEmbeddingPart] = passes_of(chunk).plus(plain, -1).share(1);
  chunk.embedding = false;
  chunk.head = true;
  times.parts[kHeadPart] = passes_of(chunk).plus(plain, -1).share(1);
  times.hop = hop_time(c);
  return times;
}

inline Context make_context(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                            const Cell& cell, const StageLayout& stages) {
  const Conditions& conditions = tables.conditions(strategy);
  const double storage_bytes = operand_bytes(conditions.storage);
  Context c{
      .tables = tables,
      .strategy = strategy,
      .degrees = degrees,
      .cell = cell,
      .stages = stages,
      .conditions = conditions,
      .groups = {},
      .schedule = degrees.pp == 1 ? Schedule::one_f_one_b  // one stage has no order of stages
                                  : effective_schedule(strategy.schedule, degrees.vpp),
      .storage_bytes = storage_bytes,
      .gradient_bytes = conditions.gradients_fp32 ? 4.0 : storage_bytes,
      .reach = conditions.stack.overlap_efficiency,
      .gathered = false,
      .weights_sharded = false,
      .free_host = false,
  };
  c.strategy.sharding = meant_sharding(strategy.sharding, degrees.shard, degrees.dp * degrees.cp);
  c.groups = data_parallel_groups(tables.cluster(), c.strategy, degrees, tables.model().routed());
  const bool shares = c.groups.dense_shard_ranks > 1 || c.groups.expert_shard_ranks > 1;
  c.gathered = c.weights_sharded = gathers_parameters(c.strategy.sharding) && shares;
  return c;
}

/// Bytes of a stage at its peak.
MemoryKinds peak_memory(const Context& c, const StageClass& stage, const StageCost& cost);

}  // namespace scalemodel::detail
