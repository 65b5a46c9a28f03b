// Links that flows fill to the last byte.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scalemodel/routing/exact/spine_assignment.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Flows that take the same plane of two tiers, as sets. A row is what leaves, or what enters, one
/// leaf: rows of leaves that send come first.
struct FlowSets {
  std::vector<std::vector<std::int32_t>> members;  ///< flows that have a choice, each in one set
  std::vector<std::vector<RowLoad>> rows;          ///< bytes of each set
  std::vector<Filling> fillings;  ///< of rows where some sets take a part of a link, if complete
  bool complete = false;          ///< all is known that may fill a link that must be full
  double effort = 0;              ///< spent
};

/// What stays together, deduced from sums of sizes. Where all links of a leaf must be full for
/// `drain_s` seconds to suffice, the flows of each of them add up to what it carries in that time.
/// All such fillings are listed where a leaf has few flows; the only one with a place for some flow
/// is certain, and its flows stay together. Where that leaves a choice, it is the fillings among
/// which the planes decide. Leaves of more flows are searched for fillings of few flows first: one
/// that shares no flow with another stays together, which shortens the lists there and at other
/// leaves, and so on until nothing new is found within the effort, of which 1 is up to 50 ms on one
/// core.
///
/// Exact where searching by moves has next to nothing to follow: below about as many flows as make
/// the number of routings times the chance that all links are almost full equal to one. Where sizes
/// repeat (multiples of a thousandth of a link), leaves have many fillings, and more than some
/// three flows a link are too many. Precondition: two tiers, drain_s > 0.
FlowSets deduce_sets(const RoutingInstance& instance, double drain_s, double effort);

/// Every flow that has a choice as a set of its own. Precondition: two tiers.
FlowSets single_flows(const RoutingInstance& instance);

/// Complete sets on planes such that no link needs more than `drain_s`; nothing where none was
/// found within the effort, of which 1 is up to 50 ms on one core.
std::optional<Choice> place_sets(const RoutingInstance& instance, const FlowSets& sets,
                                 double drain_s, double effort);

/// The paths of the flows of sets on these planes, by set.
Choice choice_of(const RoutingInstance& instance, const FlowSets& sets,
                 std::span<const std::int32_t> planes);

/// Bytes per second of the link of a row on a plane.
double capacity_of(const LinkGraph& graph, std::int32_t row, std::int32_t plane);

}  // namespace scalemodel
