// Looks for the critical paths of a pipeline. Private to the schedules.
#pragma once

#include <span>
#include <vector>

#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel::detail {

/// Paths without traffic outside the passes that are critical at some typical times.
struct QuietPaths {
  std::vector<PipelinePath> step;
  std::vector<PipelinePath> further;  ///< with another group of micro-batches
};

/// `repeats`: groups of micro-batches do, so that `further` is looked for.
QuietPaths find_quiet_paths(const PipelineShape& shape, int micro_batches, bool repeats);

/// Paths that are critical with traffic, where those of `known` are not.
std::vector<PipelinePath> find_paths(const PipelineShape& shape, int micro_batches,
                                     StepTrafficKind traffic, std::span<const PipelinePath> known);

}  // namespace scalemodel::detail
