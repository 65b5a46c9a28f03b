// Candidate paths of traffic, stored once per pair of end switches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/fabric/graph.hpp"

namespace scalemodel {

struct PathLimits {
  int shortest = 256;  ///< shortest paths per pair at most, >= 1
  int detours = 0;     ///< further paths through another switch (Valiant) per pair at most, >= 0
};

/// Paths of commodities over links that are up. Commodities between the same switches share a set;
/// the links of their NICs are stored separately, which keeps the sets small.
struct PathSets {
  static constexpr std::int32_t kNone = -1;

  // By commodity.
  std::vector<std::int32_t> set;        ///< kNone: both NICs are on one switch
  std::vector<std::int32_t> host_up;    ///< link out of the source; kNone: part of the path
  std::vector<std::int32_t> host_down;  ///< link into the destination; kNone: part of the path
  // By set, path and link of a path (compressed rows).
  std::vector<std::int32_t> path_first{0};
  std::vector<std::int32_t> link_first{0};
  std::vector<std::int32_t> link;
  std::vector<std::int32_t> via;  ///< by path: plane of a two-tier fabric, otherwise its position

  std::int32_t paths(std::int32_t of_set) const {
    return path_first[of_set + 1] - path_first[of_set];
  }
  std::span<const std::int32_t> links(std::int32_t path) const {
    return std::span(link).subspan(link_first[path], link_first[path + 1] - link_first[path]);
  }
  std::size_t commodities() const { return set.size(); }
};

/// Paths of every pair of a source NIC and a destination NIC. In a two-tier fabric: every plane
/// with both links up, in the order of planes. In other fabrics: shortest paths in the order of
/// link numbers, then detours. A commodity without any path has an empty set, also where a link of
/// its NICs is down.
PathSets find_paths(const LinkGraph& graph, std::span<const std::int32_t> sources,
                    std::span<const std::int32_t> destinations, const PathLimits& limits = {});

}  // namespace scalemodel
