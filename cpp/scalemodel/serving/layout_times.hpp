// Step times of many layouts that serve one question.
#pragma once

#include <optional>
#include <utility>

#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// Step times of layouts one after the other, the same bits as of each alone. Layouts have most of
/// their GEMMs and exchanges in common, and those that differ in the ranks of their experts alone
/// everything else: these should follow each other. Refers to its question. Of one thread.
class LayoutTimes {
 public:
  explicit LayoutTimes(StepQuestion question) : question_(std::move(question)) {}

  /// Lasts until the next is asked for.
  const StepTimes& of(const ServingLayout& layout);

 private:
  StepQuestion question_;
  StepTimes::Shared shared_;
  StepTimes::Alike alike_;
  std::optional<StepTimes> last_;
};

}  // namespace scalemodel
