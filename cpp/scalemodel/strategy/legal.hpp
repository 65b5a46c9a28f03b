// Whether a strategy can run at all on a model, cluster and task; memory is judged later.
#pragma once

#include "scalemodel/base/reason.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// Degrees with every zero replaced by what it stands for.
struct Degrees {
  int tp = 1, cp = 1, pp = 1, dp = 1, ep = 1, etp = 1, vpp = 1;
  int shard = 1;  ///< ranks that shard optimizer states, gradients or parameters
  int micro_batch = 1;
  double micro_batches = 1;  ///< per replica and step

  int inner() const { return tp * cp * dp; }
};

Degrees resolve_degrees(const Strategy& strategy, const Cluster& cluster,
                        const Task& task) noexcept;

/// HSDP over one shard group is ZeRO-3, over groups of one rank plain data parallelism.
constexpr Sharding meant_sharding(Sharding sharding, int shard, int replicas) {
  if (sharding != Sharding::hsdp) return sharding;
  if (shard == replicas) return Sharding::zero3;
  return shard == 1 ? Sharding::ddp : Sharding::hsdp;
}

/// Ranks that share a second copy of the parameters. 0: there is none, or it would be the first.
constexpr int secondary_ranks(const Strategy& strategy, const Degrees& d) {
  return strategy.secondary_degree < d.shard ? strategy.secondary_degree : 0;
}

/// `strategy` with its sharding by what it means.
inline Strategy with_meant_sharding(Strategy strategy, const Degrees& d) {
  strategy.sharding = meant_sharding(strategy.sharding, d.shard, d.dp * d.cp);
  return strategy;
}

/// The first rule that the strategy breaks, or Reason::ok.
Reason first_violation(const Strategy& strategy, const Degrees& degrees, const Model& model,
                       const Cluster& cluster, const Task& task) noexcept;

}  // namespace scalemodel
