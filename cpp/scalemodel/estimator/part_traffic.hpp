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

/// Every part's share of the gradients and parameters that the slowest stage sends once per step,
/// set in `all.times`. Experts travel in groups of their own. How long takes what the slowest stage
/// has none of, the stage that sends most of it tells.
inline void set_traffic(const StepContext& c, const StepTraffic& traffic, PipelinePasses& all) {
  PipelineTimes& times = all.times;
  for (PartTimes& part : times.parts) {
    for (std::size_t time = kGathering; time < kPassTimes; ++time) part[time] = Seconds{};
  }
  if (c.gathered) return;
  const StageCost& slowest = all.slowest;
  const double layers = std::max(1, all.slowest_class->total_layers());
  Sent dense{slowest.trainable_dense, layers}, expert{slowest.trainable_expert, layers};
  const bool lacks_dense = !(dense.parameters > 0), lacks_experts = !(expert.parameters > 0);
  if (lacks_dense) dense = most_sent(c, &LayerCost::trainable_dense);
  if (lacks_experts && c.tables.model().routed()) {
    expert = most_sent(c, &LayerCost::trainable_expert);
  }
  const bool lacks =
      (lacks_dense && dense.parameters > 0) || (lacks_experts && expert.parameters > 0);
  const bool gather = traffic.gather > Seconds{} || (lacks && c.strategy.sharding != Sharding::ddp);
  const bool reduce =
      traffic.reduce > Seconds{} || (lacks && c.strategy.sharding != Sharding::zero2);
  if (!gather && !reduce) return;
  const PassTime gathering = traffic.hide_gather ? kGathering : kGatheringBefore;
  const PassTime reduction = traffic.hide_reduce ? kReduction : kReductionAfter;
  StageClass first, last;
  first.embedding = last.head = true;
  const double embedding = end_parameters(c, first).trainable,
               head = end_parameters(c, last).trainable;
  // Large messages are faster ones: a stage without ends does not tell how fast theirs are.
  const StageClass& stage = *all.slowest_class;
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
  const Rates gathers = gather ? rates(gather_time, traffic.gather) : Rates{};
  const Rates reduces = reduce ? rates(reduce_time, traffic.reduce) : Rates{};
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    const LayerCost& layer = c.cell.layers[k];
    const auto of_layer = [&](const Rates& rate) {
      return layer.trainable_dense * rate.dense + layer.trainable_expert * rate.expert;
    };
    if (gather) times.parts[k][gathering] = of_layer(gathers);
    if (reduce) times.parts[k][reduction] = of_layer(reduces);
  }
  const auto set_end = [&](std::size_t part, double parameters) {
    if (gather) times.parts[part][gathering] = parameters * gathers.end;
    if (reduce) times.parts[part][reduction] = parameters * reduces.end;
  };
  set_end(kEmbeddingPart, embedding);
  set_end(kHeadPart, head);
}

}  // namespace scalemodel
