// Looks for the critical paths of a pipeline. Private to the schedules.
#pragma once

#include <vector>

#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel::detail {

/// Paths that are critical at some typical times.
struct FoundPaths {
  std::vector<PipelinePath> quiet;     ///< without traffic outside the passes
  std::vector<PipelinePath> further;   ///< the same with another group of micro-batches
  std::vector<PipelinePath> hiding;    ///< with traffic that hides under passes
  std::vector<PipelinePath> blocking;  ///< with any traffic
};

/// `repeats`: groups of micro-batches do, so that `further` is looked for.
FoundPaths find_paths(const PipelineShape& shape, int micro_batches, bool repeats);

}  // namespace scalemodel::detail
