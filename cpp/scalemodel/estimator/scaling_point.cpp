#include "scalemodel/estimator/scaling_point.hpp"

#include "scalemodel/economics/scaling.hpp"

namespace scalemodel {

ScalingPoint scaling_point(const Tables& tables, const Strategy& strategy,
                           const Estimate& estimate) noexcept {
  const double accelerators = tables.cluster().accelerators;
  const ModelFlop& flop = tables.flop();
  const Conditions& conditions = tables.conditions(strategy);
  const double passes = conditions.frozen_base ? 2 : 3;
  const Flop images = (tower_passes(conditions) / passes) * flop.images;
  const double tokens = estimate.tokens_per_s * estimate.step_time.base();
  ScalingPoint point;
  point.tokens_per_s_per_accelerator = estimate.tokens_per_s / accelerators;
  point.full_attention_mfu_fraction = full_attention_mfu(
      estimate.mfu_fraction, flop.forward - flop.attention + images, flop.attention, passes);
  point.exposed = estimate.exposed_tp + estimate.exposed_cp + estimate.exposed_ep +
                  estimate.exposed_pp + estimate.exposed_dp;
  point.exposed_fraction = point.exposed / estimate.step_time;
  point.tokens_per_j = tokens / estimate.energy.base();
  point.accelerator_tokens_per_j =
      accelerator_tokens_per_joule(estimate.tokens_per_s, accelerators, estimate.power);
  point.usd_per_token = estimate.cost.base() / tokens;
  return point;
}

}  // namespace scalemodel
