// What one pipeline stage costs per micro-batch. Inline, like the terms it is summed up from: an
// evaluation calls all of them once or twice.
#pragma once

#include <algorithm>
#include <array>

#include "scalemodel/estimator/host_offload.hpp"
#include "scalemodel/estimator/parameter_gathering.hpp"
#include "scalemodel/estimator/shared_terms.hpp"

namespace scalemodel {

/// Whether micro-batches can be paired part by part: not where whole layers run again, nor in a
/// pipeline without virtual stages. Megatron-Core refuses overlap_moe_expert_parallel_comm there;
/// DualPipe pairs the micro-batches of its two directions by itself.
inline bool pairs_micro_batches(const StepContext& c) {
  const ScheduleTraits& traits = traits_of(c.schedule);
  if (traits.pairs) return true;
  const bool interleaves = traits.allows_chunks && c.degrees.vpp > 1;
  return (c.degrees.pp == 1 || interleaves) && c.strategy.recompute != Recompute::full;
}

/// Share of the exchange of experts that pairs of micro-batches leave exposed.
inline double exposed_share_of_pairs(const StepContext& c) {
  if (!pairs_micro_batches(c)) return 1;
  return c.degrees.pp == 1 ? 1 - c.stack().unstaged_pairs : 0;
}

/// Exposes the exchange of experts that pairs of micro-batches would hide.
inline void expose_expert_exchange(StageCost& cost, const StepContext& c, const StageClass& stage,
                                   double share) {
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    const LayerCost& layer = c.cell.layers[k];
    const Seconds forward = share * stage.layers[k] * layer.paired_forward;
    const Seconds backward = share * stage.layers[k] * layer.paired_backward;
    cost.forward.ep += forward;
    cost.forward.hidden = cost.forward.hidden - forward;
    cost.backward.ep += backward;
    cost.backward.hidden = cost.backward.hidden - backward;
  }
}

/// A DualPipe stage holds two chunks and runs half of the micro-batches through each.
inline double share_of_passes(const StepContext& c) { return c.stages.mirrored ? 0.5 : 1; }

/// Without traffic of parameters and gradients and to host memory: what strategies of one cell that
/// recompute alike share.
inline StageCost layer_passes(const StepContext& c, const StageClass& stage) {
  const double share = share_of_passes(c);
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  StageCost cost;
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const double n = stage.layers[k];
    cost.forward = cost.forward + share * n * layer.forward;
    cost.backward = cost.backward + share * n * layer.backward;
    cost.recompute = cost.recompute + share * n * recomputed * layer.recompute[mode];
    cost.weight_gradient += share * n * layer.weight_gradient;
    const double again = c.strategy.recompute == Recompute::none ? 0 : recomputed;
    cost.attention +=
        share * n * (layer.attention_backward + (1 + again) * layer.attention_forward);
  }
  if (c.degrees.ep > 1) {
    const double exposed = exposed_share_of_pairs(c);
    if (exposed > 0) expose_expert_exchange(cost, c, stage, exposed * share);
  }
  const auto add_end = [&](const EndCost& end) {
    cost.forward = cost.forward + share * end.forward;
    cost.backward = cost.backward + share * end.backward;
    cost.weight_gradient += share * end.weight_gradient;
    cost.ends += share * (end.forward.total() + end.backward.total());
  };
  if (stage.embedding) add_end(c.cell.embedding);
  if (stage.head) add_end(c.cell.head);
  static_cast<StageParameters&>(cost) = stage_parameters(c, stage);
  return cost;
}

inline StageCost stage_cost(const StepContext& c, const StageClass& stage, LayerGathers& gathers) {
  const double share = share_of_passes(c);
  const auto alone = [&] { return layer_passes(c, stage); };
  StageCost cost = c.shared != nullptr ? c.shared->passes(stage, alone) : alone();
  if (c.gathered) {
    add_parameter_gathering(cost, c, stage, gathers, share);
    add_restoring(cost, c, stage, share);
  }
  add_host_traffic(cost, c, stage, share);
  if (c.strategy.sharding == Sharding::zero2) add_repeated_reduction(cost, c, stage, share);
  if (c.stages.pairs) {
    // DualPipe runs one direction's dispatch and combine under the other direction's compute.
    const Seconds ep = cost.forward.ep + cost.backward.ep + cost.recompute.ep;
    const Seconds overlappable =
        overlappable_left(c, cost.forward) + overlappable_left(c, cost.backward);
    const double hidden_share = ep > Seconds{} ? std::min(1.0, overlappable / ep) : 0;
    cost.paired_forward = hidden_share * cost.forward.ep;
    cost.paired_backward = hidden_share * (cost.backward.ep + cost.recompute.ep);
    cost.forward.hidden += cost.paired_forward;
    cost.backward.hidden += cost.paired_backward;
    cost.forward.ep = (1 - hidden_share) * cost.forward.ep;
    cost.backward.ep = (1 - hidden_share) * cost.backward.ep;
    cost.recompute.ep = (1 - hidden_share) * cost.recompute.ep;
  }
  return cost;
}

}  // namespace scalemodel
