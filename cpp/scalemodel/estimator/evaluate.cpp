#include <algorithm>
#include <array>

#include "scalemodel/economics/step.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/stage_parts.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/power/phases.hpp"
#include "scalemodel/schedule/pipeline.hpp"

namespace scalemodel {
namespace {

/// What an evaluation reads again and again.
struct Context {
  const Tables& tables;
  const Strategy& strategy;
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

  const Cluster& cluster() const { return tables.cluster(); }
  const Stack& stack() const { return tables.stack(); }
  const Task& task() const { return tables.task(); }
};

/// Parameter-gathering traffic of one layer kind (or of the ends) per micro-batch.
struct GatherTimes {
  Seconds gather, reduce;
};

/// One pipeline stage, one micro-batch.
struct StageCost {
  Phase forward, backward, recompute;
  Seconds weight_gradient;
  Seconds gather_exposed;  ///< sharded parameters
  Seconds offload_exposed;
  Seconds forward_gather, forward_offload;  ///< parts of them in the forward pass
  Seconds first_gather, last_reduce;        ///< of sharded parameters: without a neighbour to hide
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

Seconds uncovered(Seconds communication, Seconds cover) {
  return max(Seconds{}, communication - cover);
}

/// Large matrices of a dense layer: query-key-value, attention output, up and down.
constexpr double kLayerMatrices = 4;

/// Collectives that a group of parameters travels in: tensor by tensor a layer takes as many as it
/// has large matrices.
double gather_pieces(const Context& c) {
  return c.gathered && c.stack().tensor_gathers ? kLayerMatrices : 1;
}

/// Gathering `dense` and `expert` parameters over their shard groups.
Seconds gather_time(const Context& c, double dense, double expert) {
  const double pieces = gather_pieces(c);
  const auto run = [&](double parameters, const GroupShape& group) {
    const Bytes size{c.storage_bytes * parameters / pieces};
    return pieces * collective_time(Collective::all_gather, size, group, c.cluster());
  };
  return run(dense, c.groups.dense_shard) + run(expert, c.groups.expert_shard);
}

/// Reducing the gradients of `dense` and `expert` parameters over their shard groups; across shard
/// groups (HSDP) the reduced shard is all-reduced.
Seconds reduce_time(const Context& c, double dense, double expert) {
  const Cluster& cluster = c.cluster();
  const DataParallelGroups& g = c.groups;
  const double pieces = gather_pieces(c);
  const bool whole = !c.gathered && c.stack().all_reduces_gradients;
  const Collective reduction = whole ? Collective::all_reduce : Collective::reduce_scatter;
  const double kept_bytes = c.conditions.gradients_fp32 ? 4 : c.storage_bytes;
  const double travelling_bytes = c.gradient_bytes * (c.stack().reduces_fp32 ? 4 / kept_bytes : 1);
  const auto run = [&](double parameters, const GroupShape& shard, int shards,
                       const GroupShape& replica) {
    const Bytes size{travelling_bytes * parameters};
    return pieces * collective_time(reduction, size / pieces, shard, cluster) +
           collective_time(Collective::all_reduce, size / shards, replica, cluster);
  };
  return run(dense, g.dense_shard, g.dense_shard_ranks, g.dense_replica) +
         run(expert, g.expert_shard, g.expert_shard_ranks, g.expert_replica);
}

/// Of one layer of each kind, where they are gathered layer by layer.
std::array<GatherTimes, kMaxLayerKinds> layer_gather_times(const Context& c) {
  std::array<GatherTimes, kMaxLayerKinds> gathers{};
  if (!c.gathered) return gathers;
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    const LayerCost& layer = c.cell.layers[k];
    gathers[k] = {gather_time(c, layer.dense_parameters, layer.expert_parameters),
                  reduce_time(c, layer.trainable_dense, layer.trainable_expert)};
  }
  return gathers;
}

/// Parameters of the token table and head that a stage holds; the last stage of a pipeline keeps
/// its own copy of a shared token table.
struct EndParameters {
  double all = 0, trainable = 0;
};

EndParameters end_parameters(const Context& c, const StageClass& stage) {
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
double recompute_share(const Strategy& strategy, const StageClass& stage) {
  if (strategy.recompute == Recompute::none) return 0;
  if (strategy.recompute_layers == 0) return 1;
  const int own = stage.stage_layers > 0 ? stage.stage_layers : stage.total_layers();
  return std::min(1.0, strategy.recompute_layers / static_cast<double>(std::max(1, own)));
}

/// Fully sharded parameters: each layer is gathered before its forward and before its backward
/// pass, its gradient reduced after; one layer ahead is in flight, so a layer hides what its
/// neighbour's compute covers. The ends are gathered and reduced in the open.
void add_parameter_gathering(StageCost& cost, const Context& c, const StageClass& stage,
                             const std::array<GatherTimes, kMaxLayerKinds>& gathers, double share) {
  const bool hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const bool hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    // What tensor, context and expert parallelism hid already is no cover any more.
    const Phase again = recomputed * layer.recompute[mode];
    const Seconds forward_cover = uncovered(c.reach * layer.forward.compute, layer.forward.hidden);
    const Seconds backward_cover = uncovered(c.reach * (layer.backward.compute + again.compute),
                                             layer.backward.hidden + again.hidden);
    // A repeated forward pass that released its parameters gathers them once more.
    const double again_gathers = c.stack().tensor_gathers ? recomputed : 0;
    const Seconds open = (hide_gather ? Seconds{} : (2 + again_gathers) * gathers[k].gather) +
                         (hide_reduce ? Seconds{} : gathers[k].reduce);
    const Seconds forward_traffic = hide_gather ? gathers[k].gather : Seconds{};
    const Seconds backward_traffic =
        (1 + again_gathers) * forward_traffic + (hide_reduce ? gathers[k].reduce : Seconds{});
    const Seconds forward_exposed = uncovered(forward_traffic, forward_cover);
    const Seconds backward_exposed = uncovered(backward_traffic, backward_cover);
    const double n = share * stage.layers[k];
    cost.gather_exposed += n * (open + forward_exposed + backward_exposed);
    cost.forward_gather += n * (hide_gather ? forward_exposed : gathers[k].gather);
    cost.forward.hidden += n * (forward_traffic - forward_exposed);
    cost.backward.hidden += n * (backward_traffic - backward_exposed);
    const double part = stage.layers[k] / static_cast<double>(stage.total_layers());
    if (hide_gather) cost.first_gather += part * min(gathers[k].gather, forward_cover);
    if (hide_reduce) cost.last_reduce += part * min(gathers[k].reduce, backward_cover);
  }
  const EndParameters ends = end_parameters(c, stage);
  const GatherTimes at_ends{gather_time(c, ends.all, 0), reduce_time(c, ends.trainable, 0)};
  cost.gather_exposed += share * (at_ends.gather + at_ends.reduce);
  cost.forward_gather += share * at_ends.gather;
}

/// Compute of a pass that nothing runs under yet.
Seconds cover_left(const Context& c, const Phase& pass) {
  return uncovered(c.reach * pass.compute, pass.hidden);
}

/// Weights and activations in host memory travel once each way per micro-batch, under compute;
/// `share`: of the weights that a micro-batch meets.
void add_host_traffic(StageCost& cost, const Context& c, Bytes saved, double share) {
  const Strategy& s = c.strategy;
  if (c.free_host || (!s.offload_weights && !s.offload_activations)) return;
  const Bytes weights{s.offload_weights ? share * c.storage_bytes * (cost.dense + cost.expert) : 0};
  const Bytes activations = s.offload_activations ? saved : Bytes{};
  const Seconds one_way = host_transfer_time(weights + activations, c.cluster().accelerator);
  const Seconds forward_exposed = uncovered(one_way, cover_left(c, cost.forward));
  const Seconds backward_exposed = uncovered(one_way, cover_left(c, cost.backward));
  cost.offload_exposed = forward_exposed + backward_exposed;
  cost.forward_offload = forward_exposed;
  cost.forward.hidden += one_way - forward_exposed;
  cost.backward.hidden += one_way - backward_exposed;
}

/// Bytes a stage keeps of one micro-batch.
Bytes saved_bytes(const Context& c, const StageClass& stage) {
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

/// What stays in the open of `traffic` in as many buckets as the stage has layers: at least one,
/// and all but one layer's compute cover the others.
Seconds exposed_traffic(Seconds traffic, Seconds cover, double buckets, bool hide) {
  if (!hide) return traffic;
  return max(uncovered(traffic, (1 - 1 / buckets) * cover), traffic / buckets);
}

/// Chunks of a stage, or of one of its chunks: what passes of their own reduce.
double chunks_of(const Context& c, const StageClass& stage) {
  if (stage.stage_layers > 0) return 1;
  return c.stages.mirrored ? 2 : c.degrees.vpp;
}

/// ZeRO-2 keeps only a shard of the gradients, so every micro-batch reduces them chunk by chunk,
/// each under its own backward pass.
void add_repeated_reduction(StageCost& cost, const Context& c, const StageClass& stage,
                            double share) {
  const bool hide = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double chunks = chunks_of(c, stage);
  const double layers = std::max(1.0, stage.total_layers() / chunks);
  const Seconds each =
      reduce_time(c, cost.trainable_dense / chunks, cost.trainable_expert / chunks);
  const Seconds reduce = share * chunks * each;
  const Seconds cover = cover_left(c, cost.backward + cost.recompute);
  const Seconds exposed = exposed_traffic(reduce, cover, layers, hide);
  cost.gather_exposed += exposed;
  cost.backward.hidden += reduce - exposed;
}

StageCost stage_cost(const Context& c, const StageClass& stage,
                     const std::array<GatherTimes, kMaxLayerKinds>& gathers) {
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
  };
  if (stage.embedding) add_end(c.cell.embedding);
  if (stage.head) add_end(c.cell.head);
  const EndParameters ends = end_parameters(c, stage);
  cost.dense += ends.all;
  cost.trainable_dense += ends.trainable;
  if (c.gathered) {
    add_parameter_gathering(cost, c, stage, gathers, share);
  }
  add_host_traffic(cost, c, share * saved_bytes(c, stage), share);
  if (c.strategy.sharding == Sharding::zero2) add_repeated_reduction(cost, c, stage, share);
  if (c.stages.mirrored) {
    // DualPipe runs one direction's dispatch and combine under the other direction's compute.
    const Seconds ep = cost.forward.ep + cost.backward.ep + cost.recompute.ep;
    // Passes without a partner fill and drain the pipeline: 1.5 p - 1 of m.
    const double alone =
        (1.5 * c.degrees.pp - (c.degrees.pp > 2 ? 1 : 0)) / c.degrees.micro_batches;
    const Seconds covered = std::max(0.0, 1 - alone) *
                            min(ep, cover_left(c, cost.forward) + cover_left(c, cost.backward));
    const double left = ep > Seconds{} ? 1 - covered / ep : 1;
    cost.forward.ep = left * cost.forward.ep;
    cost.backward.ep = left * cost.backward.ep;
    cost.recompute.ep = left * cost.recompute.ep;
    cost.forward.hidden += covered;
  }
  return cost;
}

/// Traffic of gradients and parameters once per step (not sharded layer by layer).
struct StepTraffic {
  Seconds exposed, hidden;
  Seconds drain_hidden;  ///< under the last backward pass, for which the stage before waits
};

/// What stays in the open of a stage's traffic when chunk after chunk takes its part: all but the
/// critical chunk's have whole groups of up to pp micro-batches to hide under, that one a single
/// pass. `cover`: of a pass through all chunks (in DualPipe, through one); `critical`: of the pass
/// next to the end of the step, likewise.
Seconds exposed_by_chunk(const Context& c, Seconds traffic, Seconds cover, Seconds critical,
                         double buckets) {
  if (traffic <= Seconds{}) return Seconds{};
  if (c.stages.mirrored) {
    // The far chunk of a DualPipe stage has one more pass to hide under.
    const Seconds half = 0.5 * traffic;
    return exposed_traffic(half + uncovered(half, cover), critical, 0.5 * buckets, true);
  }
  if (c.degrees.vpp == 1) return exposed_traffic(traffic, critical, buckets, true);
  const double chunks = c.degrees.vpp;
  const double group = std::min(c.degrees.micro_batches, static_cast<double>(c.degrees.pp));
  const double passes = (1 - chunks / buckets + (chunks - 1) * group) / chunks;
  return max(uncovered(traffic, passes * critical),
             exposed_traffic(traffic / chunks, critical / chunks, buckets / chunks, true));
}

/// Gradient reduction hides under the last micro-batch's backward pass, parameter gathering under
/// the first one's forward pass, in as many buckets as the stage has layers: at least the last
/// bucket stays in the open. An interleaved stage finishes its chunks one after the other, each
/// with a group of up to pp micro-batches, so that all but the last chunk hide under whole groups.
/// A schedule that defers weight gradients reduces under nothing else. Parameters gathered layer by
/// layer hide under their neighbours, which the first and the last layer of a step lack.
StepTraffic step_traffic(const Context& c, const StageClass& stage, const StageCost& cost) {
  const Sharding sharding = c.strategy.sharding;
  if (c.gathered) {
    const Seconds at_ends = cost.first_gather + cost.last_reduce;
    return {at_ends, Seconds{} - at_ends, Seconds{}};
  }
  const bool hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const bool hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const double buckets = std::max(1, stage.total_layers());
  const double dense = cost.trainable_dense, expert = cost.trainable_expert;
  const Seconds reduce = sharding == Sharding::zero2 ? Seconds{} : reduce_time(c, dense, expert);
  const Seconds gather = sharding == Sharding::ddp ? Seconds{} : gather_time(c, dense, expert);
  const bool deferred =
      c.degrees.pp > 1 && (c.schedule == Schedule::zero_bubble || c.schedule == Schedule::dualpipe);
  const Seconds backward = cover_left(c, cost.backward + cost.recompute);
  const Seconds last = deferred ? c.reach * cost.weight_gradient : backward;
  const Seconds forward = cover_left(c, cost.forward);
  const Seconds late = hide_reduce ? exposed_by_chunk(c, reduce, backward, last, buckets) : reduce;
  const Seconds early =
      hide_gather ? exposed_by_chunk(c, gather, forward, forward, buckets) : gather;
  StepTraffic traffic{late + early, reduce + gather - late - early, Seconds{}};
  if (!deferred) {
    traffic.drain_hidden = max(Seconds{}, reduce - c.degrees.vpp * late);
  }
  return traffic;
}

/// Trainable parameters a rank holds optimizer states of.
double updated_parameters(const Context& c, const StageCost& cost) {
  if (c.strategy.sharding == Sharding::ddp) return cost.trainable_dense + cost.trainable_expert;
  return cost.trainable_dense / c.groups.dense_shard_ranks +
         cost.trainable_expert / c.groups.expert_shard_ranks;
}

/// Bytes of master weight and moments of one parameter.
double state_bytes(const Task& task) {
  return task.master_bytes + moments(task.optimizer) * task.moment_bytes;
}

/// Adam reads the gradient and reads and writes master weight and moments; the stored weight is
/// written; clipping reads the gradient once more and zeroing writes it.
Seconds optimizer_time(const Context& c, const StageCost& cost) {
  const double updated = updated_parameters(c, cost);
  const double held = c.gathered || c.strategy.sharding == Sharding::zero2
                          ? updated
                          : cost.trainable_dense + cost.trainable_expert;
  // Gradients that are all-reduced in another format are flattened, divided, cast, cast back and
  // copied out: 24 bytes each at two bytes stored.
  const bool copied = c.stack().reduces_fp32 && c.gradient_bytes < 4 && c.groups.dense_ranks > 1;
  const double copies = copied ? 8 * c.gradient_bytes + 8 : 0;
  const Bytes bytes{updated * (2 * c.gradient_bytes + 2 * state_bytes(c.task()) + c.storage_bytes) +
                    held * (c.gradient_bytes + copies)};
  const Accelerator& accelerator = c.cluster().accelerator;
  return memory_time(bytes, accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                     accelerator);
}

/// Offloaded optimizer states travel in and out of the accelerator once per step.
Seconds optimizer_transfer(const Context& c, const StageCost& cost) {
  if (c.free_host || !c.strategy.offload_optimizer) return Seconds{};
  const Bytes states{updated_parameters(c, cost) * state_bytes(c.task())};
  return 2 * host_transfer_time(states, c.cluster().accelerator);
}

/// What one rank sends to the next stage: tensor ranks hold the same tokens and may send a part
/// each, gathered on the other side; under sequence parallelism each holds only its part.
Bytes boundary(const Context& c) {
  const bool parts = (c.strategy.split_p2p && !c.stack().whole_p2p) || c.strategy.sequence_parallel;
  return parts ? c.cell.boundary : c.degrees.tp * c.cell.boundary;
}

/// One transfer between neighbouring stages. The slowest pair sets the pace: once the pipeline
/// spans domains, some pair talks over the fabric.
Seconds hop_time(const Context& c) {
  const int stride = axis_strides(c.strategy.placement, c.degrees).pp;
  GroupShape pair = group_shape(c.cluster(), c.degrees.pp, stride);
  pair.ranks = 2;
  return p2p_time(boundary(c), pair, c.cluster());
}

bool transfers_overlap(const Context& c) {
  return c.stack().overlap_p2p && c.schedule != Schedule::gpipe &&
         c.schedule != Schedule::one_f_one_b;
}

/// Between two stages, what one sends the other receives: there is nothing to wait for.
bool transfers_serial(const Context& c) {
  return c.stack().serial_p2p && c.degrees.pp > 2 && !transfers_overlap(c);
}

/// Pipeline transfers that no compute covers: what an inner stage sends, two per micro-batch and
/// chunk, unless the stack overlaps them, and two per stage while the pipeline fills and drains.
/// What it receives travels meanwhile, unless the stack makes every transfer wait for the last.
/// Overlapped, a first micro-batch goes round the pipeline once for every further chunk and back.
/// Inner stages have `slack` to send what the first and the last do not.
Seconds exposed_transfers(const Context& c, Seconds slack) {
  const Degrees& d = c.degrees;
  if (d.pp == 1) return Seconds{};
  const double ends = 2.0 * (d.pp - 1);
  if (transfers_overlap(c)) {
    const double wraps = 2.0 * (d.vpp - 1) * d.pp;
    const double deferred = c.schedule == Schedule::zero_bubble ? ends : 0;
    return (ends + wraps + deferred) * hop_time(c);
  }
  // The last stage sends no output of its last chunk; of two stages, neither does the first back.
  const Seconds hop = hop_time(c);
  const double exchanges = transfers_serial(c) ? 2 : 1;
  const Seconds once = exchanges * d.micro_batches * hop;
  // GPipe's forward phase waits for what all but the last stage send, its backward phase likewise.
  const Seconds saved = c.schedule == Schedule::gpipe ? Seconds{}
                        : d.pp == 2                   ? once
                                                      : min(once, slack);
  return (2.0 * exchanges * d.vpp * d.micro_batches + ends) * hop - saved;
}

struct MemoryByKind {
  Bytes weights, gradients, optimizer, activations, logits, temporary, communication, gathered;
  Bytes host;

  Bytes allocated() const {
    return weights + gradients + optimizer + activations + logits + temporary + communication +
           gathered;
  }
  /// What the allocator hands out once and never takes back.
  Bytes persistent() const { return weights + gradients + optimizer; }
  /// Lost between blocks of what comes and goes.
  Bytes fragments(const Stack& stack) const {
    return stack.fragmentation_fraction * (allocated() - persistent());
  }
};

MemoryByKind stage_memory(const Context& c, const StageClass& stage, const StageCost& cost) {
  const Strategy& s = c.strategy;
  const DataParallelGroups& g = c.groups;
  const auto shared = [&](double dense, double expert, bool sharded) {
    return sharded ? dense / g.dense_shard_ranks + expert / g.expert_shard_ranks : dense + expert;
  };
  const bool gathered = c.gathered;
  const bool gradients_sharded = gathered || s.sharding == Sharding::zero2;
  const double narrow_bytes = operand_bytes(c.conditions.precision);
  const bool narrow = narrow_bytes < c.storage_bytes;
  MemoryByKind memory;
  // Narrow formats keep a quantised copy of the linear weights beside the stored one; frozen
  // weights need no other.
  const double weight_bytes =
      c.conditions.frozen_base
          ? narrow_bytes
          : c.storage_bytes + (narrow && !c.weights_sharded ? narrow_bytes : 0);
  const Stack& stack = c.stack();
  // Where what is gathered is cast from the master weights, these are the shards. A lower bound
  // leaves them with the optimizer unless weights may go to the host.
  const bool masters_only = c.weights_sharded && stack.master_shards && c.task().master_bytes > 0 &&
                            !c.conditions.frozen_base;
  if (!masters_only) {
    memory.weights = Bytes{weight_bytes * shared(cost.dense, cost.expert, c.weights_sharded)};
  }
  memory.gradients = Bytes{c.gradient_bytes *
                           shared(cost.trainable_dense, cost.trainable_expert, gradients_sharded)};
  if (stack.narrow_gradients && c.gradient_bytes > c.storage_bytes) {
    memory.gradients += Bytes{c.storage_bytes * (cost.trainable_dense + cost.trainable_expert)};
  }
  // A lower bound must not copy either: it may stand for replicas that do not share states out.
  const bool copies = s.sharding != Sharding::ddp && !c.free_host;
  const double copy = copies ? stack.optimizer_copy.base() : 0;
  memory.optimizer = Bytes{(state_bytes(c.task()) + copy) * updated_parameters(c, cost)};
  if (masters_only && (gathered || s.offload_weights)) {
    memory.weights = Bytes{c.task().master_bytes * updated_parameters(c, cost)};
    memory.optimizer = memory.optimizer - memory.weights;
  }

  const double share = c.stages.mirrored ? 0.5 : 1;
  const double held = in_flight(c.schedule, c.degrees.pp, c.degrees.vpp, stage.first_index,
                                c.degrees.micro_batches) *
                      (c.stages.mirrored ? 2 : 1);
  const Bytes per_micro_batch = share * saved_bytes(c, stage);
  memory.activations = held * per_micro_batch;
  if (stage.head) memory.activations += c.cell.head.saved;
  if (stack.keep_stage_outputs && !stage.head) {
    memory.activations += held * (s.sequence_parallel ? 1 : c.degrees.tp) * c.cell.boundary;
  }

  const auto none = static_cast<std::size_t>(Recompute::none);
  const auto mode = static_cast<std::size_t>(s.recompute);
  double widest_layer = 0, widest_trainable = 0, distinct = 0;
  Bytes temporary;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    // A recomputed layer is whole again while its backward pass runs.
    const Bytes whole =
        s.recompute == Recompute::none ? Bytes{} : layer.saved[none] - layer.saved[mode];
    temporary = max(temporary, layer.working + whole);
    widest_layer = std::max(widest_layer, layer.dense_parameters + layer.expert_parameters);
    widest_trainable = std::max(widest_trainable, layer.trainable_dense + layer.trainable_expert);
    distinct = std::max(distinct, layer.distinct_parameters);
  }
  if (stage.head) memory.logits = c.cell.head.working;
  memory.temporary = max(Bytes{}, temporary - memory.logits);
  if (stack.unused_gradients && c.gradient_bytes > c.storage_bytes && !c.conditions.frozen_base) {
    memory.temporary +=
        Bytes{c.storage_bytes * (distinct + (stage.head ? c.cell.head.parameters : 0))};
  }

  // Sequence parallelism gathers the whole stream in front of a block.
  if (s.sequence_parallel && c.degrees.tp > 1) {
    memory.communication += c.degrees.tp * c.cell.boundary;
  }
  if (c.degrees.pp > 1) memory.communication += 2 * boundary(c);
  if (gathered) {
    memory.gathered = Bytes{c.storage_bytes * (2 * widest_layer + end_parameters(c, stage).all) +
                            c.gradient_bytes * widest_trainable};
  }
  const double layers = std::max(1, stage.total_layers());
  const auto move_to_host = [&](Bytes& bytes, double kept_share) {
    memory.host += (1 - kept_share) * bytes;
    bytes = kept_share * bytes;
  };
  const double two_layers = std::min(1.0, 2 / layers);
  if (s.offload_weights) move_to_host(memory.weights, two_layers);
  if (s.offload_activations) move_to_host(memory.activations, two_layers / std::max(1.0, held));
  if (s.offload_optimizer) move_to_host(memory.optimizer, two_layers);
  return memory;
}

void set_memory(Estimate& estimate, const MemoryByKind& memory, const Stack& stack, int stage) {
  estimate.memory_weights = memory.weights;
  estimate.memory_gradients = memory.gradients;
  estimate.memory_optimizer = memory.optimizer;
  estimate.memory_activations = memory.activations;
  estimate.memory_logits = memory.logits;
  estimate.memory_temporary = memory.temporary;
  estimate.memory_communication = memory.communication;
  estimate.memory_gathered = memory.gathered;
  estimate.memory_allocated = memory.allocated();
  estimate.memory_reserve = stack.reserve + memory.fragments(stack);
  estimate.memory = estimate.memory_allocated + estimate.memory_reserve;
  estimate.fullest_stage = stage;
}

void set_utilisation(Estimate& estimate, const Context& c) {
  const Task& task = c.task();
  const ModelFlop& flop = c.tables.flop();
  const double sequences = c.degrees.dp * c.degrees.micro_batches * c.degrees.micro_batch;
  // Backward: input and weight gradients; frozen weights need no weight gradient.
  const Flop products = flop.forward - flop.attention;
  const double passes = c.conditions.frozen_base ? 2 : 3;
  const Flop model = sequences * (passes * products + 3 * flop.attention);
  const auto layers = static_cast<double>(c.tables.model().layers());
  double repeated = 0;
  if (c.strategy.recompute != Recompute::none) {
    const double per_rank = layers / c.degrees.pp;
    repeated = c.strategy.recompute_layers == 0
                   ? 1
                   : std::min(1.0, c.strategy.recompute_layers / per_rank);
  }
  const Flop again = c.strategy.recompute == Recompute::full ? flop.layers : flop.attention;
  const Flop hardware = model + (sequences * repeated) * again;
  const Flop peak = (estimate.step_time * static_cast<double>(c.cluster().accelerators)) *
                    c.cluster().accelerator.peak_of(c.conditions.precision);
  estimate.mfu_fraction = model / peak;
  estimate.hfu_fraction = hardware / peak;
  estimate.tokens_per_s = sequences * task.sequence / (estimate.step_time / (1 * unit::s));
}

void set_energy_and_cost(Estimate& e, const Context& c) {
  const Cluster& cluster = c.cluster();
  const double compute_share = (e.compute + e.optimizer) / e.step_time;
  const double exposed_share = (e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp +
                                e.exposed_dp + e.exposed_offload) /
                               e.step_time;
  e.power = mean_power(cluster.accelerator.power, compute_share, exposed_share);
  const double accelerators = cluster.accelerators;
  e.energy = facility_energy(e.step_time, e.power, accelerators, cluster.host_power,
                             accelerators / cluster.node_accelerators, cluster.pue);
  e.cost = rental_cost(e.step_time, accelerators, cluster.price);
}

Context make_context(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                     const Cell& cell, const StageLayout& stages) {
  const Conditions& conditions = tables.conditions(strategy);
  const DataParallelGroups groups = data_parallel_groups(tables.cluster(), strategy, degrees);
  const bool gathered = gathers_parameters(strategy.sharding) &&
                        (groups.dense_shard_ranks > 1 || groups.expert_shard_ranks > 1);
  return {tables,
          strategy,
          degrees,
          cell,
          stages,
          conditions,
          groups,
          effective_schedule(strategy.schedule, degrees.vpp),
          operand_bytes(conditions.storage),
          conditions.gradients_fp32 ? 4.0 : operand_bytes(conditions.storage),
          conditions.stack.overlap_efficiency,
          gathered,
          gathered,
          false};
}

/// Rounding: a bound adds in another order than the estimate it bounds.
constexpr double kBoundMargin = 1 - 1e-9;

/// What a lower bound needs to know of the stages beside the estimate.
struct Extremes {
  Seconds least_compute;  ///< of a micro-batch on any stage
  Seconds least_busy, most_busy;
};

void add_extremes(Extremes& extremes, Seconds compute, Seconds busy) {
  const bool first = extremes.most_busy == Seconds{};
  extremes.least_compute = first ? compute : min(extremes.least_compute, compute);
  extremes.least_busy = first ? busy : min(extremes.least_busy, busy);
  extremes.most_busy = max(extremes.most_busy, busy);
}

Estimate estimate_of(const Context& c, Extremes* extremes) {
  Estimate e;
  const Cluster& cluster = c.cluster();
  const Degrees& d = c.degrees;
  e.dp = d.dp;
  e.memory_capacity = cluster.accelerator.memory_capacity;
  const double contention = c.stack().contention;

  const std::array<GatherTimes, kMaxLayerKinds> gathers = layer_gather_times(c);
  StageTimes times;
  StageCost slowest;
  StepTraffic traffic;
  Seconds latest{-1}, slowest_forward, slowest_backward, slowest_inner;
  const double chunks = c.schedule == Schedule::interleaved ? d.vpp : 1;
  Bytes peak{-1};
  for (const StageClass& stage : c.stages.classes) {
    const StageCost cost = stage_cost(c, stage, gathers);
    const Seconds busy = cost.busy(contention);
    times.sum += stage.count * busy;
    if (extremes != nullptr) add_extremes(*extremes, cost.passes().compute, busy);
    const Seconds forward = cost.forward_busy(contention);
    times.mean_backward += stage.count * (busy - forward) / d.pp;
    slowest_forward = max(slowest_forward, forward);
    slowest_backward = max(slowest_backward, busy - forward);
    if (!stage.embedding && !stage.head) slowest_inner = max(slowest_inner, busy);
    times.mean_weight += stage.count * cost.weight_gradient / d.pp;
    // The stage that ends last: its micro-batches and its own traffic after them.
    const StepTraffic own = step_traffic(c, stage, cost);
    const Seconds own_end =
        (d.micro_batches - 1 / chunks) * busy + own.exposed + contention * own.hidden;
    if (own_end > latest) {
      latest = own_end;
      times.slowest = busy;
      slowest = cost;
      traffic = own;
    }
    e.optimizer = max(e.optimizer, optimizer_time(c, cost));
    e.exposed_offload = max(e.exposed_offload, optimizer_transfer(c, cost));
    const MemoryByKind memory = stage_memory(c, stage, cost);
    const Bytes taken = memory.allocated() + memory.fragments(c.stack());
    if (taken > peak) {
      peak = taken;
      set_memory(e, memory, c.stack(), stage.first_index);
    }
    e.host_memory = max(e.host_memory, cluster.node_accelerators * memory.host);
  }

  const double m = d.micro_batches;
  const Phase passes = slowest.passes();
  e.compute = m * (passes.compute + contention * slowest.hidden()) + contention * traffic.hidden;
  e.exposed_tp = m * passes.tp;
  e.exposed_cp = m * passes.cp;
  e.exposed_ep = m * passes.ep;
  const Seconds head_start = chunks > 1 ? times.slowest / chunks : Seconds{};
  e.exposed_pp =
      exposed_transfers(c, head_start + m * max(Seconds{}, times.slowest - slowest_inner));
  e.exposed_dp = m * slowest.gather_exposed + traffic.exposed;
  e.exposed_offload += m * slowest.offload_exposed;
  e.bubble = pipeline_bubble(c.schedule, d.pp, d.vpp, times) +
             ((d.pp - 1) * contention) * traffic.drain_hidden;
  if (c.schedule == Schedule::gpipe && d.pp > 1) {
    // Each of its two phases is paced by the stage that is slowest in it.
    e.bubble += (m - 1) * (slowest_forward + slowest_backward - times.slowest);
  }
  e.overhead = c.stack().step_overhead;
  e.hidden = m * slowest.hidden() + traffic.hidden;
  e.step_time = e.compute + e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp +
                e.exposed_dp + e.exposed_offload + e.bubble + e.optimizer + e.overhead;
  e.micro_batches = m;
  set_utilisation(e, c);
  set_energy_and_cost(e, c);
  if (e.memory > e.memory_capacity) e.verdict = Reason::out_of_memory;
  if (e.host_memory > cluster.host_memory) e.verdict = Reason::offload;
  return e;
}

}  // namespace

Estimate evaluate(const Tables& tables, const Strategy& strategy) noexcept {
  const Cluster& cluster = tables.cluster();
  const Degrees degrees = resolve_degrees(strategy, cluster, tables.task());
  Estimate refused;
  refused.dp = degrees.dp;
  refused.memory_capacity = cluster.accelerator.memory_capacity;
  refused.verdict = first_violation(strategy, degrees, tables.model(), cluster, tables.task());
  if (refused.verdict != Reason::ok) return refused;
  const Cell* cell = tables.find_cell(strategy, degrees);
  const StageLayout* stages = tables.find_stages(strategy, degrees);
  if (cell == nullptr || stages == nullptr) return refused;
  return evaluate(tables, strategy, degrees, *cell, *stages);
}

Estimate evaluate(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                  const Cell& cell, const StageLayout& stages) noexcept {
  return estimate_of(make_context(tables, strategy, degrees, cell, stages), nullptr);
}

StageParts stage_parts(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                       const Cell& cell, const StageLayout& stages, const StageClass& stage,
                       double gradient_compression) {
  const Context c = make_context(tables, strategy, degrees, cell, stages);
  Context wire = c;
  wire.gradient_bytes *= gradient_compression;
  const auto gathers = layer_gather_times(wire);
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
  parts.head_saved = stage.head ? cell.head.saved : Bytes{};
  const double stored = cost.dense + cost.expert;
  const double trainable = cost.trainable_dense + cost.trainable_expert;
  parts.parameter_bytes = Bytes{c.storage_bytes * stored};
  parts.gradient_bytes = Bytes{wire.gradient_bytes * trainable};
  if (strategy.offload_weights) parts.host_bytes += share * parts.parameter_bytes;
  if (strategy.offload_activations) parts.host_bytes += parts.saved;
  parts.host_one_way = host_transfer_time(parts.host_bytes, c.cluster().accelerator);
  if (c.gathered) {
    const EndParameters ends = end_parameters(c, stage);
    parts.pass_gather = share * gather_time(wire, ends.all, 0);
    parts.pass_reduce = share * reduce_time(wire, ends.trainable, 0);
    for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
      parts.pass_gather += share * stage.layers[k] * gathers[k].gather;
      parts.pass_reduce += share * stage.layers[k] * gathers[k].reduce;
    }
  } else {
    const double dense = cost.trainable_dense, expert = cost.trainable_expert;
    const Seconds reduce = reduce_time(wire, dense, expert);
    if (strategy.sharding != Sharding::ddp) parts.step_gather = gather_time(wire, dense, expert);
    const bool every_pass = strategy.sharding == Sharding::zero2;
    (every_pass ? parts.pass_reduce : parts.step_reduce) = every_pass ? share * reduce : reduce;
  }
  if (gradient_compression < 1) {
    const Accelerator& accelerator = c.cluster().accelerator;
    parts.encode = memory_time(Bytes{c.gradient_bytes * trainable} + parts.gradient_bytes,
                               accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                               accelerator);
  }
  parts.optimizer = optimizer_time(c, cost);
  parts.optimizer_transfer = optimizer_transfer(c, cost);
  const MemoryByKind memory = stage_memory(c, stage, cost);
  parts.memory = {
      memory.weights,       memory.gradients, memory.optimizer,
      memory.activations,   memory.logits,    memory.temporary,
      memory.communication, memory.gathered,  c.stack().reserve + memory.fragments(c.stack())};
  parts.in_flight =
      in_flight(c.schedule, degrees.pp, degrees.vpp, stage.first_index, degrees.micro_batches) *
      (stages.mirrored ? 2 : 1);
  return parts;
}

PipelineParts pipeline_parts(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                             const Cell& cell, const StageLayout& stages) {
  const Context c = make_context(tables, strategy, degrees, cell, stages);
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

Bytes reported_memory(const Estimate& estimate, const Stack& stack) noexcept {
  switch (stack.memory_report) {
    case MemoryReport::allocated:
      return estimate.memory_allocated;
    case MemoryReport::reserved:
      return estimate.memory - stack.reserve;
    case MemoryReport::device:
      return estimate.memory;
  }
  return estimate.memory_allocated;
}

Estimate lower_bound(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                     const Cell& cell, const StageLayout& stages, const Freedom& freedom) noexcept {
  Strategy best = strategy;
  best.sharding = freedom.shards_gradients ? Sharding::zero2 : Sharding::zero1;
  best.offload_weights = freedom.offloads_weights;
  best.offload_activations = freedom.offloads_activations;
  best.offload_optimizer = freedom.offloads_optimizer;
  Context c = make_context(tables, best, degrees, cell, stages);
  // Data-parallel groups of one rank send nothing; what they share out stays shared out by all.
  DataParallelGroups& g = c.groups;
  g.dense_shard = g.dense_replica = g.expert_shard = g.expert_replica = GroupShape{};
  g.dense_shard_ranks = g.dense_ranks;
  g.expert_shard_ranks = g.expert_ranks;
  c.weights_sharded = freedom.shards_weights;
  c.free_host = true;
  Extremes extremes;
  Estimate bound = estimate_of(c, &extremes);
  // The stage that ends last may be another one once traffic counts. Where the bubble does not
  // contain its complement (it is cut off at zero) the step may shrink by their difference.
  if (c.schedule == Schedule::zero_bubble || c.schedule == Schedule::dualpipe) {
    bound.step_time = bound.step_time - (extremes.most_busy - extremes.least_busy);
  }
  bound.step_time = kBoundMargin * bound.step_time;
  bound.compute = kBoundMargin * c.degrees.micro_batches * extremes.least_compute;
  bound.memory = kBoundMargin * bound.memory;
  bound.host_memory = Bytes{};
  bound.exposed_tp = bound.exposed_cp = bound.exposed_ep = bound.exposed_pp = Seconds{};
  bound.exposed_dp = bound.exposed_offload = bound.optimizer = Seconds{};
  set_utilisation(bound, c);
  set_energy_and_cost(bound, c);
  return bound;
}

}  // namespace scalemodel
