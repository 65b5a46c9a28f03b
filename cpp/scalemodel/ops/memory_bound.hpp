// Kernels that only move bytes: norms, activations, residuals, casts, optimizer updates.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

/// t = launch + bytes/(fraction W). Fitted to published elementwise timings: 1-6 % above 20 us.
constexpr Seconds memory_time(Bytes bytes, double fraction, const Accelerator& accelerator) {
  if (bytes <= Bytes{}) return Seconds{};
  return accelerator.elementwise.launch + bytes / (fraction * accelerator.memory_bandwidth);
}

/// One transfer between host and accelerator, one direction.
constexpr Seconds host_transfer_time(Bytes bytes, const Accelerator& accelerator) {
  return bytes / accelerator.host_bandwidth;
}

}  // namespace scalemodel
