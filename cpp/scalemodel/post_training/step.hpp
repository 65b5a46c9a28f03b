// A step of reinforcement learning: its phases and how two pools share it.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/estimator/estimate.hpp"

namespace scalemodel {

/// Which passes a step makes over its answers, and what each takes alone.
struct RlPasses {
  Seconds rollout;               ///< until the last answer that the step waits for
  Seconds forward;               ///< one forward pass of the policy over all answers
  Seconds optimizer_step;        ///< one update, forward and backward
  double optimizer_steps = 1;    ///< updates of a step
  bool reference = false;        ///< log-probabilities of a reference model
  bool critic = false;           ///< a model of the policy's size scores and learns
  double learning_fraction = 1;  ///< speed of scoring and training over that of pre-training
  Seconds refit;                 ///< new weights for the engine
  Seconds switching;             ///< states to the host and back, an engine that wakes

  bool operator==(const RlPasses&) const = default;
};

/// Seconds of the phases of a step.
struct RlPhases {
  Seconds rollout, logprob, reference, critic, train, refit, switching;

  /// Of a step that cannot run.
  static constexpr RlPhases never() {
    constexpr Seconds kNever{kInfinity};
    return {kNever, kNever, kNever, kNever, kNever, kNever, kNever};
  }
  /// Of the pool that trains: all passes over the answers.
  constexpr Seconds learning() const { return logprob + reference + critic + train; }
  /// Neither pool works meanwhile.
  constexpr Seconds between() const { return refit + switching; }
  bool operator==(const RlPhases&) const = default;
};

template <>
struct RecordOf<RlPasses> {
  static constexpr std::string_view name = "RlPasses";
  using T = RlPasses;
  static constexpr std::tuple fields{
      field("rollout_s", &T::rollout, 0, 1e12, "until the last answer"),
      field("forward_s", &T::forward, 0, 1e12, "one forward pass over all answers"),
      field("optimizer_step_s", &T::optimizer_step, 0, 1e12, "one update of the weights"),
      field("optimizer_steps", &T::optimizer_steps, 1, 1e9, "updates of a step"),
      field("reference", &T::reference, "log-probabilities of a reference model"),
      field("critic", &T::critic, "a model of the policy's size scores and learns"),
      field("learning_fraction", &T::learning_fraction, 1e-3, 10,
            "speed of scoring and training over that of pre-training"),
      field("refit_s", &T::refit, 0, 1e12, "new weights for the engine"),
      field("switch_s", &T::switching, 0, 1e12, "states to the host and back, engine awake")};
};

template <>
struct RecordOf<RlPhases> {
  static constexpr std::string_view name = "RlPhases";
  using T = RlPhases;
  static constexpr std::tuple fields{
      field("rollout_s", &T::rollout, 0, 1e12, "generation"),
      field("logprob_s", &T::logprob, 0, 1e12, "log-probabilities of the policy"),
      field("reference_s", &T::reference, 0, 1e12, "log-probabilities of the reference"),
      field("critic_s", &T::critic, 0, 1e12, "scores of the critic"),
      field("train_s", &T::train, 0, 1e12, "all optimizer steps, the critic's too"),
      field("refit_s", &T::refit, 0, 1e12, "new weights for the engine"),
      field("switch_s", &T::switching, 0, 1e12, "sleeping and waking")};
};

/// The phases of a step from its passes.
RlPhases rl_phases(const RlPasses& passes);

/// A whole step. Phases follow one another on the same accelerators, and where the answers must be
/// of the newest weights; with staleness both pools work at once and the longer one decides.
constexpr Seconds rl_step_time(const RlPhases& phases, int staleness) {
  const Seconds busy =
      staleness > 0 ? max(phases.rollout, phases.learning()) : phases.rollout + phases.learning();
  return busy + phases.between();
}

/// One forward pass over what two estimates of a training step hold: what repeating all of it adds
/// to a step that saves everything.
Seconds forward_pass_time(const Estimate& repeated, const Estimate& saved);

/// Memory of an accelerator that trains: its estimate, and the states of a critic beside them.
Bytes learning_memory(const Estimate& training, bool critic);

/// Answers of replicas that run as full as they can, where no step waits for the last one.
constexpr Seconds sustained_rollout(double answers, double replicas, double answers_per_s) {
  return Seconds{answers / (replicas * answers_per_s)};
}

/// Running sequences that fit where the engine gives `spared` bytes of its cache to others, of the
/// `sequences` that all of the cache holds; at least one.
double running_sequences(double sequences, Bytes cache, Bytes spared);

/// Memory of an accelerator that the engine would take and its share leaves to others.
constexpr Bytes spared_memory(double usual_share, double share, Bytes capacity) {
  return max(0.0 * capacity, (usual_share - share) * capacity);
}

}  // namespace scalemodel
