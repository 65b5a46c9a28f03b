// Spanning trees that share the links of a direct-connect fabric.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/fabric/graph.hpp"

namespace scalemodel {

/// Trees out of a root that span all NICs; a link carries the rates of all trees that use it.
struct TreePacking {
  std::vector<std::int32_t> first{0};  ///< by tree (compressed rows)
  std::vector<std::int32_t> link;      ///< of trees, a parent's before its children's
  std::vector<double> rate;            ///< by tree, bytes/s

  BytesPerSecond total() const;
};

/// What a NIC can at most broadcast: the least, over the other NICs, of the maximum flow to it.
/// Source: Edmonds, Edge-disjoint branchings (1973); by Fulkerson's duality no packing of trees
/// carries more, and some packing carries as much.
BytesPerSecond broadcast_bound(const LinkGraph& graph, std::int32_t root);

/// Trees that carry the broadcast bound. Grows one tree at a time by links that leave the maximum
/// flow to every NIC large enough for the rest (Lovasz, J. Combin. Theory B 21 (1976) 96-103), and
/// gives it the largest rate for which that holds. The trees that Blink (MLSys 2020, arXiv
/// 1910.04940) finds by multiplicative weights and an integer program have the same total.
///
/// Throws MalformedQuestion where the fabric has switches, where some NIC cannot be reached, or
/// where bandwidths have no common measure down to a thousandth of the largest.
TreePacking pack_broadcast(const LinkGraph& graph, std::int32_t root);

/// Trees whose links carry a rate both ways, reduction towards the root and broadcast from it at
/// the same time: an all-reduce whose whole buffer moves at the total of the rates. Packed
/// one lightest tree at a time, where links weigh exponentially more the more they carry, within
/// `accuracy` of the best (Garg and Koenemann, SIAM J. Comput. 37 (2007) 630-652); trees that
/// repeat are one. Cables count once with the smaller of their two directions.
TreePacking pack_all_reduce(const LinkGraph& graph, std::int32_t root, double accuracy);

/// No all-reduce by trees is faster: the least, over divisions of the NICs in parts, of the
/// bandwidth of cables between parts over the parts less one (Nash-Williams and Tutte), as far as
/// the division into single NICs and those of one NIC against the rest tell.
BytesPerSecond all_reduce_bound(const LinkGraph& graph);

}  // namespace scalemodel
