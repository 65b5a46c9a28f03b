#include "scalemodel/estimator/evaluate_groups.hpp"

#include <algorithm>

#include "scalemodel/costs/update.hpp"
#include "scalemodel/economics/step.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/power/phases.hpp"

namespace scalemodel {
namespace {

/// Sums with one group more: written at once, where adding to a copy would wait for it.
void set_sums(GroupSums& s, const GroupSums& before, const GroupCost& cost,
              const GroupOrder& order) {
  const bool runs_again = order.recompute && cost.can_run_again;
  const double again = runs_again ? 1 : 0;
  s.compute = before.compute + ((1 + again) * cost.compute_forward + cost.compute_backward);
  s.gemm = before.gemm + cost.gemm;
  s.lookup = before.lookup + cost.lookup;
  s.looked_up = before.looked_up + cost.tables.looked_up;
  s.forward_flop = before.forward_flop + cost.forward_flop;
  s.table_imbalance = std::max(before.table_imbalance, cost.tables.imbalance);
  s.updated = before.updated + cost.updated;
  s.reduced = before.reduced + cost.reduced;
  for (std::size_t i = 0; i < s.by.size(); ++i) s.by[i] = before.by[i] + cost.by[i];
  for (std::size_t i = 0; i < s.by.size(); ++i) {
    s.bytes_by[i] = before.bytes_by[i] + cost.bytes_by[i];
  }
  if (order.recompute) {
    for (std::size_t i = 0; i < s.by.size(); ++i) s.by[i] += cost.again_by[i];
    for (std::size_t i = 0; i < s.by.size(); ++i) s.bytes_by[i] += cost.again_bytes_by[i];
  }
  if (order.one_bucket) {
    s.by[static_cast<std::size_t>(Collective::all_reduce)] += Seconds{} - cost.bucket_saving;
  }
  s.weights = before.weights + cost.weights;
  s.tables = before.tables + cost.rows;
  s.gradients = before.gradients + cost.gradients;
  s.optimizer = before.optimizer + cost.optimizer;
  s.activations = before.activations + (runs_again ? cost.inputs : cost.activations);
  s.widest = max(before.widest, cost.widest);
  s.gathered = max(before.gathered, cost.gathered);
  s.stays_gathered = before.stays_gathered + cost.stays_gathered;
  s.buffers = before.buffers + cost.buffers;
  s.logits = before.logits + cost.logits;
  s.learns = before.learns || cost.backward;
}

/// Memory, and whether it is there.
void set_memory(GroupEstimate& e, const GroupSums& s, const GroupQuestion& q, bool recompute) {
  const MemoryPolicy& stack = q.conditions.stack;
  e.memory_weights = s.weights;
  e.memory_tables = s.tables;
  e.memory_gradients = s.gradients;
  e.memory_optimizer = s.optimizer;
  e.memory_gathered = s.gathered + s.stays_gathered;
  e.memory_communication = s.buffers;
  e.memory_logits = s.logits;
  const bool whole_again = recompute || s.activations <= Bytes{};
  e.memory_activations = s.activations + (whole_again ? s.widest : Bytes{});
  const Bytes passing =
      e.memory_activations + e.memory_logits + e.memory_gathered + e.memory_communication;
  e.memory_reserve = stack.reserve + stack.fragmentation_fraction * passing;
  e.memory = e.memory_weights + e.memory_tables + e.memory_gradients + e.memory_optimizer +
             passing + e.memory_reserve;
  e.memory_capacity = q.cluster.accelerator.memory_capacity;
  e.verdict = e.memory > e.memory_capacity ? Reason::out_of_memory : Reason::ok;
}

/// What does not depend on the schedule beside memory.
void set_totals(GroupEstimate& e, const GroupSums& s, const GroupQuestion& q,
                double micro_batches) {
  e.overhead = q.conditions.stack.step_overhead;
  e.optimizer = Seconds{};
  e.compute = micro_batches * s.compute;
  e.gemm = s.gemm;
  e.lookup = s.lookup;
  e.looked_up = s.looked_up;
  e.forward_flop = s.forward_flop;
  e.table_imbalance = s.table_imbalance;
  e.all_reduce = s.by[static_cast<std::size_t>(Collective::all_reduce)];
  e.all_gather = s.by[static_cast<std::size_t>(Collective::all_gather)];
  e.reduce_scatter = s.by[static_cast<std::size_t>(Collective::reduce_scatter)];
  e.all_to_all = s.by[static_cast<std::size_t>(Collective::all_to_all)];
  e.all_reduce_bytes = s.bytes_by[static_cast<std::size_t>(Collective::all_reduce)];
  e.all_gather_bytes = s.bytes_by[static_cast<std::size_t>(Collective::all_gather)];
  e.reduce_scatter_bytes = s.bytes_by[static_cast<std::size_t>(Collective::reduce_scatter)];
  e.all_to_all_bytes = s.bytes_by[static_cast<std::size_t>(Collective::all_to_all)];
  e.communication = e.all_reduce + e.all_gather + e.reduce_scatter + e.all_to_all;
  if (!s.learns || !q.ablation.optimizer || s.updated <= 0) return;
  const double element = operand_bytes(q.conditions.storage);
  const double gradient = q.conditions.gradients_fp32 ? 4 : element;
  e.optimizer = memory_time(
      update_bytes(s.updated, s.reduced, gradient, q.task, element),
      q.cluster.accelerator.elementwise.add_fraction * q.conditions.stack.memory_efficiency,
      q.cluster.accelerator);
}

Seconds exposed_time(const GroupEstimate& e) {
  return e.exposed_tp + e.exposed_cp + e.exposed_ep + e.exposed_dp + e.exposed_exchange +
         e.exposed_reshard;
}

void set_rates(GroupEstimate& e, const GroupTables& tables, double samples) {
  const GroupQuestion& q = tables.question();
  const double seconds = e.step_time / (1 * unit::s);
  if (seconds <= 0) return;
  const Cluster& cluster = q.cluster;
  const double accelerators = cluster.accelerators;
  e.samples_per_s = samples / seconds;
  e.tokens_per_s = tables.tokens_per_sample() * e.samples_per_s;
  const Flop peak =
      (accelerators * e.step_time) * cluster.accelerator.peak_of(q.conditions.precision);
  e.mfu_fraction = samples * tables.sample_flop() / peak;
  const Seconds exposed = exposed_time(e);
  e.exposed_fraction = exposed / e.step_time;
  e.power = mean_power(cluster.accelerator.power, (e.compute + e.optimizer) / e.step_time,
                       e.exposed_fraction);
  e.energy = facility_energy(e.step_time, e.power, accelerators, cluster.host_power,
                             accelerators / cluster.node_accelerators, cluster.pue);
  e.cost = rental_cost(e.step_time, accelerators, cluster.price);
}

/// The costs of a strategy, or the verdict that it cannot run.
Reason find_costs(const GroupTables& tables, const GroupStrategy& strategy, GroupCosts& costs) {
  if (!tables.find(strategy, costs)) return Reason::mesh;
  for (std::size_t g = 0; g < tables.model().groups.size(); ++g) {
    if (costs[g]->verdict != Reason::ok) return costs[g]->verdict;
  }
  return Reason::ok;
}

GroupEstimate refusal(const GroupTables& tables, Reason verdict) {
  GroupEstimate e;
  e.verdict = verdict;
  e.memory_capacity = tables.question().cluster.accelerator.memory_capacity;
  return e;
}

/// Whether passes of two strategies are issued alike.
bool same_order(const GroupStrategy& a, const GroupStrategy& b) {
  return a.queues == b.queues && a.recompute == b.recompute && a.prefetch == b.prefetch &&
         a.backward_gather == b.backward_gather && a.buckets == b.buckets;
}

/// Adds the passes: `pass` is the last micro-batch, `every` each before it.
void set_schedule(GroupEstimate& e, const GroupTables& tables, const GroupStrategy& strategy,
                  GroupPass pass, const GroupPass& every) {
  const GroupQuestion& q = tables.question();
  if (strategy.micro_batches > 1) {
    const double more = strategy.micro_batches - 1.0;
    pass.forward += more * every.forward;
    for (std::size_t i = 0; i < kWaitCauses; ++i) pass.waits[i] += more * every.waits[i];
  }
  e.forward = pass.forward;
  e.exposed_tp = pass.waits[static_cast<std::size_t>(WaitCause::tp)];
  e.exposed_cp = pass.waits[static_cast<std::size_t>(WaitCause::cp)];
  e.exposed_ep = pass.waits[static_cast<std::size_t>(WaitCause::ep)];
  e.exposed_dp = pass.waits[static_cast<std::size_t>(WaitCause::dp)];
  e.exposed_exchange = pass.waits[static_cast<std::size_t>(WaitCause::exchange)];
  e.exposed_reshard = pass.waits[static_cast<std::size_t>(WaitCause::reshard)];
  const Seconds exposed = exposed_time(e);
  e.hidden = max(Seconds{}, e.communication - exposed);
  e.compute += q.conditions.stack.contention * e.hidden;
  e.step_time = e.compute + exposed + e.optimizer + e.overhead;
  double samples = q.task.global_batch;
  if (q.task.batch_is_limit) {
    const LayerGroup& widest = tables.model().groups.back();
    const Mesh& mesh = tables.meshes()[strategy.mesh[static_cast<std::size_t>(widest.slot)]];
    const int copies =
        q.cluster.accelerators / (mesh.tensor_degree() * mesh.degree(Parallelism::cp));
    samples = local_samples(q.task, mesh, strategy.micro_batches) * strategy.micro_batches * copies;
  }
  set_rates(e, tables, samples);
}

}  // namespace

GroupEstimate evaluate_groups(const GroupTables& tables, const GroupStrategy& strategy) noexcept {
  GroupCosts costs;
  const Reason verdict = find_costs(tables, strategy, costs);
  if (verdict != Reason::ok) return refusal(tables, verdict);
  const GroupOrder last = order_of(strategy, true);
  std::array<GroupSums, 2> both;  // by turns the sums and those before them
  const std::size_t groups = tables.model().groups.size();
  for (std::size_t g = 0; g < groups; ++g) {
    set_sums(both[(g + 1) % 2], both[g % 2], *costs[g], last);
  }
  const GroupSums& sums = both[groups % 2];
  const GroupPass pass = run_pass(tables, costs, last, sums.learns);
  GroupPass every;
  if (strategy.micro_batches > 1) {
    every = run_pass(tables, costs, order_of(strategy, false), sums.learns);
  }
  GroupEstimate e;
  set_memory(e, sums, tables.question(), strategy.recompute);
  set_totals(e, sums, tables.question(), strategy.micro_batches);
  set_schedule(e, tables, strategy, pass, every);
  return e;
}

Reason GroupEvaluator::look_at(const GroupStrategy& strategy) noexcept {
  GroupCosts costs;
  const Reason verdict = find_costs(tables_, strategy, costs);
  legal_ = verdict == Reason::ok;
  if (!legal_) {
    looked_at_ = refusal(tables_, verdict);
    return verdict;
  }
  const std::size_t groups = tables_.model().groups.size();
  // Groups in front of the first one that another mesh, or the schedule, changes.
  std::size_t from = 0;
  if (micro_batches_ == strategy.micro_batches && same_order(strategy, strategy_)) {
    while (from < groups && costs[from] == costs_[from]) ++from;
  } else {
    order_ = order_of(strategy, true);
  }
  static constexpr GroupSums kNone{};
  for (std::size_t g = from; g < groups; ++g) {
    costs_[g] = costs[g];
    set_sums(sums_[g], g > 0 ? sums_[g - 1] : kNone, *costs[g], order_);
  }
  strategy_ = strategy;
  micro_batches_ = strategy.micro_batches;
  passes_of_ = std::min(passes_of_, from);
  has_totals_ = false;
  set_memory(looked_at_, sums_[groups - 1], tables_.question(), strategy.recompute);
  return looked_at_.verdict;
}

void GroupEvaluator::find_totals() noexcept {
  if (has_totals_) return;
  has_totals_ = true;
  const GroupSums& sums = sums_[tables_.model().groups.size() - 1];
  set_totals(looked_at_, sums, tables_.question(), strategy_.micro_batches);
}

Seconds GroupEvaluator::least_step_time() noexcept {
  find_totals();
  const Seconds queued = (order_.one_queue ? 1.0 : 0.5) * looked_at_.communication;
  return (1 - kRounding) *
         (max(looked_at_.compute, queued) + looked_at_.optimizer + looked_at_.overhead);
}

Seconds GroupEvaluator::least_after_forward() noexcept {
  if (micro_batches_ > 1) return least_step_time();
  find_totals();
  const Seconds waited = run_forward_pass(tables_, costs_, order_, passes_of_, last_);
  passes_of_ = tables_.model().groups.size();
  return (1 - kRounding) *
         (looked_at_.compute + waited + looked_at_.optimizer + looked_at_.overhead);
}

GroupEstimate GroupEvaluator::estimate() noexcept {
  if (!legal_) return looked_at_;
  find_totals();
  GroupEstimate e = looked_at_;
  const std::size_t groups = tables_.model().groups.size();
  const bool learns = sums_[groups - 1].learns;
  const GroupPass pass = run_pass(tables_, costs_, order_, learns, passes_of_, &last_);
  GroupPass every;
  if (micro_batches_ > 1) {
    every = run_pass(tables_, costs_, order_of(strategy_, false), learns, passes_of_, &every_);
  }
  passes_of_ = groups;
  set_schedule(e, tables_, strategy_, pass, every);
  return e;
}

}  // namespace scalemodel
