// Memory of one pipeline stage at its peak.
#pragma once

#include "scalemodel/estimator/stage_terms.hpp"

namespace scalemodel {

/// Bytes of the fullest moment, by what they hold.
struct MemoryByKind {
  Bytes weights, gradients, optimizer, activations, logits, temporary, communication, gathered;
  Bytes host;

  Bytes allocated() const {
    return weights + gradients + optimizer + activations + logits + temporary + communication +
           gathered;
  }
  /// What the allocator hands out once and never takes back.
  Bytes persistent() const { return weights + gradients + optimizer; }
  /// Lost between blocks of what comes and goes.
  Bytes fragments(const MemoryPolicy& stack) const {
    return stack.fragmentation_fraction * (allocated() - persistent());
  }
};

MemoryByKind stage_memory(const StepContext& c, const StageClass& stage,
                          const StageParameters& parameters) noexcept;

/// The same with what the allocator reserves.
MemoryKinds peak_memory(const StepContext& c, const StageClass& stage,
                        const StageParameters& parameters);

}  // namespace scalemodel
