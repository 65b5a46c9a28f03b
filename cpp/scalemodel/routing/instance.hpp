// What a router is asked, and what it answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/fabric/graph.hpp"
#include "scalemodel/fabric/paths.hpp"
#include "scalemodel/traffic/flows.hpp"

namespace scalemodel {

/// Flows on a fabric with the paths they may take. Refers to fabric and flows, which must outlive
/// it.
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
  /// The flow needs no choice: both NICs hang on one switch.
  bool is_local(std::size_t flow) const { return paths.set[flow] == PathSets::kNone; }
  std::int32_t paths_of(std::size_t flow) const {
    return is_local(flow) ? 0 : paths.paths(paths.set[flow]);
  }
  /// Links of the flow's path with this position in its set, without those of its NICs.
  std::span<const std::int32_t> links(std::size_t flow, std::int32_t choice) const {
    return paths.links(paths.path_first[paths.set[flow]] + choice);
  }
  /// Where the path over a plane of a two-tier fabric stands in the flow's set; PathSets::kNone:
  /// the flow cannot use it.
  std::int32_t position_of_plane(std::size_t flow, std::int32_t plane) const;
  /// Flows without any path.
  std::size_t disconnected() const;
};

/// One path per flow, as its position in the flow's set; PathSets::kNone: local or disconnected.
using Choice = std::vector<std::int32_t>;

/// A flow's bytes over several paths. `sprayed`: packets of one flow take all of them; otherwise
/// every part is a flow of its own.
struct Routing {
  std::vector<std::int32_t> first{0};  ///< by flow: its first part (compressed rows)
  Choice choice;                       ///< by part
  std::vector<double> share;           ///< by part; those of a flow add up to one
  bool sprayed = false;
};

/// Every flow whole on one path.
Routing single_path(Choice choice);

/// Relative: sums of the same numbers in another order differ by less.
inline constexpr double kRounding = 1e-9;

/// Which links the entities of a filling use, and how many units per unit of their rate. Without
/// `weight` every coefficient is one.
struct Incidence {
  std::vector<std::int32_t> first{0};
  std::vector<std::int32_t> link;
  std::vector<double> weight;

  std::size_t size() const { return first.size() - 1; }
};

/// Links of every part of the routing, NICs included; of every flow, weighted by shares, where it
/// is sprayed. Disconnected flows use none.
Incidence flow_links(const RoutingInstance& instance, const Routing& routing);
Incidence flow_links(const RoutingInstance& instance, const Choice& choice);

/// Bytes per step of every job on every link it uses.
Incidence job_links(const RoutingInstance& instance, const Routing& routing);

/// Bytes on every link in one step of all jobs together.
std::vector<double> link_bytes(const RoutingInstance& instance, const Routing& routing);

}  // namespace scalemodel
