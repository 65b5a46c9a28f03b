#include "scalemodel/estimator/evaluate_groups.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "scalemodel/costs/update.hpp"
#include "scalemodel/economics/step.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/power/phases.hpp"

namespace scalemodel {
namespace {

/// What compute waits for.
enum Cause : std::uint8_t { kTp, kEp, kDp, kExchange, kReshard, kCauses };

/// A moment at which something is there, and what brought it.
struct Ready {
  Seconds time;
  Cause cause = kDp;
};

Ready later(const Ready& a, const Ready& b) { return b.time > a.time ? b : a; }

/// Clocks of a pass. Plain members: a loop over units keeps them in registers.
struct Clocks {
  Seconds compute, queue0, queue1;
  Seconds last, before_last;  ///< ends of the last two units' compute
  Seconds done;               ///< when the output of the last unit is whole
  Seconds gathered;           ///< when the parameters of the next unit are there
  Cause done_cause = kDp, cause0 = kDp, cause1 = kDp;
  std::array<Seconds, kCauses> waits{};
};

/// Everything that a repeated layer advances, in one array, so that periods can be compared and
/// skipped.
enum Moment : std::uint8_t { kCompute, kQueue0, kQueue1, kLast, kBeforeLast, kDone, kGathered };
constexpr std::size_t kMoments = 7 + std::size_t{kCauses};
using Moments = std::array<Seconds, kMoments>;

Moments moments_of(const Clocks& c) {
  Moments m{c.compute, c.queue0, c.queue1, c.last, c.before_last, c.done, c.gathered};
  std::copy(c.waits.begin(), c.waits.end(), m.begin() + 7);
  return m;
}

void set_moments(Clocks& c, const Moments& m) {
  c.compute = m[kCompute];
  c.queue0 = m[kQueue0];
  c.queue1 = m[kQueue1];
  c.last = m[kLast];
  c.before_last = m[kBeforeLast];
  c.done = m[kDone];
  c.gathered = m[kGathered];
  std::copy(m.begin() + 7, m.end(), c.waits.begin());
}

struct Order {
  bool one_queue = false;
  Prefetch prefetch = Prefetch::one;
  bool gathers_before = true;
  bool recompute = false;
  bool one_bucket = false;
  bool last_pass = true;  ///< of the micro-batches of a step
};

inline Seconds issue(Clocks& c, const Order& s, const Transfer& moved, Seconds wait, Cause cause) {
  const bool first = s.one_queue || moved.level == 0;
  const Seconds end = max(first ? c.queue0 : c.queue1, wait) + moved.time;
  c.queue0 = first ? end : c.queue0;
  c.queue1 = first ? c.queue1 : end;
  c.cause0 = first ? cause : c.cause0;
  c.cause1 = first ? c.cause1 : cause;
  return end;
}

/// Runs `time` of compute as soon as the stream is free and `ready` has come.
inline void run(Clocks& c, Seconds time, const Ready& ready) {
  if (ready.time > c.compute) {
    c.waits[ready.cause] += ready.time - c.compute;
    c.compute = ready.time;
  }
  c.compute += time;
}

inline bool takes_part(const Transfer& moved) { return moved.time > Seconds{}; }

/// When the parameters of a unit may be gathered at the earliest.
inline Seconds gather_wait(const Clocks& c, const Order& s, bool compute_is_next) {
  switch (s.prefetch) {
    case Prefetch::none:
      return c.last;
    case Prefetch::one:
      return compute_is_next ? c.before_last : c.last;
    case Prefetch::unlimited:
      return Seconds{};
  }
  return Seconds{};
}

inline void end_unit(Clocks& c) {
  c.before_last = c.last;
  c.last = c.compute;
  c.done = c.compute;
}

template <bool routed>
[[gnu::always_inline]] inline void forward_unit(Clocks& c, const Order& s, const UnitCost& u) {
  Ready ready{c.done, c.done_cause};
  if (takes_part(u.gather) && (u.gathers_again || s.last_pass)) {
    const Seconds wait = u.gathers_again ? gather_wait(c, s, true) : Seconds{};
    ready = later(ready, {issue(c, s, u.gather, wait, kDp), kDp});
  }
  if (routed && takes_part(u.dispatch)) {
    const Seconds wait = max(c.compute, c.done);
    ready = later(ready, {issue(c, s, u.dispatch, wait, kEp), kEp});
  }
  run(c, u.forward, ready);
  end_unit(c);
  if (routed && takes_part(u.combine)) {
    c.done = issue(c, s, u.combine, c.done, kEp);
    c.done_cause = kEp;
  }
  if (takes_part(u.join_forward)) {
    c.done = issue(c, s, u.join_forward, c.done, kTp);
    c.done_cause = kTp;
  }
}

/// `next`: the unit whose backward pass follows, if any.
template <bool routed>
[[gnu::always_inline]] inline void backward_unit(Clocks& c, const Order& s, const UnitCost& u,
                                                 const UnitCost* next, bool trained) {
  Ready ready{c.done, c.done_cause};
  const bool before = s.gathers_before && s.prefetch != Prefetch::none;
  const auto gathers = [](const UnitCost& unit) {
    return unit.gathers_again && takes_part(unit.gather);
  };
  if (gathers(u)) {
    const Seconds end = before ? c.gathered : issue(c, s, u.gather, gather_wait(c, s, true), kDp);
    ready = later(ready, {end, kDp});
  }
  if (before && next != nullptr && gathers(*next)) {
    c.gathered = issue(c, s, next->gather, gather_wait(c, s, false), kDp);
  }
  if (s.recompute) {
    run(c, u.forward, ready);
    ready = {c.compute, kTp};
    for (const Transfer* moved : {&u.dispatch, &u.combine, &u.join_forward}) {
      if (!takes_part(*moved)) continue;
      const Cause cause = moved == &u.join_forward ? kTp : kEp;
      ready = later(ready, {issue(c, s, *moved, ready.time, cause), cause});
    }
  }
  if (routed && takes_part(u.combine)) {
    const Seconds wait = max(c.compute, c.done);
    ready = later(ready, {issue(c, s, u.combine, wait, kEp), kEp});
  }
  run(c, u.backward, ready);
  end_unit(c);
  if (routed && takes_part(u.dispatch)) {
    c.done = issue(c, s, u.dispatch, c.done, kEp);
    c.done_cause = kEp;
  }
  if (takes_part(u.join_backward)) {
    c.done = issue(c, s, u.join_backward, c.done, kTp);
    c.done_cause = kTp;
  }
  if (!trained) return;
  Seconds reduced = c.compute;
  if (takes_part(u.gradients[0]) && (u.reduces_each || s.last_pass)) {
    reduced = issue(c, s, u.gradients[0], reduced, kDp);
  }
  const bool alone = !s.one_bucket || !u.joins_bucket;
  if (alone && takes_part(u.gradients[1]) && s.last_pass) issue(c, s, u.gradients[1], reduced, kDp);
}

/// Periods that certainly go on as the last one did, when every clock advances by `step` a period:
/// as many as until a slower clock in front could be overtaken. Zero when nothing can be said.
int steady_periods(const Moments& at, const Moments& step, int left) {
  double most = left;
  constexpr std::array kStreams{kCompute, kQueue0, kQueue1, kGathered};
  const Seconds widest = max(max(step[kCompute], step[kQueue0]), max(step[kQueue1], step[kDone]));
  for (const auto a : kStreams) {
    for (const auto b : kStreams) {
      const Seconds closing = step[a] - step[b];
      if (closing <= 1e-9 * widest || at[a] >= at[b] + widest) continue;
      // A queue that has stood still serves nobody.
      if (step[a] == Seconds{} || step[b] == Seconds{}) continue;
      most = std::min(most, (at[b] - at[a] - 3 * widest) / closing);
    }
  }
  return static_cast<int>(std::max(0.0, std::floor(most)));
}

/// Runs `period` `repeat` times, the last time with `true`. Periods that advance as the one before
/// them did are not run but added.
template <class Period>
inline void repeat_periods(Clocks& c, int repeat, const Period& period) {
  constexpr int kFew = 8;
  if (repeat <= kFew) {
    Clocks own = c;  // nobody else sees it: its members stay in registers
    for (int left = repeat; left > 0; --left) period(own, left == 1);
    c = own;
    return;
  }
  Moments step{};
  bool known = false;
  for (int left = repeat; left > 0;) {
    const Moments before = moments_of(c);
    period(c, left == 1);
    --left;
    if (left <= 1) continue;
    Moments after = moments_of(c);
    bool same = known;
    const Seconds scale = 1e-10 * c.compute;
    for (std::size_t i = 0; i < kMoments; ++i) {
      const Seconds advance = after[i] - before[i];
      const Seconds change = advance - step[i];
      same = same && change <= scale && Seconds{} - change <= scale;
      step[i] = advance;
    }
    known = true;
    if (!same) continue;
    const int skipped = steady_periods(after, step, left - 1);
    if (skipped <= 0) continue;
    for (std::size_t i = 0; i < kMoments; ++i) after[i] += static_cast<double>(skipped) * step[i];
    set_moments(c, after);
    left -= skipped;
  }
}

/// A period of a group backward. A named type, because a lambda cannot ask to be inlined, which
/// doubles its speed.
template <bool routed>
struct BackwardPeriod {
  const Order& order;
  const UnitCost* units;
  std::size_t count;
  const UnitCost* beyond;  ///< the unit that follows the last period
  bool trained;

  [[gnu::always_inline]] inline void operator()(Clocks& c, bool last) const {
    for (std::size_t u = count; u-- > 0;) {
      const UnitCost* next = u > 0 ? units + u - 1 : last ? beyond : units + count - 1;
      backward_unit<routed>(c, order, units[u], next, trained);
    }
  }
};

/// The same forward.
template <bool routed>
struct ForwardPeriod {
  const Order& order;
  const UnitCost* units;
  std::size_t count;

  [[gnu::always_inline]] inline void operator()(Clocks& c, bool /*last*/) const {
    for (std::size_t u = 0; u < count; ++u) forward_unit<routed>(c, order, units[u]);
  }
};

/// Everything an evaluation reads of one strategy.
struct Step {
  const GroupTables& tables;
  std::array<const GroupCost*, kMaxGroups> costs{};
  std::size_t groups = 0;

  const LayerGroup& group(std::size_t g) const { return tables.model().groups[g]; }
  const UnitCost* units(std::size_t g) const { return tables.units(*costs[g]); }
};

/// The forward pass; `outputs`: when the output of each group is there.
void run_forward(const Step& step, const Order& s, Clocks& c,
                 std::array<Ready, kMaxGroups>& outputs) {
  for (std::size_t g = 0; g < step.groups; ++g) {
    const GroupCost& cost = *step.costs[g];
    if (cost.has_tables) {
      run(c, cost.tables.look_up, {});
      Ready out{c.compute, kExchange};
      for (const Transfer& moved : cost.tables.forward) {
        if (takes_part(moved)) out.time = issue(c, s, moved, out.time, kExchange);
      }
      outputs[g] = out;
      continue;
    }
    Ready input{};
    std::size_t at = 0;
    for (const int before : step.group(g).waits_for) {
      const auto b = static_cast<std::size_t>(before);
      Ready from = outputs[b];
      if (at < kMostProducers && takes_part(cost.gather_in[at]) &&
          step.costs[b]->layout != cost.layout) {
        from = {issue(c, s, cost.gather_in[at], from.time, kReshard), kReshard};
      }
      ++at;
      input = later(input, from);
    }
    c.done = input.time;
    c.done_cause = input.cause;
    const UnitCost* units = step.units(g);
    const int repeat = cost.units == 0 ? 0 : cost.repeat;
    if (step.group(g).expert_slot >= 0) {
      repeat_periods(c, repeat, ForwardPeriod<true>{s, units, cost.units});
    } else {
      repeat_periods(c, repeat, ForwardPeriod<false>{s, units, cost.units});
    }
    outputs[g] = {c.done, c.done_cause};
  }
}

/// Gradients arrive at the groups in front of `g`.
void send_back(const Step& step, const Order& s, Clocks& c, std::size_t g, const Ready& from,
               std::array<Ready, kMaxGroups>& gradients) {
  const GroupCost& cost = *step.costs[g];
  for (const int before : step.group(g).waits_for) {
    const auto b = static_cast<std::size_t>(before);
    const GroupCost& producer = *step.costs[b];
    if (!producer.backward) continue;
    Ready there = from;
    if (takes_part(producer.gather_out) && producer.layout != cost.layout) {
      there = {issue(c, s, producer.gather_out, there.time, kReshard), kReshard};
    }
    if (producer.has_tables) {
      for (const auto* list : {producer.tables.backward.data(), producer.tables.gradients.data()}) {
        for (std::size_t i = 0; i < kMaxAxes; ++i) {
          if (takes_part(list[i])) there = {issue(c, s, list[i], there.time, kExchange), kExchange};
        }
      }
    }
    gradients[b] = later(gradients[b], there);
  }
}

const UnitCost* last_unit(const Step& step, std::size_t g) {
  const GroupCost& cost = *step.costs[g];
  if (!cost.backward || cost.units == 0) return nullptr;
  return step.units(g) + cost.units - 1;
}

void run_backward(const Step& step, const Order& s, Clocks& c, const Ready& start) {
  std::array<Ready, kMaxGroups> gradients;
  gradients.fill(start);
  c.last = c.before_last = start.time;
  // Indices of the next batch travel while this one learns.
  bool first = true;
  const auto next_group = [&](std::size_t g) -> const UnitCost* {
    while (g-- > 0) {
      if (const UnitCost* unit = last_unit(step, g)) return unit;
    }
    return nullptr;
  };
  if (s.gathers_before && s.prefetch != Prefetch::none) {
    const UnitCost* unit = next_group(step.groups);
    if (unit != nullptr && unit->gathers_again && takes_part(unit->gather)) {
      c.gathered = issue(c, s, unit->gather, start.time, kDp);
    }
  }
  for (std::size_t g = step.groups; g-- > 0;) {
    const GroupCost& cost = *step.costs[g];
    if (!cost.backward) continue;
    if (cost.has_tables) {
      run(c, cost.tables.update, gradients[g]);
      continue;
    }
    c.done = gradients[g].time;
    c.done_cause = gradients[g].cause;
    const UnitCost* units = step.units(g);
    const UnitCost* beyond = next_group(g);
    const int repeat = cost.units == 0 ? 0 : cost.repeat;
    if (step.group(g).expert_slot >= 0) {
      repeat_periods(c, repeat, BackwardPeriod<true>{s, units, cost.units, beyond, cost.trained});
    } else {
      repeat_periods(c, repeat, BackwardPeriod<false>{s, units, cost.units, beyond, cost.trained});
    }
    if (s.one_bucket && s.last_pass && cost.trained && takes_part(cost.bucket)) {
      const Seconds scattered = max(c.queue0, c.queue1);
      issue(c, s, cost.bucket, max(c.compute, scattered), kDp);
    }
    if (first) {
      first = false;
      for (std::size_t t = 0; t < step.groups; ++t) {
        if (!step.costs[t]->has_tables) continue;
        for (const Transfer& moved : step.costs[t]->tables.indices) {
          if (takes_part(moved)) issue(c, s, moved, Seconds{}, kExchange);
        }
      }
    }
    send_back(step, s, c, g, {c.done, c.done_cause}, gradients);
  }
}

/// One micro-batch. Returns the moment its forward pass ended; adds its waiting to `waits`.
struct Pass {
  Seconds time, forward;
  std::array<Seconds, kCauses> waits{};
};

Pass run_pass(const Step& step, const Order& s, bool learns) {
  Clocks c;
  std::array<Ready, kMaxGroups> outputs{};
  run_forward(step, s, c, outputs);
  Ready end{};
  for (std::size_t g = 0; g < step.groups; ++g) end = later(end, outputs[g]);
  run(c, Seconds{}, end);
  Pass pass;
  pass.forward = c.compute;
  if (learns) run_backward(step, s, c, {c.compute, kDp});
  run(c, Seconds{}, {c.queue0, c.cause0});
  run(c, Seconds{}, {c.queue1, c.cause1});
  pass.time = c.compute;
  pass.waits = c.waits;
  return pass;
}

void set_memory(GroupEstimate& e, const Step& step, const GroupStrategy& strategy) {
  const Stack& stack = step.tables.question().conditions.stack;
  Bytes activations, widest;
  for (std::size_t g = 0; g < step.groups; ++g) {
    const GroupCost& cost = *step.costs[g];
    e.memory_weights += cost.weights;
    e.memory_tables += cost.rows;
    e.memory_gradients += cost.gradients;
    e.memory_optimizer += cost.optimizer;
    activations += strategy.recompute ? cost.inputs : cost.activations;
    widest = max(widest, cost.widest);
    e.memory_gathered = max(e.memory_gathered, cost.gathered);
    e.memory_communication += cost.buffers;
  }
  const bool whole_again = strategy.recompute || activations <= Bytes{};
  e.memory_activations = activations + (whole_again ? widest : Bytes{});
  const Bytes passing = e.memory_activations + e.memory_gathered + e.memory_communication;
  e.memory_reserve = stack.reserve + stack.fragmentation_fraction * passing;
  e.memory = e.memory_weights + e.memory_tables + e.memory_gradients + e.memory_optimizer +
             passing + e.memory_reserve;
}

void set_totals(GroupEstimate& e, const Step& step, const GroupStrategy& strategy, bool learns) {
  const double m = strategy.micro_batches;
  ByCollective sums{};
  double updated = 0, reduced = 0;
  Seconds compute;
  for (std::size_t g = 0; g < step.groups; ++g) {
    const GroupCost& cost = *step.costs[g];
    const double again = strategy.recompute && cost.backward && !cost.has_tables ? 1 : 0;
    compute += (1 + again) * cost.compute_forward + cost.compute_backward;
    e.gemm += m * cost.gemm;
    e.lookup += m * cost.lookup;
    e.looked_up += m * cost.tables.looked_up;
    e.forward_flop += m * cost.forward_flop;
    e.table_imbalance = std::max(e.table_imbalance, cost.tables.imbalance);
    updated += cost.updated;
    reduced += cost.reduced;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += m * (cost.forward_by[i] + cost.backward_by[i]) + cost.once_by[i];
      if (strategy.recompute) sums[i] += m * cost.again_by[i];
    }
    if (strategy.buckets == Buckets::group) {
      sums[static_cast<std::size_t>(Collective::all_reduce)] +=
          cost.bucket.time - cost.unit_replicas;
    }
  }
  e.compute = m * compute;
  e.all_reduce = sums[static_cast<std::size_t>(Collective::all_reduce)];
  e.all_gather = sums[static_cast<std::size_t>(Collective::all_gather)];
  e.reduce_scatter = sums[static_cast<std::size_t>(Collective::reduce_scatter)];
  e.all_to_all = sums[static_cast<std::size_t>(Collective::all_to_all)];
  e.communication = e.all_reduce + e.all_gather + e.reduce_scatter + e.all_to_all;
  const GroupQuestion& q = step.tables.question();
  if (!learns || !q.ablation.optimizer || updated <= 0) return;
  const double element = operand_bytes(q.conditions.storage);
  const double gradient = q.conditions.gradients_fp32 ? 4 : element;
  e.optimizer = memory_time(
      update_bytes(updated, reduced, gradient, state_bytes(q.task), element),
      q.cluster.accelerator.elementwise.add_fraction * q.conditions.stack.memory_efficiency,
      q.cluster.accelerator);
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
  const Seconds exposed =
      e.exposed_tp + e.exposed_ep + e.exposed_dp + e.exposed_exchange + e.exposed_reshard;
  e.exposed_fraction = exposed / e.step_time;
  e.power = mean_power(cluster.accelerator.power, (e.compute + e.optimizer) / e.step_time,
                       e.exposed_fraction);
  e.energy = facility_energy(e.step_time, e.power, accelerators, cluster.host_power,
                             accelerators / cluster.node_accelerators, cluster.pue);
  e.cost = rental_cost(e.step_time, accelerators, cluster.price);
}

}  // namespace

GroupEstimate evaluate_groups(const GroupTables& tables, const GroupStrategy& strategy) noexcept {
  GroupEstimate e;
  const GroupQuestion& q = tables.question();
  e.memory_capacity = q.cluster.accelerator.memory_capacity;
  Step step{tables};
  step.groups = tables.model().groups.size();
  bool learns = false;
  for (std::size_t g = 0; g < step.groups; ++g) {
    const GroupCost* cost = tables.find(g, strategy);
    e.verdict = cost == nullptr ? Reason::mesh : cost->verdict;
    if (e.verdict != Reason::ok) return e;
    step.costs[g] = cost;
    learns = learns || cost->backward;
  }
  Order s;
  s.one_queue = strategy.queues == Queues::one;
  s.prefetch = strategy.prefetch;
  s.gathers_before = strategy.backward_gather == BackwardGather::before;
  s.recompute = strategy.recompute;
  s.one_bucket = strategy.buckets == Buckets::group;
  set_totals(e, step, strategy, learns);
  const Pass last = run_pass(step, s, learns);
  Pass total = last;
  if (strategy.micro_batches > 1) {
    s.last_pass = false;
    const Pass other = run_pass(step, s, learns);
    const double more = strategy.micro_batches - 1.0;
    total.time += more * other.time;
    total.forward += more * other.forward;
    for (std::size_t i = 0; i < kCauses; ++i) total.waits[i] += more * other.waits[i];
  }
  e.forward = total.forward;
  e.exposed_tp = total.waits[kTp];
  e.exposed_ep = total.waits[kEp];
  e.exposed_dp = total.waits[kDp];
  e.exposed_exchange = total.waits[kExchange];
  e.exposed_reshard = total.waits[kReshard];
  const Seconds exposed =
      e.exposed_tp + e.exposed_ep + e.exposed_dp + e.exposed_exchange + e.exposed_reshard;
  e.hidden = max(Seconds{}, e.communication - exposed);
  e.compute += q.conditions.stack.contention * e.hidden;
  e.overhead = q.conditions.stack.step_overhead;
  e.step_time = e.compute + exposed + e.optimizer + e.overhead;
  set_memory(e, step, strategy);
  double samples = q.task.global_batch;
  if (q.task.batch_is_limit) {
    const LayerGroup& widest = tables.model().groups.back();
    const Mesh& mesh = tables.meshes()[strategy.mesh[static_cast<std::size_t>(widest.slot)]];
    samples = local_samples(q.task, mesh, strategy.micro_batches) * strategy.micro_batches *
              (q.cluster.accelerators / mesh.degree(Parallelism::tp));
  }
  set_rates(e, tables, samples);
  if (e.memory > e.memory_capacity) e.verdict = Reason::out_of_memory;
  return e;
}

}  // namespace scalemodel
