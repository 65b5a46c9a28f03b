// Exact routing of flows of few distinct sizes on few planes, by belief propagation.
#pragma once

#include <cstdint>
#include <optional>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// A choice of planes with which every link drains within `drain_s`, for flows of at most
/// `kMaxFlowSizes` distinct sizes on two tiers whose links are equal, where a link carries at most
/// `kMaxLinkUnits` times the largest number that divides all sizes; nothing where the effort finds
/// none. An effort of one is a number of operations that take about 50 ms; less than one run needs
/// is not begun.
///
/// Sum-product messages with reinforcement (Braunstein, Zecchina, PRL 96, 030201, 2006). Every link
/// tells each of its flows how likely the link is exactly as full as it must be with the flow and
/// without it, given what the other flows believe about their planes: a convolution over the bytes
/// on the link. What a flow believes acts back on it, more with every iteration, until every flow
/// is certain of a plane. A run starts at random and either meets an assignment that fits or ends
/// where beliefs contradict each other, with few links wrong. Cold annealing then repairs what it
/// can, and the next run starts from beliefs that slightly trust the repaired planes: they decide
/// anew what was wrong, and keep most of the rest. Annealing alone stops far above full links where
/// most links have to be filled exactly by two or three flows; messages see all of them at once.
std::optional<Choice> propagate_beliefs(const RoutingInstance& instance, double drain_s,
                                        double effort, std::uint64_t seed);

}  // namespace scalemodel
