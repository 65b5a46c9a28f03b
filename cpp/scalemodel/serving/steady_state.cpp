#include "scalemodel/serving/steady_state.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {
namespace {

/// What does not change with concurrency.
struct Demand {
  double fresh;    ///< prompt tokens that have to be computed
  double gained;   ///< tokens per sequence and step
  double queries;  ///< new tokens of a sequence in a step
  double steps;    ///< of one request after its first token
  double context;  ///< mean tokens a running sequence attends to
};

Demand demand_of(const RequestMix& mix) {
  Demand d{};
  d.fresh = std::max(1.0, mix.input * (1 - mix.prefix_hit_fraction));
  d.gained = tokens_per_step(mix);
  d.queries = 1.0 + mix.speculative_tokens;
  // A request of one token leaves with its prompt: it takes part in one step all the same.
  d.steps = std::max(1.0, (mix.output - 1) / d.gained);
  d.context = mix.input + (mix.output + 1) / 2;
  return d;
}

StepWork work_of(const RequestMix& mix, const Demand& d, double sequences, double prompts,
                 double prompt_tokens) {
  StepWork work;
  work.sequences = sequences;
  work.context = d.context;
  work.queries = d.queries;
  work.drafts = mix.speculative_tokens;
  work.prompts = prompts;
  work.prompt_tokens = prompt_tokens;
  // Parts of a cut prompt attend to what came before them: half of it on average.
  const double parts = std::max(1.0, d.fresh * prompts / std::max(prompt_tokens, 1.0));
  work.prompt_keys = mix.input - d.fresh * (parts - 1) / (2 * parts);
  return work;
}

}  // namespace

double tokens_per_step(const RequestMix& mix) noexcept {
  const double a = mix.acceptance_fraction, k = mix.speculative_tokens;
  if (k <= 0) return 1;
  return a >= 1 ? k + 1 : (1 - std::pow(a, k + 1)) / (1 - a);
}

SteadyState steady_state(const StepTimes& times, const CacheCapacity& capacity,
                         const RequestMix& mix, double concurrency) noexcept {
  const Demand d = demand_of(mix);
  const Engine& engine = times.engine();
  SteadyState state;
  if (capacity.most_sequences < 1 || concurrency <= 0) return state;
  const double limit = capacity.most_tokens;
  double running = std::min(concurrency, capacity.most_sequences);
  // Tokens of a step: every running sequence's, and the prompts that take the place of those that
  // finish.
  const double per_sequence = engine.mixes_phases ? d.queries + d.fresh / d.steps : d.queries;
  running = std::min(running, limit / per_sequence);
  state.concurrency = running;
  const double r = running / d.steps;
  const double room = engine.mixes_phases ? std::max(1.0, limit - running * d.queries) : limit;
  const double parts = std::max(1.0, std::ceil(d.fresh / room - 1e-9));
  // Prompts enter at random: as many steps stay without one as a Poisson count of mean r says, and
  // more only share a step than there is room for.
  const double some = std::max(1 - std::exp(-r * parts), std::min(1.0, r * d.fresh / room));
  const double prompts = std::max(1.0, r * parts / some);
  const double tokens = std::min(prompts * d.fresh / parts, room);
  const Seconds quiet = times.of(work_of(mix, d, running, 0, 0)).total;
  const Seconds busy =
      times.of(work_of(mix, d, engine.mixes_phases ? running : 0, prompts, tokens)).total;
  if (engine.mixes_phases) {
    state.prompt_fraction = some;
    state.step = some * busy + (1 - some) * quiet;
  } else {
    state.prompt_fraction = some / (1 + some);
    state.step = quiet + some * busy;
  }
  state.tpot = state.step / d.gained;
  state.requests_per_s = r / state.step.base();
  const Seconds alone = engine.mixes_phases ? quiet : Seconds{};
  const Seconds own = times
                          .of(work_of(mix, d, engine.mixes_phases ? running : 0, 1,
                                      std::min(d.fresh / parts, room)))
                          .total;
  state.prefill = parts * own + engine.request_host;
  const Seconds added = max(Seconds{}, own - alone);
  const double rate = state.requests_per_s * parts;
  const double load = std::min(0.95, rate * added.base());
  if (engine.mixes_phases) {
    // Whoever arrives during a step starts with the next one, beside all others of that step.
    const double mean = state.step.base();
    const double variance = added.base() * added.base() * rate * mean / (1 - load * load);
    const Seconds met{mean + variance / mean};
    state.ttft = state.prefill + 0.5 * met + (rate * met.base()) * added;
  } else {
    // Prompts go first: a server that takes a vacation, one step, when none is waiting.
    state.ttft = state.prefill + 0.5 * quiet + (0.5 * load / (1 - load)) * added;
  }
  state.utilisation = 1;
  return state;
}

SteadyState steady_state_at(const StepTimes& times, const CacheCapacity& capacity,
                            const RequestMix& mix, double rate) noexcept {
  const auto most = steady_state(times, capacity, mix, capacity.most_sequences);
  if (most.concurrency <= 0 || rate <= 0) return {};
  if (rate >= most.requests_per_s) {
    SteadyState state = most;
    state.saturated = true;
    state.ttft = Seconds{};
    return state;
  }
  // The rate grows with concurrency. A secant in the inverse rate converges in a few steps: the
  // time of a step is nearly a straight line in concurrency.
  const Demand d = demand_of(mix);
  double low = 0, high = most.concurrency;
  double guess = std::min(high, rate * d.steps * times.of(work_of(mix, d, 1, 0, 0)).total.base());
  SteadyState state = most;
  constexpr int kMostRounds = 24;
  for (int round = 0; round < kMostRounds; ++round) {
    guess = std::clamp(guess, 1e-6, high);
    state = steady_state(times, capacity, mix, guess);
    const double needed = rate * d.steps * state.step.base();
    if (std::abs(needed - guess) <= 1e-4 * guess) break;
    (needed > guess ? low : high) = guess;
    guess = needed > low && needed < high ? needed : 0.5 * (low + high);
  }
  state.utilisation = rate / most.requests_per_s;
  return state;
}

}  // namespace scalemodel
