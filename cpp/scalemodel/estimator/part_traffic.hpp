// Traffic of gradients and parameters once per step, by parts of a pipeline.
#pragma once

#include <algorithm>

#include "scalemodel/estimator/parameter_gathering.hpp"
#include "scalemodel/estimator/shared_terms.hpp"

namespace scalemodel {

/// Gradients and parameters that a stage sends once per step, in as many buckets as layers.
struct Sent {
  double parameters = 0, layers = 1;
};

/// Of one kind, by the layers of the stage that sends most of it.
inline Sent most_sent(const StepContext& c, double LayerCost::* trainable) {
  Sent most;
  for (const StageClass& stage : c.stages.classes) {
    double parameters = 0;
    for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
      parameters += stage.layers[k] * c.cell.layers[k].*trainable;
    }
    if (parameters > most.parameters) {
      most = {parameters, static_cast<double>(stage.total_layers())};
    }
  }
  return most;
}

/// Every part's share of the gradients and parameters that the slowest stage sends once per step.
/// Experts travel in groups of their own. How long takes what the slowest stage has none of, the
/// stage that sends most of it tells.
inline PartTraffic part_traffic(const StepContext& c, const ShardTraffic& traffic,
                                const StageCost& slowest, const StageClass& stage) {
  PartTraffic parts;
  const double layers = std::max(1, stage.total_layers());
  Sent dense{slowest.trainable_dense, layers}, expert{slowest.trainable_expert, layers};
  const bool lacks_dense = !(dense.parameters > 0), lacks_experts = !(expert.parameters > 0);
  if (lacks_dense) dense = most_sent(c, &LayerCost::trainable_dense);
  if (lacks_experts && c.tables.model().routed()) {
    expert = most_sent(c, &LayerCost::trainable_expert);
  }
  const bool lacks =
      (lacks_dense && dense.parameters > 0) || (lacks_experts && expert.parameters > 0);
  const bool gathers =
      traffic.gather > Seconds{} || (lacks && c.strategy.sharding != Sharding::ddp);
  const bool reduces =
      traffic.reduce > Seconds{} || (lacks && c.strategy.sharding != Sharding::zero2);
  if (!gathers && !reduces) return parts;
  StageClass first, last;
  first.embedding = last.head = true;
  const double embedding = end_parameters(c, first).trainable,
               head = end_parameters(c, last).trainable;
  // Large messages are faster ones: a stage without ends does not tell how fast theirs are.
  const double with_end =
      stage.embedding || stage.head ? 0 : dense.parameters + std::max(embedding, head);
  struct Rates {  // of a parameter
    Seconds dense, expert, end;
  };
  const auto rates = [&](auto time, Seconds of_all) {
    const auto each = [](Seconds of_them, double parameters) {
      return parameters > 0 ? (1 / parameters) * of_them : Seconds{};
    };
    // What all of the slowest stage take less its experts is of the others.
    const Seconds of_experts =
        expert.parameters > 0 ? time(c, 0.0, expert.parameters, expert.layers) : Seconds{};
    const Seconds of_dense = lacks_dense     ? time(c, dense.parameters, 0.0, dense.layers)
                             : lacks_experts ? of_all
                                             : of_all - of_experts;
    Rates rate{each(of_dense, dense.parameters), each(of_experts, expert.parameters), {}};
    rate.end = with_end > 0 ? each(time(c, with_end, 0.0, dense.layers), with_end) : rate.dense;
    return rate;
  };
  const auto set = [&](std::array<Seconds, kPipelineParts>& times, const Rates& rate) {
    for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
      const LayerCost& layer = c.cell.layers[k];
      times[k] = layer.trainable_dense * rate.dense + layer.trainable_expert * rate.expert;
    }
    times[kEmbeddingPart] = embedding * rate.end;
    times[kHeadPart] = head * rate.end;
  };
  if (gathers) set(parts.gather, rates(gather_time, traffic.gather));
  if (reduces) set(parts.reduce, rates(reduce_time, traffic.reduce));
  return parts;
}

/// Sets the traffic of all parts in `all.times`; what `traffic_of` says of these.
inline StepTrafficKind set_traffic(const StepContext& c, const StepTraffic& traffic,
                                   PipelinePasses& all) {
  if (c.gathered) return StepTrafficKind::none;  // and no other times are kept with it
  bool hides = false, blocks = false;
  const auto set_part = [&](std::size_t part, const PartTraffic& of) {
    const Seconds gather = of.gather[part], reduce = of.reduce[part];
    PartTimes& t = all.times.parts[part];
    t[kGathering] = traffic.hide_gather ? gather : Seconds{};
    t[kGatheringBefore] = traffic.hide_gather ? Seconds{} : gather;
    t[kReduction] = traffic.hide_reduce ? reduce : Seconds{};
    t[kReductionAfter] = traffic.hide_reduce ? Seconds{} : reduce;
    hides |= t[kGathering] + t[kReduction] > Seconds{};
    blocks |= t[kGatheringBefore] + t[kReductionAfter] > Seconds{};
  };
  const auto set = [&](const PartTraffic& of) {
    for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) set_part(k, of);
    set_part(kEmbeddingPart, of);
    set_part(kHeadPart, of);
  };
  const auto number = static_cast<std::size_t>(all.slowest_class - c.stages.classes.data());
  const auto make = [&] { return part_traffic(c, traffic, all.slowest, *all.slowest_class); };
  if (c.shared != nullptr && number < kMaxStages) {
    set(c.shared->of_shards->part_traffic.get(number, make));
  } else {
    set(make());
  }
  if (blocks) return StepTrafficKind::blocking;
  return hides ? StepTrafficKind::hiding : StepTrafficKind::none;
}

}  // namespace scalemodel
