#include "scalemodel/serving/steady_state.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/prompt_steps.hpp"

namespace scalemodel {

double tokens_per_step(const RequestMix& mix) noexcept {
  const double a = mix.acceptance_fraction, k = mix.speculative_tokens;
  if (k <= 0) return 1;
  return a >= 1 ? k + 1 : (1 - std::pow(a, k + 1)) / (1 - a);
}

SteadyState steady_state(const StepTimes& times, const CacheCapacity& capacity,
                         const RequestMix& mix, double concurrency) noexcept {
  const Demand demand(mix);
  const Engine& engine = times.engine();
  SteadyState state;
  if (capacity.most_sequences < 1 || concurrency <= 0) return state;
  double running = std::min(concurrency, capacity.most_sequences);
  // Tokens of a step: every running sequence's, and the prompts that take the place of those that
  // finish. A prompt longer than any step runs as the only one.
  const bool beside = engine.mixes_phases && demand.fresh <= capacity.most_tokens;
  const double tokens = demand.queries + (beside ? demand.fresh / demand.steps : 0.0);
  running = std::min(running, capacity.most_tokens / tokens);
  const double most = demand.most_prompts(engine, capacity, running);
  if (engine.mixes_phases) running = std::min(running, most * demand.steps);
  state.concurrency = running;
  const double entering = running / demand.steps;  // prompts per step of the running sequences
  // They enter at random: as many steps stay without one as a Poisson count says, and more only
  // share a step than there is room for.
  const double some = std::max(1 - std::exp(-entering), entering / most);
  const PromptSteps steps = prompt_steps(times, capacity, demand, running, entering / some);
  const double busy = most > 1 ? some : entering * steps.parts_of(std::min(1.0, entering / most));
  state.step = steps.mean(busy, entering);
  state.prompt_fraction = engine.mixes_phases ? busy : busy / (1 + busy);
  state.tpot = demand.gap(state.step, mix.output);
  const Hertz rate = entering / state.step;
  state.requests_per_s = rate.base();
  state.prefill = steps.alone + engine.request_host;
  const PromptWait wait = prompt_wait(steps, step_moments(steps, rate), rate);
  state.ttft = wait.wait + wait.computed + engine.request_host;
  state.utilisation = 1;
  return state;
}

}  // namespace scalemodel
