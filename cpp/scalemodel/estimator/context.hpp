// What an evaluation of a strategy reads again and again.
#pragma once

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/schedule/pipeline.hpp"

namespace scalemodel {

class SharedTerms;

/// What an evaluation reads again and again.
struct StepContext {
  const Tables& tables;
  Strategy strategy;  ///< its sharding by what it means
  Degrees degrees;
  const Cell& cell;
  const StageLayout& stages;
  const Conditions& conditions;
  DataParallelGroups groups;
  Schedule schedule;
  double storage_bytes;       ///< of a weight or activation
  double gradient_bytes;      ///< of a gradient as accumulated and reduced
  double overlap_efficiency;  ///< share of compute that can hide communication
  bool gathered;              ///< parameters live sharded and are gathered layer by layer
  bool weights_sharded;       ///< the same but in a lower bound, which pays for no gathering
  bool free_host;             ///< lower bound: transfers to and from host memory cost nothing
  PipelineBound pipeline = PipelineBound::critical_paths;  ///< lower bound: how close
  SharedTerms* shared = nullptr;                           ///< with strategies before, if kept

  const Cluster& cluster() const { return tables.cluster(); }
  const Stack& stack() const { return tables.stack(); }
  const Task& task() const { return tables.task(); }
};

/// The stage of a class that holds most micro-batches, and how many.
inline int fullest_index(const StepContext& c, const StageClass& stage) {
  return fullest_index(c.schedule, c.degrees.pp, stage.first_index, stage.last_index,
                       c.degrees.micro_batches);
}
inline double in_flight(const StepContext& c, const StageClass& stage) {
  return in_flight(c.schedule, c.degrees.pp, c.degrees.vpp, fullest_index(c, stage),
                   c.degrees.micro_batches) *
         (c.stages.mirrored ? 2 : 1);
}

/// Goes over to the shards of a strategy that shares the rest of the context.
inline void set_shards(StepContext& c, const Strategy& strategy, const Degrees& degrees) {
  c.strategy = strategy;
  c.strategy.sharding = meant_sharding(strategy.sharding, degrees.shard, degrees.dp * degrees.cp);
  c.degrees = degrees;
  c.groups =
      data_parallel_groups(c.tables.cluster(), c.strategy, degrees, c.tables.model().routed());
  const bool shares = c.groups.dense_shard_ranks > 1 || c.groups.expert_shard_ranks > 1;
  c.gathered = c.weights_sharded = gathers_parameters(c.strategy.sharding) && shares;
}

/// All but what shards decide.
inline StepContext context_without_shards(const Tables& tables, const Strategy& strategy,
                                          const Degrees& degrees, const Cell& cell,
                                          const StageLayout& stages) {
  const Conditions& conditions = tables.conditions(strategy);
  const double storage_bytes = operand_bytes(conditions.storage);
  return {
      .tables = tables,
      .strategy = strategy,
      .degrees = degrees,
      .cell = cell,
      .stages = stages,
      .conditions = conditions,
      .groups = {},
      .schedule = running_schedule(strategy.schedule, degrees.pp, degrees.vpp),
      .storage_bytes = storage_bytes,
      .gradient_bytes = conditions.gradients_fp32 ? 4.0 : storage_bytes,
      .overlap_efficiency = conditions.stack.overlap_efficiency,
      .gathered = false,
      .weights_sharded = false,
      .free_host = false,
  };
}

inline StepContext make_context(const Tables& tables, const Strategy& strategy,
                                const Degrees& degrees, const Cell& cell,
                                const StageLayout& stages) {
  StepContext c = context_without_shards(tables, strategy, degrees, cell, stages);
  set_shards(c, strategy, degrees);
  return c;
}

}  // namespace scalemodel
