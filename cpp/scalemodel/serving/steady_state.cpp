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
  d.steps = std::max(mix.output - 1, 1e-9) / d.gained;
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
  Seconds with_prompt;
  double prompts;
  if (engine.mixes_phases) {
    prompts = std::max(1.0, r);
    const double tokens = std::max(d.fresh / parts, std::min(r * d.fresh, room));
    state.prompt_fraction = std::min(1.0, r * parts);
    with_prompt = times.of(work_of(mix, d, running, prompts, tokens)).total;
    state.step = state.prompt_fraction * with_prompt;
    if (state.prompt_fraction < 1) {
      state.step +=
          (1 - state.prompt_fraction) * times.of(work_of(mix, d, running, 0, 0)).total;
    }
  } else {
    prompts = std::clamp(r, 1.0, std::max(1.0, std::floor(limit / d.fresh)));
    with_prompt = times.of(work_of(mix, d, 0, prompts, prompts * d.fresh / parts)).total;
    const double stops = r * parts / prompts;  // steps of prompts per step of sequences
    state.prompt_fraction = stops / (1 + stops);
    state.step = times.of(work_of(mix, d, running, 0, 0)).total + stops * with_prompt;
  }
  state.tpot = state.step / d.gained;
  state.requests_per_s = r / state.step.base();
  state.prefill = parts * with_prompt + engine.request_host;
  state.ttft = state.prefill + 0.5 * state.step;
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
  const Seconds idle_step = state.step;
  const double own = state.prefill.base() - times.engine().request_host.base();
  const double load = std::min(0.999, rate / most.requests_per_s);
  const double prompt_load = std::min(0.999, state.prompt_fraction);
  // Prompts that share steps with others wait only for what exceeds a step.
  const double r = state.concurrency / d.steps;
  const double queue = r >= 1 ? 0.5 * state.step.base() * load / (1 - load)
                              : 0.5 * own * prompt_load / (1 - prompt_load);
  state.ttft = state.prefill + 0.5 * idle_step + Seconds{queue};
  state.utilisation = load;
  return state;
}

}  // namespace scalemodel
