// Direct-connect fabrics optimised for given traffic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/fabric/builders.hpp"

namespace scalemodel {

/// `count` strides with which a ring visits all of `nics`: numbers coprime to it, up to half of it
/// (a stride and its complement give the same ring), close to a geometric series from one so that
/// paths have few hops. The result has fewer strides where fewer exist. Source: TopoOpt (NSDI 2023,
/// arXiv 2202.00433), "TotientPerms" and "SelectPermutations".
std::vector<std::int32_t> ring_strides(std::int32_t nics, int count);

/// Bytes from one NIC to another.
struct NicDemand {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  double bytes = 0;
};

/// A matching of NICs by demand, both directions of a pair together. A greedy matching takes the
/// pair with the largest remaining demand first; then two pairs exchange partners while that raises
/// the weight. The weight is at least half of the maximum.
std::vector<Edge> heavy_matching(std::int32_t nics, std::span<const NicDemand> demands);

/// `nics` accelerators with `ports` full-duplex ports each and no switch. The ring of every stride
/// takes two ports of every NIC. Each further port connects the pairs of a heavy matching of the
/// demands; a cable halves the remaining demand of its pair, as in TopoOpt's topology finder. Ports
/// without demand stay free.
LinkGraph direct_connect(std::int32_t nics, int ports, std::span<const std::int32_t> strides,
                         std::span<const NicDemand> demands, const Cable& cable);

}  // namespace scalemodel
