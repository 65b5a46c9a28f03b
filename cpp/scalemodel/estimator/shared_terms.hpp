// What strategies that are evaluated one after the other have in common.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "scalemodel/estimator/stage_terms.hpp"
#include "scalemodel/estimator/step_traffic.hpp"
#include "scalemodel/schedule/critical_paths.hpp"

namespace scalemodel {

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
  PipelineTimes times;               ///< without the traffic of a step; of several stages
};

/// What a step takes beside its optimizer.
struct StepPasses {
  StageCost slowest;  ///< stage, with one micro-batch
  Seconds busy, least_compute;
  StepTraffic traffic;
  PipelineDuration lasts;  ///< of several stages
};

/// Terms of strategies of one cell and pipeline that differ only in what `Freedom` speaks of.
class SharedTerms {
 public:
  /// Forgets everything: other strategies follow.
  void reset() {
    stages_ = 0;
    has_alone = has_step = false;
    durations.reset();
  }

  /// What `make` says of a stage, worked out once.
  template <class Make>
  StageCost passes(const StageClass& stage, const Make& make) {
    for (std::size_t i = 0; i < stages_; ++i) {
      if (holds_alike(known_[i].stage, stage)) return known_[i].cost;
    }
    if (stages_ == known_.size()) return make();
    known_[stages_] = {stage, make()};
    return known_[stages_++].cost;
  }

  RecentDurations durations;
  /// Passes without traffic of parameters, gradients and to host memory.
  PipelinePasses alone;
  bool has_alone = false;
  /// Of the last strategy; another one may differ in the offload of its optimizer states.
  StepPasses step;
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
  std::array<Known, 16> known_;
  std::size_t stages_ = 0;
};

}  // namespace scalemodel
