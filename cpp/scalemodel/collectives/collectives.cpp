#include "scalemodel/collectives/collectives.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {
namespace {

const CollectiveFit& fit_of(Collective op, const ScaleUp& scale_up) {
  switch (op) {
    case Collective::all_reduce:
      return scale_up.all_reduce;
    case Collective::all_gather:
      return scale_up.all_gather;
    case Collective::reduce_scatter:
      return scale_up.reduce_scatter;
    case Collective::all_to_all:
      return scale_up.all_to_all;
  }
  return scale_up.all_reduce;
}

/// Passes of the buffer over the wire: an all-reduce is a reduce-scatter and an all-gather.
double passes(Collective op) { return op == Collective::all_reduce ? 2 : 1; }

/// Inside one scale-up domain, with w = f S (n-1)/n bytes on the bus and f (n-1) ring steps:
///
///     t = min( a1 + f (n-1) l1 + w/(b1 L),  a2 + f (n-1) l2 + x + sqrt(c x) ),  x = w/(b2 L)
///
/// The root is pipeline fill; the branches stand for NCCL's latency (LL) and bandwidth (Simple)
/// protocols. Form and constants fitted to published nccl-tests runs (9 % mean error).
Seconds inside_domain(Collective op, Bytes size, int ranks, const ScaleUp& scale_up) {
  const CollectiveFit& fit = fit_of(op, scale_up);
  const double steps = passes(op) * (ranks - 1);
  const Bytes on_bus = (steps / ranks) * size;
  const Seconds x = on_bus / (fit.bandwidth_fraction2 * scale_up.bandwidth);
  const Seconds fill{std::sqrt(fit.pipeline_fill.base() * x.base())};
  const Seconds latency_branch =
      fit.start1 + steps * fit.per_rank1 + on_bus / (fit.bandwidth_fraction1 * scale_up.bandwidth);
  return min(latency_branch, fit.start2 + steps * fit.per_rank2 + x + fill);
}

/// NCCL's tabulated latencies (NVIDIA/nccl src/graph/tuning.cc): base of a call and one step over
/// a scale-up link, by protocol.
struct Protocol {
  Seconds base, hop;
  double bandwidth_fraction;
};
constexpr Protocol kLl128{14 * unit::us, 1.9 * unit::us, 0.92};
constexpr Protocol kSimple{8.4 * unit::us, 3.4 * unit::us, 1.0};
constexpr Seconds kTreeHopLl128 = 1.25 * unit::us, kTreeHopSimple = 4.0 * unit::us;
constexpr double kTreeBandwidth = 0.92;

/// Bytes per second one rank of a group that spans domains moves over its ring: the slower of the
/// links inside a domain and the network ports of its ranks in that domain, taken together.
BytesPerSecond spanning_bandwidth(Collective op, const GroupShape& group, const Cluster& cluster) {
  const BytesPerSecond ports = (cluster.fabric.bandwidth_fraction * group.per_domain) *
                               fabric_bandwidth(cluster.fabric, group);
  if (group.per_domain == 1) return ports;
  return min(ports, fit_of(op, cluster.scale_up).bandwidth_fraction2 * cluster.scale_up.bandwidth);
}

/// Ring over n ranks in N domains, with NCCL's latency shape and the fabric's measured factor:
///
///     t = kappa (base + f [(n - N) hop_up + (N - 1) hop_out]) + f S (n-1)/n / B,  f = 2 all-reduce
///
/// the faster of LL128 and Simple. Linear in n: all-gather and reduce-scatter have no tree on
/// plain nodes.
Seconds spanning_ring(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster) {
  const BytesPerSecond bandwidth = spanning_bandwidth(op, group, cluster);
  const double f = passes(op);
  const Bytes on_wire = (f * (group.ranks - 1) / group.ranks) * size;
  const auto with = [&](const Protocol& protocol, Seconds hop_out) {
    const Seconds latency =
        protocol.base + f * (static_cast<double>(group.ranks - group.domains) * protocol.hop +
                             static_cast<double>(group.domains - 1) * hop_out);
    return cluster.fabric.latency_factor * latency +
           on_wire / (protocol.bandwidth_fraction * bandwidth);
  };
  return min(with(kLl128, cluster.fabric.ring_hop_ll128),
             with(kSimple, cluster.fabric.ring_hop_simple));
}

/// Tree all-reduce: t = kappa (base + 2 [(p - 1) hop_up + log2(N) hop_out]) + 2 S / (0.92 B).
Seconds spanning_tree(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const BytesPerSecond bandwidth =
      kTreeBandwidth * spanning_bandwidth(Collective::all_reduce, group, cluster);
  const double depth = std::log2(static_cast<double>(group.domains));
  const auto with = [&](const Protocol& protocol, Seconds hop_up, Seconds hop_out) {
    const Seconds latency =
        protocol.base + 2 * (static_cast<double>(group.per_domain - 1) * hop_up + depth * hop_out);
    return cluster.fabric.latency_factor * latency +
           (2 * size) / (protocol.bandwidth_fraction * bandwidth);
  };
  return min(with(kLl128, kTreeHopLl128, cluster.fabric.tree_hop_ll128),
             with(kSimple, kTreeHopSimple, cluster.fabric.tree_hop_simple));
}

/// All-to-all over domains: traffic inside and outside a domain runs at once.
///
///     t = latency + n l + max( S (p-1)/n / (b2 L), S (n-p)/n / (eta NIC) )
Seconds spanning_all_to_all(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const CollectiveFit& fit = cluster.scale_up.all_to_all;
  const double n = group.ranks;
  const Bytes inside = ((group.per_domain - 1) / n) * size;
  const Bytes outside = ((n - group.per_domain) / n) * size;
  const Seconds inside_time = inside / (fit.bandwidth_fraction2 * cluster.scale_up.bandwidth);
  const Seconds outside_time =
      outside / (cluster.fabric.all_to_all_fraction * fabric_bandwidth(cluster.fabric, group));
  return cluster.fabric.p2p_latency + (n - 1) * fit.per_rank2 + max(inside_time, outside_time);
}

}  // namespace

Seconds collective_time(Collective op, Bytes size, const GroupShape& group,
                        const Cluster& cluster) noexcept {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  if (group.domains == 1) return inside_domain(op, size, group.ranks, cluster.scale_up);
  switch (op) {
    case Collective::all_reduce:
      return min(spanning_ring(op, size, group, cluster), spanning_tree(size, group, cluster));
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return spanning_ring(op, size, group, cluster);
    case Collective::all_to_all:
      return spanning_all_to_all(size, group, cluster);
  }
  return Seconds{};
}

Seconds p2p_time(Bytes size, const GroupShape& group, const Cluster& cluster) noexcept {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  if (group.domains == 1) {
    return cluster.scale_up.p2p_latency +
           size / (cluster.scale_up.p2p_fraction * cluster.scale_up.bandwidth);
  }
  return cluster.fabric.p2p_latency +
         size / (cluster.fabric.p2p_fraction * fabric_bandwidth(cluster.fabric, group));
}

}  // namespace scalemodel
