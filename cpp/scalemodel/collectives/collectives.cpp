#include "scalemodel/collectives/collectives.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "scalemodel/collectives/curve.hpp"

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

Seconds geometric_mean(Seconds a, Seconds b) { return Seconds{std::sqrt(a.base() * b.base())}; }

/// log2 of a count; most groups are powers of two.
double depth_of(int count) {
  const auto bits = static_cast<unsigned>(count);
  // Not std::has_single_bit: without -mpopcnt it is a call, several in every evaluation.
  const bool power = bits != 0 && (bits & (bits - 1)) == 0;
  return power ? std::countr_zero(bits) : std::log2(static_cast<double>(count));
}

/// Smooth minimum (a^-6 + b^-6)^(-1/6): a call changes its protocol over a range of sizes.
Seconds faster(Seconds a, Seconds b) {
  const Seconds low = min(a, b), high = max(a, b);
  const double ratio = high > Seconds{} ? low / high : 0;
  const double cubed = ratio * ratio * ratio;
  return (1 / std::cbrt(std::sqrt(1 + cubed * cubed))) * low;
}

/// Smooth maximum (a^8 + b^8)^(1/8) of two stages of a pipeline: near balance each waits for the
/// other now and then.
Seconds slower(Seconds a, Seconds b) {
  const Seconds low = min(a, b), high = max(a, b);
  const double ratio = high > Seconds{} ? low / high : 0;
  const double squared = ratio * ratio, fourth = squared * squared;
  return std::sqrt(std::sqrt(std::sqrt(1 + fourth * fourth))) * high;
}

/// Slowdown by ranks that cross the host, where links are PCIe and its levels are not stated.
double host_loss(const CollectiveFit& fit, int ranks, const ScaleUp& scale_up) {
  return scale_up.levels.switched > 0 ? 1 : 1 + fit.host_share * std::max(0, ranks - 2);
}

/// Loss of a ring's bandwidth branch among `ranks` ranks of a domain: the share that a rank moves
/// although it is its own (felt in small groups), and host crossings.
double ring_loss(const CollectiveFit& fit, int ranks, const ScaleUp& scale_up) {
  return fit.own_share / ranks + host_loss(fit, ranks, scale_up);
}

/// A rate inside a domain, not above what crosses between switches and sockets.
BytesPerSecond bounded(BytesPerSecond rate, BytesPerSecond crossing) {
  return crossing > BytesPerSecond{} && crossing < rate ? crossing : rate;
}

/// Inside one scale-up domain, with w = f S (n-1)/n bytes on the bus and f (n-1) ring steps:
///
///     t = smooth min( a1 + f (n-1) l1 + w h/(b1 L),  a2 + f (n-1) l2 + x + sqrt(c x) ),
///     x = w (h + k/n)/(b2 L),  h = 1 + host share (n-2),  never below the wire's w/L
///
/// In a host of stated levels h is 1, and no rate is above that of the slowest level crossed.
/// The root is pipeline fill; the branches stand for NCCL's latency (LL) and bandwidth (Simple)
/// protocols. Form and constants fitted to published nccl-tests runs.
Seconds ring_inside(Collective op, Bytes size, const GroupShape& group, const ScaleUp& scale_up) {
  const CollectiveFit& fit = fit_of(op, scale_up);
  const int ranks = group.ranks;
  const double steps = passes(op) * (ranks - 1);
  const Bytes on_wire = (steps / ranks) * size;
  const Seconds wire = on_wire / scale_up.bandwidth;
  const BytesPerSecond crossing = crossing_bandwidth(scale_up, group);
  const double host = host_loss(fit, ranks, scale_up), loss = ring_loss(fit, ranks, scale_up);
  const Seconds least = crossing > BytesPerSecond{} ? max(wire, on_wire / crossing) : wire;
  const auto moved = [&](double fraction, double slowdown) {
    const Seconds free = (slowdown / fraction) * wire;
    return crossing > BytesPerSecond{} ? max(free, least) : free;
  };
  const Seconds x = moved(fit.bandwidth_fraction2, loss);
  const Seconds latency_branch =
      fit.start1 + steps * fit.per_rank1 + moved(fit.bandwidth_fraction1, host);
  const Seconds bandwidth_branch =
      fit.start2 + steps * fit.per_rank2 + x + geometric_mean(fit.pipeline_fill, x);
  return max(least, faster(latency_branch, bandwidth_branch));
}

/// Bytes a rank sends or receives, whichever is more, when the switch reduces and multicasts: an
/// all-reduce sends S for the switch to reduce and S/n of the result for it to multicast.
Bytes through_switch(Collective op, Bytes size, int ranks) {
  return op == Collective::all_reduce ? (1 + 1.0 / ranks) * size : size;
}

/// t = a + x + sqrt(c x),  x = S (1 + 1/n)/(b L) for an all-reduce, S/(b L) for its halves. With
/// more ranks an all-reduce moves *less* per rank, as measured: 8 H100 beat 4.
Seconds nvls_inside(Collective op, Bytes size, int ranks, const ScaleUp& scale_up) {
  const InSwitchFit& fit = scale_up.in_switch;
  const Seconds x = through_switch(op, size, ranks) / (fit.bandwidth_fraction * scale_up.bandwidth);
  return fit.start + x + geometric_mean(fit.pipeline_fill, x);
}

bool switch_reduces(const ScaleUp& scale_up) { return scale_up.in_switch.bandwidth_fraction > 0; }

/// NCCL's tabulated latencies (NVIDIA/nccl src/graph/tuning.cc), by protocol: base of a call, one
/// step over a scale-up link in a ring and in a tree.
struct Protocol {
  Seconds ring_base, tree_base, ring_hop, tree_hop;
  double bandwidth_fraction;
};
constexpr Protocol kLl{6.6 * unit::us, 6.8 * unit::us, 0.6 * unit::us, 0.6 * unit::us, 0.5};
constexpr Protocol kLl128{14 * unit::us, 14 * unit::us, 1.9 * unit::us, 1.25 * unit::us, 0.92};
constexpr Protocol kSimple{8.4 * unit::us, 8.4 * unit::us, 3.4 * unit::us, 4 * unit::us, 1};
/// Its steps over the network that do not depend on the class.
constexpr Seconds kRingHopLl = 2.7 * unit::us, kTreeHopLl = 5 * unit::us;
constexpr Seconds kSwitchBase = 25 * unit::us;
constexpr Seconds kPatBase = 8 * unit::us, kPatStep = 4 * unit::us, kPatRank = 2.8 * unit::us;
constexpr double kPatBandwidth = 0.75;

// Fitted to all-reduces and all-gathers of 1 MiB to 16 GiB over 2 to 1024 nodes, 20 systems and two
// published scans, with one latency factor per network class; 13 % mean error with a system left
// out. Trees reach less of a domain's ring bandwidth than NCCL's 0.92 says, and a step of an
// NVLSTree takes half of its 20.9 us.
constexpr Seconds kSwitchTreeHop = 10.6 * unit::us;
constexpr double kTreeBandwidth = 0.766;
constexpr double kTreeFill = 1.05;
/// LL sends flags with the data and is capped far below the link between nodes; Volta to Blackwell
/// 0.06-0.1 of it.
constexpr double kLlBandwidth = 0.06;

BytesPerSecond ports_of(const GroupShape& group, const Fabric& fabric) {
  return (fabric.bandwidth_fraction * group.per_domain) * fabric_bandwidth(fabric, group);
}

/// Rate of a ring inside a domain, without its latency.
BytesPerSecond ring_rate(Collective op, const GroupShape& group, const ScaleUp& scale_up) {
  const CollectiveFit& fit = fit_of(op, scale_up);
  const double loss = ring_loss(fit, group.per_domain, scale_up);
  return bounded((fit.bandwidth_fraction2 / loss) * scale_up.bandwidth,
                 crossing_bandwidth(scale_up, group));
}

/// Bytes that every domain of a ring sends to the next one.
Bytes ring_bytes(Collective op, Bytes size, int ranks) {
  return (passes(op) * (ranks - 1) / ranks) * size;
}

/// Bytes that a rank sends to those of other domains in an all-to-all.
Bytes exchanged_bytes(Bytes size, const GroupShape& group) {
  const double n = group.ranks;
  return ((n - group.per_domain) / n) * size;
}

/// Time on the wire of a ring that carries `bytes` through every port and every link.
Seconds ring_wire(Collective op, Bytes bytes, const GroupShape& group, const Cluster& cluster) {
  const Seconds outside = bytes / ports_of(group, cluster.fabric);
  if (group.per_domain == 1) return outside;
  return max(outside, bytes / ring_rate(op, group, cluster.scale_up));
}

/// Ring over n ranks in N domains, with NCCL's latency shape and the fabric's measured factor:
///
///     t = kappa (base + f [(n - N) hop_up + (N - 1) hop_out]) + f S (n-1)/n / B,  f = 2 all-reduce
///
/// the fastest of LL, LL128 and Simple. Linear in n: all-gather and reduce-scatter have no tree on
/// plain nodes. Its steps leave no room for pipeline fill beyond the latency; fitted, it is zero.
Seconds spanning_ring(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster) {
  const Fabric& fabric = cluster.fabric;
  const double f = passes(op);
  const Bytes on_wire = ring_bytes(op, size, group.ranks);
  const Seconds wire = ring_wire(op, on_wire, group, cluster);
  const double inside = f * (group.ranks - group.domains), outside = f * (group.domains - 1);
  const auto latency = [&](const Protocol& protocol, Seconds hop_out) {
    return fabric.latency_factor *
           (protocol.ring_base + inside * protocol.ring_hop + outside * hop_out);
  };
  const Seconds ll_wire = max((1 / kLl.bandwidth_fraction) * wire,
                              on_wire / (kLlBandwidth * cluster.scale_up.bandwidth));
  return min(min(latency(kLl, kRingHopLl) + ll_wire,
                 latency(kLl128, fabric.ring_hop_ll128) + (1 / kLl128.bandwidth_fraction) * wire),
             latency(kSimple, fabric.ring_hop_simple) + wire);
}

/// A tree fills its depth before it streams: cut into chunks of the best size, x seconds of wire
/// and a latency l take l + x + sqrt(c l x).
Seconds pipelined(Seconds latency, Seconds wire) {
  return latency + wire + geometric_mean(kTreeFill * latency, wire);
}

/// Bytes through the ports of a domain by a double binary tree, in buffers: with four domains or
/// more some domain is inner node of one tree and leaf of the other; two exchange halves.
double tree_buffers(int domains) { return domains == 2 ? 1 : domains == 3 ? 1.5 : 2; }

/// Tree all-reduce: latency kappa (base + 2 [(p - 1) hop_up + log2(N) hop_out]), pipelined with
/// the slower of ports (tree_buffers) and chain inside (2 S).
Seconds spanning_tree(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const Fabric& fabric = cluster.fabric;
  const double depth = depth_of(group.domains);
  Seconds wire = (tree_buffers(group.domains) * size) / ports_of(group, fabric);
  if (group.per_domain > 1) {
    wire = slower(wire, (2 / kTreeBandwidth * size) /
                            ring_rate(Collective::all_reduce, group, cluster.scale_up));
  }
  const auto with = [&](const Protocol& protocol, Seconds hop_out, Seconds on_wire) {
    const Seconds latency =
        protocol.tree_base + 2 * ((group.per_domain - 1.0) * protocol.tree_hop + depth * hop_out);
    return pipelined(fabric.latency_factor * latency, on_wire);
  };
  const Seconds ll_wire = max((1 / kLl.bandwidth_fraction) * wire,
                              (2 * size) / (kLlBandwidth * cluster.scale_up.bandwidth));
  return min(min(with(kLl, kTreeHopLl, ll_wire),
                 with(kLl128, fabric.tree_hop_ll128, (1 / kLl128.bandwidth_fraction) * wire)),
             with(kSimple, fabric.tree_hop_simple, wire));
}

/// The switch reduces inside domains; between them a double binary tree:
///
///     latency kappa (25 us + 2 log2(N) hop), wire the slower of tree_buffers S/ports and
///     S (1 + 1/p)/(b L)
Seconds spanning_nvls_tree(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const ScaleUp& scale_up = cluster.scale_up;
  const double depth = depth_of(group.domains);
  const Seconds outside = (tree_buffers(group.domains) * size) / ports_of(group, cluster.fabric);
  const Seconds inside = through_switch(Collective::all_reduce, size, group.per_domain) /
                         (scale_up.in_switch.bandwidth_fraction * scale_up.bandwidth);
  const Seconds latency = kSwitchBase + 2 * depth * kSwitchTreeHop;
  return pipelined(cluster.fabric.latency_factor * latency, slower(outside, inside));
}

/// The switches between domains reduce: ports carry the buffer once, up and down one hop each.
/// Derived, no timings of its own; NVIDIA prints 480 against 370 GB/s on 32 H100.
Seconds spanning_sharp(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const ScaleUp& scale_up = cluster.scale_up;
  const Seconds outside = size / ports_of(group, cluster.fabric);
  const Seconds latency = cluster.fabric.latency_factor * (kSwitchBase + 2 * kSwitchTreeHop);
  if (group.per_domain == 1) return pipelined(latency, outside);
  const Seconds inside =
      switch_reduces(scale_up)
          ? through_switch(Collective::all_reduce, size, group.per_domain) /
                (scale_up.in_switch.bandwidth_fraction * scale_up.bandwidth)
          : (2 / kTreeBandwidth * size) / ring_rate(Collective::all_reduce, group, scale_up);
  return pipelined(latency, slower(outside, inside));
}

/// Parallel aggregated trees: t = kappa (8 us + 4 us log2(N) + 2.8 us n) + S (n-1)/n / (0.75 ports)
Seconds spanning_pat(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const double n = group.ranks;
  const Seconds latency = kPatBase + depth_of(group.ranks) * kPatStep + n * kPatRank;
  return cluster.fabric.latency_factor * latency +
         ((n - 1) / n / kPatBandwidth * size) / ports_of(group, cluster.fabric);
}

/// All-to-all over domains: traffic inside and outside a domain runs at once, unless both share
/// the links of the accelerator (PCIe).
///
///     t = latency + (n-1) l + max( x + sqrt(c x), S (n-p)/n / (eta NIC) ),  x = S (p-1)/n h/(b2 L)
Seconds spanning_all_to_all(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const CollectiveFit& fit = cluster.scale_up.all_to_all;
  const double n = group.ranks;
  const Bytes outside = exchanged_bytes(size, group);
  const double through_links = cluster.scale_up.carries_fabric ? n - 1 : group.per_domain - 1.0;
  const Seconds inside =
      ((through_links / n) * size) / ring_rate(Collective::all_to_all, group, cluster.scale_up);
  const Seconds outside_time =
      outside / (cluster.fabric.all_to_all_fraction * fabric_bandwidth(cluster.fabric, group));
  return fit.start2 + cluster.fabric.p2p_latency + (n - 1) * fit.per_rank2 +
         max(inside + geometric_mean(fit.pipeline_fill, inside), outside_time);
}

/// What a rank of a domain exchanges with its counterparts of the other domains.
GroupShape rail(const GroupShape& group) {
  return {.ranks = group.domains,
          .per_domain = 1,
          .domains = group.domains,
          .leaves_pod = group.leaves_pod,
          .share = group.share};
}

/// The ranks of a group in one of its domains.
GroupShape inside(const GroupShape& group) {
  return {.ranks = group.per_domain, .per_domain = group.per_domain, .apart = group.apart};
}

/// Inside domains first, then along rails, with a p-th of the buffer each:
/// all-reduce = reduce-scatter inside, all-reduce along the rail, all-gather inside; an all-to-all
/// exchanges inside so that every message leaves from the rail it arrives on, N - 1 messages.
Seconds hierarchical(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster) {
  const ScaleUp& up = cluster.scale_up;
  const GroupShape along = rail(group), within = inside(group);
  const Bytes share = size / static_cast<double>(group.per_domain);
  switch (op) {
    case Collective::all_reduce:
      return ring_inside(Collective::reduce_scatter, size, within, up) +
             min(spanning_ring(op, share, along, cluster), spanning_tree(share, along, cluster)) +
             ring_inside(Collective::all_gather, size, within, up);
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return spanning_ring(op, share, along, cluster) + ring_inside(op, size, within, up);
    case Collective::all_to_all:
      return ring_inside(op, size, within, up) + spanning_all_to_all(size, along, cluster);
  }
  return Seconds{};
}

Seconds best_spanning(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster) {
  switch (op) {
    case Collective::all_reduce: {
      Seconds best =
          min(spanning_ring(op, size, group, cluster), spanning_tree(size, group, cluster));
      if (is_legal(op, Algorithm::nvls_tree, group, cluster)) {
        best = min(best, spanning_nvls_tree(size, group, cluster));
      }
      if (cluster.fabric.in_network_reduction) {
        best = min(best, spanning_sharp(size, group, cluster));
      }
      return best;
    }
    case Collective::all_gather:
    case Collective::reduce_scatter: {
      const Seconds ring = spanning_ring(op, size, group, cluster);
      return group.per_domain == 1 ? min(ring, spanning_pat(size, group, cluster)) : ring;
    }
    case Collective::all_to_all:
      return spanning_all_to_all(size, group, cluster);
  }
  return Seconds{};
}

}  // namespace

Bytes domain_bytes(Collective op, Algorithm algorithm, Bytes size,
                   const GroupShape& group) noexcept {
  if (group.domains <= 1) return Bytes{};
  switch (algorithm) {
    case Algorithm::tree:
    case Algorithm::nvls_tree:
      return tree_buffers(group.domains) * size;
    case Algorithm::sharp:
      return size;
    case Algorithm::direct:
      return group.per_domain * exchanged_bytes(size, group);
    case Algorithm::hierarchical:
      if (op == Collective::all_to_all) return group.per_domain * exchanged_bytes(size, group);
      return ring_bytes(op, size, group.domains);
    case Algorithm::best:
    case Algorithm::ring:
    case Algorithm::nvls:
    case Algorithm::pat:
      return ring_bytes(op, size, group.ranks);
  }
  return Bytes{};
}

bool is_legal(Collective op, Algorithm algorithm, const GroupShape& group,
              const Cluster& cluster) noexcept {
  const bool spans = group.domains > 1, shares = group.per_domain > 1;
  const bool reduces = op == Collective::all_reduce;
  const bool exchanges = op == Collective::all_to_all;
  switch (algorithm) {
    case Algorithm::best:
      return true;
    case Algorithm::ring:
      return !exchanges;
    case Algorithm::tree:
      return reduces && spans;
    case Algorithm::nvls:
      return !exchanges && !spans && shares && switch_reduces(cluster.scale_up);
    case Algorithm::nvls_tree:
      return reduces && spans && shares && switch_reduces(cluster.scale_up);
    case Algorithm::pat:
      return !reduces && !exchanges && spans && !shares;
    case Algorithm::sharp:
      return reduces && spans && cluster.fabric.in_network_reduction;
    case Algorithm::hierarchical:
      return spans && shares;
    case Algorithm::direct:
      return exchanges;
  }
  return false;
}

Seconds collective_time(Collective op, Bytes size, const GroupShape& group,
                        const Cluster& cluster) noexcept {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  if (const MeasuredCurve* curve = curve_of(op, group, cluster.measured)) {
    const Seconds measured = measured_time(*curve, size);
    if (group.share == 1 || group.domains == 1) return measured;
    // Measured with nothing in the way: slowed down as much as the model is.
    GroupShape ideal = group;
    ideal.share = 1;
    return (best_spanning(op, size, group, cluster) / best_spanning(op, size, ideal, cluster)) *
           measured;
  }
  if (group.domains > 1) return best_spanning(op, size, group, cluster);
  const Seconds ring = ring_inside(op, size, group, cluster.scale_up);
  if (op == Collective::all_to_all || !switch_reduces(cluster.scale_up)) return ring;
  return min(ring, nvls_inside(op, size, group.ranks, cluster.scale_up));
}

Seconds collective_time(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster,
                        Algorithm algorithm) noexcept {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  const bool spans = group.domains > 1;
  switch (algorithm) {
    case Algorithm::best:
      return collective_time(op, size, group, cluster);
    case Algorithm::ring:
      return spans ? spanning_ring(op, size, group, cluster)
                   : ring_inside(op, size, group, cluster.scale_up);
    case Algorithm::tree:
      return spanning_tree(size, group, cluster);
    case Algorithm::nvls:
      return nvls_inside(op, size, group.ranks, cluster.scale_up);
    case Algorithm::nvls_tree:
      return spanning_nvls_tree(size, group, cluster);
    case Algorithm::pat:
      return spanning_pat(size, group, cluster);
    case Algorithm::sharp:
      return spanning_sharp(size, group, cluster);
    case Algorithm::hierarchical:
      return hierarchical(op, size, group, cluster);
    case Algorithm::direct:
      return spans ? spanning_all_to_all(size, group, cluster)
                   : ring_inside(op, size, group, cluster.scale_up);
  }
  return Seconds{};
}

Algorithm best_algorithm(Collective op, Bytes size, const GroupShape& group,
                         const Cluster& cluster) noexcept {
  constexpr std::array kOfLibrary{Algorithm::ring,      Algorithm::tree, Algorithm::nvls,
                                  Algorithm::nvls_tree, Algorithm::pat,  Algorithm::sharp,
                                  Algorithm::direct};
  Algorithm best = Algorithm::best;
  Seconds least;
  for (const Algorithm algorithm : kOfLibrary) {
    if (!is_legal(op, algorithm, group, cluster)) continue;
    const Seconds time = collective_time(op, size, group, cluster, algorithm);
    if (best == Algorithm::best || time < least) {
      best = algorithm;
      least = time;
    }
  }
  return best;
}

Seconds p2p_time(Bytes size, const GroupShape& group, const Cluster& cluster) noexcept {
  if (group.ranks <= 1 || size <= Bytes{}) return Seconds{};
  if (group.domains == 1) {
    const ScaleUp& up = cluster.scale_up;
    return up.p2p_latency +
           size / bounded(up.p2p_fraction * up.bandwidth, crossing_bandwidth(up, group));
  }
  return cluster.fabric.p2p_latency +
         size / (cluster.fabric.p2p_fraction * fabric_bandwidth(cluster.fabric, group));
}

}  // namespace scalemodel
