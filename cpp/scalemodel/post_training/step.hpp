// A step of reinforcement learning: its phases and how two pools share it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/model/decoder.hpp"

namespace scalemodel {

/// Dynamic sampling: prompts whose answers are all right or all wrong teach nothing and are drawn
/// again. A round draws `oversampling` times the prompts of a step, and rounds follow one another
/// until enough are accepted. Source: Yu et al., DAPO, arXiv 2503.14476, section 3.2.
struct DynamicSampling {
  double accepted_fraction = 1;  ///< of prompts, whose answers differ in reward
  double oversampling = 1;       ///< prompts of a round over those of a step

  bool operator==(const DynamicSampling&) const = default;
};

/// Rounds until the expected number of accepted prompts is that of a step.
inline double sampling_rounds(const DynamicSampling& sampling) {
  // A product that is one but for rounding needs no second round.
  const double yield = sampling.accepted_fraction * sampling.oversampling;
  return std::max(1.0, std::ceil(1 / yield - 1e-9));
}

/// Which passes a step makes over its answers, and what each takes alone.
struct RlPasses {
  Seconds round;         ///< of generation: until the last answer that the step waits for
  Seconds sustained;     ///< of generation by replicas that run as full as they can
  bool partial = false;  ///< no step waits for its last answer: generation goes on over updates
  Seconds fresh;         ///< of generation: until those are complete that older weights may not do
  double stale_fraction = 1;  ///< of the answers of a step, that older weights may have generated
  DynamicSampling sampling;
  Seconds forward;               ///< one forward pass of the policy over the answers of a step
  Seconds reward_forward;        ///< the same of a reward model; 0 = answers are verified
  Seconds critic_forward;        ///< the same of a critic; 0 = no critic
  Seconds optimizer_step;        ///< one update of the policy, forward and backward
  Seconds critic_step;           ///< one update of the critic
  double optimizer_steps = 1;    ///< updates of a step
  bool logprob = true;           ///< of the policy; else the engine hands on its own
  bool reference = false;        ///< log-probabilities of a reference model
  double learning_fraction = 1;  ///< speed of scoring and training over that of pre-training
  Seconds dispatch;   ///< the answers handed to a pool and back, each time that it is called
  Seconds refit;      ///< new weights for the engine
  Seconds switching;  ///< states to the host and back, an engine that wakes

  bool operator==(const RlPasses&) const = default;
};

/// Seconds of the phases of a step.
struct RlPhases {
  Seconds rollout, collect, reward, logprob, reference, critic, train, refit, switching;

  /// Of a step that cannot run.
  static constexpr RlPhases never() {
    constexpr Seconds kNever{kInfinity};
    return {kNever, kNever, kNever, kNever, kNever, kNever, kNever, kNever, kNever};
  }
  /// Of the pool that trains: all passes over the answers.
  constexpr Seconds learning() const {
    return collect + reward + logprob + reference + critic + train;
  }
  /// Neither pool works meanwhile.
  constexpr Seconds between() const { return refit + switching; }
  bool operator==(const RlPhases&) const = default;
};

template <>
struct RecordOf<DynamicSampling> {
  static constexpr std::string_view name = "DynamicSampling";
  using T = DynamicSampling;
  static constexpr FieldTable fields{
      field("accepted_fraction", &T::accepted_fraction, 1e-3, 1,
            "of prompts, whose answers differ in reward"),
      field("oversampling", &T::oversampling, 1, 1e3, "prompts of a round over those of a step")};
};

template <>
struct RecordOf<RlPasses> {
  static constexpr std::string_view name = "RlPasses";
  using T = RlPasses;
  static constexpr FieldTable fields{
      field("round_s", &T::round, 0, 1e12, "of generation, until the last answer"),
      field("sustained_s", &T::sustained, 0, 1e12, "of generation by replicas as full as can be"),
      field("partial", &T::partial, "generation goes on over updates of the weights"),
      field("fresh_s", &T::fresh, 0, 1e12, "until answers that only the newest weights may give"),
      field("stale_fraction", &T::stale_fraction, 0, 1, "of answers that may be of older weights"),
      field("sampling", &T::sampling, "prompts that are rejected and drawn again"),
      field("forward_s", &T::forward, 0, 1e12, "one forward pass over the answers of a step"),
      field("reward_forward_s", &T::reward_forward, 0, 1e12, "of a reward model; 0 = verified"),
      field("critic_forward_s", &T::critic_forward, 0, 1e12, "of a critic; 0 = none"),
      field("optimizer_step_s", &T::optimizer_step, 0, 1e12, "one update of the policy"),
      field("critic_step_s", &T::critic_step, 0, 1e12, "one update of the critic"),
      field("optimizer_steps", &T::optimizer_steps, 1, 1e9, "updates of a step"),
      field("logprob", &T::logprob, "of the policy; else the engine hands on its own"),
      field("reference", &T::reference, "log-probabilities of a reference model"),
      field("learning_fraction", &T::learning_fraction, 1e-3, 10,
            "speed of scoring and training over that of pre-training"),
      field("dispatch_s", &T::dispatch, 0, 1e12, "answers handed to a pool and back, a call"),
      field("refit_s", &T::refit, 0, 1e12, "new weights for the engine"),
      field("switch_s", &T::switching, 0, 1e12, "states to the host and back, engine awake")};
};

template <>
struct RecordOf<RlPhases> {
  static constexpr std::string_view name = "RlPhases";
  using T = RlPhases;
  static constexpr FieldTable fields{
      field("rollout_s", &T::rollout, 0, 1e12, "generation"),
      field("collect_s", &T::collect, 0, 1e12, "streamed answers gathered by those that train"),
      field("reward_s", &T::reward, 0, 1e12, "scores of a reward model"),
      field("logprob_s", &T::logprob, 0, 1e12, "log-probabilities of the policy"),
      field("reference_s", &T::reference, 0, 1e12, "log-probabilities of the reference"),
      field("critic_s", &T::critic, 0, 1e12, "scores of the critic"),
      field("train_s", &T::train, 0, 1e12, "all optimizer steps, the critic's too"),
      field("refit_s", &T::refit, 0, 1e12, "new weights for the engine"),
      field("switch_s", &T::switching, 0, 1e12, "sleeping and waking")};
};

/// What a trainer that takes answers one by one waits for those of the newest weights: it learns
/// from the older ones meanwhile. Source: verl, fully asynchronous policy (staleness_threshold).
constexpr Seconds wait_for_fresh(Seconds fresh, double stale_fraction, Seconds learning) {
  return max(Seconds{0}, fresh - stale_fraction * learning);
}

/// The phases of a step from its passes.
RlPhases rl_phases(const RlPasses& passes);

/// Seconds of the rollout pool from step to step. With answers that may be `staleness` steps older
/// than the weights they train, as many batches are under way at once: each may take that many
/// steps until its last answer, while replicas, filled with answers of the others, do the work of
/// one step in `sustained`.
constexpr Seconds rollout_period(Seconds rollout, Seconds sustained, int staleness) {
  return staleness > 1 ? min(rollout, max(sustained, rollout / staleness)) : rollout;
}

/// A whole step. Phases follow one another on the same accelerators, and where the answers must be
/// of the newest weights; with staleness both pools work at once and the longer one decides.
constexpr Seconds rl_step_time(const RlPhases& phases, Seconds sustained, int staleness) {
  const Seconds rollout = rollout_period(phases.rollout, sustained, staleness);
  const Seconds busy =
      staleness > 0 ? max(rollout, phases.learning()) : rollout + phases.learning();
  return busy + phases.between();
}

/// When each phase of a step starts, in the order of the record: in turn, or with staleness those
/// of the training pool beside the rollout, and new weights once both are through.
std::array<Seconds, 9> rl_starts(const RlPhases& phases, Seconds sustained, int staleness);

/// GEMMs of layers and LM head over those of the layers, by the parameters that a token meets.
double head_factor(const DecoderShape& shape, double active_parameters);

/// One forward pass over what two estimates of a training step hold: what repeating all of it adds
/// to a step that saves everything, and the LM head, which no recomputation repeats, at the rate of
/// the layers: `head_factor` times as long.
Seconds forward_pass_time(const Estimate& repeated, const Estimate& saved, double head_factor);

/// Memory of an accelerator that trains: its estimate, and the states of a critic, if any, beside.
Bytes learning_memory(const Estimate& training, const Estimate* critic);

/// Accepted answers of replicas that run as full as they can, where no step waits for the last one.
constexpr Seconds sustained_rollout(double answers, double replicas, double answers_per_s,
                                    double accepted_fraction) {
  return Seconds{answers / (accepted_fraction * replicas * answers_per_s)};
}

/// Answers handed to a pool and back by one controller, each padded to the longest that there may
/// be.
constexpr Seconds padded_dispatch(double answers, double limit_tokens, Seconds per_token) {
  return answers * limit_tokens * per_token;
}

/// Answers of a replica under way at once where they may be `staleness` steps old: those of the
/// step that is trained next, and of as many after it.
inline double answers_in_flight(double answers, double replicas, int staleness) {
  return std::ceil((1 + staleness) * answers / replicas);
}

/// Running sequences that fit where the engine gives `spared` bytes of its cache to others, of the
/// `sequences` that all of the cache holds; at least one.
double running_sequences(double sequences, Bytes cache, Bytes spared);

/// Memory of an accelerator that the engine would take and its share leaves to others.
constexpr Bytes spared_memory(double usual_share, double share, Bytes capacity) {
  return max(0.0 * capacity, (usual_share - share) * capacity);
}

}  // namespace scalemodel
