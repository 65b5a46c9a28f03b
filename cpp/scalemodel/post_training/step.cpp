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
  RlPhases phases;
  const double rounds = sampling_rounds(passes.sampling);
  phases.rollout = passes.partial ? passes.sustained : rounds * passes.round;
  // What is rejected is scored all the same: its rewards are why.
  const double drawn = passes.partial ? 1 / passes.sampling.accepted_fraction
                                      : rounds * passes.sampling.oversampling;
  phases.reward = drawn * passes.reward_forward / passes.learning_fraction;
  if (passes.logprob) phases.logprob = scored;
  if (passes.reference) phases.reference = scored;
  phases.critic = passes.critic_forward / passes.learning_fraction;
  phases.train = passes.optimizer_steps * (passes.optimizer_step + passes.critic_step) /
                 passes.learning_fraction;
  phases.refit = passes.refit;
  phases.switching = passes.switching;
  return phases;
}

Seconds forward_pass_time(const Estimate& repeated, const Estimate& saved) {
  return repeatable(repeated) - repeatable(saved);
}

Bytes learning_memory(const Estimate& training, const Estimate* critic) {
  if (critic == nullptr) return training.memory;
  return training.memory + critic->memory_weights + critic->memory_gradients +
         critic->memory_optimizer;
}

double running_sequences(double sequences, Bytes cache, Bytes spared) {
  return std::max(1.0, std::floor((1 - spared / cache) * sequences));
}

}  // namespace scalemodel
