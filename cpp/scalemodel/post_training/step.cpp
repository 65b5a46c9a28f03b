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
  const auto scored = [&](Seconds forward, bool wanted) {
    return wanted ? forward / passes.learning_fraction + passes.dispatch : Seconds{0};
  };
  const double rounds = sampling_rounds(passes.sampling);
  // What is rejected is scored all the same: its rewards are why.
  const double drawn = passes.partial ? 1 / passes.sampling.accepted_fraction
                                      : rounds * passes.sampling.oversampling;
  RlPhases phases;
  phases.rollout = passes.partial ? passes.sustained : rounds * (passes.round + passes.dispatch);
  phases.reward = drawn * scored(passes.reward_forward, passes.reward_forward > Seconds{0});
  phases.logprob = scored(passes.forward, passes.logprob);
  phases.reference = scored(passes.forward, passes.reference);
  phases.critic = scored(passes.critic_forward, passes.critic_forward > Seconds{0});
  phases.train = passes.optimizer_steps * (passes.optimizer_step + passes.critic_step) /
                     passes.learning_fraction +
                 passes.dispatch;
  // Answers that come one by one wait in a queue until a batch of them is gathered.
  if (passes.partial) {
    phases.collect =
        passes.dispatch + wait_for_fresh(passes.fresh, passes.stale_fraction, phases.learning());
  }
  phases.refit = passes.refit;
  phases.switching = passes.switching;
  return phases;
}

std::array<Seconds, 9> rl_starts(const RlPhases& phases, Seconds sustained, int staleness) {
  const std::array learning{phases.collect,   phases.reward, phases.logprob,
                            phases.reference, phases.critic, phases.train};
  std::array<Seconds, 9> starts;
  Seconds now = staleness > 0 ? Seconds{0} : phases.rollout;
  std::size_t place = 1;
  for (const Seconds phase : learning) {
    starts[place++] = now;
    now += phase;
  }
  starts[place++] = rl_step_time(phases, sustained, staleness) - phases.between();
  starts[place] = starts[place - 1] + phases.refit;
  return starts;
}

double head_factor(const DecoderShape& shape, double active_parameters) {
  const double head = static_cast<double>(shape.vocab) * shape.hidden;
  const double embeddings = shape.tied_embeddings ? head : 2 * head;
  return 1 + head / (active_parameters - embeddings);
}

Seconds forward_pass_time(const Estimate& repeated, const Estimate& saved, double head_factor) {
  return head_factor * (repeatable(repeated) - repeatable(saved));
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
