// Links that flows fill to the last byte.
#pragma once

#include <optional>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// A routing on two tiers deduced from sums of sizes. Where all links of a leaf must be full for
/// `drain_s` seconds to suffice, the flows of each of them add up to what it carries in that time.
/// Sets of flows that do so are found by size, two halves at a time; one that shares no flow with
/// another stays together. Flows that stay together at one leaf do so at all others, which shortens
/// the lists there, and so on until nothing new is found. Sets that stay together are then placed
/// on planes, largest first, where they fit and fill most links.
///
/// Exact where sizes differ so much that only the flows of one link add up to it, which is where
/// searching by moves has next to nothing to follow: below about as many flows as make the number
/// of routings times the chance that all links are almost full equal to one. Where sizes repeat,
/// sets are ambiguous and few are found. Nothing where no leaf has all its links full, or where not
/// all sets were found within the effort, of which 1 is about 30 ms on one core.
std::optional<Choice> exact_filling(const RoutingInstance& instance, double drain_s, double effort);

}  // namespace scalemodel
