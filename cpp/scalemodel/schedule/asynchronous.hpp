// Pipelines that never flush, and the weights that their stages keep for it.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/schedule/pipeline.hpp"

namespace scalemodel {

/// Micro-batches that stage `stage` of `stages` (from 0) has in flight in steady 1F1B, without
/// flushes as with them.
constexpr int steady_in_flight(int stages, int stage) noexcept {
  return static_cast<int>(in_flight(Schedule::one_f_one_b, stages, 1, stage, stages));
}

/// Versions of its weights that a stage keeps in asynchronous 1F1B. A micro-batch must run backward
/// with the weights that it ran forward with, and every backward pass updates them: one version per
/// micro-batch in flight (weight stashing; Narayanan et al., SOSP 2019, section 3.3). Where
/// gradients of as many micro-batches as there are stages are added up first, two versions suffice
/// (PipeDream-2BW; Narayanan et al., ICML 2021), of which the last stage needs one.
constexpr int weight_versions(int stages, int stage, bool double_buffered) noexcept {
  const int stashed = steady_in_flight(stages, stage);
  return double_buffered && stashed > 2 ? 2 : stashed;
}

/// Memory of a stage of an asynchronous pipeline: stashed weights, `states` (gradients, optimizer)
/// once, and the activations of a micro-batch for each in flight.
constexpr Bytes asynchronous_stage_bytes(int stages, int stage, Bytes weights, Bytes states,
                                         Bytes activations, bool double_buffered) noexcept {
  return weight_versions(stages, stage, double_buffered) * weights + states +
         steady_in_flight(stages, stage) * activations;
}

/// Time of `micro_batches` in the steady state of a pipeline whose slowest stage takes `slowest`
/// for one: no stage waits for the pipeline to fill or drain, as with a flush, where it is
/// (micro_batches + stages - 1) slowest.
constexpr Seconds asynchronous_time(Seconds slowest, int micro_batches) noexcept {
  return micro_batches * slowest;
}

}  // namespace scalemodel
