#include "scalemodel/serving/steady_state.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/serving/closed_loop.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/prompt_steps.hpp"

namespace scalemodel {

DraftTree draft_tree(const RequestMix& mix) noexcept {
  return {mix.speculative_tokens,  mix.draft_width,      mix.draft_nodes,
          mix.acceptance_fraction, mix.acceptance_decay, mix.acceptance_power};
}

double tokens_per_step(const RequestMix& mix) noexcept { return expected_tokens(draft_tree(mix)); }

RequestMix adapted(const StepTimes& times, const RequestMix& mix, double sequences) noexcept {
  RequestMix tried = mix;
  tried.adaptive_drafts = false;
  if (!mix.adaptive_drafts || sequences <= 0) return tried;
  RequestMix best = tried;
  Seconds least{kInfinity};
  for (int depth = 0; depth <= mix.speculative_tokens; ++depth) {
    tried.speculative_tokens = depth;
    const Demand demand(tried);
    const Seconds each = times.total(demand.work(sequences)) / demand.tokens_per_step;
    if (each >= least) continue;
    least = each;
    best = tried;
  }
  return best;
}

namespace {

/// Share of steps with a prompt. They enter at random: as many steps stay without one as a Poisson
/// count says, and more only share a step than there is room for.
double steps_with_prompts(double entering, double most) noexcept {
  return std::max(1 - std::exp(-entering), entering / most);
}

/// Prefill steps, whole prompts or chunks, per step of the sequences.
double busy_steps(const PromptSteps& steps, double entering) noexcept {
  if (steps.most > 1) return steps_with_prompts(entering, steps.most);
  return entering * steps.chunks_of(std::min(1.0, entering / steps.most));
}

/// Of `sequences` that run all the time, those that are not one's own.
double others_of(double sequences) noexcept { return std::max(0.0, sequences - 1); }

}  // namespace

ClosedLoopState closed_loop_state(const StepsOfMix& steps, double sequences) noexcept {
  const Demand& demand = steps.demand();
  const CacheCapacity& capacity = steps.capacity();
  const Engine& engine = steps.times().engine();
  ClosedLoopState kept;
  if (capacity.max_running_sequences < 1 || sequences <= 0) return kept;
  double running = std::min(sequences, capacity.max_running_sequences);
  // Tokens of a step: every running sequence's, and the prompts that take the place of those that
  // finish. A prompt longer than any step runs as the only one.
  const bool beside = engine.mixed_batches && !demand.prefilled &&
                      demand.uncached_prompt_tokens <= capacity.max_batched_tokens;
  const double tokens =
      demand.query_tokens + (beside ? demand.uncached_prompt_tokens / demand.decode_steps : 0.0);
  // Without mixed batches the limit of tokens is one of prompts (SGLang: chunked_prefill_size).
  if (engine.mixed_batches) running = std::min(running, capacity.max_batched_tokens / tokens);
  const double most = demand.max_prompts(engine, capacity, running);
  if (engine.mixed_batches) running = std::min(running, most * demand.decode_steps);
  kept.sequences = running;
  kept.entering = running / demand.decode_steps;
  kept.steps = steps.beside(running, kept.entering / steps_with_prompts(kept.entering, most));
  kept.busy = busy_steps(kept.steps, kept.entering);
  kept.step = kept.steps.mean(kept.busy, kept.entering);
  return kept;
}

SteadyState pace_of(const StepsOfMix& steps, const RequestMix& mix,
                    const ClosedLoopState& kept) noexcept {
  SteadyState state;
  if (kept.sequences <= 0) return state;
  state.concurrency = kept.sequences;
  state.draft_tokens = mix.speculative_tokens;
  state.step = kept.step;
  state.prompt_fraction = kept.steps.mixed ? kept.busy : kept.busy / (1 + kept.busy);
  // A sequence decodes while the prompts of others are computed, never beside its own.
  const double entering = kept.entering * (others_of(kept.sequences) / kept.sequences);
  const Seconds step = kept.steps.mean(busy_steps(kept.steps, entering), entering);
  state.tpot = steps.demand().gap(step, mix.output);
  state.requests_per_s = kept.rate().base();
  state.utilisation = 1;
  return state;
}

void add_first_token(SteadyState& state, const StepsOfMix& of_mix,
                     const ClosedLoopState& kept) noexcept {
  if (kept.sequences <= 0) return;
  // A sequence that arrives finds the others as they are without it (arrival theorem of closed
  // queueing networks: Sevcik and Mitrani, J. ACM 28 (1981)).
  const double others = others_of(kept.sequences);
  const double share = others / kept.sequences, entering = share * kept.entering;
  const Seconds request = of_mix.times().engine().request_host;
  if (of_mix.demand().prefilled) {  // half of the step under way, and its own
    state.prefill = kept.steps.alone + request;
    state.ttft = (1 + 0.5 * share) * kept.step + request;
    return;
  }
  const double together =
      entering > 0 ? entering / steps_with_prompts(entering, kept.steps.most) : 1.0;
  const PromptSteps steps = of_mix.beside(others, together);
  const Hertz rate = share * kept.rate();
  const StepMoments moments = step_moments(steps, rate, busy_steps(steps, entering));
  const PromptWait wait = prompt_wait(steps, moments, rate);
  // No more prompts are ahead than there are others.
  const Seconds most = 0.5 * moments.length_biased + others * steps.more;
  state.prefill = steps.alone + request;
  state.ttft = min(wait.wait, most) + wait.computed + request;
}

SteadyState steady_state(const StepTimes& times, const CacheCapacity& capacity,
                         const RequestMix& mix, double concurrency) noexcept {
  if (mix.adaptive_drafts) {
    const double running = std::min(concurrency, capacity.max_running_sequences);
    return steady_state(times, capacity, adapted(times, mix, running), concurrency);
  }
  const Demand demand(mix);
  const StepsOfMix steps(times, capacity, demand);
  const ClosedLoopState kept = closed_loop_state(steps, concurrency);
  SteadyState state = pace_of(steps, mix, kept);
  add_first_token(state, steps, kept);
  return state;
}

}  // namespace scalemodel
