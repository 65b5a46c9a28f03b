// Direct-connect fabrics made for the traffic that they carry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/fabric/builders.hpp"

namespace scalemodel {

/// `count` strides at which a ring visits all of `nics`: numbers without a common factor with it,
/// up to half of it (a stride and its complement make the same ring), spread as a geometric series
/// from one so that few hops lead anywhere. Fewer where there are not as many. Source: TopoOpt
/// (NSDI 2023, arXiv 2202.00433), "TotientPerms" and "SelectPermutations".
std::vector<std::int32_t> ring_strides(std::int32_t nics, int count);

/// Bytes that a NIC sends to another.
struct NicDemand {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  double bytes = 0;
};

/// Pairs of NICs, no NIC twice, with much demand between them in both directions together: the
/// heaviest pair left first, then exchanges of two pairs' partners while that gains. At least half
/// of the heaviest matching.
std::vector<Edge> heavy_matching(std::int32_t nics, std::span<const NicDemand> demands);

/// `nics` accelerators with `ports` full-duplex ports each and no switch. Rings of the strides take
/// two ports of every NIC, then each port of the others goes by a heavy matching of the demands,
/// where a cable halves what its pair still asks for, as TopoOpt's topology finder does. Ports that
/// nobody asks for stay free.
LinkGraph direct_connect(std::int32_t nics, int ports, std::span<const std::int32_t> strides,
                         std::span<const NicDemand> demands, const Cable& cable);

}  // namespace scalemodel
