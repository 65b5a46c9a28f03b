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
/// bubbles. On nodes of 8 H100 that train alone c_compute is 0.94, on 8 and 9 such nodes that wait
/// nearly throughout c_exposed is 0.77 (MLPerf Training v4.0, power logs). Not fitted to them, but
/// beside them: a 7B model sharded over 128 to 2,048 H100 draws 5.87 % less where 37 % of the step
/// became exposed communication (Fernandez et al., arXiv 2411.13055). Precondition: the shares sum
/// to at most 1; the rest idles.
constexpr Watts mean_power(const PowerPhases& phases, double compute_share, double exposed_share) {
  // Shares of a step that never idles may add up to a little more than 1.
  const double idle_share = std::max(0.0, 1 - compute_share - exposed_share);
  return compute_share * phases.compute_fraction * phases.limit +
         exposed_share * phases.exposed_fraction * phases.limit + idle_share * phases.idle;
}

}  // namespace scalemodel
