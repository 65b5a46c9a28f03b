// Memory of one pipeline stage at its peak.
#pragma once

#include <algorithm>

#include "scalemodel/estimator/stage_terms.hpp"

namespace scalemodel {

/// Bytes that come and go with micro-batches, whatever data-parallel ranks share.
struct PassingMemory {
  Bytes activations, logits, temporary, communication;
  double held = 0;  ///< micro-batches in flight
};

/// Bytes by what they hold. What passes and what the update of the parameters copies come and go
/// one after the other.
struct MemoryByKind : PassingMemory {
  Bytes weights, gradients, optimizer, gathered;
  Bytes copies;  ///< while parameters are updated
  Bytes host;

  Bytes while_passing() const {
    return weights + gradients + optimizer + activations + logits + temporary + communication +
           gathered;
  }
  Bytes while_updating() const { return persistent() + copies; }
  /// At the fullest moment of a step.
  Bytes allocated() const { return max(while_passing(), while_updating()); }
  /// What the allocator hands out once and never takes back.
  Bytes persistent() const { return weights + gradients + optimizer; }
  /// Lost between blocks of what comes and goes.
  Bytes fragments(const MemoryPolicy& stack) const {
    return stack.fragmentation_fraction * (allocated() - persistent());
  }
  /// What is there at the fullest moment, copies with the optimizer states that they serve.
  MemoryByKind at_peak() const {
    if (!(while_updating() > while_passing())) return *this;
    return {{}, weights, gradients, optimizer + copies, {}, {}, host};
  }
};

/// What waits in host memory between its uses.
struct Offload {
  bool weights = false, activations = false, optimizer = false;
};
inline Offload offload_of(const Strategy& s) {
  return {s.offload_weights, s.offload_activations, s.offload_optimizer};
}

/// Bytes of parameters and their states, as if nothing waited in host memory.
struct ResidentMemory {
  Bytes weights, gradients, optimizer, gathered;
  Bytes copies;           ///< of gradients, moments and weights, while parameters are updated
  double two_layers = 1;  ///< share of the stage's layers

  /// With what passes, where two layers of what is offloaded stay on the accelerator and the rest
  /// waits on the host. Parameters whose states are there are updated there.
  MemoryByKind offloaded(Offload host, const PassingMemory& passing) const {
    MemoryByKind left{passing, weights, gradients, optimizer, gathered, copies, {}};
    const auto move = [&](Bytes& bytes, double kept_share) {
      left.host += (1 - kept_share) * bytes;
      bytes = kept_share * bytes;
    };
    if (host.weights) move(left.weights, two_layers);
    if (host.activations) move(left.activations, two_layers / std::max(1.0, passing.held));
    if (host.optimizer) {
      move(left.optimizer, two_layers);
      left.copies = Bytes{};
    }
    return left;
  }
};

PassingMemory passing_memory(const StepContext& c, const StageClass& stage) noexcept;

ResidentMemory resident_memory(const StepContext& c, const StageClass& stage,
                               const StageParameters& parameters) noexcept;

/// Both, less what waits in host memory.
MemoryByKind memory_by_kind(const StepContext& c, const StageClass& stage,
                            const StageParameters& parameters) noexcept;

/// The peak with what the allocator reserves.
MemoryKinds peak_memory(const StepContext& c, const StageClass& stage,
                        const StageParameters& parameters);

}  // namespace scalemodel
