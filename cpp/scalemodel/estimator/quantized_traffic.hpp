// What ZeRO++ changes of the traffic of sharded parameters (arXiv 2306.10209): 8-bit gathers (qwZ),
// a second copy that few ranks share (hpZ), 4-bit reductions by all-to-alls (qgZ).
#pragma once

#include <algorithm>
#include <optional>

#include "scalemodel/estimator/stage_terms.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {

/// A scale in FP32 for every block of values.
inline constexpr double kScaleBytes = 4;
/// Of a gathered value; blocks have at most 8,000 of them (deepspeedai/DeepSpeed,
/// runtime/zero/partition_parameters.py, CUDAQuantizer).
inline constexpr double kGatheredBytes = 1, kGatheredBlock = 8000;
/// Of a reduced value, in both hops (deepspeedai/DeepSpeed, runtime/comm/coalesced_collectives.py,
/// all_to_all_quant_reduce).
inline constexpr double kReducedBytes = 0.5;

/// Large matrices of a dense layer: query-key-value, attention output, up and down.
inline constexpr double kLayerMatrices = 4;

/// Of a gathered value with its share of a scale.
inline constexpr double kGatheredWithScale = kGatheredBytes + kScaleBytes / kGatheredBlock;

inline bool quantizes_gather(const StepContext& c) {
  return c.gathered && c.strategy.quantized_gather;
}
/// Inside one domain there is nothing to save.
inline bool quantizes_reduce(const StepContext& c, const GroupShape& group) {
  return c.gathered && c.strategy.quantized_reduce && group.domains > 1;
}

/// Values that share a scale when gradients are reduced: blocks are as many as a matrix has rows or
/// columns, whichever are more, so that they are as long as the other side. Layers differ little
/// from the hidden size there; adapters are as narrow as their rank.
inline double reduced_block(const StepContext& c) {
  const int narrow = c.conditions.frozen_base ? c.conditions.lora_rank : 0;
  return narrow > 0 ? narrow : c.tables.model().hidden;
}

/// Of a value reduced inside a domain, with its share of a scale.
inline double reduced_with_scale(const StepContext& c) {
  return kReducedBytes + kScaleBytes / reduced_block(c);
}

/// Kernels that read and write `bytes` between them.
inline Seconds kernels_time(const StepContext& c, Bytes bytes, double kernels) {
  if (bytes <= Bytes{}) return Seconds{};
  const Accelerator& accelerator = c.cluster().accelerator;
  return (kernels - 1) * accelerator.elementwise.launch +
         memory_time(bytes, accelerator.elementwise.add_fraction * c.stack().memory_efficiency,
                     accelerator);
}

/// Parameters, or those of them that learn, by the groups that shard them.
struct ShardedParameters {
  double dense = 0, expert = 0;
};

/// Who gathers parameters.
struct GatherGroups {
  Communicator dense_communicator, expert_communicator;
  const GroupShape &dense, &expert;
  int dense_ranks, expert_ranks;  ///< ranks that hold a shard each

  /// Bytes of shards of a rank, at `each` per parameter.
  Bytes shard(const ShardedParameters& of, double each) const {
    return Bytes{each * (of.dense / dense_ranks + of.expert / expert_ranks)};
  }
  /// Parameters that travel at all.
  double travelling(const ShardedParameters& of) const {
    return (dense.ranks > 1 ? of.dense : 0) + (expert.ranks > 1 ? of.expert : 0);
  }
};

inline GatherGroups shard_groups(const StepContext& c) {
  const DataParallelGroups& g = c.groups;
  return {Communicator::dense_shard, Communicator::expert_shard, g.dense_shard, g.expert_shard,
          g.dense_shard_ranks,       g.expert_shard_ranks};
}

/// Ranks that share a second copy of the parameters. All gathers but that of the first forward pass
/// after an update are among them, and those of frozen parameters always: a copy stays until an
/// update outdates it (deepspeedai/DeepSpeed, runtime/zero/stage3.py, invalidate_secondary_tensor).
using SecondaryGroups = std::optional<DataParallelGroups>;

inline bool has_secondary(const StepContext& c) {
  return c.gathered && secondary_ranks(c.strategy, c.degrees) > 0;
}

inline SecondaryGroups secondary_groups(const Tables& tables, const Strategy& strategy,
                                        Degrees degrees) {
  degrees.shard = secondary_ranks(strategy, degrees);
  if (degrees.shard == 0) return std::nullopt;
  return data_parallel_groups(tables.cluster(), strategy, degrees, tables.model().routed());
}

inline SecondaryGroups secondary_groups(const StepContext& c) {
  if (!has_secondary(c)) return std::nullopt;
  return secondary_groups(c.tables, c.strategy, c.degrees);
}

inline GatherGroups gathers_of(const DataParallelGroups& secondary) {
  return {Communicator::dense_secondary, Communicator::expert_secondary,
          secondary.dense_shard,         secondary.expert_shard,
          secondary.dense_shard_ranks,   secondary.expert_shard_ranks};
}

/// Share of the forward passes of a stage that come first after an update; `share`: of the
/// micro-batches that pass it.
inline double first_share(const StepContext& c, double share) {
  if (!has_secondary(c)) return 1;
  return std::min(1.0, 1 / (share * c.degrees.micro_batches));
}

/// Something before the first forward pass of a step, and before every other pass.
struct EachGather {
  Seconds first, again;

  /// Before a forward pass.
  Seconds mean(double first_share) const {
    return first_share < 1 ? first_share * first + (1 - first_share) * again : first;
  }
};

/// Gathering `all` parameters, of which some learn, where there is a second copy: calls
/// `first(groups, parameters)` for what is gathered before the first forward pass of a step, and
/// `again(groups, parameters)` for what is before every other pass.
template <class First, class Again>
void gather_from(const DataParallelGroups& secondary, const StepContext& c,
                 const ShardedParameters& all, const ShardedParameters& trainable,
                 const First& first, const Again& again) {
  const GatherGroups among = gathers_of(secondary);
  first(shard_groups(c), trainable);
  first(among, {all.dense - trainable.dense, all.expert - trainable.expert});
  again(among, all);
}

/// What `of(groups, parameters)` says of the gathers of `all` parameters, of which some learn.
template <class Of>
EachGather each_of(const StepContext& c, const SecondaryGroups& secondary,
                   const ShardedParameters& all, const ShardedParameters& trainable, const Of& of) {
  if (!secondary) {
    const Seconds always = of(shard_groups(c), all);
    return {always, always};
  }
  EachGather sum;
  const auto add_to = [&](Seconds& time) {
    return [&of, &time](const GatherGroups& groups, const ShardedParameters& parameters) {
      time += of(groups, parameters);
    };
  };
  gather_from(*secondary, c, all, trainable, add_to(sum.first), add_to(sum.again));
  return sum;
}

/// Ranks quantise their shards before they gather: what is stored is as wide as ever.
inline Seconds quantize_time(const StepContext& c, const GatherGroups& groups,
                             const ShardedParameters& all) {
  const ShardedParameters sent{groups.dense.ranks > 1 ? all.dense : 0,
                               groups.expert.ranks > 1 ? all.expert : 0};
  return kernels_time(c, groups.shard(sent, c.storage_bytes + kGatheredBytes), 1);
}

/// Whether there are kernels between gathers and the passes that wait for them.
inline bool restores(const StepContext& c) { return quantizes_gather(c) || has_secondary(c); }

/// Kernels between the gathers and the passes that wait for them: what was quantised is restored,
/// and a second copy is written.
inline EachGather restore_times(const StepContext& c, const SecondaryGroups& secondary,
                                const ShardedParameters& all, const ShardedParameters& trainable) {
  EachGather times;
  if (quantizes_gather(c)) {
    times = each_of(c, secondary, all, trainable,
                    [&](const GatherGroups& groups, const ShardedParameters& parameters) {
                      const double each = kGatheredBytes + c.storage_bytes;
                      return kernels_time(c, Bytes{each * groups.travelling(parameters)}, 1);
                    });
  }
  if (secondary) {
    times.first += kernels_time(c, gathers_of(*secondary).shard(trainable, 2 * c.storage_bytes), 1);
  }
  return times;
}

/// Gathering `parameters` in 8 bits, then their scales, as `each_gather` calls `shard`.
template <class Shard>
[[gnu::noinline]] auto each_quantized(Communicator communicator, double parameters,
                                      const GroupShape& group, const Shard& shard) {
  constexpr Collective kWay = Collective::all_gather;
  return shard(communicator, kWay, Bytes{kGatheredBytes * parameters}, group) +
         shard(communicator, kWay, Bytes{kScaleBytes / kGatheredBlock * parameters}, group);
}

/// The communicators of a quantised reduction: inside domains, then between them.
struct ExchangeCommunicators {
  Communicator shard, node, rail;
};
inline constexpr ExchangeCommunicators kDenseExchange{
    Communicator::dense_shard, Communicator::dense_node, Communicator::dense_rail};
inline constexpr ExchangeCommunicators kExpertExchange{
    Communicator::expert_shard, Communicator::expert_node, Communicator::expert_rail};

/// A reduction of `parameters` as all-to-alls of 4-bit values and of their scales: inside domains,
/// whose ranks add up what they receive, then of these sums between domains. Calls
/// `shard(communicator, collective, size, group)` for each and adds up what it returns.
template <class Shard>
[[gnu::noinline]] auto each_exchange(const StepContext& c,
                                     const ExchangeCommunicators& communicators, double parameters,
                                     const GroupShape& group, const Shard& shard) {
  const double block = reduced_block(c);
  const auto hop = [&](Communicator communicator, double values, const GroupShape& among) {
    return shard(communicator, Collective::all_to_all, Bytes{kReducedBytes * values}, among) +
           shard(communicator, Collective::all_to_all, Bytes{kScaleBytes / block * values}, among);
  };
  return hop(communicators.node, parameters, node_part(group)) +
         hop(communicators.rail, parameters / node_ranks(group), rail_part(group));
}

/// Kernels of the same, beside the passes: quantisation, the sum of a domain, quantised again, and
/// the restored sums of all domains, added up one by one.
inline Seconds exchange_kernels(const StepContext& c, double parameters, const GroupShape& group) {
  if (!quantizes_reduce(c, group)) return Seconds{};
  const double node = node_ranks(group), rail = group.ranks / node;
  const double quantized = c.gradient_bytes + kReducedBytes;
  const double summed = kReducedBytes + kReducedBytes / node;
  const double restored = (kReducedBytes + c.storage_bytes) / node;
  const double added = 3 * c.storage_bytes / node;
  return kernels_time(c, Bytes{(quantized + summed + restored + added) * parameters},
                      kLayerMatrices * (3 + rail));
}

}  // namespace scalemodel
