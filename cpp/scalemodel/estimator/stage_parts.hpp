// The parts that an estimate of one pipeline stage is summed up from.
#pragma once

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/schedule/stages.hpp"
#include "scalemodel/timeline/step_costs.hpp"

namespace scalemodel {

/// One stage, or one chunk of it that `StageClass` describes: times of one micro-batch unless a
/// comment says otherwise. In a mirrored layout half of the micro-batches pass, hence half of each
/// time and of `saved`.
struct StageParts {
  Phase forward, backward, recompute;
  Seconds weight_gradient;
  Seconds forward_dp, backward_dp;            ///< exposed traffic of parameters and gradients
  Seconds forward_offload, backward_offload;  ///< exposed transfers to and from host memory
  Seconds host_one_way;  ///< transfers to or from host memory of either pass, hidden or not
  Bytes host_bytes;
  /// Data-parallel traffic of every pass, hidden or not: before forward and backward passes, after.
  Seconds pass_gather, pass_again, pass_reduce;
  Seconds first_gather, last_reduce;     ///< of these: without a neighbour to hide under
  Seconds step_gather, step_reduce;      ///< data-parallel traffic once per step
  Seconds expert_gather, expert_reduce;  ///< part of it, of experts, in groups of their own
  double trainable_dense = 0, trainable_expert = 0;  ///< parameters whose gradients travel
  Bytes parameter_bytes, gradient_bytes;             ///< gathered, reduced: as they travel
  Seconds encode;                         ///< a gradient compressed or restored, once per step
  Seconds optimizer, optimizer_transfer;  ///< once per step
  Bytes saved;                            ///< saved for backward by the layers, of one micro-batch
  Bytes head_saved, logits;               ///< and by the head, until its gradient is made
  MemoryKinds memory;                     ///< at the peak
  double in_flight = 0;                   ///< micro-batches that memory.activations holds
  double head_in_flight = 0;              ///< and of what the head saved
};

/// What all stages share.
struct PipelineParts {
  Seconds hop;
  Bytes boundary;
  bool transfers_overlap = false, transfers_serial = false;
  bool gathered = false;  ///< parameters live sharded
  bool hide_gather = false, hide_reduce = false;
};

/// `gradient_compression`: bytes of a reduced gradient over those of a plain one.
/// Preconditions as of `evaluate` with cell and stages.
StageParts stage_parts(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                       const Cell& cell, const StageLayout& stages, const StageClass& stage,
                       double gradient_compression);
PipelineParts pipeline_parts(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                             const Cell& cell, const StageLayout& stages);

}  // namespace scalemodel
