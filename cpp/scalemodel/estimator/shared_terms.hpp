// What strategies that are evaluated one after the other have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/stage_memory.hpp"
#include "scalemodel/estimator/stage_terms.hpp"
#include "scalemodel/schedule/critical_paths.hpp"

namespace scalemodel {

/// Values by a small number, each worked out when it is first asked for.
template <class T, std::size_t count>
class Once {
 public:
  template <class Make>
  T& get(std::size_t number, const Make& make) {
    const std::uint32_t bit = std::uint32_t{1} << number;
    // In its place, not copied there.
    if ((known_ & bit) == 0) ::new (&values_.of[number]) T(make());
    known_ |= bit;
    return values_.of[number];
  }
  const T& operator[](std::size_t number) const { return values_.of[number]; }
  bool known(std::size_t number) const { return (known_ >> number & 1U) != 0; }
  void reset() { known_ = 0; }

 private:
  static_assert(count <= 32, "a bit per value");
  static_assert(std::is_trivially_destructible_v<T>);
  /// Not worked out, no value is anything.
  union Values {
    Values() {}  // NOLINT(modernize-use-equals-default): a union of these has none
    std::array<T, count> of;
  };
  Values values_;
  std::uint32_t known_ = 0;
};

/// Passes of one stage.
struct StagePasses {
  PartTimes times;
  int layers = 0;    ///< 0: there is no such stage
  double of_layers;  ///< their share: the rest is of the model's ends
};

/// What the stages of a pipeline do with one micro-batch.
struct PipelinePasses {
  StageCost slowest;  ///< of the busiest stage
  Seconds busy;       ///< that it is with a micro-batch
  const StageClass* slowest_class = nullptr;
  Seconds least_compute{kInfinity};  ///< of a micro-batch on any stage
  PipelineTimes times;               ///< of several stages; their traffic is of the last step
  QuietTimes quiet;                  ///< what they say of all micro-batches
  /// Where these passes are kept: sums of them under traffic that hides and that does not.
  Once<LongestPath::Begun, 2>* begun = nullptr;
};

/// Traffic of gradients and parameters of one stage, hidden or not, once per step.
struct ShardTraffic {
  Seconds gather, reduce;
};

/// The same as a step feels it (not sharded layer by layer).
struct StepTraffic : ShardTraffic {
  bool hide_gather, hide_reduce;
  Seconds at_ends;       ///< what the first and last layer of a step leave open, gathered by layer
  Seconds hidden;        ///< under passes, which it slows
  Seconds drain_hidden;  ///< under the last backward pass, for which the stage before waits
};

/// What the passes of a step take.
struct StepPasses {
  StepTraffic traffic;
  PipelineDuration lasts;  ///< of several stages
};

/// Fields of `Estimate` that passes and traffic decide, without the update of the parameters.
struct TimesByCause {
  Seconds compute, exposed_tp, exposed_cp, exposed_ep, exposed_pp, exposed_dp, exposed_offload;
  Seconds bubble, hidden;
};

/// What a stage does with parameters and their states.
struct StageStates {
  ResidentMemory memory;
  Seconds update, transfer;  ///< transfer: of optimizer states from and to host memory
};

/// The fullest of some kinds of stages, on the accelerator and, beside it, on the host.
struct FullestStage {
  Bytes most{-1};  ///< allocated, with what is lost between blocks
  Bytes memory;    ///< the same with what is reserved
  Bytes host;      ///< of a node
  std::size_t number = 0;
};

/// States of strategies that differ in what they offload of activations and optimizer states.
struct StatesByOffload {
  std::array<FullestStage, 4> fullest;  ///< by `offloaded_beside_weights`
  std::array<Reason, 4> verdicts{};
  Seconds update, transfer;  ///< of the stage where they take longest
};

/// What every part of a pipeline takes of the traffic of gradients and parameters once per step.
struct PartTraffic {
  std::array<Seconds, kPipelineParts> gather, reduce;
};

/// Work of a step in flop, for utilisation figures.
struct StepFlop {
  Flop model, hardware;  ///< hardware: with what is recomputed
  double tokens = 0;
};

/// Stages of different kinds that are kept apart; pipelines of more share less.
inline constexpr std::size_t kMaxStages = 16;

/// Terms of strategies of one pipeline that share parameters out alike. Of the same precision,
/// those of other cells that split parameters alike share them.
struct ShardTerms {
  /// By the stage's kind, the second half where master weights are in host memory.
  Once<StageStates, 2 * kMaxStages> stage_states;
  /// Of a stage, by its kind.
  Once<ShardTraffic, kMaxStages> traffic;
  /// By the kind of the slowest stage.
  Once<PartTraffic, kMaxStages> part_traffic;

  void reset() {
    stage_states.reset();
    traffic.reset();
    part_traffic.reset();
  }
};

/// Terms of strategies of one cell and pipeline that differ only in what `Freedom` speaks of.
class SharedTerms {
 public:
  /// Forgets everything: other strategies follow, first those with these shards.
  void reset() {
    reset_passes();
    flop.reset();
  }
  /// Other layers or another recomputation follow.
  void reset_passes() {
    known_.reset();
    stages_ = 0;
    alone.reset();
    passing.reset();
  }
  /// Other shards follow.
  void reset_shards(ShardTerms& terms) {
    of_shards = &terms;
    memory.reset();
    states.reset();
    has_step = false;
  }

  /// What `make` says of a stage, worked out once.
  template <class Make>
  StageCost passes(const StageClass& stage, const Make& make) {
    for (std::size_t i = 0; i < stages_; ++i) {
      if (holds_alike(known_[i].stage, stage)) return known_[i].cost;
    }
    if (stages_ == kMaxStages) return make();
    return known_.get(stages_++, [&] { return Known{stage, make()}; }).cost;
  }

  /// Passes under which no traffic of parameters and gradients hides, by `offloaded_in_passes`.
  Once<PipelinePasses, 4> alone;
  std::array<Once<LongestPath::Begun, 2>, 4> begun;  ///< of these
  /// Of a stage, by its kind.
  Once<PassingMemory, kMaxStages> passing;
  Once<StepFlop, 1> flop;
  // Of these shards:
  ShardTerms* of_shards = nullptr;
  /// Memory and update, by whether weights are offloaded.
  Once<StatesByOffload, 2> memory;
  /// The same as fields of an estimate, the only ones set, by `offloaded`.
  Once<Estimate, 8> states;
  /// Of the last strategy; another one may differ in the offload of its optimizer states.
  TimesByCause step;
  bool has_step = false;

 private:
  static bool holds_alike(const StageClass& a, const StageClass& b) {
    return a.layers == b.layers && a.embedding == b.embedding && a.head == b.head &&
           a.stage_layers == b.stage_layers;
  }

  struct Known {
    StageClass stage;
    StageCost cost;
  };
  Once<Known, kMaxStages> known_;
  std::size_t stages_ = 0;  ///< of them, those that are known
};

/// What waits in host memory between its uses in passes, a bit each.
inline std::size_t offloaded_in_passes(const Strategy& s) {
  return (s.offload_weights ? 1U : 0U) + (s.offload_activations ? 2U : 0U);
}
/// Activations and optimizer states that wait in host memory, a bit each.
inline std::size_t offloaded_beside_weights(const Strategy& s) {
  return (s.offload_activations ? 1U : 0U) + (s.offload_optimizer ? 2U : 0U);
}
/// The three of them.
inline std::size_t offloaded(const Strategy& s) {
  return offloaded_in_passes(s) + (s.offload_optimizer ? 4U : 0U);
}

}  // namespace scalemodel
