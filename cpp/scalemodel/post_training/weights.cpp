#include "scalemodel/post_training/weights.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

/// Whether the engine's own loader takes whole matrices and cuts them.
bool loads_whole(RefitWay way) {
  switch (way) {
    case RefitWay::ipc:
    case RefitWay::reshard:
      return false;
    case RefitWay::broadcast:
    case RefitWay::rdma:
    case RefitWay::rdma_whole:
      return true;
  }
  return false;
}

}  // namespace

BytesPerSecond link_rate(const Cluster& pool, bool one_domain, bool whole_node) {
  const BytesPerSecond inside = pool.scale_up.p2p_fraction * pool.scale_up.bandwidth;
  const BytesPerSecond between = pool.fabric.p2p_fraction * pool.fabric.bandwidth;
  if (!one_domain && between > BytesPerSecond{0}) {
    const BytesPerSecond node = static_cast<double>(pool.node_accelerators) * between;
    return whole_node && inside > BytesPerSecond{0} ? min(inside, node) : between;
  }
  if (inside > BytesPerSecond{0}) return inside;
  return pool.accelerator.memory_bandwidth / 2;
}

Seconds host_copy_time(Bytes bytes, const Cluster& pool) {
  const BytesPerSecond host = pool.accelerator.host_bandwidth;
  return host > BytesPerSecond{0} ? bytes / host : Seconds{0};
}

WeightSet weight_set(const Model& model, Precision precision) {
  constexpr double kOfAttention = 9;
  WeightSet weights{model.parameters(), 0, 0, precision};
  for (const std::uint8_t kind : model.layer_kind) {
    const LayerKind& layer = model.kinds[kind];
    const FeedForwardShape& ff = layer.feed_forward;
    weights.routed += layer.expert_parameters;
    weights.matrices += kOfAttention + ff.matrices() * std::max(1, ff.experts);
  }
  return weights;
}

RefitBytes refit_bytes(const WeightSet& weights, const RefitLayout& layout, int train_ranks,
                       int rollout_ranks) {
  const double element = operand_bytes(weights.precision);
  const Bytes all{weights.parameters * element}, routed{weights.routed * element};
  const double ranks = layout.replica_ranks;
  const auto from_all = [&](Bytes received) {
    return RefitBytes{(rollout_ranks / static_cast<double>(train_ranks)) * received, received};
  };
  switch (layout.way) {
    case RefitWay::ipc:
      return {Bytes{}, all};
    case RefitWay::broadcast:
      return {all, all};
    case RefitWay::reshard:
      return from_all(all / ranks);
    case RefitWay::rdma:
      return from_all(all - routed + routed / ranks);
    case RefitWay::rdma_whole:
      return from_all(all);
  }
  return {};
}

Seconds refit_time(const WeightSet& weights, const Cluster& train, const Cluster& rollout,
                   const RefitLayout& layout, const RefitCosts& costs) {
  const bool one_pool = layout.way == RefitWay::ipc;
  const int ranks = rollout.accelerators + (one_pool ? 0 : train.accelerators);
  const bool one_domain = rollout.scale_up.domain >= ranks;
  const RefitBytes moved = refit_bytes(weights, layout, train.accelerators, rollout.accelerators);
  const Seconds call = loads_whole(layout.way) ? costs.per_load : costs.per_matrix;
  const bool gathers =
      layout.sharded && layout.way != RefitWay::reshard && costs.gather > BytesPerSecond{0};
  const Bytes all{weights.parameters * operand_bytes(weights.precision)};
  const Seconds gathering = gathers ? all / costs.gather : Seconds{};
  const bool whole_node = layout.way == RefitWay::broadcast;
  const Seconds sends = moved.sent / link_rate(train, one_domain, whole_node);
  const Seconds receives = moved.received / link_rate(rollout, one_domain, whole_node);
  const Seconds handed_on = weights.matrices * call + max(sends, receives);
  return costs.start + (one_pool ? gathering + handed_on : max(gathering, handed_on));
}

Seconds switch_time(double parameters, const Cluster& pool, const SwitchCosts& costs) {
  const Bytes states = costs.per_parameter * parameters / pool.accelerators;
  return host_copy_time(2 * states, pool) + costs.wake;
}

}  // namespace scalemodel
