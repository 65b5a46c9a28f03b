// Balanced edge colouring: an even spread of equal flows over the planes of a Clos network.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Colours the edges of a bipartite multigraph so that every vertex of degree d has floor(d / S) or
/// ceil(d / S) edges of each of the S colours. Such a colouring always exists (de Werra, INFOR 9
/// (1971) 237-246), and no assignment of equal flows to S spines has a less loaded fullest link.
///
/// Of m parallel edges floor(m / S) get every colour, which leaves fewer than S edges per pair. For
/// even S an Euler split gives two halves with S / 2 colours each. For odd S the edges are coloured
/// with S + 1 colours or the next power of two, and the edges of the surplus colours move to the
/// colours with the least load. Then, while the edge counts of two colours at some vertex differ by
/// more than one, an Euler split of the union of the two colours balances them at every vertex; it
/// lowers the sum of squared counts, so the loop ends. The Euler split pairs the edges at every
/// vertex; each path or cycle of partners alternates between the halves.
///
/// Preconditions: vertices below `left_vertices` and `right_vertices`, colours >= 1; `left`,
/// `right` and `colour` have one entry per edge.
void balanced_colouring(std::int32_t left_vertices, std::int32_t right_vertices,
                        std::span<const std::int32_t> left, std::span<const std::int32_t> right,
                        std::int32_t colours, std::span<std::int32_t> colour);

/// Routes flows by a colouring in which leaves are vertices, flows are edges and planes are
/// colours; sizes are ignored. In a fat tree a first colouring chooses the spine in the pod; a
/// second one, over the flows of every spine position, has pods as vertices and cores as colours.
/// Nothing for other fabrics, where leaves do not share the same planes, or where a link of a fat
/// tree is down.
std::optional<Choice> colouring(const RoutingInstance& instance);

/// The colouring baseline of arXiv 2503.05324: a proper edge colouring of the multigraph of leaves
/// with as many colours as the largest degree; colour c takes spine c modulo the spines that are
/// up. Without failures and with at most one flow per NIC and spine it is optimal; otherwise some
/// spines get more colours than others. Nothing where `colouring` answers nothing, or on fat trees.
std::optional<Choice> modulo_colouring(const RoutingInstance& instance);

}  // namespace scalemodel
