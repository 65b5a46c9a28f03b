// Bounds of one group of strategies after the other.
#pragma once

#include <optional>

#include "scalemodel/estimator/cell_loads.hpp"
#include "scalemodel/estimator/derived.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/shared_terms.hpp"

namespace scalemodel {

/// Lower bounds of groups that agree in degrees, micro-batch and schedule: what these decide is
/// worked out once. In turn `start`, `set_cell`, `set_group`; each may be followed by several of
/// the next.
class GroupBounds {
 public:
  /// What of bounds is set beside time and memory; the rest means nothing.
  void derive(Derived derived) { derived_ = derived; }
  /// Groups with the degrees of `strategy` follow, which are `degrees`.
  void start(const Tables& tables, const Strategy& strategy, const Degrees& degrees);
  /// Groups of this cell follow. Both must stay where they are until others are set.
  void set_cell(const Strategy& strategy, const Cell& cell, const StageLayout& stages);
  /// A group follows, of which `strategy` is a member.
  void set_group(const Strategy& strategy, const Freedom& freedom);

  /// As `close` for one stage, but no closer: nothing is sent between stages, and its memory is
  /// that of the parameters alone. For the price of a few sums. No number where a rate is not
  /// stated. Valid until the next.
  const Estimate& rough();
  /// What `lower_bound` says of the group.
  Estimate close(PipelineBound pipeline, Asked asked);

 private:
  /// What parameters and their states decide of a rough bound.
  void set_states();

  const Tables* tables_ = nullptr;
  Degrees degrees_;
  DataParallelGroups groups_;
  double straggling_ = 0;
  std::optional<StepContext> context_;
  ShardTerms shards_;
  SharedTerms shared_;
  /// What decides the states of a stage's parameters; those that are kept are of it.
  struct StatesOf {
    OrDefault<Precision> precision;
    bool shards_gradients, shards_weights, offloads_weights, offloads_optimizer;

    bool operator==(const StatesOf&) const = default;
  };
  std::optional<StatesOf> states_of_;
  Seconds update_;  ///< of parameters, on the stage where it takes longest
  CellLoads loads_;
  bool has_states_ = false, has_loads_ = false;
  Derived derived_;
  Estimate rough_;
};

}  // namespace scalemodel
