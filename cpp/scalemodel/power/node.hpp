// Watts of a node: what its accelerators draw, and what stands beside them.
#pragma once

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// Power of a node at its plugs: processors, memory, adapters, fans and losses in `host`, which is
/// taken to be constant. Source: 6848 W per node of 8 H100 under GPT-3 training = 1.75 kW +
/// 8 x 637 W; 2.1 to 2.8 kW before the runs (MLPerf Training v4.0, AC meters).
constexpr Watts node_power(Watts accelerator, double accelerators, Watts host) {
  return accelerators * accelerator + host;
}

/// Mean power of a run that works for `working` and is idle for `idle` seconds (start, evaluation).
constexpr Watts mean_over_run(Watts working_power, Seconds working, Watts idle_power,
                              Seconds idle) {
  return (working_power * working + idle_power * idle) / (working + idle);
}

}  // namespace scalemodel
