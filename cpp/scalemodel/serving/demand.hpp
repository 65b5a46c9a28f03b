// What requests of a mix ask of an instance, step by step.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// Prompts of a step where nothing of them is computed.
inline constexpr double kAnyNumber = 1e9;

/// What does not change with the number of running sequences.
struct Demand {
  double uncached_prompt_tokens = 1;  ///< tokens of a prompt that have to be computed, >= 1
  double tokens_per_step = 1;         ///< output tokens per sequence and decode step, >= 1
  double query_tokens = 1;            ///< tokens that a sequence computes in a decode step, >= 1
  double draft_tokens = 0;            ///< passes of the draft for these, >= 0
  double draft_width = 1;             ///< tokens of a sequence in each of them, >= 1
  double decode_steps = 1;            ///< decode steps of one request, >= 1
  double context = 1;                 ///< mean tokens that a running sequence attends to
  double input = 1;                   ///< prompt tokens, cached ones included
  bool prefilled = false;             ///< nothing of a prompt has to be computed
  double images_per_token = 0;        ///< to encode for every prompt token that is computed

  explicit Demand(const RequestMix& mix) noexcept
      : uncached_prompt_tokens(std::max(1.0, mix.input * (1 - mix.prefix_hit_fraction))),
        tokens_per_step(scalemodel::tokens_per_step(mix)),
        query_tokens(1.0 + verified_drafts(draft_tree(mix))),
        draft_tokens(mix.speculative_tokens),
        draft_width(mix.draft_width),
        // A request of one token leaves with its prefill; it takes part in one step all the same.
        decode_steps(std::max(1.0, (mix.output - 1) / tokens_per_step)),
        context(mix.input + (mix.output + 1) / 2),
        input(mix.input),
        prefilled(mix.prefilled),
        images_per_token(scalemodel::images_per_token(mix, mix.input)) {
    // An output of several tokens per step ends within its last one.
    if (tokens_per_step > 1) decode_steps = std::ceil(decode_steps - 1e-9);
  }

  /// Time between two tokens where a step takes `step`.
  template <class Step>
  Step gap(Step step, double output) const noexcept {
    return (decode_steps / std::max(1.0, output - 1)) * step;
  }

  /// A step of running sequences alone.
  StepWork work(double sequences) const noexcept { return work_of(sequences); }
  /// The same beside whole prompts.
  StepWork work(double sequences, double prompts) const noexcept {
    return work_of(sequences, prompts);
  }
  /// The same beside prompts, or chunks of them, that attend to `keys` tokens at their end.
  StepWork work(double sequences, double prompts, double prompt_tokens,
                double keys) const noexcept {
    return work_of(sequences, prompts, prompt_tokens, keys);
  }

  /// These of one step or of several side by side.
  template <class Number>
  StepWorkOf<Number> work_of(Number sequences) const noexcept {
    StepWorkOf<Number> work;
    work.sequences = sequences;
    work.context = context;
    work.query_tokens = query_tokens;
    work.draft_tokens = draft_tokens;
    work.draft_width = draft_width;
    work.draft_first = tokens_per_step;
    return work;
  }
  template <class Number>
  StepWorkOf<Number> work_of(Number sequences,
                             std::type_identity_t<Number> prompts) const noexcept {
    return work_of(sequences, prompts, prompts * uncached_prompt_tokens, Number{input});
  }
  template <class Number>
  StepWorkOf<Number> work_of(Number sequences, std::type_identity_t<Number> prompts,
                             std::type_identity_t<Number> prompt_tokens,
                             std::type_identity_t<Number> keys) const noexcept {
    StepWorkOf<Number> all = work_of(sequences);
    all.prompts = prompts;
    all.prompt_tokens = prompt_tokens;
    all.longest = min(Number{uncached_prompt_tokens}, prompt_tokens);
    all.prompt_keys = keys;
    all.images = prompt_tokens * images_per_token;
    return all;
  }

  /// Prompts that fit into a step beside `sequences`; below 1 where one is computed in several
  /// chunks. Without chunked prefill one longer than any step runs all the same.
  template <class Number>
  Number max_prompts(const Engine& engine, const CacheCapacity& capacity,
                     Number sequences) const noexcept {
    if (prefilled) return Number{kAnyNumber};
    const Number decoded = engine.mixed_batches ? sequences * query_tokens : Number{0};
    const Number most =
        max(Number{1}, capacity.max_batched_tokens - decoded) / uncached_prompt_tokens;
    return engine.chunked_prefill ? most : max(Number{1}, floor(most));
  }
};

}  // namespace scalemodel
