#include "scalemodel/estimator/group_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace scalemodel {
namespace {

using Clocks = GroupClocks;
using Order = GroupOrder;
using Ready = ForwardPass::Output;
using Cause = WaitCause;
using enum WaitCause;

constexpr Parts kAll = static_cast<Parts>(~0);

constexpr Seconds kSecond = 1 * unit::s;

/// The later of two moments, as one instruction: the general form of `max` compares and then picks,
/// which in the chain of a schedule costs twice as much.
inline Seconds latest(Seconds a, Seconds b) {
  const double at = a / kSecond, other = b / kSecond;
  return (at > other ? at : other) * kSecond;
}

/// A moment at which something is there, and what brought it.
inline Ready later(const Ready& a, const Ready& b) { return b.time > a.time ? b : a; }

/// Everything that a repeated layer advances, in one array, so that periods can be compared and
/// skipped.
enum Moment : std::uint8_t { kCompute, kQueue0, kQueue1, kLast, kBeforeLast, kDone, kGathered };
constexpr std::size_t kMoments = 7 + kWaitCauses;
using Moments = std::array<Seconds, kMoments>;

Moments moments_of(const Clocks& c) {
  Moments m{c.compute, c.queue0, c.queue1, c.last, c.before_last, c.done, c.gathered};
  for (std::size_t cause = 0; cause < kWaitCauses; ++cause) m[7 + cause] = (*c.waits)[cause];
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
  std::copy(m.begin() + 7, m.end(), c.waits->begin());
}

/// `lone`: all that is issued stands in `queue0`.
template <bool lone = false>
inline Seconds issue(Clocks& c, const Order& s, const Transfer& moved, Seconds wait, Cause cause) {
  if (lone) {
    c.queue0 = latest(c.queue0, wait) + moved.time;
    c.cause0 = cause;
    return c.queue0;
  }
  const bool first = s.one_queue || moved.level == 0;
  const Seconds end = latest(first ? c.queue0 : c.queue1, wait) + moved.time;
  c.queue0 = first ? end : c.queue0;
  c.queue1 = first ? c.queue1 : end;
  c.cause0 = first ? cause : c.cause0;
  c.cause1 = first ? c.cause1 : cause;
  return end;
}

/// Runs `time` of compute as soon as the stream is free and `ready` has come.
inline void run(Clocks& c, Seconds time, const Ready& ready) {
  if (ready.time > c.compute) {
    (*c.waits)[static_cast<std::size_t>(ready.cause)] += ready.time - c.compute;
    c.compute = ready.time;
  }
  c.compute += time;
}

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

inline void swap_queues(Clocks& c) {
  std::swap(c.queue0, c.queue1);
  std::swap(c.cause0, c.cause1);
}

inline void end_unit(Clocks& c) {
  c.before_last = c.last;
  c.last = c.compute;
  c.done = c.compute;
}

/// `may`: parts that some unit of the group has; loops leave out what never takes part.
template <Parts may, bool lone>
[[gnu::always_inline]] inline void forward_unit(Clocks& c, const Order& s, const UnitCost& u) {
  const Parts parts = u.parts & s.forward & may;
  Ready ready{c.done, c.done_cause};
  if ((parts & (kGather | kGatherForward)) != 0) {
    ready = later(ready, {issue<lone>(c, s, u.gather, gather_wait(c, s, true), dp), dp});
  }
  if ((parts & kGatherOnce) != 0) {
    ready = later(ready, {issue<lone>(c, s, u.gather, Seconds{}, dp), dp});
  }
  if ((parts & kEnterForward) != 0) {
    ready = later(ready, {issue<lone>(c, s, u.enter_forward, c.done, tp), tp});
  }
  if ((parts & kContext) != 0) {
    ready = later(ready, {issue<lone>(c, s, u.context_gather, ready.time, cp), cp});
  }
  if ((parts & kDispatch) != 0) {
    const Seconds wait = max(c.compute, c.done);
    ready = later(ready, {issue<lone>(c, s, u.dispatch, wait, ep), ep});
  }
  run(c, u.forward, ready);
  end_unit(c);
  if ((parts & kCombine) != 0) {
    c.done = issue<lone>(c, s, u.combine, c.done, ep);
    c.done_cause = ep;
  }
  if ((parts & kJoinForward) != 0) {
    c.done = issue<lone>(c, s, u.join_forward, c.done, tp);
    c.done_cause = tp;
  }
}

/// `next`: the unit whose backward pass follows, if any. `again`: it runs forward once more.
template <Parts may, bool lone>
[[gnu::always_inline]] inline void backward_unit(Clocks& c, const Order& s, const UnitCost& u,
                                                 const UnitCost* next, bool again) {
  const Parts parts = u.parts & s.backward & may;
  Ready ready{c.done, c.done_cause};
  if ((parts & kGather) != 0) {
    const Seconds end =
        s.ahead != 0 ? c.gathered : issue<lone>(c, s, u.gather, gather_wait(c, s, true), dp);
    ready = later(ready, {end, dp});
  }
  if (next != nullptr && (next->parts & s.ahead) != 0) {
    c.gathered = issue<lone>(c, s, next->gather, gather_wait(c, s, false), dp);
  }
  if (may == kAll && again) {
    if ((parts & kEnterForward) != 0) {
      ready = later(ready, {issue<lone>(c, s, u.enter_forward, c.last, tp), tp});
    }
    if ((parts & kContext) != 0) {
      ready = later(ready, {issue<lone>(c, s, u.context_gather, ready.time, cp), cp});
    }
    run(c, u.forward, ready);
    ready = {c.compute, tp};
    for (const Transfer* moved : {&u.dispatch, &u.combine, &u.join_forward}) {
      if (!takes_part(*moved)) continue;
      const Cause cause = moved == &u.join_forward ? tp : ep;
      ready = later(ready, {issue<lone>(c, s, *moved, ready.time, cause), cause});
    }
  }
  if ((parts & kContext) != 0) {
    const Seconds wait = max(c.last, c.done);
    ready = later(ready, {issue<lone>(c, s, u.context_gather, wait, cp), cp});
  }
  if ((parts & kEnterBackward) != 0) {
    const Seconds wait = max(c.last, c.done);
    ready = later(ready, {issue<lone>(c, s, u.enter_backward, wait, tp), tp});
  }
  if ((parts & kCombine) != 0) {
    const Seconds wait = max(c.compute, c.done);
    ready = later(ready, {issue<lone>(c, s, u.combine, wait, ep), ep});
  }
  run(c, u.backward, ready);
  end_unit(c);
  if ((parts & kDispatch) != 0) {
    c.done = issue<lone>(c, s, u.dispatch, c.done, ep);
    c.done_cause = ep;
  }
  if ((parts & kContext) != 0) {
    c.done = issue<lone>(c, s, u.context_reduce, c.done, cp);
    c.done_cause = cp;
  }
  if ((parts & kJoinBackward) != 0) {
    c.done = issue<lone>(c, s, u.join_backward, c.done, tp);
    c.done_cause = tp;
  }
  Seconds reduced = c.compute;
  if ((parts & (kReduce | kReduceOnce)) != 0) {
    reduced = issue<lone>(c, s, u.gradients[0], reduced, dp);
  }
  if ((parts & (kReplicas | kReplicasEach | kBucketed | kBucketedEach)) != 0)
    issue<lone>(c, s, u.gradients[1], reduced, dp);
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
      // A queue that stood still has served no collective.
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
    Clocks own = c;  // no alias exists: its members stay in registers
    period(own, static_cast<std::size_t>(repeat), true);
    c = own;
    return;
  }
  Moments step{};
  bool known = false;
  for (int left = repeat; left > 0;) {
    const Moments before = moments_of(c);
    period(c, 1, left == 1);
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
template <Parts may, bool lone>
struct BackwardPeriod {
  const Order& order;
  const UnitCost* units;
  std::size_t count;
  const UnitCost* beyond;  ///< the unit that follows the last period
  bool again;              ///< forward before it

  [[gnu::always_inline]] void operator()(Clocks& c, std::size_t periods, bool last) const {
    const UnitCost* const back = units + count - 1;
    const UnitCost* u = back;
    for (std::size_t left = periods * count; left > 0; --left) {
      const UnitCost* const next = u == units ? back : u - 1;
      const bool ends = left == 1 && last;
      const UnitCost* ahead = (may & kGather) != 0 ? next : nullptr;
      backward_unit<may, lone>(c, order, *u, ends ? beyond : ahead, again);
      u = next;
    }
  }
};

/// The same forward.
template <Parts may, bool lone>
struct ForwardPeriod {
  const Order& order;
  const UnitCost* units;
  std::size_t count;

  [[gnu::always_inline]] void operator()(Clocks& c, std::size_t periods, bool /*last*/) const {
    const UnitCost* const back = units + count - 1;
    const UnitCost* u = units;
    for (std::size_t left = periods * count; left > 0; --left) {
      forward_unit<may, lone>(c, order, *u);
      u = u == back ? units : u + 1;
    }
  }
};

/// Calls `run` for what units of a group send, and for one queue or two.
template <bool lone, class Run>
inline void by_parts(Parts parts, bool all, const Run& run) {
  constexpr Parts kPlain = kReplicas | kReplicasEach | kBucketed | kBucketedEach;
  constexpr Parts kShards = kPlain | kGather | kGatherForward | kReduce;
  constexpr Parts kJoins = kPlain | kJoinForward | kJoinBackward | kEnterForward | kEnterBackward;
  if (all || (parts & ~(kShards | kJoins)) != 0) return run.template operator()<kAll, lone>();
  if ((parts & ~kPlain) == 0) return run.template operator()<kPlain, lone>();
  if ((parts & ~kJoins) == 0) return run.template operator()<kJoins, lone>();
  if ((parts & ~kShards) == 0) return run.template operator()<kShards, lone>();
  run.template operator()<kShards | kJoins, lone>();
}

/// `levels`: of all that the units issue. What stands in one queue alone is run as if there were no
/// other; the outer level's takes the inner one's place meanwhile.
template <class Run>
inline void by_queue(Clocks& c, const Order& s, const GroupCost& cost, std::uint8_t levels,
                     bool all, const Run& run) {
  constexpr std::uint8_t kInner = 1, kOuter = 2;
  if (!s.one_queue && levels == (kInner | kOuter)) return by_parts<false>(cost.parts, all, run);
  const bool other = !s.one_queue && levels == kOuter;
  if (other) swap_queues(c);
  by_parts<true>(cost.parts, all, run);
  if (other) swap_queues(c);
}

/// Everything a pass reads of one strategy.
struct Step {
  const GroupTables& tables;
  const GroupCosts& costs;
  std::size_t groups = 0;

  const LayerGroup& group(std::size_t g) const { return tables.model().groups[g]; }
  const UnitCost* units(std::size_t g) const { return tables.units(*costs[g]); }
};

/// The forward pass of one group.
Ready run_forward(const Step& step, const Order& s, Clocks& c, std::size_t g,
                  const std::array<Ready, kMaxGroups>& outputs) {
  const GroupCost& cost = *step.costs[g];
  if (cost.has_tables) {
    run(c, cost.tables.lookup, {});
    Ready out{c.compute, exchange};
    for (std::size_t i = 0; i < kMaxAxes && takes_part(cost.tables.forward[i]); ++i) {
      out.time = issue(c, s, cost.tables.forward[i], out.time, exchange);
    }
    return out;
  }
  Ready input{};
  std::size_t at = 0;
  for (const int before : step.group(g).waits_for) {
    const auto b = static_cast<std::size_t>(before);
    Ready from = outputs[b];
    if (at < kMaxProducers && takes_part(cost.gather_in[at]) &&
        step.costs[b]->layout != cost.layout) {
      from = {issue(c, s, cost.gather_in[at], from.time, reshard), reshard};
    }
    ++at;
    input = later(input, from);
  }
  c.done = input.time;
  c.done_cause = input.cause;
  if (cost.units > 0) {
    by_queue(c, s, cost, cost.levels, false, [&]<Parts may, bool lone>() {
      repeat_periods(c, cost.repeat, ForwardPeriod<may, lone>{s, step.units(g), cost.units});
    });
  }
  return {c.done, c.done_cause};
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
      there = {issue(c, s, producer.gather_out, there.time, reshard), reshard};
    }
    if (producer.has_tables) {
      for (const auto* list : {&producer.tables.backward, &producer.tables.gradients}) {
        for (std::size_t i = 0; i < kMaxAxes && takes_part((*list)[i]); ++i) {
          there = {issue(c, s, (*list)[i], there.time, exchange), exchange};
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
  std::fill_n(gradients.begin(), step.groups, start);
  c.last = c.before_last = start.time;
  // Indices of the next batch travel while this one learns, behind the first gradients of tables:
  // those are waited for in this step.
  bool first = true;
  const auto next_group = [&](std::size_t g) -> const UnitCost* {
    while (g-- > 0) {
      if (const UnitCost* unit = last_unit(step, g)) return unit;
    }
    return nullptr;
  };
  const UnitCost* front = next_group(step.groups);
  if (front != nullptr && (front->parts & s.ahead) != 0) {
    c.gathered = issue(c, s, front->gather, start.time, dp);
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
    const UnitCost* beyond = next_group(g);
    if (beyond != nullptr && (beyond->parts & s.ahead) == 0) beyond = nullptr;
    const auto levels = static_cast<std::uint8_t>(
        cost.levels | (beyond == nullptr ? 0 : level_bit(beyond->gather)));
    if (cost.units > 0) {
      const bool again = s.recompute && cost.can_run_again;
      by_queue(c, s, cost, levels, again, [&]<Parts may, bool lone>() {
        const BackwardPeriod<may, lone> period{s, step.units(g), cost.units, beyond, again};
        repeat_periods(c, cost.repeat, period);
      });
    }
    if (s.one_bucket && (s.last_pass || cost.bucket_each) && cost.trained &&
        takes_part(cost.bucket)) {
      const Seconds scattered = max(c.queue0, c.queue1);
      issue(c, s, cost.bucket, max(c.compute, scattered), dp);
    }
    send_back(step, s, c, g, {c.done, c.done_cause}, gradients);
    if (first) {
      first = false;
      for (std::size_t t = 0; t < step.groups; ++t) {
        if (!step.costs[t]->has_tables) continue;
        const auto& indices = step.costs[t]->tables.indices;
        for (std::size_t i = 0; i < kMaxAxes && takes_part(indices[i]); ++i) {
          issue(c, s, indices[i], Seconds{}, exchange);
        }
      }
    }
  }
}

/// The forward passes of the groups from `from` on, behind those of `kept`, which is completed.
void run_forward_groups(const Step& step, const Order& s, Clocks& c, std::size_t from,
                        std::array<Ready, kMaxGroups>& outputs, ForwardPass* kept) {
  Waits* const waits = c.waits;
  if (from > 0) {
    c = kept->clocks[from - 1];
    c.waits = waits;
    *waits = kept->waits[from - 1];
  }
  for (std::size_t g = from; g < step.groups; ++g) {
    outputs[g] = run_forward(step, s, c, g, outputs);
    if (kept == nullptr) continue;
    kept->clocks[g] = c;
    kept->waits[g] = *waits;
  }
}

}  // namespace

Seconds run_forward_pass(const GroupTables& tables, const GroupCosts& costs,
                         const GroupOrder& order, std::size_t from, ForwardPass& kept) noexcept {
  const Step step{tables, costs, tables.model().groups.size()};
  Waits waits{};
  Clocks c;
  c.waits = &waits;
  run_forward_groups(step, order, c, from, kept.outputs, &kept);
  Seconds waited;
  for (const Seconds wait : waits) waited += wait;
  return waited;
}

GroupPass run_pass(const GroupTables& tables, const GroupCosts& costs, const GroupOrder& order,
                   bool learns, std::size_t from, ForwardPass* kept) noexcept {
  const Step step{tables, costs, tables.model().groups.size()};
  GroupPass pass;
  Clocks c;
  c.waits = &pass.waits;
  std::array<Ready, kMaxGroups> own;
  std::array<Ready, kMaxGroups>& outputs = kept != nullptr ? kept->outputs : own;
  run_forward_groups(step, order, c, from, outputs, kept);
  Ready end{};
  for (std::size_t g = 0; g < step.groups; ++g) end = later(end, outputs[g]);
  run(c, Seconds{}, end);
  pass.forward = c.compute;
  if (learns) run_backward(step, order, c, {c.compute, dp});
  run(c, Seconds{}, {c.queue0, c.cause0});
  run(c, Seconds{}, {c.queue1, c.cause1});
  pass.time = c.compute;
  return pass;
}

}  // namespace scalemodel
