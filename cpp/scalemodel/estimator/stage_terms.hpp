// The terms of one pipeline stage for one micro-batch, and what several of them need.
#pragma once

#include <algorithm>

#include "scalemodel/estimator/context.hpp"
#include "scalemodel/timeline/step_costs.hpp"

namespace scalemodel {

/// Parameters that a rank of a stage holds, and those of them that learn.
struct StageParameters {
  double dense = 0, expert = 0;
  double trainable_dense = 0, trainable_expert = 0;
};

/// One pipeline stage, one micro-batch.
struct StageCost : StageParameters {
  Phase forward, backward, recompute;
  Seconds weight_gradient;
  Seconds gather_exposed;  ///< sharded parameters
  Seconds offload_exposed;
  Seconds forward_gather, forward_offload;  ///< parts of them in the forward pass
  Seconds first_gather, last_reduce;        ///< of sharded parameters: without a neighbour to hide
  Seconds ends;                             ///< part of the passes for token embedding and LM head
  Seconds attention;                        ///< part of the passes that documents decide
  Seconds paired_forward, paired_backward;  ///< exposed by passes that no other one runs beside

  Phase passes() const { return forward + backward + recompute; }
  Seconds hidden() const { return passes().hidden; }
  Seconds forward_busy(double overlap_slowdown) const {
    return forward.total() + overlap_slowdown * forward.hidden + forward_gather + forward_offload;
  }
  Seconds busy(double overlap_slowdown) const {
    return passes().total() + overlap_slowdown * hidden() + gather_exposed + offload_exposed;
  }
};

/// What `time` exceeds `other` by: communication its overlappable compute, for one.
inline Seconds excess(Seconds time, Seconds other) { return max(Seconds{}, time - other); }

/// Overlappable compute of a pass: what hides no communication yet.
inline Seconds overlappable_left(const StepContext& c, const Phase& pass) {
  return excess(c.overlap_efficiency * pass.compute, pass.hidden);
}

/// Parameters of the token embedding and LM head that a stage holds; the last stage of a pipeline
/// keeps its own copy of a tied embedding.
struct EndParameters {
  double all = 0, trainable = 0;
};

/// Whether a stage has the token embedding, or a copy of it for the head.
inline bool holds_embedding(const StepContext& c, const StageClass& stage) {
  return stage.embedding || (stage.head && c.tables.model().tied_embeddings);
}

inline EndParameters end_parameters(const StepContext& c, const StageClass& stage) {
  EndParameters ends;
  const auto add = [&](const EndCost& end) {
    ends.all += end.parameters;
    ends.trainable += end.trainable;
  };
  const bool copy = stage.head && !stage.embedding && c.tables.model().tied_embeddings;
  if (holds_embedding(c, stage)) add(c.cell.embedding);
  if (copy) {
    ends.all -= c.cell.embedding.tower;
    ends.trainable -= c.cell.embedding.trainable_tower;
  }
  if (stage.head) add(c.cell.head);
  return ends;
}

inline StageParameters stage_parameters(const StepContext& c, const StageClass& stage) {
  StageParameters sum;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const double n = stage.layers[k];
    sum.dense += n * layer.dense_parameters;
    sum.expert += n * layer.expert_parameters;
    sum.trainable_dense += n * layer.trainable_dense;
    sum.trainable_expert += n * layer.trainable_expert;
  }
  const EndParameters ends = end_parameters(c, stage);
  sum.dense += ends.all;
  sum.trainable_dense += ends.trainable;
  return sum;
}

/// Share of a stage's layers that is recomputed.
inline double recompute_share(const Strategy& strategy, const StageClass& stage) {
  if (strategy.recompute == Recompute::none) return 0;
  if (strategy.recompute_layers == 0) return 1;
  const int own = stage.stage_layers > 0 ? stage.stage_layers : stage.total_layers();
  return std::min(1.0, strategy.recompute_layers / static_cast<double>(std::max(1, own)));
}

/// Bytes a stage saves for backward of one micro-batch.
inline Bytes saved_bytes(const StepContext& c, const StageClass& stage) {
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  Bytes saved;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    const BytesByRecompute& bytes = c.cell.layers[k].saved;
    saved +=
        stage.layers[k] * (recomputed * bytes[mode] +
                           (1 - recomputed) * bytes[static_cast<std::size_t>(Recompute::none)]);
  }
  return saved;
}

/// Chunks of a stage, or of one of its chunks: what passes of their own reduce.
inline double chunks_of(const StepContext& c, const StageClass& stage) {
  if (stage.stage_layers > 0) return 1;
  return c.stages.mirrored ? 2 : c.degrees.vpp;
}

/// Chunks of a stage: each sends its own share.
inline double chunks_of_stage(const StepContext& c) {
  return c.stages.mirrored ? 2 : c.degrees.vpp;
}

}  // namespace scalemodel
