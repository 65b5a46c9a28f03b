// Packings of spanning trees on direct-connect fabrics.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/fabric/graph.hpp"

namespace scalemodel {

/// Spanning trees of all NICs from one root; a link carries the sum of the rates of its trees.
struct TreePacking {
  std::vector<std::int32_t> first{0};  ///< by tree (compressed rows)
  std::vector<std::int32_t>
      link;                  ///< of all trees; the link to a parent precedes those to its children
  std::vector<double> rate;  ///< by tree, bytes/s

  BytesPerSecond total() const;
};

/// Largest rate of a broadcast from a NIC: the least maximum flow from it to another NIC. Source:
/// Edmonds, Edge-disjoint branchings (1973); by Fulkerson's duality no packing of trees exceeds it,
/// and some packing attains it.
BytesPerSecond broadcast_bound(const LinkGraph& graph, std::int32_t root);

/// A packing of trees that attains the broadcast bound. A tree grows by links whose removal keeps
/// the maximum flow to every NIC large enough for the other trees (Lovasz, J. Combin. Theory B 21
/// (1976) 96-103); its rate is the largest one that keeps it so. The trees that Blink (MLSys 2020,
/// arXiv 1910.04940) finds by multiplicative weights and an integer program have the same total.
///
/// Throws MalformedQuestion where the fabric has switches, where some NIC cannot be reached, or
/// where bandwidths have no common measure down to a thousandth of the largest.
TreePacking pack_broadcast(const LinkGraph& graph, std::int32_t root);

/// A packing of trees whose links carry their rates in both directions, a reduction towards the
/// root and a broadcast from it at the same time: an all-reduce of a whole buffer at the total of
/// the rates. The packing adds one minimum-weight tree at a time; the weight of a link grows
/// exponentially with its load (Garg and Koenemann, SIAM J. Comput. 37 (2007) 630-652). The total
/// is within a relative `accuracy` of the optimum. Equal trees are merged. The capacity of a cable
/// is the smaller one of its two directions.
TreePacking pack_all_reduce(const LinkGraph& graph, std::int32_t root, double accuracy);

/// Upper bound on the total of `pack_all_reduce`. The optimum is the least, over partitions of the
/// NICs, of the bandwidth of cables between parts over the parts less one (Nash-Williams and
/// Tutte); the bound takes the partition into single NICs and those into one NIC and the rest.
BytesPerSecond all_reduce_bound(const LinkGraph& graph);

}  // namespace scalemodel
