// Exact packing of unequal flows: sets of flows whose bytes fill links of two tiers exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scalemodel/routing/exact/spine_assignment.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// A partition of the flows with several paths into sets that take one plane of two tiers. Sides
/// are numbered by leaf: first the uplinks of every leaf, then the downlinks.
struct FlowSets {
  std::vector<std::vector<std::int32_t>> members;  ///< flows, by set
  std::vector<std::vector<SideLoad>> loads;        ///< bytes on the sides of its leaves, by set
  std::vector<ExactPacking>
      packings;           ///< of sides on which sets fill a part of a link, if complete
  bool complete = false;  ///< `packings` holds every way to fill a link that must be full
  double effort = 0;      ///< effort spent
};

/// Deduces which flows take the same plane from sums of their bytes. Where `drain_s` seconds
/// suffice only if every link of a side is full, the flows of each link add up to the bytes that it
/// carries in that time. On a side with few flows all such packings are listed; a packing that is
/// the only one with some flow is certain, and its flows form one set. The other packings are
/// alternatives, among which `assign_spines` decides. On a side with many flows the deduction
/// searches packings of few flows first: a packing that shares no flow with another one is certain.
/// Certain sets shorten the lists of their other sides, hence the deduction repeats until it finds
/// nothing new or the effort is spent. An effort of 1 is up to 50 ms on one core.
///
/// The method is exact in the range in which local search fails: below about as many flows as make
/// the number of routings times the probability that all links are almost full equal to one. Where
/// sizes repeat (multiples of a thousandth of a link), a side has many packings, and the limit is
/// about three flows per link. Preconditions: two tiers, drain_s > 0.
FlowSets deduce_flow_sets(const RoutingInstance& instance, double drain_s, double effort);

/// One set per flow with several paths. Precondition: two tiers.
FlowSets single_flow_sets(const RoutingInstance& instance);

/// A choice of planes for complete sets with which every link drains within `drain_s`; nothing
/// where the solver finds none within the effort. An effort of 1 is up to 50 ms on one core.
std::optional<Choice> assign_spines(const RoutingInstance& instance, const FlowSets& sets,
                                    double drain_s, double effort);

/// The paths of all flows where `planes` has the plane of every set.
Choice choice_of_planes(const RoutingInstance& instance, const FlowSets& sets,
                        std::span<const std::int32_t> planes);

/// Bytes per second of the link of a side on a plane.
double side_capacity(const LinkGraph& graph, std::int32_t side, std::int32_t plane);

}  // namespace scalemodel
