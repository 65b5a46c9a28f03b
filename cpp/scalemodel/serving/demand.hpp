// What requests of a mix ask of an instance, step by step.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// What does not change with the number of running sequences.
struct Demand {
  double fresh = 1;    ///< prompt tokens that have to be computed
  double gained = 1;   ///< tokens per sequence and step
  double queries = 1;  ///< new tokens of a sequence in a step
  double drafts = 0;   ///< of them proposed
  double steps = 1;    ///< of one request after its first token
  double context = 1;  ///< mean tokens a running sequence attends to
  double input = 1;    ///< tokens of a prompt

  explicit Demand(const RequestMix& mix) noexcept
      : fresh(std::max(1.0, mix.input * (1 - mix.prefix_hit_fraction))),
        gained(tokens_per_step(mix)),
        queries(1.0 + mix.speculative_tokens),
        drafts(mix.speculative_tokens),
        // A request of one token leaves with its prompt: it takes part in one step all the same.
        steps(std::max(1.0, (mix.output - 1) / gained)),
        context(mix.input + (mix.output + 1) / 2),
        input(mix.input) {
    // An answer of several tokens per step ends within its last one.
    if (gained > 1) steps = std::ceil(steps - 1e-9);
  }

  /// Time between two tokens where a step takes `step`.
  Seconds gap(Seconds step, double output) const noexcept {
    return (steps / std::max(1.0, output - 1)) * step;
  }

  /// A step of running sequences alone.
  StepWork work(double sequences) const noexcept {
    StepWork work;
    work.sequences = sequences;
    work.context = context;
    work.queries = queries;
    work.drafts = drafts;
    return work;
  }

  /// The same beside whole prompts.
  StepWork work(double sequences, double prompts) const noexcept {
    return work(sequences, prompts, prompts * fresh, input);
  }

  /// The same beside prompts, or parts of them, that attend to `keys` tokens at their end.
  StepWork work(double sequences, double prompts, double prompt_tokens,
                double keys) const noexcept {
    StepWork all = work(sequences);
    all.prompts = prompts;
    all.prompt_tokens = prompt_tokens;
    all.prompt_keys = keys;
    return all;
  }

  /// Prompts that fit into a step beside `sequences`; below 1 where one is cut over several steps.
  /// Where prompts are not cut, one longer than any step runs all the same.
  double most_prompts(const Engine& engine, const CacheCapacity& capacity,
                      double sequences) const noexcept {
    const double taken = engine.mixes_phases ? sequences * queries : 0;
    const double most = std::max(1.0, capacity.most_tokens - taken) / fresh;
    return engine.splits_prompts ? most : std::max(1.0, std::floor(most));
  }
};

}  // namespace scalemodel
