// Times at which the critical paths of a pipeline are looked for. Private to the schedules.
#pragma once

#include <cstddef>

#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel::detail {

/// Times of the parts of a pipeline, a layer as the unit: what any model, cluster and stack may
/// make of them. By number of layer kinds. Evenly spread over all ranges at once by an additive
/// recurrence (fractions of multiples of square roots): of paths that last equally long none is
/// taken for the other.
class TypicalTimes {
 public:
  /// `tower`: stands with the embedding; `first`: how many come before.
  TypicalTimes(std::size_t kinds, StepTrafficKind traffic, bool tower, std::size_t first)
      : kinds_(kinds), traffic_(traffic), tower_(tower), index_(static_cast<double>(first)) {}

  PipelineTimes next();

 private:
  double fraction();
  double between(double low, double high);

  std::size_t kinds_;
  StepTrafficKind traffic_;
  bool tower_;
  double index_;
  std::size_t dimension_ = 0;
};

}  // namespace scalemodel::detail
