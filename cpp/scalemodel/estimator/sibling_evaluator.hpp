// Evaluates strategies one after the other that share most of their terms.
#pragma once

#include <optional>

#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/shared_terms.hpp"

namespace scalemodel {

/// Estimates of strategies that differ only in what `Freedom` speaks of. What they share is worked
/// out once, so that each of them is what `evaluate` says, to the last bit.
class SiblingEvaluator {
 public:
  /// Strategies of this cell and pipeline follow. All three must outlive them.
  void start(const Tables& tables, const Cell& cell, const StageLayout& stages);

  /// Valid until the next one. Precondition: a legal strategy, which differs from those since
  /// `start` only as above. May look for the critical paths of its pipeline.
  const Estimate& operator()(const Strategy& strategy, Asked asked);

 private:
  const Tables* tables_ = nullptr;
  const Cell* cell_ = nullptr;
  const StageLayout* stages_ = nullptr;
  std::optional<StepContext> context_;  ///< of the last strategy
  Strategy last_;
  SharedTerms shared_;
  Estimate estimate_;  ///< of the last strategy, where more than its states was asked for
};

}  // namespace scalemodel
