// Passes of a stage and transfers between stages, as a pipeline runs them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "scalemodel/estimator/stage_cost.hpp"
#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel {

/// What one rank sends to the next stage: tensor ranks hold the same tokens and may send a part
/// each, gathered on the other side; under sequence parallelism each holds only its part.
inline Bytes boundary(const StepContext& c) {
  const bool parts = (c.strategy.split_p2p && !c.stack().whole_p2p) || c.strategy.sequence_parallel;
  return parts ? c.cell.boundary : c.degrees.tp * c.cell.boundary;
}

inline GroupShape stage_pair(const StepContext& c) {
  return scalemodel::stage_pair(c.cluster(), c.strategy, c.degrees);
}

inline Seconds hop_time(const StepContext& c) {
  return p2p_time(boundary(c), stage_pair(c), c.cluster());
}

inline bool transfers_overlap(const StepContext& c) {
  return scalemodel::transfers_overlap(c.stack(), c.schedule);
}

inline bool transfers_serial(const StepContext& c) {
  return scalemodel::transfers_serial(c.stack(), c.schedule, c.degrees.pp);
}

/// Passes of a chunk; `scale`: how often the cost counts for them.
inline PartTimes part_times(const StepContext& c, const StageCost& cost, double scale) {
  const double overlap_slowdown = c.stack().contention;
  const Seconds busy = cost.busy(overlap_slowdown), forward = cost.forward_busy(overlap_slowdown);
  PartTimes t;
  t[kPairedForward] = scale * forward;
  t[kPairedBackward] = scale * (busy - forward);
  // Alone, nothing runs under them.
  t[kForward] = t[kPairedForward] + (scale * (1 - overlap_slowdown)) * cost.paired_forward;
  const Seconds backward =
      t[kPairedBackward] + (scale * (1 - overlap_slowdown)) * cost.paired_backward;
  t[kWeightGradient] = min(backward, scale * cost.weight_gradient);
  t[kInputGradient] = backward - t[kWeightGradient];
  const Seconds forward_overlappable = scale * overlappable_left(c, cost.forward);
  const Seconds backward_overlappable =
      scale * overlappable_left(c, cost.backward + cost.recompute);
  // A backward pass in one piece hides no more than what its other traffic leaves.
  const bool splits = traits_of(c.schedule).splits_backward;
  const Seconds of_weights = (scale * c.overlap_efficiency) * cost.weight_gradient;
  const Seconds weight_overlappable = splits ? of_weights : min(of_weights, backward_overlappable);
  t[kPairedForwardOverlappable] = forward_overlappable;
  t[kPairedBackwardOverlappable] = backward_overlappable;
  t[kForwardOverlappable] = forward_overlappable + scale * cost.paired_forward;
  t[kWeightGradientOverlappable] = weight_overlappable;
  t[kInputGradientOverlappable] =
      excess(backward_overlappable + scale * cost.paired_backward, weight_overlappable);
  return t;
}

/// Passes of single layers, embedding and LM head as parts of the chunks of `stage`, for critical
/// paths to count. A layer takes its share of chunks of its kind, because a chunk hides the traffic
/// of its layers together (offload, repeated reductions); embedding and LM head take what the
/// chunks that they are in last beyond their layers.
inline PipelineTimes pipeline_times(const StepContext& c, const StageClass& stage,
                                    LayerGathers& gathers) {
  // A pass of a mirrored layout counts for half of the micro-batches.
  const double whole = c.stages.mirrored ? 2 : 1;
  const auto passes_of = [&](const StageClass& part) {
    return part_times(c, stage_cost(c, part, gathers), whole);
  };
  PipelineTimes times;
  StageClass chunk;  // one that is like the stage
  chunk.stage_layers = std::max(1, stage.total_layers());
  const double chunks = chunks_of(c, stage);
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    chunk.layers[k] = static_cast<int>(std::lround(stage.layers[k] / chunks));
  }
  if (chunk.total_layers() == 0) chunk.layers[0] = 1;
  const double layers = chunk.total_layers();
  const PartTimes plain = passes_of(chunk);
  const std::size_t kinds = c.tables.model().kinds.size();
  const auto passes_of_alike = [&](std::size_t kind, int count) {
    StageClass alike;
    alike.stage_layers = chunk.stage_layers;
    alike.layers[kind] = count;
    return passes_of(alike);
  };
  // Where layers do not divide into the chunks, some chunks have one more than others.
  const double mean_layers =
      std::max(1.0, static_cast<double>(c.tables.model().layers()) / (c.stages.pp * c.stages.vpp));
  const int fewer = static_cast<int>(mean_layers);
  const double have_more = mean_layers - fewer;
  for (std::size_t k = 0; k < kinds; ++k) {
    PartTimes mean = passes_of_alike(k, fewer);
    if (have_more > 0)
      mean = mean.share(1 - have_more).plus(passes_of_alike(k, fewer + 1), have_more);
    times.parts[k] = mean.share(1 / mean_layers);
  }
  if (kinds > 1) {
    // Where layers of several kinds are mixed, some hide traffic of others.
    PartTimes mixed = plain;
    for (std::size_t k = 0; k < kinds; ++k) {
      if (chunk.layers[k] == 0) continue;
      mixed = mixed.plus(passes_of_alike(k, chunk.total_layers()), -chunk.layers[k] / layers);
    }
    for (std::size_t k = 0; k < kinds; ++k) {
      times.parts[k] = times.parts[k].plus(mixed, 1 / layers).share(1);
    }
  }
  const auto end_of = [&](const StageClass& its_chunk) {
    PartTimes end = passes_of(its_chunk);
    for (std::size_t k = 0; k < kinds; ++k) end = end.plus(times.parts[k], -its_chunk.layers[k]);
    return end.share(1);
  };
  times.parts[kEmbeddingPart] = end_of(c.stages.first_chunk);
  times.parts[kHeadPart] = end_of(c.stages.last_chunk);
  times.hop = hop_time(c);
  return times;
}

}  // namespace scalemodel
