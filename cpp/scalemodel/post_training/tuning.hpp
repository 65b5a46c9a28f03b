// A step of preference tuning or of distillation: its phases, frozen models, logits handed on.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel {

/// Where the weights of a frozen model are between its passes.
enum class FrozenPlace : std::uint8_t {
  shared,    ///< there are none of its own: the adapters of the model are left out
  host,      ///< on the host: copied in before a pass
  resident,  ///< beside the model that learns
  apart,     ///< on accelerators of its own
};

template <>
struct EnumNames<FrozenPlace> {
  static constexpr std::string_view what = "place of a frozen model";
  static constexpr std::array<std::string_view, 4> names{"shared", "host", "resident", "apart"};
};

/// Which passes a step makes over its sequences, and what each takes alone.
struct TuningPasses {
  Seconds rollout;               ///< until the last answer of the student; 0 = sequences are given
  Seconds forward;               ///< one forward pass of the model that learns, over a step
  double reference_passes = 0;   ///< forward passes of its frozen copy
  double policy_passes = 0;      ///< its own without gradients: of mismatched answers (KTO)
  Seconds teacher_forward;       ///< one forward pass of the teacher; 0 = no teacher
  Seconds swap;                  ///< frozen weights in from the host, and what gives way to them
  Seconds logits;                ///< the teacher's logits handed to the student
  Seconds optimizer_step;        ///< one update, forward and backward
  double optimizer_steps = 1;    ///< updates of a step
  double learning_fraction = 1;  ///< speed of scoring and training over that of pre-training
  Seconds refit;                 ///< new weights for the engine
  Seconds switching;             ///< states to the host and back, an engine that wakes

  bool operator==(const TuningPasses&) const = default;
};

/// Seconds of the phases of a step.
struct TuningPhases {
  Seconds rollout, swap, reference, logprob, teacher, logits, train, refit, switching;

  /// Of a step that cannot run.
  static constexpr TuningPhases never() {
    constexpr Seconds kNever{kInfinity};
    return {kNever, kNever, kNever, kNever, kNever, kNever, kNever, kNever, kNever};
  }
  /// Of a teacher that works beside its student: until the student has the logits.
  constexpr Seconds teaching() const { return teacher + logits; }
  /// Of the model that learns.
  constexpr Seconds learning() const {
    return rollout + swap + reference + logprob + train + refit + switching;
  }
  bool operator==(const TuningPhases&) const = default;
};

/// Bytes of what a teacher says of a token.
struct LogitFormat {
  Bytes value;  ///< of a logit
  Bytes index;  ///< of the number of a token, where only the largest logits are kept

  bool operator==(const LogitFormat&) const = default;
};

template <>
struct RecordOf<TuningPasses> {
  static constexpr std::string_view name = "TuningPasses";
  using T = TuningPasses;
  static constexpr FieldTable fields{
      field("rollout_s", &T::rollout, 0, 1e12, "until the last answer of the student"),
      field("forward_s", &T::forward, 0, 1e12, "one forward pass over the sequences of a step"),
      field("reference_passes", &T::reference_passes, 0, 10, "forward passes of a frozen copy"),
      field("policy_passes", &T::policy_passes, 0, 10, "passes of the policy without gradients"),
      field("teacher_forward_s", &T::teacher_forward, 0, 1e12, "of the teacher; 0 = none"),
      field("swap_s", &T::swap, 0, 1e12, "frozen weights from the host and what gives way"),
      field("logits_s", &T::logits, 0, 1e12, "logits handed from teacher to student"),
      field("optimizer_step_s", &T::optimizer_step, 0, 1e12, "one update of the weights"),
      field("optimizer_steps", &T::optimizer_steps, 1, 1e9, "updates of a step"),
      field("learning_fraction", &T::learning_fraction, 1e-3, 10,
            "speed of scoring and training over that of pre-training"),
      field("refit_s", &T::refit, 0, 1e12, "new weights for the engine"),
      field("switch_s", &T::switching, 0, 1e12, "states to the host and back, engine awake")};
};

template <>
struct RecordOf<TuningPhases> {
  static constexpr std::string_view name = "TuningPhases";
  using T = TuningPhases;
  static constexpr FieldTable fields{
      field("rollout_s", &T::rollout, 0, 1e12, "generation by the student"),
      field("swap_s", &T::swap, 0, 1e12, "frozen weights from the host and what gives way"),
      field("reference_s", &T::reference, 0, 1e12, "log-probabilities of the reference"),
      field("logprob_s", &T::logprob, 0, 1e12, "log-probabilities of the policy, no gradients"),
      field("teacher_s", &T::teacher, 0, 1e12, "logits of the teacher"),
      field("logits_s", &T::logits, 0, 1e12, "logits handed to the student"),
      field("train_s", &T::train, 0, 1e12, "all optimizer steps"),
      field("refit_s", &T::refit, 0, 1e12, "new weights for the engine"),
      field("switch_s", &T::switching, 0, 1e12, "sleeping and waking")};
};

template <>
struct RecordOf<LogitFormat> {
  static constexpr std::string_view name = "LogitFormat";
  using T = LogitFormat;
  static constexpr FieldTable fields{
      field("value_bytes", &T::value, 0, 16, "of a logit"),
      field("index_bytes", &T::index, 0, 16, "of the number of a token")};
};

/// The phases of a step from its passes.
TuningPhases tuning_phases(const TuningPasses& passes);

/// A whole step: phases in turn, or a teacher on accelerators of its own one step ahead of its
/// student, and the longer decides.
constexpr Seconds tuning_step_time(const TuningPhases& phases, bool teacher_apart) {
  return teacher_apart ? max(phases.teaching(), phases.learning())
                       : phases.teaching() + phases.learning();
}

/// When each phase of a step starts, in the order of the record.
std::array<Seconds, 9> tuning_starts(const TuningPhases& phases, bool teacher_apart);

/// What a teacher says of a token: all logits of its vocabulary, or the `top` largest with the
/// numbers of their tokens. Source: NVIDIA-NeMo/RL, distillation (topk_logits_k) and off-policy
/// distillation (full logits).
constexpr Bytes logit_bytes(double vocabulary, double top, const LogitFormat& format) {
  return top > 0 ? top * (format.value + format.index) : vocabulary * format.value;
}

/// Seconds of all logits of a step from the ranks of a teacher to those of its student, equal parts
/// of each: between pools by the links of either, else through the host where the weights of both
/// models take turns, or in memory, written once and read once.
Seconds logit_time(Bytes all, const Cluster& teacher, const Cluster& student, FrozenPlace place);

/// Logits that an accelerator holds of a micro-batch of `tokens`: of its own context rank, and its
/// own part of a whole vocabulary, as the LM head is cut; the largest ones are the same on every
/// tensor rank.
constexpr Bytes received_logits(Bytes per_token, double tokens, bool whole, int tp, int cp) {
  return tokens / cp / (whole ? tp : 1) * per_token;
}

/// Logits of a step in the memory of a node's host, where models take turns.
constexpr Bytes node_logits(Bytes all, const Cluster& pool) {
  return all * std::min(1.0, static_cast<double>(pool.node_accelerators) / pool.accelerators);
}

/// Seconds between an accelerator and its host so that a reference takes the policy's place: the
/// policy's weights out, the reference in, the policy back. Source: NVIDIA-NeMo/RL,
/// use_reference_model.
Seconds reference_swap_time(const Estimate& policy, const Cluster& pool, FrozenPlace place);

/// The same for a teacher, to which gradients and optimizer states of its student give way, unless
/// they are away already. Source: NVIDIA-NeMo/RL, distillation: offload_before_refit,
/// prepare_for_lp_inference, offload_after_refit.
Seconds teacher_swap_time(const Estimate& teacher, const Estimate& student, bool states_away,
                          const Cluster& pool, FrozenPlace place);

/// Memory of an accelerator that makes forward passes alone, of an estimate that recomputes
/// everything: weights and what one layer and the LM head work in, nothing saved.
Bytes scoring_memory(const Estimate& frozen);

/// Memory of an accelerator beside which frozen weights stay. `received`: logits of a micro-batch.
constexpr Bytes memory_beside_frozen(Bytes own, Bytes frozen, Bytes received, FrozenPlace place) {
  return own + received + (place == FrozenPlace::resident ? frozen : Bytes{});
}

/// Memory while a teacher scores on accelerators of its student: alone with the student's weights
/// where its states gave way, or beside all of them.
Bytes teaching_memory(const Estimate& teacher, const Estimate& student, FrozenPlace place);

}  // namespace scalemodel
