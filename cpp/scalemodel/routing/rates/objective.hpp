// How good a routing is: two-layer max-min fairness over jobs, and what no routing can beat.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {

/// How flows share links. Results depend on it and must name it.
enum class RateModel : std::uint8_t {
  fair_share,  // flows get max-min fair rates; a job steps with its slowest flow
  allocated,   // all flows of a job are paced to end together; jobs get max-min fair step rates
};

template <>
struct EnumNames<RateModel> {
  static constexpr std::string_view what = "rate model";
  static constexpr std::array<std::string_view, 2> names{"fair_share", "allocated"};
};

/// Steps per second of every job when each of its flows f moves at rates[f]: min over its flows of
/// rate / bytes. Infinite without flows, zero where a flow has no path.
std::vector<double> job_values(const Flows& flows, std::span<const double> rates);

/// Max-min fair steps per second of jobs whose flows are paced: filling with the bytes of every job
/// on every link as weights. The smallest value is min over links of capacity / bytes on it, for
/// any sizes.
std::vector<double> allocated_values(const RoutingInstance& instance, const Routing& routing,
                                     WaterFilling& filling);

/// Steps per second of every job alone on links that carry any path: only its NICs bound it.
std::vector<double> isolated_values(const RoutingInstance& instance);

/// Orders vectors of job values by their sorted entries, smallest first: the routing whose vector
/// is greater is better. Relative differences below kRounding are no difference. Neither span keeps
/// its order.
std::weak_ordering compare_sorted(std::span<double> a, std::span<double> b);

/// Bytes per second that every link carries when flows move at fair rates.
std::vector<double> link_rates(const RoutingInstance& instance, const Routing& routing,
                               WaterFilling& filling);

/// What the links of paths carry in one step of all jobs together; the links of NICs with a single
/// port belong to no path and are left out.
struct FabricLoad {
  std::int32_t flows = 0;  ///< most flows (or parts of flows) on one link
  Bytes bytes;             ///< most bytes on one link
  Seconds drain;           ///< longest time to drain a link: layer 1 of the objective
};

FabricLoad fabric_load(const RoutingInstance& instance, const Routing& routing);
/// Layer 1 of one path per flow.
Seconds drain_of(const RoutingInstance& instance, const Choice& choice);

/// Lower bounds on what `fabric_load` can be, for any single-path routing: of single flows, and of
/// what leaves or enters a switch with NICs. Traffic of NICs with several cables is in no leaf's
/// bound.
struct LoadBound {
  std::int32_t flows = 0;  ///< a leaf's flows over its links that are up, rounded up
  Seconds spread;          ///< a leaf's bytes over the capacity of its links; also bounds spraying
  Seconds largest;         ///< the largest flow on the widest of its paths
  /// A leaf with more than q S flows on S equal links puts q + 1 of the largest q S + 1 on one
  /// of them.
  Seconds pigeonhole;

  Seconds drain() const { return max(spread, max(largest, pigeonhole)); }
};

LoadBound load_bound(const RoutingInstance& instance);

}  // namespace scalemodel
