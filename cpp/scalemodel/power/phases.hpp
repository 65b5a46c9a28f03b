// Watts of an accelerator by phase of a training step.
#pragma once

#include <algorithm>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

/// Mean power of one accelerator over a step.
///
///     P = f_compute c_compute limit + f_exposed c_exposed limit + f_idle idle
///
/// where f are the shares of the step spent computing, waiting inside collectives, and in pipeline
/// bubbles. Published weak scaling of a 7B model from 128 to 2,048 H100 (658 W to 620 W while 37 %
/// of the step became exposed communication) gives c_compute = 0.94 and c_exposed = 0.79:
/// Fernandez et al., arXiv 2411.13055. Precondition: the shares sum to at most 1; the rest idles.
constexpr Watts mean_power(const PowerPhases& phases, double compute_share, double exposed_share) {
  // Shares of a step that never idles may add up to a little more than 1.
  const double idle_share = std::max(0.0, 1 - compute_share - exposed_share);
  return compute_share * phases.compute_fraction * phases.limit +
         exposed_share * phases.exposed_fraction * phases.limit + idle_share * phases.idle;
}

}  // namespace scalemodel
