#include "scalemodel/post_training/step.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {
namespace {

/// Of a step, what repeating its forward passes prolongs.
Seconds repeatable(const Estimate& step) {
  return step.compute + step.exposed_tp + step.exposed_ep + step.exposed_cp + step.bubble;
}

}  // namespace

RlPhases rl_phases(const RlPasses& passes) {
  const Seconds scored = passes.forward / passes.learning_fraction;
  const double models = passes.critic ? 2 : 1;
  RlPhases phases;
  phases.rollout = passes.rollout;
  phases.logprob = scored;
  if (passes.reference) phases.reference = scored;
  if (passes.critic) phases.critic = scored;
  phases.train = models * passes.optimizer_steps * passes.optimizer_step / passes.learning_fraction;
  phases.refit = passes.refit;
  phases.switching = passes.switching;
  return phases;
}

Seconds forward_pass_time(const Estimate& repeated, const Estimate& saved) {
  return repeatable(repeated) - repeatable(saved);
}

Bytes learning_memory(const Estimate& training, bool critic) {
  const Bytes states =
      training.memory_weights + training.memory_gradients + training.memory_optimizer;
  return training.memory + (critic ? states : Bytes{0});
}

double running_sequences(double sequences, Bytes cache, Bytes spared) {
  return std::max(1.0, std::floor((1 - spared / cache) * sequences));
}

}  // namespace scalemodel
