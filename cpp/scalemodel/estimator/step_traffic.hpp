// Traffic of gradients and parameters once per step.
#pragma once

#include <algorithm>

#include "scalemodel/estimator/parameter_gathering.hpp"
#include "scalemodel/estimator/shared_terms.hpp"

namespace scalemodel {

/// What hides of a stage's traffic, in as many buckets as it has layers, when chunk after chunk
/// takes its part: all but the critical chunk's under whole groups of up to pp micro-batches, that
/// one under a single pass but for a bucket. `overlappable`: of a pass through all chunks.
inline Seconds hidden_by_chunk(const StepContext& c, Seconds traffic, Seconds overlappable,
                               double buckets) {
  const double chunks = chunks_of_stage(c);
  const double group = std::min(c.degrees.micro_batches, static_cast<double>(c.degrees.pp));
  const double passes = std::max(0.0, 1 - chunks / buckets + (chunks - 1) * group) / chunks;
  return min((1 - 1 / buckets) * traffic, passes * overlappable);
}

/// What a stage of these parameters sends once per step, in `buckets`.
inline ShardTraffic shard_traffic(const StepContext& c, const StageParameters& stage,
                                  double buckets) {
  const double dense = stage.trainable_dense, expert = stage.trainable_expert;
  ShardTraffic traffic;
  if (c.strategy.sharding != Sharding::zero2) {
    traffic.reduce = reduce_time(c, dense, expert, buckets);
  }
  if (c.strategy.sharding != Sharding::ddp) traffic.gather = gather_time(c, dense, expert, buckets);
  return traffic;
}

/// Gradient reduction hides under the last micro-batch's backward pass, parameter gathering under
/// the first one's forward pass: at least one bucket is exposed. A schedule that defers
/// weight gradients reduces under nothing else. Parameters gathered layer by layer hide under their
/// neighbours, which the first and the last layer of a step lack.
inline StepTraffic step_traffic(const StepContext& c, const StageClass& stage,
                                const StageCost& cost) {
  StepTraffic traffic{};
  if (c.gathered) {
    traffic.at_ends = cost.first_gather + cost.last_reduce;
    traffic.hidden = Seconds{} - traffic.at_ends;
    return traffic;
  }
  traffic.hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  traffic.hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const double buckets = std::max(1, stage.total_layers());
  const auto make = [&] { return shard_traffic(c, cost, buckets); };
  const auto number = static_cast<std::size_t>(&stage - c.stages.classes.data());
  const bool kept = c.shared != nullptr && number < kMaxStages;
  static_cast<ShardTraffic&>(traffic) =
      kept ? c.shared->of_shards->traffic.get(number, make) : make();
  const bool deferred = c.degrees.pp > 1 && traits_of(c.schedule).splits_backward;
  // The first and the last passes run alone.
  const Seconds backward =
      overlappable_left(c, cost.backward + cost.recompute) + cost.paired_backward;
  const Seconds last = deferred ? c.overlap_efficiency * cost.weight_gradient : backward;
  const Seconds forward = overlappable_left(c, cost.forward) + cost.paired_forward;
  if (traffic.hide_gather) {
    traffic.hidden += hidden_by_chunk(c, traffic.gather, forward, buckets);
  }
  if (traffic.hide_reduce) {
    traffic.hidden += hidden_by_chunk(c, traffic.reduce, last, buckets);
    const double others = std::max(0.0, 1 - chunks_of_stage(c) / buckets);
    if (!deferred) traffic.drain_hidden = others * min(traffic.reduce, last);
  }
  return traffic;
}

}  // namespace scalemodel
