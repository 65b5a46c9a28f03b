#include "scalemodel/post_training/weights.hpp"

namespace scalemodel {
namespace {

/// What one rank receives of a large transfer, a second.
BytesPerSecond receiving_rate(const Cluster& pool, bool one_domain) {
  const BytesPerSecond inside = pool.scale_up.p2p_fraction * pool.scale_up.bandwidth;
  const BytesPerSecond between = pool.fabric.p2p_fraction * pool.fabric.bandwidth;
  if (!one_domain && between > BytesPerSecond{0}) return between;
  if (inside > BytesPerSecond{0}) return inside;
  return pool.accelerator.memory_bandwidth / 2;
}

}  // namespace

Seconds refit_time(const WeightSet& weights, const Cluster& pool, int replica_ranks, bool colocated,
                   const RefitCosts& costs) {
  const bool one_domain = colocated && pool.scale_up.domain >= pool.accelerators;
  const Bytes received{weights.parameters * operand_bytes(weights.precision) /
                       (colocated ? 1 : replica_ranks)};
  return costs.start + weights.matrices * costs.per_matrix +
         received / receiving_rate(pool, one_domain);
}

Seconds switch_time(double parameters, const Cluster& pool, const SwitchCosts& costs) {
  const Bytes states = costs.per_parameter * parameters / pool.accelerators;
  const BytesPerSecond host = pool.accelerator.host_bandwidth;
  return (host > BytesPerSecond{0} ? 2 * states / host : Seconds{0}) + costs.wake;
}

}  // namespace scalemodel
