// The free constants of a software stack from measured training steps.
#pragma once

#include <optional>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/calibration/least_squares.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"

namespace scalemodel {

/// One measured run. Of several strategies the first that fits in memory is taken to have run.
struct MeasuredRun {
  Model model;
  Cluster cluster;
  Task task;
  std::vector<Strategy> strategies;
  Seconds step_time;
  double weight = 1;
  std::optional<Stack> facts;  ///< the stack as this run used it; else the one that is fitted
  bool own_launch = false;     ///< host_launch is one of these facts, not what is fitted
};

struct StackFit {
  Stack stack;
  std::vector<double> standard_errors;  ///< of the four free constants, in the order below
  std::vector<Seconds> predicted;       ///< of each run
};

/// Fits gemm_efficiency, memory_efficiency, host_launch and overlap_efficiency of `start`,
/// everything else of it kept, to log(predicted / measured). Ranges: .5-1.1, .35-1.1, 0-12 us, 0-1;
/// a prior holds a constant where `start` has it, `pull` / sqrt(runs) strong per range: the fewer
/// the runs the closer.
StackFit fit_stack(const Stack& start, const std::vector<MeasuredRun>& runs, double pull = 0);

}  // namespace scalemodel
