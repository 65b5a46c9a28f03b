#include "scalemodel/serving/expert_pool.hpp"

#include <algorithm>
#include <cstddef>

#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"

namespace scalemodel {
namespace {

Seconds round_of(const PoolTimes& t) {
  return t.attention + t.dispatch + t.experts + t.combine + t.waits;
}

/// One accelerator of a pool and one of the other, as the cluster of the former joins them.
GroupShape between_pools(const Cluster& cluster, int ranks, bool one_domain) {
  GroupShape group;
  group.ranks = 2;
  group.per_domain = one_domain ? 2 : 1;
  group.domains = one_domain ? 1 : 2;
  group.leaves_pod = cluster.fabric.pod > 0 && ranks > cluster.fabric.pod;
  return group;
}

}  // namespace

const Unit* shared_experts(const LayerKind& kind) noexcept {
  for (std::size_t i = 1; i < kind.units.size(); ++i) {
    const bool beside = kind.units[i].routed() && !kind.units[i].reads_stream;
    if (beside) return &kind.units[i - 1];
  }
  return nullptr;
}

bool computed_by_pool(const LayerKind& kind, const Unit& unit, const LayerOperator& op) noexcept {
  if (unit.routed()) return unit.on_copies(op);
  const bool computes = op.kind == OperatorKind::gemm || op.kind == OperatorKind::activation;
  return computes && &unit == shared_experts(kind);
}

Seconds alternating_time(const PoolTimes& each, int micro_batches) noexcept {
  const Seconds busiest = max(max(each.attention, each.experts), max(each.dispatch, each.combine));
  return max(micro_batches * busiest, round_of(each));
}

ExposedExperts exposed_experts(const PoolTimes& each, int micro_batches) noexcept {
  const Seconds own = micro_batches * each.attention;
  const Seconds exposed = alternating_time(each, micro_batches) - own;
  const Seconds way = each.dispatch + each.combine + each.waits;
  const Seconds behind = each.experts + way;
  if (exposed <= Seconds{} || behind <= Seconds{}) return {};
  const Seconds paced = micro_batches * max(each.experts, max(each.dispatch, each.combine));
  const bool filled = paced >= round_of(each);
  // Where a place sets the pace, it is what attention waits for; else both have their share.
  double share = each.experts / behind;
  if (filled) share = each.experts >= max(each.dispatch, each.combine) ? 1 : 0;
  return {share * exposed, (1 - share) * exposed};
}

Seconds pool_exchange_time(Bytes from, Bytes to, const ServingLayout& layout,
                           const Cluster& cluster, const Cluster* pool) noexcept {
  if (pool != nullptr) {
    return max(p2p_time(from, between_pools(cluster, layout.attention_ranks(), false), cluster),
               p2p_time(to, between_pools(*pool, layout.expert_ranks, false), *pool));
  }
  const int ranks = layout.ranks();
  const bool one_domain = ranks <= std::min(cluster.scale_up.domain, cluster.accelerators);
  GroupShape group = between_pools(cluster, ranks, one_domain);
  // Only the levels of a host tell ranks apart that share a domain.
  if (one_domain && cluster.scale_up.levels.any()) group.apart = layout.attention_ranks();
  return p2p_time(max(from, to), group, cluster);
}

}  // namespace scalemodel
