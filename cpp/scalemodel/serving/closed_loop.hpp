// The closed loop: an instance whose slots are filled again as soon as they are free.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/serving/prompt_steps.hpp"
#include "scalemodel/serving/steady_state.hpp"

namespace scalemodel {

/// The closed loop: a fixed number of sequences that run all the time.
struct ClosedLoopState {
  double sequences = 0;  ///< fewer than asked for where prompts do not keep up
  double entering = 0;   ///< prompts per step of them
  double busy = 0;       ///< prefill steps, whole prompts or chunks, per step of the sequences
  Seconds step;          ///< from one token of a sequence to the next
  PromptSteps steps;

  Hertz rate() const noexcept { return entering / step; }
};

/// See steady_state. Nothing runs where `sequences` is 0.
ClosedLoopState closed_loop_state(const StepsOfMix& steps, double sequences) noexcept;

/// The steady state of the loop but for its times to the first token, which take most of the work.
/// The drafts of the mix are as deep as it says.
SteadyState pace_of(const StepsOfMix& steps, const RequestMix& mix,
                    const ClosedLoopState& kept) noexcept;
/// These too.
void add_first_token(SteadyState& state, const StepsOfMix& of_mix,
                     const ClosedLoopState& kept) noexcept;

}  // namespace scalemodel
