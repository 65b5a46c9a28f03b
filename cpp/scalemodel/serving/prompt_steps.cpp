#include "scalemodel/serving/prompt_steps.hpp"

#include "scalemodel/serving/prompt_queue.hpp"
#include "scalemodel/serving/steps_beside.hpp"

namespace scalemodel {

double full_steps_ahead(double ahead, double most) noexcept {
  return detail::further_steps(ahead / (1 + ahead), most);
}

StepsOfMix::StepsOfMix(const StepTimes& times, const CacheCapacity& capacity,
                       const Demand& demand) noexcept
    : times_(times), capacity_(capacity), demand_(demand) {
  if (demand.prefilled || demand.max_prompts(times.engine(), capacity, 0.0) < 1) return;
  one_ = times.prefill_attention(demand.work(0, 1));
  two_ = times.prefill_attention(demand.work(0, 2));
}

PromptSteps StepsOfMix::beside(double sequences, double prompts) const noexcept {
  return beside_of(sequences, prompts);
}

Seconds StepsOfMix::decode_only_beside(double sequences) const noexcept {
  return decode_only(sequences);
}

template StepMoments step_moments(const PromptSteps&, Hertz, double) noexcept;
template PromptWait prompt_wait(const PromptSteps&, const StepMoments&, Hertz) noexcept;
template double followers(const StepMoments&, Hertz) noexcept;
template Seconds time_of_steps(const PromptSteps&, const StepMoments&, const PromptWait&, Hertz,
                               double) noexcept;

}  // namespace scalemodel
