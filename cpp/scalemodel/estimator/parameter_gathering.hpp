// Gathering and reducing parameters that data-parallel ranks hold in shards.
#pragma once

#include <algorithm>
#include <array>

#include "scalemodel/estimator/stage_terms.hpp"
#include "scalemodel/ops/smooth_max.hpp"

namespace scalemodel {

/// Parameter-gathering traffic of one layer kind (or of the embedding and LM head) per micro-batch.
struct GatherTimes {
  Seconds gather, reduce;
  // What of it a layer exposes, once asked for: the same in every stage that recomputes alike.
  double recomputed = -1;  ///< share of the layers
  Seconds forward_exposed, backward_exposed;
};

/// Large matrices of a dense layer: query-key-value, attention output, up and down.
inline constexpr double kLayerMatrices = 4;

/// Moving parameters or gradients of `size` over a shard group. Tensor by tensor a layer takes as
/// many collectives as it has large matrices, and each of them two copies per rank:
/// lists of tensors are copied from and to a flat buffer. ZeRO-2 moves `layers` one by one.
inline double shard_pieces(const StepContext& c, double layers) {
  if (c.gathered && c.stack().tensor_gathers) return kLayerMatrices;
  const bool by_layer = !c.gathered && c.strategy.sharding == Sharding::zero2;
  return by_layer ? std::max(1.0, layers) : 1;
}

inline Seconds shard_time(const StepContext& c, Collective op, Bytes size, const GroupShape& group,
                          double layers) {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  const bool tensors = c.gathered && c.stack().tensor_gathers;
  const double pieces = shard_pieces(c, layers);
  const Seconds copies = tensors ? 2.0 * group.ranks * c.stack().host_launch : Seconds{};
  return pieces * (collective_time(op, size / pieces, group, c.cluster()) + copies);
}

/// Gathering `dense` and `expert` parameters over their shard groups: calls
/// `shard(communicator, collective, size, group)` for both and adds up what it returns.
template <class Shard>
auto each_gather(const StepContext& c, double dense, double expert, const Shard& shard) {
  const auto run = [&](Communicator communicator, double parameters, const GroupShape& group) {
    return shard(communicator, Collective::all_gather, Bytes{c.storage_bytes * parameters}, group);
  };
  return run(Communicator::dense_shard, dense, c.groups.dense_shard) +
         run(Communicator::expert_shard, expert, c.groups.expert_shard);
}

/// Of `layers` layers.
inline Seconds gather_time(const StepContext& c, double dense, double expert, double layers) {
  return each_gather(c, dense, expert,
                     [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
                       return shard_time(c, op, size, group, layers);
                     });
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
  return shard(Communicator::dense_shard, reduction, dense_size, g.dense_shard) +
         replica(Communicator::dense_replica, Collective::all_reduce,
                 dense_size / g.dense_shard_ranks, g.dense_replica) +
         (shard(Communicator::expert_shard, reduction, expert_size, g.expert_shard) +
          replica(Communicator::expert_replica, Collective::all_reduce,
                  expert_size / g.expert_shard_ranks, g.expert_replica));
}

inline Seconds reduce_time(const StepContext& c, double dense, double expert, double layers) {
  return each_reduce(
      c, dense, expert,
      [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return shard_time(c, op, size, group, layers);
      },
      [&](Communicator, Collective op, Bytes size, const GroupShape& group) {
        return collective_time(op, size, group, c.cluster());
      });
}

/// Of one layer of each kind, where they are gathered layer by layer.
inline std::array<GatherTimes, kMaxLayerKinds> layer_gather_times(const StepContext& c) {
  std::array<GatherTimes, kMaxLayerKinds> gathers{};
  if (!c.gathered) return gathers;
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    const LayerCost& layer = c.cell.layers[k];
    gathers[k].gather = gather_time(c, layer.dense_parameters, layer.expert_parameters, 1);
    gathers[k].reduce = reduce_time(c, layer.trainable_dense, layer.trainable_expert, 1);
  }
  return gathers;
}

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
                                    std::array<GatherTimes, kMaxLayerKinds>& gathers,
                                    double share) {
  const bool hide_gather = enabled(c.strategy.overlap_param_gather, c.stack().overlap_param_gather);
  const bool hide_reduce = enabled(c.strategy.overlap_grad_reduce, c.stack().overlap_grad_reduce);
  const double recomputed = recompute_share(c.strategy, stage);
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
    if (stage.layers[k] == 0) continue;
    const LayerCost& layer = c.cell.layers[k];
    const double again_gathers = repeated_gathers(c, recomputed);
    const Seconds open = (hide_gather ? Seconds{} : (2 + again_gathers) * gathers[k].gather) +
                         (hide_reduce ? Seconds{} : gathers[k].reduce);
    const Seconds forward_traffic = hide_gather ? gathers[k].gather : Seconds{};
    const Seconds backward_traffic =
        (1 + again_gathers) * forward_traffic + (hide_reduce ? gathers[k].reduce : Seconds{});
    if (gathers[k].recomputed != recomputed) {
      // Compute that hides tensor, context or expert parallelism already is not overlappable.
      const Phase again = recomputed * layer.recompute[mode];
      const Seconds forward_overlappable = excess(layer.forward.compute, layer.forward.hidden);
      const Seconds backward_overlappable =
          excess(layer.backward.compute + again.compute, layer.backward.hidden + again.hidden);
      gathers[k].recomputed = recomputed;
      gathers[k].forward_exposed =
          exposed_beside(forward_traffic, forward_overlappable, c.overlap_efficiency);
      gathers[k].backward_exposed =
          exposed_beside(backward_traffic, backward_overlappable, c.overlap_efficiency);
    }
    const Seconds forward_exposed = gathers[k].forward_exposed;
    const Seconds backward_exposed = gathers[k].backward_exposed;
    const double n = share * stage.layers[k];
    cost.gather_exposed += n * (open + forward_exposed + backward_exposed);
    cost.forward_gather += n * (hide_gather ? forward_exposed : gathers[k].gather);
    cost.forward.hidden += n * (forward_traffic - forward_exposed);
    cost.backward.hidden += n * (backward_traffic - backward_exposed);
    const double part = stage.layers[k] / static_cast<double>(stage.total_layers());
    if (hide_gather) cost.first_gather += part * (forward_traffic - forward_exposed);
    if (hide_reduce) {
      cost.last_reduce += part * min(gathers[k].reduce, backward_traffic - backward_exposed);
    }
  }
  const EndParameters ends = end_parameters(c, stage);
  const Seconds gather = gather_time(c, ends.all, 0, 1);
  const Seconds reduce = reduce_time(c, ends.trainable, 0, 1);
  cost.gather_exposed += share * (gather + reduce);
  cost.ends += share * (gather + reduce);
  cost.forward_gather += share * gather;
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
