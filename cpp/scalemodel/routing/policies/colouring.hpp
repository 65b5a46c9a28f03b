// Balanced edge colouring: equal flows of a Clos network spread as evenly as numbers allow.
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
/// Of m parallel edges floor(m / S) get every colour at once, which leaves fewer than S per pair.
/// Even S: an Euler split into two halves of S / 2 colours each. Odd S: S + 1 colours or the next
/// power of two, the edges of those too many wherever they load least; then, while some vertex has
/// two colours whose numbers differ by more than one, an Euler split of the union of the two: every
/// vertex becomes balanced on both and the sum of squares falls, so that it ends. The Euler split
/// pairs the edges at every vertex; each path or cycle of partners alternates between the halves.
///
/// Preconditions: vertices below `left_vertices` and `right_vertices`, colours >= 1; `left`,
/// `right` and `colour` have one entry per edge.
void balanced_colouring(std::int32_t left_vertices, std::int32_t right_vertices,
                        std::span<const std::int32_t> left, std::span<const std::int32_t> right,
                        std::int32_t colours, std::span<std::int32_t> colour);

/// Leaves are vertices, flows are edges, planes are colours. Ignores sizes. In a fat tree first the
/// spine of the pod; then, for the flows of every such plane, pods are vertices and its cores are
/// colours. Nothing for other fabrics, where leaves do not share the same planes, or where anything
/// of a fat tree is down.
std::optional<Choice> colouring(const RoutingInstance& instance);

}  // namespace scalemodel
