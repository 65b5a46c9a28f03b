// Gathering and reducing parameters that data-parallel ranks hold in shards.
#pragma once

#include <algorithm>
#include <array>
#include <new>
#include <type_traits>

#include "scalemodel/estimator/quantized_traffic.hpp"
#include "scalemodel/estimator/stage_terms.hpp"
#include "scalemodel/ops/smooth_max.hpp"

namespace scalemodel {

/// Parameter-gathering traffic of one layer kind (or of the embedding and LM head) per micro-batch.
struct GatherTimes {
  EachGather gather;
  Seconds reduce;
  // What of it a layer exposes, once asked for: the same in every stage that recomputes alike.
  double recomputed = -1;  ///< share of the layers
  EachGather exposed;      ///< before forward passes
  Seconds backward_exposed;
};

/// Moving parameters or gradients of `size` over a shard group. Tensor by tensor a layer takes as
/// many collectives as it has large matrices, and each of them two copies per rank:
/// lists of tensors are copied from and to a flat buffer. ZeRO-2 moves `layers` one by one.
inline double shard_pieces(const StepContext& c, Collective op, double layers) {
  if (op == Collective::all_to_all) return kLayerMatrices;  // of a quantised reduction
  if (c.gathered && c.stack().tensor_gathers) return kLayerMatrices;
  const bool by_layer = !c.gathered && c.strategy.sharding == Sharding::zero2;
  return by_layer ? std::max(1.0, layers) : 1;
}

inline Seconds shard_time(const StepContext& c, Collective op, Bytes size, const GroupShape& group,
                          double layers) {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  const bool tensors = c.gathered && c.stack().tensor_gathers && op != Collective::all_to_all;
  const double pieces = shard_pieces(c, op, layers);
  const Seconds copies = tensors ? 2.0 * group.ranks * c.stack().host_launch : Seconds{};
  return pieces * (collective_time(op, size / pieces, group, c.cluster()) + copies);
}

/// Gathering `all` parameters among `groups`: calls `shard(communicator, collective, size, group)`
/// for dense ones and experts and adds up what it returns. Quantised values and their scales are
/// gathered one after the other.
template <class Shard>
auto each_gather(const StepContext& c, const GatherGroups& groups, const ShardedParameters& all,
                 const Shard& shard) {
  const auto run = [&](Communicator communicator, double parameters, const GroupShape& group) {
    if (quantizes_gather(c)) return each_quantized(communicator, parameters, group, shard);
    return shard(communicator, Collective::all_gather, Bytes{c.storage_bytes * parameters}, group);
  };
  return run(groups.dense_communicator, all.dense, groups.dense) +
         run(groups.expert_communicator, all.expert, groups.expert);
}

/// Of `layers` layers.
inline Seconds gather_time_among(const StepContext& c, const GatherGroups& groups,
                                 const ShardedParameters& all, double layers) {
  const Seconds travels = each_gather(
      c, groups, all, [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return shard_time(c, op, size, group, layers);
      });
  return quantizes_gather(c) ? travels + quantize_time(c, groups, all) : travels;
}

/// The same over whole shard groups.
inline Seconds gather_time(const StepContext& c, double dense, double expert, double layers) {
  return gather_time_among(c, shard_groups(c), {dense, expert}, layers);
}

/// Gathers of `all` parameters of a layer, or of an end, of which some learn.
inline EachGather gather_times(const StepContext& c, const SecondaryGroups& secondary,
                               const ShardedParameters& all, const ShardedParameters& trainable) {
  return each_of(c, secondary, all, trainable,
                 [&](const GatherGroups& groups, const ShardedParameters& parameters) {
                   return gather_time_among(c, groups, parameters, 1);
                 });
}

/// Of token embedding and LM head.
inline EachGather end_gather_times(const StepContext& c, const EndParameters& ends) {
  return gather_times(c, secondary_groups(c), {ends.all, 0}, {ends.trainable, 0});
}

/// Reducing the gradients of `dense` and `expert` parameters over their shard groups; across shard
/// groups (HSDP) the reduced shard is all-reduced. `shard` and `replica` as in `each_gather`.
template <class Shard, class Replica>
auto each_reduce(const StepContext& c, double dense, double expert, const Shard& shard,
                 const Replica& replica) {
  const DataParallelGroups& g = c.groups;
  const bool whole = !c.gathered && c.stack().all_reduces_gradients;
  const Collective reduction = whole ? Collective::all_reduce : Collective::reduce_scatter;
  const double kept_bytes = c.conditions.gradients_fp32 ? 4 : c.storage_bytes;
  const double travelling_bytes = c.gradient_bytes * (c.stack().reduces_fp32 ? 4 / kept_bytes : 1);
  const Bytes dense_size{travelling_bytes * dense}, expert_size{travelling_bytes * expert};
  const auto over_shards = [&](const ExchangeCommunicators& communicators, double parameters,
                               Bytes size, const GroupShape& group) {
    if (quantizes_reduce(c, group)) {
      return each_exchange(c, communicators, parameters, group, shard);
    }
    return shard(communicators.shard, reduction, size, group);
  };
  return over_shards(kDenseExchange, dense, dense_size, g.dense_shard) +
         replica(Communicator::dense_replica, Collective::all_reduce,
                 dense_size / g.dense_shard_ranks, g.dense_replica) +
         (over_shards(kExpertExchange, expert, expert_size, g.expert_shard) +
          replica(Communicator::expert_replica, Collective::all_reduce,
                  expert_size / g.expert_shard_ranks, g.expert_replica));
}

inline Seconds reduce_time(const StepContext& c, double dense, double expert, double layers) {
  const Seconds travels = each_reduce(
      c, dense, expert,
      [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return shard_time(c, op, size, group, layers);
      },
      [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return collective_time(op, size, group, c.cluster());
      });
  if (!c.strategy.quantized_reduce) return travels;
  return travels + exchange_kernels(c, dense, c.groups.dense_shard) +
         exchange_kernels(c, expert, c.groups.expert_shard);
}

/// Of one layer of each kind, where they are gathered layer by layer; else nothing is worked out.
class LayerGathers {
 public:
  explicit LayerGathers(const StepContext& c) {
    if (!c.gathered) return;
    const SecondaryGroups secondary = secondary_groups(c);
    for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
      const LayerCost& layer = c.cell.layers[k];
      const ShardedParameters all{layer.dense_parameters, layer.expert_parameters};
      const ShardedParameters trainable{layer.trainable_dense, layer.trainable_expert};
      ::new (&values_.of[k]) GatherTimes{};
      values_.of[k].gather = gather_times(c, secondary, all, trainable);
      values_.of[k].reduce = reduce_time(c, trainable.dense, trainable.expert, 1);
    }
  }
  GatherTimes& operator[](std::size_t kind) { return values_.of[kind]; }

 private:
  static_assert(std::is_trivially_destructible_v<GatherTimes>);
  /// Not worked out, no value is anything.
  union Values {
    Values() {}  // NOLINT(modernize-use-equals-default): a union of these has none
    std::array<GatherTimes, kMaxLayerKinds> of;
  };
  Values values_;
};

/// Exposed part of a layer's `traffic` beside the compute of its neighbour:
///
///     (traffic^p + compute^p)^(1/p) - compute,  p = 1/(1 - overlap efficiency)
///
/// All of it at efficiency 0, only the excess over the compute at 1. In between the two take
/// turns at being late: ranks arrive one after another and kernels get in each other's way, more
/// often the nearer the traffic comes to the compute, so that exposure grows with the group
/// instead of setting in where the two are equal.
inline Seconds exposed_beside(Seconds traffic, Seconds compute, double efficiency) {
  if (efficiency >= 1 || compute <= Seconds{}) return excess(traffic, compute);
  if (efficiency <= 0 || traffic <= Seconds{}) return traffic;
  const double ratio = traffic / compute;
  return (smooth_max(ratio, 1, 1 / (1 - efficiency)) - 1) * compute;
}

/// A repeated forward pass that released its parameters gathers them once more.
inline double repeated_gathers(const StepContext& c, double recomputed) {
  return c.stack().tensor_gathers ? recomputed : 0;
}

/// Fully sharded parameters: each layer is gathered before its forward and before its backward
/// pass, its gradient reduced after; one layer ahead is in flight, beside its neighbour's compute.
/// Gathering and reduction of the embedding and the LM head are exposed.
inline void add_parameter_gathering(StageCost& cost, const StepContext& c, const StageClass& stage,
                                    LayerGathers& gathers, double share) {
  const bool hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const bool hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double recomputed = recompute_share(c.strategy, stage);
  const double firsts = first_share(c, share);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const double again_gathers = repeated_gathers(c, recomputed);
    const EachGather gather = hide_gather ? gathers[k].gather : EachGather{};
    const Seconds forward_gather = gathers[k].gather.mean(firsts), again = gathers[k].gather.again;
    const Seconds open =
        (hide_gather ? Seconds{} : (forward_gather - again) + (2 + again_gathers) * again) +
        (hide_reduce ? Seconds{} : gathers[k].reduce);
    const Seconds forward_traffic = hide_gather ? forward_gather : Seconds{};
    const Seconds backward_traffic =
        (1 + again_gathers) * gather.again + (hide_reduce ? gathers[k].reduce : Seconds{});
    if (gathers[k].recomputed != recomputed) {
      // Compute that hides tensor, context or expert parallelism already is not overlappable.
      const Phase repeated = recomputed * layer.recompute[mode];
      const Seconds forward_overlappable = excess(layer.forward.compute, layer.forward.hidden);
      const Seconds backward_overlappable = excess(layer.backward.compute + repeated.compute,
                                                   layer.backward.hidden + repeated.hidden);
      gathers[k].recomputed = recomputed;
      EachGather& exposed = gathers[k].exposed;
      exposed.first = exposed_beside(gather.first, forward_overlappable, c.overlap_efficiency);
      if (firsts < 1) {
        exposed.again = exposed_beside(gather.again, forward_overlappable, c.overlap_efficiency);
      }
      gathers[k].backward_exposed =
          exposed_beside(backward_traffic, backward_overlappable, c.overlap_efficiency);
    }
    const Seconds forward_exposed = gathers[k].exposed.mean(firsts);
    const Seconds backward_exposed = gathers[k].backward_exposed;
    const double n = share * stage.layers[k];
    cost.gather_exposed += n * (open + forward_exposed + backward_exposed);
    cost.forward_gather += n * (hide_gather ? forward_exposed : forward_gather);
    cost.forward.hidden += n * (forward_traffic - forward_exposed);
    cost.backward.hidden += n * (backward_traffic - backward_exposed);
    const double part = stage.layers[k] / static_cast<double>(stage.total_layers());
    if (hide_gather) cost.first_gather += part * (gather.first - gathers[k].exposed.first);
    if (hide_reduce) {
      cost.last_reduce += part * min(gathers[k].reduce, backward_traffic - backward_exposed);
    }
  }
  const EndParameters ends = end_parameters(c, stage);
  const Seconds gather = end_gather_times(c, ends).mean(firsts);
  const Seconds reduce = reduce_time(c, ends.trainable, 0, 1);
  cost.gather_exposed += share * (gather + reduce);
  cost.ends += share * (gather + reduce);
  cost.forward_gather += share * gather;
}

/// Kernels of quantised gathers and of a second copy, in the passes that wait for them.
inline void add_restoring(StageCost& cost, const StepContext& c, const StageClass& stage,
                          double share) {
  if (!restores(c)) return;
  const SecondaryGroups secondary = secondary_groups(c);
  const double firsts = first_share(c, share);
  const double again = 1 + repeated_gathers(c, recompute_share(c.strategy, stage));
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const EachGather restore =
        restore_times(c, secondary, {layer.dense_parameters, layer.expert_parameters},
                      {layer.trainable_dense, layer.trainable_expert});
    const double n = share * stage.layers[k];
    cost.forward.compute += n * restore.mean(firsts);
    cost.backward.compute += n * again * restore.again;
  }
  const EndParameters ends = end_parameters(c, stage);
  const Seconds of_ends =
      share * restore_times(c, secondary, {ends.all, 0}, {ends.trainable, 0}).mean(firsts);
  cost.forward.compute += of_ends;
  cost.ends += of_ends;
}

/// Exposed part of `traffic` in as many buckets as the stage has layers: at least one,
/// and all but one layer's compute can hide the others.
inline Seconds exposed_traffic(Seconds traffic, Seconds overlappable, double buckets, bool hide) {
  if (!hide) return traffic;
  return max(excess(traffic, (1 - 1 / buckets) * overlappable), traffic / buckets);
}

/// ZeRO-2 keeps only a shard of the gradients, so every micro-batch reduces them chunk by chunk,
/// each under its own backward pass.
inline void add_repeated_reduction(StageCost& cost, const StepContext& c, const StageClass& stage,
                                   double share) {
  const bool hide = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double chunks = chunks_of(c, stage);
  const double layers = std::max(1.0, stage.total_layers() / chunks);
  const Seconds each =
      reduce_time(c, cost.trainable_dense / chunks, cost.trainable_expert / chunks, layers);
  const Seconds reduce = share * chunks * each;
  const Seconds overlappable = overlappable_left(c, cost.backward + cost.recompute);
  const Seconds exposed = exposed_traffic(reduce, overlappable, layers, hide);
  cost.gather_exposed += exposed;
  cost.backward.hidden += reduce - exposed;
  // Token embedding and LM head reduce theirs in the chunks that they are in.
  const double trainable = cost.trainable_dense + cost.trainable_expert;
  if (trainable <= 0) return;
  cost.ends += (end_parameters(c, stage).trainable / trainable) * exposed;
}

}  // namespace scalemodel
