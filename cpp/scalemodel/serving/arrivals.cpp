// The steady state of an instance where requests arrive at random.
#include <algorithm>
#include <cmath>

#include "scalemodel/serving/closed_loop.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/prompt_steps.hpp"
#include "scalemodel/serving/steady_state.hpp"

namespace scalemodel {
namespace {

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
constexpr FixedPointOptions kOptions;
constexpr double kRarely = 1e-6, kFew = 1e-4, kMany = 64;
constexpr double kNever = 1e12;  ///< one over the probability that all slots are taken

/// The number of requests in the instance. The time of a step grows with their number in a straight
/// line, so that they share a processor whose speed depends on how many there are; then
///
///     P(n)/P(n - 1) = rate holding(n)/n
///
/// whatever the distribution of lengths (Cohen, Acta Informatica 12 (1979)), and beyond the last
/// slot P falls by rate holding(slots)/slots. A request shares with those that an arrival finds,
/// where there are slots for them.
struct SlotOccupancy {
  /// Other requests that one in its slot runs with, over the mean number in slots.
  double others = 1;
  double empty = 0;  ///< probability of an empty instance
  double full = 0;   ///< probability that every slot is occupied
  Seconds wait;      ///< for a slot, requests being of one length
};

/// What the occupancy depends on: how long a request holds its slot alone, beside `shared` - 1
/// others, and where the cache is full of whole sequences; straight lines between and beyond.
struct SlotHoldingTime {
  Hertz rate;
  Seconds lone, usual, most;
  double shared = 1, whole = 1, slots = 1;

  Seconds slope() const noexcept {
    return shared > 1 ? max(Seconds{}, usual - lone) / (shared - 1) : Seconds{};
  }
  double crowding() const noexcept { return std::min(0.99, rate * slope()); }
  Seconds of(double n) const noexcept {
    if (n <= shared || whole <= shared) return lone + (n - 1) * slope();
    return usual + (n - shared) / (whole - shared) * (most - usual);
  }
};

/// The wait for one of `slots` that are held equally long over that where holding times are
/// exponential: 1/2 when busy, more the sooner the first of few slots is free again (Cosmetatos,
/// INFOR 13 (1975)), at most that of a single arrival to full slots.
double equal_holding(double load, double slots) noexcept {
  const double rows =
      (1 - load) * (slots - 1) * (std::sqrt(4 + 5 * slots) - 2) / (16 * load * slots);
  return std::min(0.5 * (1 + rows), slots / (slots + 1));
}

/// Of a whole number of slots.
SlotOccupancy occupancy_of_whole_slots(const SlotHoldingTime& holding) noexcept {
  SlotOccupancy found;
  const double slots = holding.slots, mean = holding.rate * holding.usual;
  const double crowding = holding.crowding();
  // Eight standard deviations below the limit no request ever waits for a slot.
  if (slots > mean + 8 * std::sqrt(1 + mean / (1 - crowding)) + 4) return found;
  const Seconds last = holding.of(slots);
  const double load = std::min(kMaxLoad, holding.rate * last / slots);
  // From the last slot down until what is left is nothing; only ratios of weights count. Among
  // many, four at a time fall by the ratio in their middle.
  double weight = 1, sum = 0, taken = 0, n = slots;
  const auto fewer = [&](double number) { return number / (holding.rate * holding.of(number)); };
  double ratio = 1;
  while (n > kMany && (ratio >= 1 || weight >= kRarely * sum)) {
    ratio = fewer(n - 1.5);
    const double squared = ratio * ratio, four = (ratio + squared) * (1 + squared);
    sum += weight * four;
    taken += weight * (n * four - (ratio + squared * (2 + ratio * (3 + 4 * ratio))));
    weight *= squared * squared;
    if (weight > kNever) return found;
    n -= 4;
  }
  for (; n >= 1 && (ratio >= 1 || weight >= kRarely * sum); --n) {
    ratio = fewer(n);
    weight *= ratio;
    if (weight > kNever) return found;
    sum += weight;
    taken += weight * (n - 1);
    if (n < 2) found.empty = weight;
  }
  const double waiting = 1 / (1 - load);
  sum += waiting;
  // A request that waits shares with all other slots in the end; until then all are occupied.
  const double all = taken + waiting * slots;
  found.others = all > 0 ? (taken + waiting * (slots - 1)) / all : 1;
  found.empty /= sum;
  found.full = waiting / sum;
  found.wait = found.full * equal_holding(load, slots) / (1 - load) * (last / slots);
  return found;
}

/// A fraction of a slot exists for that fraction of time.
SlotOccupancy slot_occupancy(SlotHoldingTime holding) noexcept {
  const double whole = std::floor(holding.slots), part = holding.slots - whole;
  holding.slots = whole;
  SlotOccupancy found = occupancy_of_whole_slots(holding);
  if (part <= 0) return found;
  holding.slots = whole + 1;
  const SlotOccupancy more = occupancy_of_whole_slots(holding);
  found.others += part * (more.others - found.others);
  found.empty += part * (more.empty - found.empty);
  found.full += part * (more.full - found.full);
  found.wait += part * (more.wait - found.wait);
  return found;
}

/// Probability of an empty instance where slots never fill: that of a negative binomial.
double probability_empty(const SlotHoldingTime& holding) noexcept {
  const double mean = holding.rate * holding.usual, crowding = holding.crowding();
  if (crowding < kRarely) return std::exp(-mean);
  return std::pow(1 - crowding, mean * (1 - crowding) / crowding);
}

/// Beside a request in its steps.
struct ConcurrentLoad {
  double mean = 0, variance = 0;
  double busy = 0;   ///< share of its steps with a prompt
  double ahead = 0;  ///< more of them where prompts follow each other
};

/// Steps that a request sees on average.
struct SharedSteps {
  PromptSteps steps;
  double growth = 0;  ///< of those without a prompt with every sequence more, as a fraction
};

/// The number beside a request varies, and steps are not in proportion to it: kernels go in waves
/// and experts are read by more tokens. Three points at m - d, m and m + d + 2 l have the mean m,
/// variance v and third moment 2 l v of a negative binomial (of Poisson's law where m = v) for any
/// d; its fourth moment is that of q = d (d + 2 l) = 3 v + 2 f (f - 1), f = v/m. Half of a rule
/// with q = v, which has no weight in the middle, and half of one that makes up for it, as far as
/// there are numbers below, see more of the waves.
SharedSteps shared_steps(const StepsOfMix& mix, const ConcurrentLoad& others,
                         double prompts) noexcept {
  SharedSteps found{mix.beside(1 + others.mean, prompts), 0};
  PromptSteps& shared = found.steps;
  if (others.variance < kRarely) return found;
  const double m = others.mean, v = others.variance, f = v / m, lean = f - 0.5;
  const double far = std::min(5 * v + 4 * f * (f - 1), m * (m + 2 * lean));
  Seconds mean;
  Seconds moment;  // of steps times what their numbers differ from the mean by
  for (const double q : {v, std::max(v, far)}) {
    const double down = std::sqrt(lean * lean + q) - lean, up = down + 2 * lean;
    const double few = 0.5 * v / (down * (down + up)), many = 0.5 * v / (up * (down + up));
    const Seconds fewer = mix.decode_only(1 + m - down), more = mix.decode_only(1 + m + up);
    mean += (0.5 - few - many) * shared.decode_only + few * fewer + many * more;
    moment += many * up * more - few * down * fewer;
  }
  // Prompts come in the longer steps, those of the larger numbers: without one there are fewer.
  const double tilt = moment / mean;
  found.growth = std::max(0.0, tilt / v);
  shared.decode_only = std::max(0.5, 1 - others.busy * found.growth * (tilt + others.ahead)) * mean;
  return found;
}

/// What a request finds in the steady state.
struct FixedPoint {
  ConcurrentLoad beside;
  double prompts = 1;  ///< of a step with any
  Hertz prompt_rate;   ///< of prompts that arrive during a request: 0 where it fills all slots
  SlotHoldingTime holding;
  SlotOccupancy inside;
};

/// One iteration: what a request that finds `now` leaves for the next one to find.
struct Iteration {
  FixedPoint found;
  Seconds decode;       ///< time of its decode steps
  Seconds decode_only;  ///< mean step without a prompt
  Seconds computed;     ///< of its prompt
  StepMoments moments;
};

Iteration iterate(const StepsOfMix& mix, const FixedPoint& now, SlotHoldingTime holding,
                  double near) noexcept {
  const double count = mix.demand().decode_steps;
  const SharedSteps shared = shared_steps(mix, now.beside, now.prompts);
  const PromptSteps& steps = shared.steps;
  Iteration iteration;
  iteration.moments = step_moments(steps, now.prompt_rate, near);
  const StepMoments& moments = iteration.moments;
  const PromptWait wait = prompt_wait(steps, moments, now.prompt_rate);
  iteration.computed = wait.computed;
  iteration.decode_only = steps.decode_only;
  iteration.decode = time_of_steps(steps, moments, wait, now.prompt_rate, count);
  holding.shared = 1 + now.beside.mean;
  holding.usual = iteration.decode + iteration.computed;
  if (holding.lone <= Seconds{}) holding.lone = holding.usual;
  FixedPoint& found = iteration.found;
  found.holding = holding;
  found.inside = slot_occupancy(holding);
  // Prompts come in bursts to those that count time in steps: each is computed in the point of
  // its followers, and theirs. Borel's law gives the spread of such rows.
  const double grown = 1 / (1 - followers(moments, now.prompt_rate));
  const double burst = grown * grown - 1;
  const double overlap = 1 / (1 + burst * steps.chunks_of(1) / count);
  const double together = overlap * burst;
  // What fills its own step keeps others from starting with it.
  const double apart = steps.mixed ? std::max(0.5 * count, count - 1 / steps.most) : count;
  const double usual = apart * (now.prompt_rate * moments.decode_interval);
  const double there = found.inside.others, most = holding.slots - 1;
  ConcurrentLoad& beside = found.beside;
  beside.mean = std::min(most, there * (usual + together));
  const double rows = 2 * (1 - 1 / grown) * (1 + burst) * (1 + burst);
  // More sequences make steps longer, in which more come: a negative binomial instead of Poisson's.
  const double crowded = 1 - std::min(kOptions.max_first_slope, usual * shared.growth);
  beside.variance = std::min(there * (usual * (1 + burst) / crowded + overlap * overlap * rows),
                             beside.mean * (std::max(1.0, most) - beside.mean));
  if (steps.mixed && usual > 0) {
    beside.busy = std::min(kMaxLoad, moments.busy * (1 + 0.5 * together / usual));
  }
  beside.ahead = 0.5 * burst;
  found.prompt_rate = there * holding.rate;
  const double busy = steps.mixed ? moments.busy : moments.busy / (1 - moments.busy);
  found.prompts =
      busy > 0 ? std::max(1.0, (found.prompt_rate * moments.decode_interval) / busy) : 1.0;
  return iteration;
}

/// Finds the fixed point and the state, which depend on each other. The first guess takes the steps
/// to grow from those of one sequence to those of a full instance in a straight line.
FixedPoint solve_fixed_point(const StepsOfMix& mix, const ClosedLoopState& most, Hertz rate,
                             double slots, SteadyState& state) noexcept {
  const double steps = mix.demand().decode_steps;
  SlotHoldingTime holding;
  holding.rate = rate;
  holding.slots = slots;
  holding.whole = mix.capacity().max_running_sequences;
  holding.most = holding.whole / most.rate();
  FixedPoint now;
  now.prompt_rate = std::min(1.0, slots - 1) * rate;
  double low = 0, high = slots;  // they meet between
  double slope = 0, gain = 0;    // of what is found and of decode times, per sequence beside
  double last_mean = 0, last_found = 0, last_slope = 0, near = 0;
  Seconds last_decode;
  for (int count = 0; count < kOptions.max_iterations; ++count) {
    const Iteration iteration = iterate(mix, now, holding, near);
    near = iteration.moments.busy;
    const double before = now.beside.mean, found = iteration.found.beside.mean;
    (found > before ? low : high) = before;
    if (count == 0) {
      holding.lone = iteration.found.holding.lone;
      const Seconds growth =
          (most.steps.decode_only - iteration.decode_only) / std::max(1.0, most.sequences - 1);
      slope = std::clamp(
          steps * (rate * growth) * (iteration.moments.decode_interval / iteration.decode_only),
          0.0, kOptions.max_first_slope);
    } else if (std::abs(before - last_mean) > kOptions.min_secant_step * (1 + before)) {
      // The line through the last two iterations meets the diagonal where both agree.
      slope = (found - last_found) / (before - last_mean);
      gain = (iteration.decode - last_decode) * rate / (before - last_mean);
    }
    double next = slope < kOptions.max_slope ? before + (found - before) / (1 - slope) : found;
    // Steps that go in waves may keep them from meeting: then half-way between both sides.
    if (count > 1 && (next <= low || next >= high)) next = 0.5 * (low + high);
    next = std::clamp(next, 0.0, slots - 1);
    const double change = std::abs(next - before) / (1 + before);
    // A line is wrong by the change times what its slope is.
    const double doubt = kOptions.min_slope_uncertainty +
                         std::abs(slope - last_slope) / std::max(1 - kOptions.max_slope, 1 - slope);
    const bool close = count > 0 && change < kOptions.max_last_step &&
                       change * doubt < kOptions.tolerance &&
                       std::abs(iteration.found.prompts / now.prompts - 1) < kOptions.max_last_step;
    state.concurrency = rate * iteration.decode + (close ? gain * (next - before) : 0.0);
    state.prompt_fraction = iteration.moments.busy;
    now = iteration.found;
    now.beside.mean = next;
    now.beside.variance *= found > 0 ? next / found : 1;
    if (close) break;
    last_slope = slope;
    last_mean = before;
    last_found = found;
    last_decode = iteration.decode;
  }
  state.step = state.concurrency / (steps * rate);
  return now;
}

/// Of all depths the one with the least latency, else the one that finishes most. What an instance
/// can finish is what its best depth can.
SteadyState adaptive_state_at(const StepTimes& times, const CacheCapacity& capacity, RequestMix mix,
                              double requests_per_s) noexcept {
  const int deepest = mix.speculative_tokens;
  mix.adaptive_drafts = false;
  SteadyState best;
  double least = kInfinity;
  const auto latency = [&](const SteadyState& state) {
    return state.ttft + (mix.output - 1) * state.tpot;
  };
  for (int depth = 0; depth <= deepest; ++depth) {
    mix.speculative_tokens = depth;
    const SteadyState state = steady_state_at(times, capacity, mix, requests_per_s);
    least = std::min(least, state.utilisation);
    const bool better = state.saturated != best.saturated
                            ? best.saturated
                            : (state.saturated ? state.requests_per_s > best.requests_per_s
                                               : latency(state) < latency(best));
    if (depth == 0 || better) best = state;
  }
  best.utilisation = least;
  return best;
}

}  // namespace

SteadyState steady_state_at(const StepTimes& times, const CacheCapacity& capacity,
                            const RequestMix& mix, double requests_per_s) noexcept {
  if (mix.adaptive_drafts) return adaptive_state_at(times, capacity, mix, requests_per_s);
  const Demand demand(mix);
  const StepsOfMix steps_of_mix(times, capacity, demand);
  const ClosedLoopState most = closed_loop_state(steps_of_mix, capacity.max_running_sequences);
  SteadyState state;
  if (most.sequences <= 0 || requests_per_s <= 0) return state;
  const double slots = capacity.max_running_sequences;
  const Hertz rate{requests_per_s};
  state.utilisation = rate / most.rate();
  state.saturated = state.utilisation >= 1;
  if (state.saturated) {
    state = steady_state(times, capacity, mix, slots);
    state.saturated = true;
    state.ttft = Seconds{};
    return state;
  }
  state.requests_per_s = requests_per_s;
  state.draft_tokens = mix.speculative_tokens;
  const double at_once = capacity.max_admitted;
  const FixedPoint point = solve_fixed_point(steps_of_mix, most, rate, at_once, state);
  // It can finish as many, but prompts go on until every slot is taken.
  state.saturated = state.concurrency >= slots;
  if (state.saturated) {
    state.concurrency = slots;
    state.step = slots / (demand.decode_steps * rate);
  }
  state.tpot = demand.gap(state.step, mix.output);
  // An arrival finds the mean number running, and nothing to wait for in an empty instance; where
  // all slots are occupied it waits for one of them instead.
  const double found = std::clamp(state.concurrency, kFew, std::max(kFew, at_once - 1));
  const PromptSteps steps = steps_of_mix.beside(found, point.prompts);
  state.prefill = steps.alone + times.engine().request_host;
  if (state.saturated) return state;
  const StepMoments moments = step_moments(steps, point.prompt_rate);
  const PromptWait wait = prompt_wait(steps, moments, point.prompt_rate);
  const SlotOccupancy& inside = point.inside;
  const double empty = inside.full > 0 ? inside.empty : probability_empty(point.holding);
  const Seconds spared = 0.5 * (empty * steps.decode_only + inside.full * moments.length_biased);
  state.ttft = wait.wait - spared + inside.wait + wait.computed + times.engine().request_host;
  return state;
}

}  // namespace scalemodel
