// Paths through a pipeline along one of its stages. Private to the schedules.
#pragma once

#include <vector>

#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel::detail {

/// Along the passes of one stage, none of which begins before the one in front of it has ended:
/// from the first micro-batch's way to the stage, where it takes one, to the last one's way back.
struct StagePaths {
  std::vector<PipelinePath> to, on;  ///< to it and back; path by path, a micro-batch on it

  explicit StagePaths(const PipelineShape& shape);

  /// The paths of a step.
  std::vector<PipelinePath> of(double micro_batches) const;

 private:
  void add(const PipelinePath& way, const PipelinePath& one);
};

}  // namespace scalemodel::detail
