// The two-layer max-min fair objective over jobs, loads of links, and lower bounds on them.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {

/// How flows share links; results depend on it.
enum class RateModel : std::uint8_t {
  fair_share,  // flows get max-min fair rates; a job steps with its slowest flow
  allocated,   // all flows of a job are paced to end together; jobs get max-min fair step rates
};

template <>
struct EnumNames<RateModel> {
  static constexpr std::string_view what = "rate model";
  static constexpr std::array<std::string_view, 2> names{"fair_share", "allocated"};
};

/// Steps per second of every job whose flows f have rates[f]: min over its flows of rate / bytes.
/// Infinite without flows, zero where a flow has no path.
std::vector<double> job_values(const Flows& flows, std::span<const double> rates);

/// Max-min fair steps per second of jobs whose flows are paced, by progressive filling with the
/// bytes of every job on every link as weights. The smallest value is min over links of capacity /
/// bytes, for any sizes.
std::vector<double> allocated_values(const RoutingInstance& instance, const Routing& routing,
                                     WaterFilling& filling);

/// Bytes per second of the port of a flow's NIC: of its only link, or, without one (kNone), of the
/// widest path of the flow.
double port_capacity(const RoutingInstance& instance, std::size_t flow, std::int32_t host_link);

/// Steps per second of every job alone on a fabric without contention: only its NICs bound it.
std::vector<double> isolated_values(const RoutingInstance& instance);

/// Compares vectors of job values lexicographically by their sorted entries, the smallest first;
/// the greater vector belongs to the better routing. Values within a relative kRounding are equal.
/// Both spans are sorted in place.
std::weak_ordering compare_sorted(std::span<double> a, std::span<double> b);

/// Bytes per second on every link.
std::vector<double> link_rates(const RoutingInstance& instance, const FairParts& parts);

/// Load of the links of paths in one step of all jobs together. The link of a NIC with a single
/// port belongs to no path and is excluded.
struct FabricLoad {
  std::int32_t flows = 0;  ///< most flows (or parts of flows) on one link
  Bytes bytes;             ///< most bytes on one link
  Seconds drain;           ///< longest time to drain a link: layer 1 of the objective
};

FabricLoad fabric_load(const RoutingInstance& instance, const Routing& routing);
/// Layer 1 of one path per flow.
Seconds drain_of(const RoutingInstance& instance, const Choice& choice);

/// Lower bounds on `fabric_load` over all single-path routings: from single flows, and from the
/// flows that leave or enter a switch with NICs (a leaf). Traffic of NICs with several cables is in
/// no bound of a leaf.
struct LoadBound {
  std::int32_t flows = 0;  ///< a leaf's flows over its links that are up, rounded up
  Seconds spread;          ///< a leaf's bytes over the capacity of its links; also bounds spraying
  Seconds largest;         ///< the largest flow on the widest of its paths
  /// A leaf with more than q S flows on S equal links puts q + 1 of the largest q S + 1 on one
  /// of them.
  Seconds pigeonhole;
  /// All flows of a leaf packed on its links, where these are equal (`packing_bound`).
  Seconds packing;

  Seconds drain() const { return max(max(spread, packing), max(largest, pigeonhole)); }
};

LoadBound load_bound(const RoutingInstance& instance);

}  // namespace scalemodel
