#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "scalemodel/economics/step.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/group_bounds.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/estimator/step_passes.hpp"
#include "scalemodel/estimator/step_states.hpp"
#include "scalemodel/estimator/stragglers.hpp"
#include "scalemodel/power/phases.hpp"

namespace scalemodel {

namespace {

StepFlop step_flop(const StepContext& c) {
  const ModelFlop& flop = c.tables.flop();
  const double packs = c.degrees.dp * c.degrees.micro_batches * c.degrees.micro_batch;
  const double sequences = c.cell.fill * packs;
  // Backward: input and weight gradients; frozen weights need no weight gradient.
  const Flop products = flop.forward - flop.attention;
  const double passes = c.conditions.frozen_base ? 2 : 3;
  const Flop model = sequences * (passes * products + 3 * flop.attention +
                                  tower_passes(c.conditions) * flop.images);
  const auto layers = static_cast<double>(c.tables.model().layers());
  double repeated = 0;
  if (c.strategy.recompute != Recompute::none) {
    const double per_rank = layers / c.degrees.pp;
    repeated = c.strategy.recompute_layers == 0
                   ? 1
                   : std::min(1.0, c.strategy.recompute_layers / per_rank);
  }
  const Flop again = c.strategy.recompute == Recompute::full ? flop.layers : flop.attention;
  return {model, model + (sequences * repeated) * again, sequences * c.task().sequence};
}

void set_utilisation(Estimate& estimate, const StepContext& c) {
  const auto make = [&] { return step_flop(c); };
  const StepFlop flop = c.shared != nullptr ? c.shared->flop.get(0, make) : make();
  const Flop peak = (estimate.step_time * static_cast<double>(c.cluster().accelerators)) *
                    c.cluster().accelerator.peak_of(c.conditions.precision);
  estimate.mfu_fraction = flop.model / peak;
  estimate.hfu_fraction = flop.hardware / peak;
  estimate.tokens_per_s = flop.tokens / (estimate.step_time / (1 * unit::s));
}

/// What the whole cluster takes at the meter in some time.
Joules energy_in(Seconds time, Watts power, const Cluster& cluster) {
  const double accelerators = cluster.accelerators;
  return facility_energy(time, power, accelerators, cluster.host_power,
                         accelerators / cluster.node_accelerators, cluster.pue);
}

void set_energy_and_cost(Estimate& e, const StepContext& c) {
  const Cluster& cluster = c.cluster();
  const double compute_share = (e.compute + e.optimizer) / e.step_time;
  const double exposed_share = (e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp +
                                e.exposed_dp + e.exposed_offload) /
                               e.step_time;
  e.power = mean_power(cluster.accelerator.power, compute_share, exposed_share);
  e.energy = energy_in(e.step_time, e.power, cluster);
  e.cost = rental_cost(e.step_time, cluster.accelerators, cluster.price);
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

/// Attention of the replica with most of it over that of a mean one: packs differ. Where parameters
/// are gathered, or experts shared, replicas wait for each other in every micro-batch.
double uneven_attention(const StepContext& c) {
  if (!c.tables.packing().packed()) return 0;
  const Degrees& d = c.degrees;
  const PackSpread& spread = c.tables.pack_spread();
  const PackOrder order = c.tables.packing().order;
  const PackGroup group{static_cast<double>(d.dp), static_cast<double>(d.micro_batch)};
  const double step = pack_imbalance(spread, order, {group.ranks, d.micro_batches * group.packs});
  const double shared = static_cast<double>(d.ep) * d.etp / (static_cast<double>(d.tp) * d.cp);
  const double ranks = c.gathered ? group.ranks : std::min(group.ranks, shared);
  return std::max(step,
                  pack_imbalance_in_step(spread, order, {ranks, group.packs}, d.micro_batches));
}

/// What takes time while the micro-batches pass and between the first and the last of them.
TimesByCause times_by_cause(const StepContext& c, PipelinePasses& pipeline) {
  const StepPasses step = step_passes(c, pipeline);
  const double overlap_slowdown = c.stack().contention;
  const Degrees& d = c.degrees;
  const StageCost& slowest = pipeline.slowest;
  const StepTraffic& traffic = step.traffic;
  const double m = d.micro_batches;
  const Phase passes = slowest.passes();
  TimesByCause t;
  t.compute = m * (passes.compute + overlap_slowdown * slowest.hidden()) +
              overlap_slowdown * traffic.hidden;
  t.exposed_tp = m * passes.tp;
  t.exposed_cp = m * passes.cp;
  // What only pairs hide is exposed by passes without a partner.
  const double alone = c.stages.pairs ? unpaired_passes(c.schedule, d.pp) : 0;
  const Seconds unpaired_ep = alone * (slowest.paired_forward + slowest.paired_backward);
  t.compute = t.compute - overlap_slowdown * unpaired_ep;
  t.exposed_ep = m * passes.ep + unpaired_ep;
  t.exposed_offload = m * slowest.offload_exposed;
  t.exposed_dp = m * slowest.gather_exposed + traffic.at_ends;
  if (c.stages.pp == 1) {
    t.exposed_dp += c.gathered ? Seconds{} : traffic.gather + traffic.reduce - traffic.hidden;
  } else {
    const Seconds busy = m * pipeline.busy + (1 - overlap_slowdown) * unpaired_ep;
    const Seconds idle = step.lasts.passes - busy;
    t.bubble = idle > kSumRounding * busy ? idle : Seconds{};
    t.exposed_pp = step.lasts.hops;
    t.exposed_dp += step.lasts.traffic;
  }
  t.bubble += ((d.pp - 1) * overlap_slowdown) * traffic.drain_hidden;
  const Straggling late = expected_straggling(c.stack().kernel_spread, d, c.gathered);
  t.bubble += (late.stage * (passes.compute / pipeline.busy)) * t.bubble;
  t.compute += (m * late.anywhere) * passes.compute;
  t.compute += (m * uneven_attention(c)) * slowest.attention;
  t.hidden = max(Seconds{}, m * slowest.hidden() - unpaired_ep + traffic.hidden);
  return t;
}

TimesByCause times_by_cause(const StepContext& c) {
  return with_passes(c, [&](PipelinePasses& passes) { return times_by_cause(c, passes); });
}

/// Completes the time of a step whose states are known.
void set_step_time(Estimate& e, const StepContext& c, const TimesByCause& t) {
  e.compute = t.compute;
  e.exposed_tp = t.exposed_tp;
  e.exposed_cp = t.exposed_cp;
  e.exposed_ep = t.exposed_ep;
  e.exposed_pp = t.exposed_pp;
  e.exposed_dp = t.exposed_dp;
  e.exposed_offload += t.exposed_offload;
  e.bubble = t.bubble;
  e.hidden = t.hidden;
  e.overhead = c.stack().step_overhead;
  e.step_time = e.compute + e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_pp +
                e.exposed_dp + e.exposed_offload + e.bubble + e.optimizer + e.overhead;
  e.micro_batches = c.degrees.micro_batches;
}

/// Whether every rate that a step needs is stated for certain.
bool rates_stated(const StepContext& c) { return c.tables.rates_stated() && c.cell.timed; }

/// Whether nothing more is asked of a strategy of these states.
bool is_enough(const StepContext& c, const Estimate& states, Asked asked) {
  return asked != Asked::all && states.verdict != Reason::ok && rates_stated(c);
}

void set_derived(Estimate& e, const StepContext& c, Derived derived) {
  if (derived.work) set_utilisation(e, c);
  if (derived.power) set_energy_and_cost(e, c);
}

/// Whether a step that takes a time also takes a number of joules.
bool states_power(const Cluster& cluster) {
  const PowerPhases& power = cluster.accelerator.power;
  const Watts sum = mean_power(power, 1, 0) + mean_power(power, 0, 1) + mean_power(power, 0, 0);
  return std::isfinite(energy_in(1 * unit::s, sum, cluster).base());
}

/// Completes a bound of which states are known: no less than its times takes no strategy for which
/// the context stands.
void bound_times(Estimate& bound, const StepContext& c, Derived derived) {
  PipelinePasses passes = pipeline_passes(c);
  set_step_time(bound, c, times_by_cause(c, passes));
  if (!std::isfinite(bound.step_time.base())) bound = without_rate(bound);
  bound.step_time = kBoundMargin * bound.step_time;
  bound.compute = kBoundMargin * c.degrees.micro_batches * passes.least_compute;
  bound.exposed_tp = bound.exposed_cp = bound.exposed_ep = bound.exposed_pp = Seconds{};
  bound.exposed_dp = bound.exposed_offload = bound.optimizer = Seconds{};
  set_derived(bound, c, derived);
}

/// Completes an estimate of which states are known.
void complete(Estimate& e, const StepContext& c, const TimesByCause& times) {
  set_step_time(e, c, times);
  set_derived(e, c, {});
  if (!is_finite(e)) e = without_rate(e);
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
  const StepContext c = make_context(tables, strategy, degrees, cell, stages);
  Estimate estimate = states_of(c);
  complete(estimate, c, times_by_cause(c));
  return estimate;
}

Change change_between(const Strategy& a, const Strategy& b) noexcept {
  const auto shards = [](const Strategy& s) {
    return std::tie(s.sharding, s.shard_degree, s.secondary_degree, s.quantized_gather,
                    s.quantized_reduce);
  };
  if (shards(a) != shards(b)) return Change::shards;
  const bool same_step = a.overlap_grad_reduce == b.overlap_grad_reduce &&
                         a.overlap_param_gather == b.overlap_param_gather &&
                         a.offload_weights == b.offload_weights &&
                         a.offload_activations == b.offload_activations;
  return same_step ? Change::optimizer_offload : Change::step;
}

void SiblingEvaluator::start(const Tables& tables, const Cell& cell, const StageLayout& stages) {
  tables_ = &tables;
  power_stated_ = states_power(tables.cluster());
  for (Shards& shards : shards_) shards.known = false;
  start_group(cell, stages);
}

void SiblingEvaluator::start_group(const Cell& cell, const StageLayout& stages) {
  cell_ = &cell;
  stages_ = &stages;
  rates_stated_ = tables_->rates_stated() && cell.timed;
  context_.reset();
  shared_.reset();
}

SiblingEvaluator::Shards& SiblingEvaluator::shards_of(const Strategy& strategy) {
  Shards& shards = shards_[static_cast<std::size_t>(strategy.sharding)];
  const auto what = [](const Strategy& s) {
    return std::tie(s.shard_degree, s.placement, s.linear_precision, s.secondary_degree,
                    s.quantized_gather, s.quantized_reduce);
  };
  if (shards.known && what(shards.strategy) == what(strategy)) return shards;
  shards.known = true;
  shards.strategy = strategy;
  shards.degrees = resolve_degrees(strategy, tables_->cluster(), tables_->task());
  const StepContext c = make_context(*tables_, strategy, shards.degrees, *cell_, *stages_);
  shards.meant = c.strategy.sharding;
  shards.groups = c.groups;
  shards.gathered = c.gathered;
  shards.terms.reset();
  return shards;
}

void SiblingEvaluator::set(const Strategy& strategy) {
  Shards& shards = shards_of(strategy);
  if (!context_) {
    context_.emplace(context_without_shards(*tables_, strategy, shards.degrees, *cell_, *stages_));
    context_->shared = &shared_;
  }
  StepContext& c = *context_;
  c.strategy = strategy;
  c.strategy.sharding = shards.meant;
  c.degrees = shards.degrees;
  c.groups = shards.groups;
  c.gathered = c.weights_sharded = shards.gathered;
  shared_.reset_shards(shards.terms);
  sharding_ = strategy.sharding;
}

void SiblingEvaluator::follow(const Strategy& strategy, Change change) {
  Strategy& s = context_->strategy;
  s.offload_optimizer = strategy.offload_optimizer;
  if (change == Change::optimizer_offload) return;
  s.overlap_grad_reduce = strategy.overlap_grad_reduce;
  s.overlap_param_gather = strategy.overlap_param_gather;
  s.offload_weights = strategy.offload_weights;
  s.offload_activations = strategy.offload_activations;
  shared_.has_step = false;
}

const StatesByOffload& SiblingEvaluator::memory() {
  const StepContext& c = *context_;
  return shared_.memory.get(c.strategy.offload_weights ? 1 : 0,
                            [&] { return states_by_offload(c); });
}

const Estimate& SiblingEvaluator::states() {
  const StepContext& c = *context_;
  return shared_.states.get(offloaded(c.strategy), [&] { return states_of(c, memory()); });
}

const Estimate& SiblingEvaluator::estimate(Asked asked) {
  const StepContext& c = *context_;
  if (asked == Asked::totals_that_fit) {
    const StatesByOffload& of = memory();
    set_states(estimate_, c, of.fullest[offloaded_beside_weights(c.strategy)], of.update,
               of.transfer);
  } else {
    estimate_ = states();
  }
  if (!shared_.has_step) shared_.step = times_by_cause(c);
  shared_.has_step = true;
  set_step_time(estimate_, c, shared_.step);
  // Joules that nothing asks for and that are certain to be a number are left out.
  const bool skips_power = !derived_.power && power_stated_ && estimate_.step_time > Seconds{};
  if (skips_power) estimate_.energy = Joules{};
  set_derived(estimate_, c, {derived_.work, !skips_power});
  if (!is_finite(estimate_)) estimate_ = without_rate(estimate_);
  return estimate_;
}

Estimate SiblingEvaluator::at_least() {
  StepContext c = *context_;
  c.pipeline = PipelineBound::one_stage;
  c.shared = nullptr;  // what strategies share is not a bound
  Estimate bound = states();
  bound_times(bound, c, derived_);
  return bound;
}

const Estimate& SiblingEvaluator::operator()(const Strategy& strategy, Asked asked) {
  Strategy last = strategy;
  if (context_) {
    last = context_->strategy;
    last.sharding = sharding_;
  }
  const Change change = context_ ? change_between(last, strategy) : Change::shards;
  if (change == Change::shards) {
    set(strategy);
  } else {
    follow(strategy, change);
  }
  const bool enough = asked != Asked::all && rates_stated_ && fits() != Reason::ok;
  return enough ? states() : estimate(asked);
}

Estimate at_step_time(const Tables& tables, const Strategy& strategy, Estimate estimate,
                      Seconds step_time) noexcept {
  const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  const Cell* cell = tables.find_cell(strategy, degrees);
  const StageLayout* stages = tables.find_stages(strategy, degrees);
  if (cell == nullptr || stages == nullptr) return estimate;
  const StepContext c = make_context(tables, strategy, degrees, *cell, *stages);
  estimate.bubble = max(Seconds{}, estimate.bubble + step_time - estimate.step_time);
  estimate.step_time = step_time;
  set_utilisation(estimate, c);
  set_energy_and_cost(estimate, c);
  return estimate;
}

Bytes reported_memory(const Tables& tables, const Strategy& strategy,
                      const Estimate& estimate) noexcept {
  const MemoryPolicy& stack = tables.stack();
  switch (stack.memory_report) {
    case MemoryReport::allocated:
      return estimate.memory_allocated;
    case MemoryReport::reserved:
      return estimate.memory - stack.reserve;
    case MemoryReport::device:
      return estimate.memory;
    case MemoryReport::last_stage:
      break;
  }
  const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  const Cell* cell = tables.find_cell(strategy, degrees);
  const StageLayout* stages = tables.find_stages(strategy, degrees);
  if (cell == nullptr || stages == nullptr) return estimate.memory_allocated;
  const StepContext c = make_context(tables, strategy, degrees, *cell, *stages);
  const StageClass& last = std::ranges::max(stages->classes, {}, &StageClass::last_index);
  return memory_by_kind(c, last, stage_parameters(c, last)).allocated();
}

void GroupBounds::start(const Tables& tables, const Strategy& strategy, const Degrees& degrees) {
  tables_ = &tables;
  degrees_ = degrees;
  const DataParallelGroups groups =
      data_parallel_groups(tables.cluster(), strategy, degrees, tables.model().routed());
  // Groups of one rank send nothing; what they shard stays sharded over all ranks.
  groups_ = DataParallelGroups{};
  groups_.dense_ranks = groups_.dense_shard_ranks = groups.dense_ranks;
  groups_.expert_ranks = groups_.expert_shard_ranks = groups.expert_ranks;
  straggling_ = expected_straggling(tables.stack().kernel_spread, degrees, false).anywhere;
  states_of_.reset();
}

void GroupBounds::set_cell(const Strategy& strategy, const Cell& cell, const StageLayout& stages) {
  StepContext& c =
      context_.emplace(context_without_shards(*tables_, strategy, degrees_, cell, stages));
  c.groups = groups_;
  c.free_host = true;
  c.shared = &shared_;
  shared_.of_shards = &shards_;
  shared_.flop.reset();
  has_loads_ = false;
}

void GroupBounds::set_group(const Strategy& strategy, const Freedom& freedom) {
  StepContext& c = *context_;
  const StatesOf states{strategy.linear_precision, freedom.shards_gradients, freedom.shards_weights,
                        freedom.offloads_weights, freedom.offloads_optimizer};
  if (states != states_of_) {
    states_of_ = states;
    shards_.reset();
    shared_.reset_shards(shards_);
    has_states_ = false;
  }
  c.strategy = strategy;
  c.strategy.sharding = freedom.shards_gradients ? Sharding::zero2 : Sharding::zero1;
  c.strategy.offload_weights = freedom.offloads_weights;
  c.strategy.offload_activations = freedom.offloads_activations;
  c.strategy.offload_optimizer = freedom.offloads_optimizer;
  c.weights_sharded = freedom.shards_weights;
  shared_.reset_passes();
}

void GroupBounds::set_states() {
  const StepContext& c = *context_;
  update_ = Seconds{};
  Bytes most;
  for (std::size_t number = 0; number < c.stages.classes.size(); ++number) {
    with_stage_states(c, number, [&](const StageStates& states) {
      const MemoryByKind memory = states.memory.offloaded(offload_of(c.strategy), {});
      update_ = max(update_, states.update);
      most = max(most, memory.allocated() + memory.fragments(c.stack()));
    });
  }
  rough_.memory = kBoundMargin * (most + c.stack().reserve);
  rough_.memory_capacity = c.cluster().accelerator.memory_capacity;
  rough_.verdict = rough_.memory > rough_.memory_capacity ? Reason::out_of_memory : Reason::ok;
}

const Estimate& GroupBounds::rough() {
  const StepContext& c = *context_;
  if (!has_states_) set_states();
  has_states_ = true;
  if (!has_loads_) loads_ = cell_loads(c);
  has_loads_ = true;
  const Load load = pacing_load(c, loads_);
  const double m = c.degrees.micro_batches;
  const Seconds passes = max(m * load.busy, longest_way(c, loads_));
  Estimate& e = rough_;
  e.step_time = kBoundMargin *
                (passes + (m * straggling_) * load.compute + update_ + c.stack().step_overhead);
  e.compute = kBoundMargin * m * load.compute;
  set_derived(e, c, derived_);
  return e;
}

Estimate GroupBounds::close(PipelineBound pipeline, Asked asked) {
  StepContext& c = *context_;
  c.pipeline = pipeline;
  Estimate bound = states_of(c);
  bound.memory = kBoundMargin * bound.memory;
  bound.host_memory = Bytes{};
  bound.verdict = bound.memory > bound.memory_capacity ? Reason::out_of_memory : Reason::ok;
  if (!is_enough(c, bound, asked)) bound_times(bound, c, derived_);
  return bound;
}

Estimate lower_bound(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                     const Cell& cell, const StageLayout& stages, const Freedom& freedom,
                     PipelineBound pipeline, Asked asked) {
  GroupBounds bounds;
  bounds.start(tables, strategy, degrees);
  bounds.set_cell(strategy, cell, stages);
  bounds.set_group(strategy, freedom);
  return bounds.close(pipeline, asked);
}

}  // namespace scalemodel
