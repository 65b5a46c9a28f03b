#include <algorithm>
#include <array>
#include <cmath>

#include "scalemodel/economics/step.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/stage_cost.hpp"
#include "scalemodel/estimator/stragglers.hpp"
#include "scalemodel/power/phases.hpp"

namespace scalemodel {

using namespace detail;  // one file of the estimator in two

namespace {

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

/// Parameters, their gradients and optimizer states.
void add_states(MemoryByKind& memory, const Context& c, const StageCost& cost) {
  const Strategy& s = c.strategy;
  const Stack& stack = c.stack();
  const DataParallelGroups& g = c.groups;
  const auto shared = [&](double dense, double expert, bool sharded) {
    return sharded ? dense / g.dense_shard_ranks + expert / g.expert_shard_ranks : dense + expert;
  };
  const double narrow_bytes = operand_bytes(c.conditions.precision);
  const bool narrow = narrow_bytes < c.storage_bytes;
  // Narrow formats keep a quantised copy of the linear weights beside the stored one; frozen
  // weights need no other.
  const double weight_bytes =
      c.conditions.frozen_base
          ? narrow_bytes
          : c.storage_bytes + (narrow && !c.weights_sharded ? narrow_bytes : 0);
  // Where what is gathered is cast from the master weights, these are the shards. A lower bound
  // leaves them with the optimizer unless weights may go to the host.
  const bool masters_only = keeps_masters_only(c);
  if (!masters_only) {
    memory.weights = Bytes{weight_bytes * shared(cost.dense, cost.expert, c.weights_sharded)};
  }
  const bool gradients_sharded = c.gathered || s.sharding == Sharding::zero2;
  memory.gradients = Bytes{c.gradient_bytes *
                           shared(cost.trainable_dense, cost.trainable_expert, gradients_sharded)};
  if (stack.narrow_gradients && c.gradient_bytes > c.storage_bytes) {
    memory.gradients += Bytes{c.storage_bytes * (cost.trainable_dense + cost.trainable_expert)};
  }
  // A lower bound must not copy either: it may stand for replicas that do not share states out.
  const bool copies = s.sharding != Sharding::ddp && !c.free_host;
  const double copy = copies ? stack.optimizer_copy.base() : 0;
  memory.optimizer = Bytes{(state_bytes(c.task()) + copy) * updated_parameters(c, cost)};
  if (masters_only && (c.gathered || s.offload_weights)) {
    memory.weights = Bytes{c.task().master_bytes * updated_parameters(c, cost)};
    memory.optimizer = memory.optimizer - memory.weights;
  }
}

/// What micro-batches in flight keep; so many they are.
double add_activations(MemoryByKind& memory, const Context& c, const StageClass& stage) {
  const double share = c.stages.mirrored ? 0.5 : 1;
  const double held = in_flight(c.schedule, c.degrees.pp, c.degrees.vpp, stage.first_index,
                                c.degrees.micro_batches) *
                      (c.stages.mirrored ? 2 : 1);
  const Bytes per_micro_batch = share * saved_bytes(c, stage);
  memory.activations = held * per_micro_batch;
  const auto heads = [&](bool logits) {
    return head_in_flight(c.schedule, c.degrees.pp, c.degrees.micro_batches, logits);
  };
  if (stage.head) memory.activations += heads(false) * c.cell.head.saved;
  if (c.stack().keep_stage_outputs && !stage.head) {
    memory.activations +=
        held * (c.strategy.sequence_parallel ? 1 : c.degrees.tp) * c.cell.boundary;
  }
  if (stage.head) memory.logits = heads(true) * c.cell.head.working;
  return held;
}

/// What layers work in, one after the other.
void add_working_sets(MemoryByKind& memory, const Context& c, const StageClass& stage) {
  const Strategy& s = c.strategy;
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
  // Layers work before or after the head does, unless DualPipe runs the other direction meanwhile.
  const bool apart = stage.head && !c.stages.mirrored;
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
  if (c.gathered) {
    memory.gathered = Bytes{c.storage_bytes * (2 * widest_layer + end_parameters(c, stage).all) +
                            c.gradient_bytes * widest_trainable};
  }
}

/// Two layers of what is offloaded stay on the accelerator, the rest waits on the host.
void move_to_host(MemoryByKind& memory, const Strategy& s, const StageClass& stage, double held) {
  const auto move = [&](Bytes& bytes, double kept_share) {
    memory.host += (1 - kept_share) * bytes;
    bytes = kept_share * bytes;
  };
  const double layers = std::max(1, stage.total_layers());
  const double two_layers = std::min(1.0, 2 / layers);
  if (s.offload_weights) move(memory.weights, two_layers);
  if (s.offload_activations) move(memory.activations, two_layers / std::max(1.0, held));
  if (s.offload_optimizer) move(memory.optimizer, two_layers);
}

MemoryByKind stage_memory(const Context& c, const StageClass& stage, const StageCost& cost) {
  MemoryByKind memory;
  add_states(memory, c, cost);
  const double held = add_activations(memory, c, stage);
  add_working_sets(memory, c, stage);
  move_to_host(memory, c.strategy, stage, held);
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

/// Rates enter the time of a step and all that follows from it.
bool is_finite(const Estimate& e) { return std::isfinite(e.step_time.base() + e.energy.base()); }

/// A number that is none means that the accelerator states no rate for something that runs: there
/// is no answer, least of all a good one.
Estimate without_rate(const Estimate& e) {
  Estimate refused;
  refused.dp = e.dp;
  refused.memory_capacity = e.memory_capacity;
  refused.verdict = Reason::precision;
  return refused;
}

/// Rounding: a bound adds in another order than the estimate it bounds.
constexpr double kBoundMargin = 1 - 1e-9;

/// A step and its busy time are sums of as many terms as it has passes.
constexpr double kSumRounding = 1e-12;

/// What a lower bound needs to know of the stages beside the estimate.
struct Extremes {
  Seconds least_compute{kInfinity};  ///< of a micro-batch on any stage
};

void add_extremes(Extremes& extremes, Seconds compute) {
  extremes.least_compute = min(extremes.least_compute, compute);
}

/// Passes of one stage.
struct StagePasses {
  PartTimes times;
  int layers = 0;    ///< 0: there is no such stage
  double of_layers;  ///< their share: the rest is of the model's ends
};

/// What the stages make of a step together.
struct Stages {
  StageCost slowest;  ///< of the busiest stage
  Seconds busy;       ///< that it is with a micro-batch
  StepTraffic traffic;
  const StageClass* slowest_class = nullptr;
  // One stage with the embedding, one with the head and one with neither.
  StagePasses first, last, inner;
  std::array<GatherTimes, kMaxLayerKinds> gathers;
};

/// Goes through the stages; what the fullest and the slowest of them need is set in the estimate.
Stages run_stages(const Context& c, Estimate& e, Extremes* extremes) {
  const double contention = c.stack().contention;
  Stages all;
  if (c.gathered) all.gathers = layer_gather_times(c);
  double most_sent = -1;
  Bytes peak{-1};
  for (const StageClass& stage : c.stages.classes) {
    const StageCost cost = stage_cost(c, stage, all.gathers);
    const Seconds busy = cost.busy(contention);
    if (extremes != nullptr) add_extremes(*extremes, cost.passes().compute);
    if (c.stages.paths != nullptr) {
      StagePasses& kept = stage.head ? all.last : stage.embedding ? all.first : all.inner;
      kept = {part_times(c, cost, 1), stage.total_layers(), 1 - cost.ends / busy};
    }
    // The busiest stage paces the others, however few its micro-batches are; of equals the one that
    // sends most once per step.
    const double sent = cost.trainable_dense + cost.trainable_expert;
    if (busy > all.busy || (busy == all.busy && sent > most_sent)) {
      most_sent = sent;
      all.busy = busy;
      all.slowest = cost;
      all.slowest_class = &stage;
    }
    e.optimizer = max(e.optimizer, optimizer_time(c, cost));
    e.exposed_offload = max(e.exposed_offload, optimizer_transfer(c, cost));
    const MemoryByKind memory = stage_memory(c, stage, cost);
    const Bytes taken = memory.allocated() + memory.fragments(c.stack());
    if (taken > peak) {
      peak = taken;
      set_memory(e, memory, c.stack(), stage.first_index);
    }
    e.host_memory = max(e.host_memory, c.cluster().node_accelerators * memory.host);
  }
  all.traffic = step_traffic(c, *all.slowest_class, all.slowest);
  return all;
}

/// Passes of layers and ends, where all layers are of one kind, from stages with and without ends.
/// Two stages have both an end: a layer takes its share of the one whose end takes less of it, but
/// leaves nothing of the other less than nothing.
PipelineTimes times_of_stages(const Context& c, const Stages& all) {
  PipelineTimes times;
  PartTimes& layer = times.parts[0];
  const auto take_from = [&](const StagePasses& passes) {
    layer = passes.times.share(passes.of_layers / passes.layers);
  };
  if (all.inner.layers > 0) {
    take_from(all.inner);
  } else {
    const bool first = all.first.of_layers >= all.last.of_layers;
    take_from(first ? all.first : all.last);
    const StagePasses& other = first ? all.last : all.first;
    for (std::size_t time = 0; time < kGathering; ++time) {
      layer[time] = min(layer[time], other.times[time] / other.layers);
    }
  }
  times.parts[kEmbeddingPart] = all.first.times.plus(layer, -all.first.layers).share(1);
  times.parts[kHeadPart] = all.last.times.plus(layer, -all.last.layers).share(1);
  times.hop = hop_time(c);
  return times;
}

/// Every part's share of the gradients and parameters that the slowest stage sends once per step.
/// Experts travel in groups of their own.
void set_traffic(const Context& c, const Stages& all, PipelineTimes& times) {
  const StepTraffic& traffic = all.traffic;
  const double dense = all.slowest.trainable_dense, expert = all.slowest.trainable_expert;
  const double layers = std::max(1, all.slowest_class->total_layers());
  const bool gather = traffic.gather > Seconds{}, reduce = traffic.reduce > Seconds{};
  if (!gather && !reduce) return;
  const PassTime gathering = traffic.hide_gather ? kGathering : kGatheringBefore;
  const PassTime reduction = traffic.hide_reduce ? kReduction : kReductionAfter;
  const auto rates = [](Seconds of_all, Seconds of_experts, double first, double second) {
    return std::pair{first > 0 ? (1 / first) * (of_all - of_experts) : Seconds{},
                     second > 0 ? (1 / second) * of_experts : Seconds{}};
  };
  const auto expert_time = [&](auto time) {
    return expert > 0 ? time(c, 0.0, expert, layers) : Seconds{};
  };
  const std::pair gather_rates =
      rates(traffic.gather, gather ? expert_time(gather_time) : Seconds{}, dense, expert);
  const std::pair reduce_rates =
      rates(traffic.reduce, reduce ? expert_time(reduce_time) : Seconds{}, dense, expert);
  const auto set = [&](std::size_t part, double dense_part, double expert_part) {
    PartTimes& t = times.parts[part];
    if (gather) t[gathering] = dense_part * gather_rates.first + expert_part * gather_rates.second;
    if (reduce) t[reduction] = dense_part * reduce_rates.first + expert_part * reduce_rates.second;
  };
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    set(k, c.cell.layers[k].trainable_dense, c.cell.layers[k].trainable_expert);
  }
  StageClass end;
  end.embedding = true;
  set(kEmbeddingPart, end_parameters(c, end).trainable, 0);
  end.embedding = false;
  end.head = true;
  set(kHeadPart, end_parameters(c, end).trainable, 0);
}

/// How long before its end a pair of DualPipe hands on what it made: the last layer's backward pass
/// covers what is sent.
Seconds handed_on_early(const Context& c, const StageCost& cost) {
  if (!c.stages.mirrored || !transfers_overlap(c)) return Seconds{};
  const double layers = std::max(1, c.tables.model().layers() / c.degrees.pp);
  return (cost.backward.compute + cost.recompute.compute) / layers;
}

/// From the first pass, or the gathering of its parameters, to the end of the last one and of the
/// reduction of its gradients.
PipelineDuration critical_path(const Context& c, const Stages& all,
                               std::array<GatherTimes, kMaxLayerKinds>& gathers) {
  const CriticalPaths& paths = *c.stages.paths;
  // Gradients that every chunk reduces for itself hide under no other chunk.
  const bool whole = c.degrees.vpp == 1 || c.strategy.sharding != Sharding::zero2;
  const bool alike = c.tables.model().kinds.size() == 1 && !c.stages.mirrored;
  PipelineTimes times = whole && alike && all.first.layers > 0 && all.last.layers > 0
                            ? times_of_stages(c, all)
                            : pipeline_times(c, *all.slowest_class, gathers);
  times.early = handed_on_early(c, all.slowest);
  set_traffic(c, all, times);
  return paths.duration(times, c.degrees.micro_batches, all.busy, c.recent);
}

Estimate estimate_of(const Context& c, Extremes* extremes) {
  Estimate e;
  const Cluster& cluster = c.cluster();
  const Degrees& d = c.degrees;
  e.dp = d.dp;
  e.memory_capacity = cluster.accelerator.memory_capacity;
  const double contention = c.stack().contention;
  Stages all = run_stages(c, e, extremes);
  const StageCost& slowest = all.slowest;
  const StepTraffic& traffic = all.traffic;

  const double m = d.micro_batches;
  const Phase passes = slowest.passes();
  e.compute = m * (passes.compute + contention * slowest.hidden()) + contention * traffic.hidden;
  e.exposed_tp = m * passes.tp;
  e.exposed_cp = m * passes.cp;
  // What only pairs hide stays in the open of passes without a partner.
  const double alone = c.stages.mirrored ? lone_passes(d.pp) : 0;
  const Seconds uncovered_ep = alone * (slowest.paired_forward + slowest.paired_backward);
  e.compute = e.compute - contention * uncovered_ep;
  e.exposed_ep = m * passes.ep + uncovered_ep;
  e.exposed_offload += m * slowest.offload_exposed;
  e.exposed_dp = m * slowest.gather_exposed + traffic.at_ends;
  if (c.stages.paths == nullptr) {
    e.exposed_dp += c.gathered ? Seconds{} : traffic.gather + traffic.reduce - traffic.hidden;
  } else {
    const PipelineDuration lasts = critical_path(c, all, all.gathers);
    const Seconds busy = m * all.busy + (1 - contention) * uncovered_ep;
    const Seconds idle = lasts.passes - busy;
    e.bubble = idle > kSumRounding * busy ? idle : Seconds{};
    e.exposed_pp = lasts.hops;
    e.exposed_dp += lasts.traffic;
  }
  e.bubble += ((d.pp - 1) * contention) * traffic.drain_hidden;
  const Straggling late = expected_straggling(c.stack().kernel_spread, d, c.gathered);
  e.bubble += (late.stage * (passes.compute / all.busy)) * e.bubble;
  e.compute += (m * late.anywhere) * passes.compute;
  e.overhead = c.stack().step_overhead;
  e.hidden = max(Seconds{}, m * slowest.hidden() - uncovered_ep + traffic.hidden);
  e.step_time = e.compute + e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp +
                e.exposed_dp + e.exposed_offload + e.bubble + e.optimizer + e.overhead;
  e.micro_batches = m;
  set_utilisation(e, c);
  set_energy_and_cost(e, c);
  if (e.memory > e.memory_capacity) e.verdict = Reason::out_of_memory;
  if (e.host_memory > cluster.host_memory) e.verdict = Reason::offload;
  if (!is_finite(e)) e = without_rate(e);
  return e;
}

}  // namespace

MemoryKinds detail::peak_memory(const Context& c, const StageClass& stage, const StageCost& cost) {
  const MemoryByKind memory = stage_memory(c, stage, cost);
  return {memory.weights,       memory.gradients, memory.optimizer,
          memory.activations,   memory.logits,    memory.temporary,
          memory.communication, memory.gathered,  c.stack().reserve + memory.fragments(c.stack())};
}

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
                  const Cell& cell, const StageLayout& stages, RecentDurations* recent) noexcept {
  Context c = make_context(tables, strategy, degrees, cell, stages);
  c.recent = recent;
  return estimate_of(c, nullptr);
}

Estimate at_step_time(const Tables& tables, const Strategy& strategy, Estimate estimate,
                      Seconds step_time) noexcept {
  const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  const Cell* cell = tables.find_cell(strategy, degrees);
  const StageLayout* stages = tables.find_stages(strategy, degrees);
  if (cell == nullptr || stages == nullptr) return estimate;
  const Context c = make_context(tables, strategy, degrees, *cell, *stages);
  estimate.bubble = max(Seconds{}, estimate.bubble + step_time - estimate.step_time);
  estimate.step_time = step_time;
  set_utilisation(estimate, c);
  set_energy_and_cost(estimate, c);
  return estimate;
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
