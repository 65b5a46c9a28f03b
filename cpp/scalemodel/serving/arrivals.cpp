// The steady state of an instance where requests arrive at random.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/prompt_steps.hpp"
#include "scalemodel/serving/steady_state.hpp"

namespace scalemodel {
namespace {

constexpr double kClose = 1e-4;
constexpr int kMostRounds = 40;
constexpr double kSteep = 0.95;
constexpr double kLarge = 1e200;
constexpr double kNarrow = 0.1;  ///< of a number: spreads below it bend nothing

/// How many requests are inside. The time of a step grows with their number in a straight line, so
/// that they share an instance out whose speed depends on how many there are; then
///
///     P(n)/P(n - 1) = rate holding(n)/n
///
/// whatever the distribution of lengths (Cohen, Acta Informatica 12 (1979)), and beyond the last
/// slot P falls by rate holding(slots)/slots. A request shares with those that an arrival finds,
/// where there are slots for them.
struct Inside {
  double others = 1;  ///< beside a request in its slot, over the mean number in slots
  double none = 0;    ///< probability that nobody is there
  double full = 0;    ///< that every slot is taken
  Seconds wait;       ///< for a slot, requests being of one length
};

/// What `inside` knows: how long a request holds its slot alone, beside `shared` - 1 others, and
/// where all slots are taken; straight lines between.
struct Holding {
  Hertz rate;
  Seconds lone, usual, most;
  double shared = 1, slots = 1;

  Seconds slope() const noexcept {
    return shared > 1 ? max(Seconds{}, usual - lone) / (shared - 1) : Seconds{};
  }
  Seconds of(double n) const noexcept {
    if (n <= shared || slots <= shared) return lone + (n - 1) * slope();
    return usual + (n - shared) / (slots - shared) * (most - usual);
  }
};

Inside inside(const Holding& holding) noexcept {
  Inside found;
  const double slots = holding.slots, mean = holding.rate * holding.usual;
  const double crowding = std::min(0.99, holding.rate * holding.slope());
  found.none =
      crowding < 1e-6 ? std::exp(-mean) : std::pow(1 - crowding, mean * (1 - crowding) / crowding);
  // Eight standard deviations below the limit nobody ever waits for a slot.
  if (slots > mean + 8 * std::sqrt(1 + mean / (1 - crowding)) + 4) return found;
  const double load = std::min(0.98, holding.rate * holding.most / slots);
  double weight = 1, empty = 1, sum = 0, taken = 0;  // only their ratios count
  for (double n = 1; n <= slots; ++n) {
    sum += weight;
    taken += weight * (n - 1);
    weight *= holding.rate * holding.of(n) / n;
    if (weight > kLarge) {
      for (double* each : {&weight, &empty, &sum, &taken}) *each /= kLarge;
    }
  }
  const double waiting = weight / (1 - load);
  sum += waiting;
  // Whoever waits shares with all other slots in the end; while it waits, all slots are taken.
  const double all = taken + waiting * slots;
  found.others = all > 0 ? (taken + waiting * (slots - 1)) / all : 1;
  found.none = empty / sum;
  found.full = waiting / sum;
  found.wait = found.full * 0.5 / (1 - load) * (holding.most / slots);
  return found;
}

/// Steps that `shared` sequences see on average as their number varies: three points of a Gaussian
/// spread (Gauss and Hermite), at kernels that go in waves and experts that are shared the more.
PromptSteps shared_steps(const StepTimes& times, const CacheCapacity& capacity,
                         const Demand& demand, double shared, double prompts) noexcept {
  PromptSteps steps = prompt_steps(times, capacity, demand, shared, prompts);
  const double spread = std::sqrt(shared - 1);
  if (spread <= kNarrow * shared) return steps;
  const double far = std::numbers::sqrt3 * spread;
  const Seconds fewer = times.of(demand.work(std::max(1.0, shared - far))).total;
  const Seconds more = times.of(demand.work(shared + far)).total;
  const Seconds bent = (fewer + more - 2 * steps.quiet) / 6;
  steps.quiet += bent;
  if (steps.mixed) {
    steps.alone += steps.parts * bent;
    steps.last += bent;
    steps.full += bent;
  }
  return steps;
}

/// What a request finds once everything has settled.
struct Company {
  double shared = 1;   ///< sequences in the steps of a request, its own included
  double prompts = 1;  ///< of a step with any
  Hertz met;           ///< at which prompts come beside it: none where it fills all slots
  Inside others;
};

/// Settles company and state, which depend on each other.
Company settle(const StepTimes& times, const CacheCapacity& capacity, const Demand& demand,
               Hertz rate, Seconds full_holding, SteadyState& state) noexcept {
  const double slots = capacity.most_sequences;
  Company now;
  now.met = rate;
  Seconds lone;  // a request by itself holds its slot for
  double last_shared = 0, last_found = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    const PromptSteps steps = shared_steps(times, capacity, demand, now.shared, now.prompts);
    const StepMoments moments = step_moments(steps, now.met);
    const PromptWait wait = prompt_wait(steps, moments, now.met);
    const Seconds answer = time_of_steps(steps, moments, wait, now.met, demand.steps);
    const Seconds holding = answer + wait.computed;
    if (round == 0) lone = holding;
    state.step = answer / demand.steps;
    state.concurrency = rate * answer;
    state.prompt_fraction = moments.busy;
    now.others = inside({rate, lone, holding, full_holding, now.shared, slots});
    // Prompts come in bursts to those that count time in steps: each is computed in the company
    // of its followers, and theirs.
    const double g = followers(moments, now.met);
    const double burst = 1 / ((1 - g) * (1 - g)) - 1;
    const double together = burst / (1 + burst / demand.steps);
    const double usual = demand.steps * (now.met * moments.round);
    const double before = now.shared;
    const double found = std::min(slots, 1 + now.others.others * (usual + together));
    now.shared = found;
    now.met = now.others.others * rate;
    const double busy = steps.mixed ? moments.busy : moments.busy / (1 - moments.busy);
    now.prompts = busy > 0 ? std::max(1.0, (now.met * moments.round) / busy) : 1.0;
    if (round > 0 && std::abs(found - before) <= kClose * before) break;
    // The line through the last two rounds meets the diagonal where both agree.
    const double slope = round > 0 ? (found - last_found) / (before - last_shared) : 1;
    if (slope < kSteep) {
      now.shared = std::clamp(before + (found - before) / (1 - slope), 1.0, slots);
    } else if (round >= kMostRounds / 4) {
      now.shared = 0.5 * (found + before);
    }
    last_shared = before;
    last_found = found;
  }
  return now;
}

}  // namespace

SteadyState steady_state_at(const StepTimes& times, const CacheCapacity& capacity,
                            const RequestMix& mix, double requests_per_s) noexcept {
  SteadyState state = steady_state(times, capacity, mix, capacity.most_sequences);
  if (state.concurrency <= 0 || requests_per_s <= 0) return {};
  state.saturated = requests_per_s >= state.requests_per_s;
  state.ttft = Seconds{};
  if (state.saturated) return state;
  const Demand demand(mix);
  const double slots = capacity.most_sequences;
  const Hertz rate{requests_per_s};
  const Seconds full_holding = slots / Hertz{state.requests_per_s};
  state.utilisation = requests_per_s / state.requests_per_s;
  state.requests_per_s = requests_per_s;
  const Company company = settle(times, capacity, demand, rate, full_holding, state);
  // It can finish as many, but prompts go on until every slot is taken.
  state.saturated = state.concurrency >= slots;
  if (state.saturated) {
    state.concurrency = slots;
    state.step = slots / (demand.steps * rate);
  }
  state.tpot = demand.gap(state.step, mix.output);
  // An arrival finds the mean number running, and nothing to wait for where nobody is there or
  // all slots are taken: then it waits for one of them instead.
  const double found = std::max(kClose, std::min(state.concurrency, slots - 1));
  const PromptSteps steps = prompt_steps(times, capacity, demand, found, company.prompts);
  const StepMoments moments = step_moments(steps, company.met);
  const PromptWait wait = prompt_wait(steps, moments, company.met);
  state.prefill = steps.alone + times.engine().request_host;
  if (state.saturated) return state;
  const Inside& others = company.others;
  const Seconds spared = 0.5 * (others.none * steps.quiet + others.full * moments.met);
  state.ttft = wait.wait - spared + others.wait + wait.computed + times.engine().request_host;
  return state;
}

}  // namespace scalemodel
