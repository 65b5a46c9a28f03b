// What the stages of a pipeline do in a step, and how long that lasts.
#pragma once

#include <algorithm>
#include <array>

#include "scalemodel/estimator/part_traffic.hpp"
#include "scalemodel/estimator/pass_times.hpp"
#include "scalemodel/estimator/step_traffic.hpp"

namespace scalemodel {

/// One stage with the embedding, one with the head and one with neither.
struct StagesWithEnds {
  StagePasses first, last, inner;
};

/// Passes of layers and ends, where all layers are of one kind, from stages with and without ends.
/// Two stages have both an end: a layer takes its share of the one whose end takes less of it, but
/// leaves nothing of the other less than nothing.
inline PipelineTimes times_of_stages(const StepContext& c, const StagesWithEnds& all) {
  PipelineTimes times;
  PartTimes& layer = times.parts[0];
  const auto take_from = [&](const StagePasses& passes) {
    layer = passes.times.share(passes.of_layers / passes.layers);
  };
  if (all.inner.layers > 0) {
    take_from(all.inner);
  } else {
    const bool first = all.first.of_layers >= all.last.of_layers;
    take_from(first ? all.first : all.last);
    const StagePasses& other = first ? all.last : all.first;
    for (std::size_t time = 0; time < kGathering; ++time) {
      layer[time] = min(layer[time], other.times[time] / other.layers);
    }
  }
  times.parts[kEmbeddingPart] = all.first.times.plus(layer, -all.first.layers).share(1);
  times.parts[kHeadPart] = all.last.times.plus(layer, -all.last.layers).share(1);
  times.hop = hop_time(c);
  return times;
}

/// How long before its end a pair of DualPipe hands on what it made: the last layer's backward pass
/// hides what is sent.
inline Seconds handed_on_early(const StepContext& c, const StageClass& stage,
                               LayerGathers& gathers) {
  if (!c.stages.pairs || !transfers_overlap(c)) return Seconds{};
  const StageCost cost = stage_cost(c, stage.without_ends(), gathers);
  // A micro-batch passes one of the two chunks of a mirrored stage.
  const double layers = std::max(1.0, share_of_passes(c) * stage.total_layers());
  return (cost.backward.compute + cost.recompute.compute) / layers;
}

/// Whether stages without and with ends tell what layers and ends take.
inline bool tells_ends(const StepContext& c) {
  // Gradients that every chunk reduces for itself hide under no other chunk; those of one replica
  // are not reduced, nor are they in a lower bound, whose groups have one rank each.
  const DataParallelGroups& g = c.groups;
  const bool alone = g.dense_shard.ranks == 1 && g.dense_replica.ranks == 1 &&
                     g.expert_shard.ranks == 1 && g.expert_replica.ranks == 1;
  const bool whole = c.degrees.vpp == 1 || c.strategy.sharding != Sharding::zero2 || alone;
  return whole && c.tables.model().kinds.size() == 1 && c.stages.one_way;
}

inline bool waits_for_stages(const StepContext& c) {
  return c.stages.paths != nullptr && c.pipeline != PipelineBound::busiest_stage;
}

/// Goes through the stages.
inline void run_stages(const StepContext& c, PipelinePasses& all) {
  const double overlap_slowdown = c.stack().contention;
  LayerGathers gathers(c);
  const bool waits = waits_for_stages(c), by_ends = waits && tells_ends(c);
  StagesWithEnds ends;
  double most_sent = -1;
  all.slowest_class = nullptr;
  all.least_compute = Seconds{kInfinity};
  for (const StageClass& stage : c.stages.classes) {
    const StageCost cost = stage_cost(c, stage, gathers);
    const Seconds busy = cost.busy(overlap_slowdown);
    all.least_compute = min(all.least_compute, cost.passes().compute);
    if (by_ends) {
      StagePasses& kept = stage.head ? ends.last : stage.embedding ? ends.first : ends.inner;
      kept = {part_times(c, cost, 1), stage.total_layers(), 1 - cost.ends / busy};
    }
    // The busiest stage paces the others, however few its micro-batches are; of equals the one that
    // sends most once per step.
    const double sent = cost.trainable_dense + cost.trainable_expert;
    if (all.slowest_class == nullptr || busy > all.busy || (busy == all.busy && sent > most_sent)) {
      most_sent = sent;
      all.busy = busy;
      all.slowest = cost;
      all.slowest_class = &stage;
    }
  }
  if (!waits) return;
  all.times = ends.first.layers > 0 && ends.last.layers > 0
                  ? times_of_stages(c, ends)
                  : pipeline_times(c, *all.slowest_class, gathers);
  all.times.early = handed_on_early(c, *all.slowest_class, gathers);
}

/// From the first pass, or the gathering of its parameters, to the end of the last one and of the
/// reduction of its gradients.
inline PipelineDuration critical_path(const StepContext& c, PipelinePasses& all,
                                      const StepTraffic& traffic) {
  if (c.pipeline == PipelineBound::one_stage) {
    return c.stages.paths->at_least(all.times, c.degrees.micro_batches, all.busy);
  }
  const StepTrafficKind kind = set_traffic(c, traffic, all);
  const CriticalPaths& paths = *c.stages.paths;
  if (all.begun == nullptr || kind == StepTrafficKind::none) {
    return paths.duration(all.quiet, all.times);
  }
  LongestPath::Begun& begun = all.begun->get(kind == StepTrafficKind::hiding ? 0 : 1,
                                             [&] { return paths.begin(kind, all.times); });
  return paths.duration(all.quiet, all.times, kind, begun);
}

/// What the stages of a pipeline do with one micro-batch, and what they say of all of them.
inline PipelinePasses pipeline_passes(const StepContext& c) {
  PipelinePasses all;
  run_stages(c, all);
  if (waits_for_stages(c) && c.pipeline == PipelineBound::critical_paths) {
    all.quiet = c.stages.paths->quiet(all.times, c.degrees.micro_batches, all.busy);
  }
  return all;
}

/// Whether passes hide no traffic but that of their layers and to host memory.
inline bool passes_alone(const StepContext& c) {
  return !c.gathered && c.strategy.sharding != Sharding::zero2;
}

/// Calls `use(passes)`. What strategies share is worked out for the first of them.
template <class Use>
auto with_passes(const StepContext& c, const Use& use) {
  if (c.shared == nullptr || !passes_alone(c)) {
    PipelinePasses all = pipeline_passes(c);
    return use(all);
  }
  const std::size_t number = offloaded_in_passes(c.strategy);
  return use(c.shared->alone.get(number, [&] {
    PipelinePasses all = pipeline_passes(c);
    all.begun = &c.shared->begun[number];
    all.begun->reset();
    return all;
  }));
}

/// What a step adds to its passes, whose traffic it sets.
inline StepPasses step_passes(const StepContext& c, PipelinePasses& all) {
  StepPasses step{step_traffic(c, *all.slowest_class, all.slowest), {}};
  if (waits_for_stages(c)) step.lasts = critical_path(c, all, step.traffic);
  return step;
}

}  // namespace scalemodel
