// A routing problem and its solutions: flows with their paths, choices, routings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/fabric/graph.hpp"
#include "scalemodel/fabric/paths.hpp"
#include "scalemodel/traffic/flows.hpp"

namespace scalemodel {

/// Flows on a fabric with their candidate paths. Refers to fabric and flows, which must outlive it.
struct RoutingInstance {
  const LinkGraph& graph;
  const Flows& flows;
  PathLimits limits;
  PathSets paths;

  RoutingInstance(const LinkGraph& on, const Flows& of, const PathLimits& at_most = {})
      : graph(on),
        flows(of),
        limits(at_most),
        paths(find_paths(on, of.source, of.destination, at_most)) {}

  std::size_t size() const { return flows.size(); }
  /// Whether both NICs of the flow are on one switch, so that it has no choice of paths.
  bool is_local(std::size_t flow) const { return paths.set[flow] == PathSets::kNone; }
  std::int32_t paths_of(std::size_t flow) const {
    return is_local(flow) ? 0 : paths.paths(paths.set[flow]);
  }
  /// Links of the path at this position in the flow's set, without the links of its NICs.
  std::span<const std::int32_t> links(std::size_t flow, std::int32_t choice) const {
    return paths.links(paths.path_first[paths.set[flow]] + choice);
  }
  /// Position, in the flow's set, of the path over a plane of a two-tier fabric; PathSets::kNone
  /// where the flow cannot use the plane.
  std::int32_t position_of_plane(std::size_t flow, std::int32_t plane) const;
  /// Number of flows without any path.
  std::size_t disconnected() const;
};

/// One path per flow, as its position in the flow's set; PathSets::kNone: local or disconnected.
using Choice = std::vector<std::int32_t>;

/// Flows split into parts with one path each. `sprayed`: the packets of a flow alternate between
/// its paths, so the parts move together; otherwise every part is a flow of its own.
struct Routing {
  std::vector<std::int32_t> first{0};  ///< by flow: its first part (compressed rows)
  Choice choice;                       ///< by part
  std::vector<double> share;           ///< by part; the shares of a flow add up to one
  bool sprayed = false;
};

/// Flows between a fetch of what is stored of one and its use, where flows are not met in their
/// order: of millions each would wait for memory.
inline constexpr std::int32_t kFlowsAhead = 16;

/// Numbers of all flows, job after job, ascending within each.
std::vector<std::int32_t> flows_by_job(const Flows& flows);

/// Whether a number per job and place is little beside the flows and stays in a cache: then flows
/// are met in their order, not job after job.
bool fits_by_job(const Flows& flows, std::int32_t places);

/// A routing with every flow whole on one path.
Routing single_path(Choice choice);

/// Relative difference above the rounding of sums of the same numbers in different orders.
inline constexpr double kRounding = 1e-9;

/// The links of every entity, with units on the link per unit of its rate. Without `weight` every
/// coefficient is one.
struct Incidence {
  std::vector<std::int32_t> first{0};  ///< by entity: its first link (compressed rows)
  std::vector<std::int32_t> link;
  std::vector<double> weight;

  std::size_t size() const { return first.size() - 1; }
};

/// Links of every part of the routing, the links of NICs included. Where the routing is sprayed:
/// links of every flow, weighted by shares. A disconnected flow has no links.
Incidence flow_links(const RoutingInstance& instance, const Routing& routing);
Incidence flow_links(const RoutingInstance& instance, const Choice& choice);

/// Bytes per step of every job on every link it uses.
Incidence job_links(const RoutingInstance& instance, const Routing& routing);

/// Bytes on every link in one step of all jobs together.
std::vector<double> link_bytes(const RoutingInstance& instance, const Routing& routing);

}  // namespace scalemodel
