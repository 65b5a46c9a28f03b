// Evaluates strategies one after the other that share most of their terms.
#pragma once

#include <array>
#include <optional>

#include "scalemodel/estimator/context.hpp"
#include "scalemodel/estimator/derived.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/shared_terms.hpp"

namespace scalemodel {

/// Estimates of strategies that differ only in what `Freedom` speaks of. What they share is worked
/// out once, so that each of them is what `evaluate` says, to the last bit.
class SiblingEvaluator {
 public:
  /// What of estimates is set beside times and memory; the rest means nothing.
  void derive(Derived derived) { derived_ = derived; }
  /// Strategies of this cell and pipeline follow. All three must outlive them.
  void start(const Tables& tables, const Cell& cell, const StageLayout& stages);
  /// The same of the same tables, where degrees, micro-batch and schedule stay what they were.
  void start_group(const Cell& cell, const StageLayout& stages);

  /// Goes on to a legal strategy, which differs from those since a group was started only as above.
  void set(const Strategy& strategy);
  /// Goes on to one whose shards are those of the last; its other fields are not looked at.
  void follow(const Strategy& strategy, Change change);

  /// Whether every rate that a step needs is stated for certain: what does not fit is no answer
  /// then, whatever it takes.
  bool rates_stated() const { return rates_stated_; }
  /// Whether it fits in memory, or why not.
  Reason fits() {
    const Strategy& s = context_->strategy;
    const std::size_t weights = s.offload_weights ? 1 : 0;
    const StatesByOffload& states =
        shared_.memory.known(weights) ? shared_.memory[weights] : memory();
    return states.verdicts[offloaded_beside_weights(s)];
  }
  /// Valid until the next one; kinds of memory are set where all is asked for. May look for the
  /// critical paths of its pipeline.
  const Estimate& estimate(Asked asked);

  /// No more than the estimate in what is bounded, without critical paths: of a pipeline as each of
  /// its stages says without the others. Memory and verdict are those of the estimate.
  Estimate at_least();

  /// Goes on to a strategy. Of one that does not fit, where that is enough, memory and verdict.
  const Estimate& operator()(const Strategy& strategy, Asked asked);

 private:
  /// What strategies of other groups share with those of a sharding.
  struct Shards {
    bool known = false;
    Strategy strategy;
    Degrees degrees;
    Sharding meant = Sharding::ddp;
    DataParallelGroups groups;
    bool gathered = false;
    ShardTerms terms;
  };

  Shards& shards_of(const Strategy& strategy);
  const StatesByOffload& memory();
  const Estimate& states();

  const Tables* tables_ = nullptr;
  const Cell* cell_ = nullptr;
  const StageLayout* stages_ = nullptr;
  std::array<Shards, EnumNames<Sharding>::names.size()> shards_;  ///< the last of each sharding
  std::optional<StepContext> context_;                            ///< of the last strategy
  Sharding sharding_ = Sharding::ddp;                             ///< of it, as it is spelled
  bool rates_stated_ = false;
  bool power_stated_ = false;
  Derived derived_;
  SharedTerms shared_;
  Estimate estimate_;
};

}  // namespace scalemodel
