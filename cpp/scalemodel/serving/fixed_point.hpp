// The steady state of an instance where requests arrive at random, at one rate or at several side
// by side.
#pragma once

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/serving/closed_loop.hpp"
#include "scalemodel/serving/prompt_queue.hpp"
#include "scalemodel/serving/slot_occupancy.hpp"
#include "scalemodel/serving/states_at_rates.hpp"
#include "scalemodel/serving/steps_beside.hpp"

namespace scalemodel::detail {

/// How the fixed point is found: secants of the map from the concurrent load that a request finds
/// to the one that it leaves. Tolerances are relative to one plus the load.
struct FixedPointOptions {
  int max_iterations = 20;
  double tolerance = 1e-3;  ///< of the last secant's error
  double min_slope_uncertainty = 0.03;
  double max_last_step = 3e-2;    ///< beyond it the solver iterates once more
  double min_secant_step = 1e-2;  ///< below it two iterates do not tell a slope
  double max_slope = 0.95, max_first_slope = 0.9;
};
inline constexpr FixedPointOptions kOptions;
inline constexpr double kFew = 1e-4;

/// Beside a request in its steps.
template <class Of>
struct ConcurrentLoadOf {
  using Number = Of;
  Number mean = 0, variance = 0;
  Number busy = 0;   ///< share of its steps with a prompt
  Number ahead = 0;  ///< more of them where prompts follow each other

  static constexpr auto members() {
    using T = ConcurrentLoadOf;
    return std::tuple{&T::mean, &T::variance, &T::busy, &T::ahead};
  }
};

/// Steps that a request sees on average.
template <class Number>
struct SharedStepsOf {
  PromptStepsOf<Number> steps;
  Number growth = 0;  ///< of those without a prompt with every sequence more, as a fraction
};

/// The number beside a request varies, and steps are not in proportion to it: kernels go in waves
/// and experts are read by more tokens. Three points at m - d, m and m + d + 2 l have the mean m,
/// variance v and third moment 2 l v of a negative binomial (of Poisson's law where m = v) for any
/// d; its fourth moment is that of q = d (d + 2 l) = 3 v + 2 f (f - 1), f = v/m. Half of a rule
/// with q = v, which has no weight in the middle, and half of one that makes up for it, as far as
/// there are numbers below, see more of the waves.
template <class Number>
SharedStepsOf<Number> shared_steps(const StepsOfMix& mix, const ConcurrentLoadOf<Number>& others,
                                   Number prompts) noexcept {
  SharedStepsOf<Number> found{mix.beside_of(1 + others.mean, prompts), Number{0}};
  PromptStepsOf<Number>& shared = found.steps;
  const auto fixed = others.variance < kRarely;
  if (all(fixed)) return found;
  const Number m = others.mean, v = others.variance, f = v / m, lean = f - 0.5;
  const Number far = min(5 * v + 4 * f * (f - 1), m * (m + 2 * lean));
  SecondsOf<Number> mean{};
  SecondsOf<Number> moment{};  // of steps times what their numbers differ from the mean by
  for (const Number& q : {v, max(v, far)}) {
    const Number down = sqrt(lean * lean + q) - lean, up = down + 2 * lean;
    const Number few = 0.5 * v / (down * (down + up)), many = 0.5 * v / (up * (down + up));
    const SecondsOf<Number> fewer = mix.decode_only(1 + m - down);
    const SecondsOf<Number> more = mix.decode_only(1 + m + up);
    mean += (0.5 - few - many) * shared.decode_only + few * fewer + many * more;
    moment += many * up * more - few * down * fewer;
  }
  // Prompts come in the longer steps, those of the larger numbers: without one there are fewer.
  const Number tilt = moment / mean;
  found.growth = select(fixed, Number{0}, max(Number{0}, tilt / v));
  const Number fewer = max(Number{0.5}, 1 - others.busy * found.growth * (tilt + others.ahead));
  shared.decode_only = select(fixed, shared.decode_only, fewer * mean);
  return found;
}

/// What a request finds in the steady state.
template <class Number>
struct FixedPointOf {
  ConcurrentLoadOf<Number> beside;
  Number prompts = 1;           ///< of a step with any
  HertzOf<Number> prompt_rate;  ///< of prompts that arrive during a request: 0 where it fills all
                                ///< slots
  SlotHoldingTimeOf<Number> holding;
  SlotOccupancyOf<Number> inside;
};

template <class Number>
void assign_point_where(MaskOf<Number> yes, FixedPointOf<Number>& to,
                        const FixedPointOf<Number>& from) noexcept {
  assign_where(yes, to.beside, from.beside);
  to.prompts = select(yes, from.prompts, to.prompts);
  to.prompt_rate = select(yes, from.prompt_rate, to.prompt_rate);
  assign_where(yes, to.holding, from.holding);
  assign_where(yes, to.inside, from.inside);
}

/// One iteration: what a request that finds `now` leaves for the next one to find.
template <class Number>
struct IterationOf {
  FixedPointOf<Number> found;
  SecondsOf<Number> decode;           ///< time of its decode steps
  SecondsOf<Number> decode_only;      ///< mean step without a prompt
  SecondsOf<Number> decode_interval;  ///< between two tokens of a running sequence
  Number busy = 0;                    ///< share of steps with a prompt
};

/// `shared`: the steps that such a request sees.
template <class Number>
IterationOf<Number> iterate(double count, const SharedStepsOf<Number>& shared,
                            const FixedPointOf<Number>& now, SlotHoldingTimeOf<Number> holding,
                            Number near) noexcept {
  const PromptStepsOf<Number>& steps = shared.steps;
  IterationOf<Number> iteration;
  const StepMomentsOf<Number> moments = step_moments(steps, now.prompt_rate, near);
  iteration.decode_interval = moments.decode_interval;
  iteration.busy = moments.busy;
  const PromptWaitOf<Number> wait = prompt_wait(steps, moments, now.prompt_rate);
  iteration.decode_only = steps.decode_only;
  iteration.decode = time_of_steps(steps, moments, wait, now.prompt_rate, count);
  holding.shared = 1 + now.beside.mean;
  holding.usual = iteration.decode + wait.computed;
  holding.lone = select(holding.lone <= Seconds{}, holding.usual, holding.lone);
  FixedPointOf<Number>& found = iteration.found;
  found.holding = holding;
  found.inside = slot_occupancy(holding);
  // Prompts come in bursts to those that count time in steps: each is computed in the point of
  // its followers, and theirs. Borel's law gives the spread of such rows.
  const Number grown = 1 / (1 - followers(moments, now.prompt_rate));
  const Number burst = grown * grown - 1;
  const Number overlap = 1 / (1 + burst * steps.chunks_of(Number{1}) / count);
  const Number together = overlap * burst;
  // What fills its own step keeps others from starting with it.
  const Number apart =
      steps.mixed ? max(Number{0.5 * count}, count - 1 / steps.most) : Number{count};
  const Number usual = apart * (now.prompt_rate * moments.decode_interval);
  const Number there = found.inside.others;
  const double most = holding.slots - 1;
  ConcurrentLoadOf<Number>& beside = found.beside;
  beside.mean = min(Number{most}, there * (usual + together));
  const Number rows = 2 * (1 - 1 / grown) * (1 + burst) * (1 + burst);
  // More sequences make steps longer, in which more come: a negative binomial instead of Poisson's.
  const Number crowded = 1 - min(Number{kOptions.max_first_slope}, usual * shared.growth);
  beside.variance = min(there * (usual * (1 + burst) / crowded + overlap * overlap * rows),
                        beside.mean * (std::max(1.0, most) - beside.mean));
  if (steps.mixed) {
    beside.busy = select(
        usual > 0, min(Number{kMaxLoad}, moments.busy * (1 + 0.5 * together / usual)), Number{0});
  }
  beside.ahead = 0.5 * burst;
  found.prompt_rate = there * holding.rate;
  const Number busy = steps.mixed ? moments.busy : moments.busy / (1 - moments.busy);
  found.prompts = select(
      busy > 0, max(Number{1}, (found.prompt_rate * moments.decode_interval) / busy), Number{1});
  return iteration;
}

/// What a deployment brings to the search for its fixed point at any rate.
struct RateQuestion {
  const StepsOfMix& mix;
  const ClosedLoopState& most;  ///< at all slots
  const PromptSteps& idle;      ///< steps of a request that is alone
  double slots = 1;             ///< in which requests may be
};

/// The fixed point, and the concurrency and share of steps with a prompt that depend on it.
template <class Number>
struct SolutionOf {
  FixedPointOf<Number> point;
  Number concurrency = 0, prompt_fraction = 0;
};

/// The first guess takes the steps to grow from those of one sequence to those of a full instance
/// in a straight line.
template <class Number>
SolutionOf<Number> solve_fixed_point(const RateQuestion& question, HertzOf<Number> rate) noexcept {
  const StepsOfMix& mix = question.mix;
  const double steps = mix.demand().decode_steps, slots = question.slots;
  SlotHoldingTimeOf<Number> holding;
  holding.rate = rate;
  holding.slots = slots;
  holding.whole = mix.capacity().max_running_sequences;
  holding.most = holding.whole / question.most.rate();
  SolutionOf<Number> solution;
  FixedPointOf<Number>& now = solution.point;
  now.prompt_rate = std::min(1.0, slots - 1) * rate;
  now.holding = holding;
  SharedStepsOf<Number> shared{PromptStepsOf<Number>::all_of(question.idle), Number{0}};
  Number low = 0, high = slots;  // they meet between
  Number slope = 0, gain = 0;    // of what is found and of decode times, per sequence beside
  Number last_mean = 0, last_found = 0, last_slope = 0, near = 0;
  SecondsOf<Number> last_decode{};
  MaskOf<Number> open = true;
  for (int count = 0; count < kOptions.max_iterations; ++count) {
    if (count > 0) shared = shared_steps(mix, now.beside, now.prompts);
    IterationOf<Number> iteration = iterate(steps, shared, now, holding, near);
    near = iteration.busy;
    const Number before = now.beside.mean, found = iteration.found.beside.mean;
    const auto above = found > before;
    low = select(above, before, low);
    high = select(above, high, before);
    if (count == 0) {
      holding.lone = iteration.found.holding.lone;
      const SecondsOf<Number> growth = (question.most.steps.decode_only - iteration.decode_only) /
                                       std::max(1.0, question.most.sequences - 1);
      slope = clamp(steps * (rate * growth) * (iteration.decode_interval / iteration.decode_only),
                    0.0, kOptions.max_first_slope);
    } else {
      // The line through the last two iterations meets the diagonal where both agree.
      const auto tells = abs(before - last_mean) > kOptions.min_secant_step * (1 + before);
      slope = select(tells, (found - last_found) / (before - last_mean), slope);
      gain = select(tells, (iteration.decode - last_decode) * rate / (before - last_mean), gain);
    }
    Number next =
        select(slope < kOptions.max_slope, before + (found - before) / (1 - slope), found);
    // Steps that go in waves may keep them from meeting: then half-way between both sides.
    if (count > 1) next = select((next <= low) | (next >= high), 0.5 * (low + high), next);
    next = clamp(next, 0.0, slots - 1);
    const Number change = abs(next - before) / (1 + before);
    // A line is wrong by the change times what its slope is.
    const Number doubt = kOptions.min_slope_uncertainty +
                         abs(slope - last_slope) / max(Number{1 - kOptions.max_slope}, 1 - slope);
    const Number more_prompts = abs(iteration.found.prompts / now.prompts - 1);
    const MaskOf<Number> close = (change < kOptions.max_last_step) &
                                 (change * doubt < kOptions.tolerance) &
                                 (more_prompts < kOptions.max_last_step) & (count > 0);
    const Number concurrency =
        rate * iteration.decode + select(close, gain * (next - before), Number{0});
    solution.concurrency = select(open, concurrency, solution.concurrency);
    solution.prompt_fraction = select(open, iteration.busy, solution.prompt_fraction);
    ConcurrentLoadOf<Number>& left = iteration.found.beside;
    left.mean = next;
    left.variance *= select(found > 0, next / found, Number{1});
    assign_point_where(open, now, iteration.found);
    open = open & !close;
    if (!any(open)) break;
    last_slope = slope;
    last_mean = before;
    last_found = found;
    last_decode = iteration.decode;
  }
  return solution;
}

template <class Number>
TimesAtRateOf<Number> times_at_rate(const RateQuestion& question, HertzOf<Number> rate,
                                    double output) noexcept {
  const StepsOfMix& mix = question.mix;
  const Demand& demand = mix.demand();
  const double slots = mix.capacity().max_running_sequences;
  const SolutionOf<Number> solution = solve_fixed_point<Number>(question, rate);
  const FixedPointOf<Number>& point = solution.point;
  TimesAtRateOf<Number> state;
  state.prompt_fraction = solution.prompt_fraction;
  // It can finish as many, but prompts go on until every slot is taken.
  state.saturated = solution.concurrency >= slots;
  state.concurrency = select(state.saturated, Number{slots}, solution.concurrency);
  state.step = state.concurrency / (demand.decode_steps * rate);
  state.tpot = demand.gap(state.step, output);
  // An arrival finds the mean number running, and nothing to wait for in an empty instance; where
  // all slots are occupied it waits for one of them instead.
  const Number found = clamp(state.concurrency, kFew, std::max(kFew, question.slots - 1));
  const PromptStepsOf<Number> steps = mix.beside_of(found, point.prompts);
  const Seconds request = mix.times().engine().request_host;
  state.prefill = steps.alone + request;
  if (all(state.saturated)) return state;
  const StepMomentsOf<Number> moments = step_moments(steps, point.prompt_rate);
  const PromptWaitOf<Number> wait = prompt_wait(steps, moments, point.prompt_rate);
  const SlotOccupancyOf<Number>& inside = point.inside;
  const auto fills = inside.full > 0;
  Number empty = inside.empty;
  if (!all(fills)) empty = select(fills, empty, probability_empty(point.holding));
  const SecondsOf<Number> spared =
      0.5 * (empty * steps.decode_only + inside.full * moments.length_biased);
  const SecondsOf<Number> ttft = wait.wait - spared + inside.wait + wait.computed + request;
  state.ttft = select(state.saturated, SecondsOf<Number>{}, ttft);
  return state;
}

}  // namespace scalemodel::detail
