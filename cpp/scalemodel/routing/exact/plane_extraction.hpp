// Exact routing of flows of few distinct sizes, one plane of two tiers after the other.
#pragma once

#include <cstdint>
#include <optional>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// A choice of planes with which every link drains within `drain_s`, for flows of at most eight
/// distinct sizes on two tiers whose links are equal; nothing where it finds none, or where the
/// fabric or the sizes differ.
///
/// Planes are filled one after the other, each from the flows that are left, the largest first, so
/// that small flows, which fit in many ways, remain for the last planes. Where a link is too full,
/// or leaves too much for the other planes, alternating chains repair it: flows of one size that
/// enter the plane and leave it in turn, from leaf to leaf, change the load at the two ends of the
/// chain alone. Up to three chains of different sizes between the same two leaves move what is too
/// much at one of them to the other. A leaf counts as overloaded too where the sizes that it leaves
/// cannot be packed on the links of the other planes. The last two planes are assigned by
/// `SpineAssignment`.
///
/// Chains are long where the flows of a size are many per leaf: with about as many planes as twice
/// the sizes, or more. With fewer planes the search seldom ends with an answer and soon gives up.
std::optional<Choice> extract_planes(const RoutingInstance& instance, double drain_s,
                                     std::uint64_t seed);

}  // namespace scalemodel
