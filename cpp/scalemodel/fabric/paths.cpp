#include "scalemodel/fabric/paths.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/pair_numbers.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

using Links = std::vector<std::int32_t>;

void add_path(PathSets& paths, std::span<const std::int32_t> links, std::int32_t via) {
  paths.link.insert(paths.link.end(), links.begin(), links.end());
  paths.link_first.push_back(static_cast<std::int32_t>(paths.link.size()));
  paths.via.push_back(via);
}

void close_set(PathSets& paths) {
  paths.path_first.push_back(static_cast<std::int32_t>(paths.via.size()));
}

void add_two_tier_paths(PathSets& paths, const LinkGraph& graph, std::int32_t from,
                        std::int32_t to) {
  const TwoTier& tiers = graph.two_tier();
  const std::int32_t* up = tiers.up.data() + tiers.at(from, 0);
  const std::int32_t* down = tiers.down.data() + tiers.at(to, 0);
  for (std::int32_t plane = 0; plane < tiers.planes; ++plane) {
    if (!graph.alive(up[plane]) || !graph.alive(down[plane])) continue;
    paths.link.push_back(up[plane]);
    paths.link.push_back(down[plane]);
    paths.link_first.push_back(static_cast<std::int32_t>(paths.link.size()));
    paths.via.push_back(plane);
  }
}

/// Shortest paths over links that are up, by breadth-first search from the destination.
class ShortestPathSearch {
 public:
  ShortestPathSearch(const LinkGraph& graph, const PathLimits& limits)
      : graph_(graph), limits_(limits) {}

  void add_all(PathSets& paths, std::int32_t from, std::int32_t to) {
    found_ = 0;
    links_.clear();
    descend(paths, hops_to(to), from, to);
    if (found_ > 0) add_detours(paths, from, to);
  }

 private:
  /// Number of links from every node to `to`; -1 where no path exists.
  const std::vector<std::int16_t>& hops_to(std::int32_t to) {
    auto [entry, is_new] = hops_.try_emplace(to);
    std::vector<std::int16_t>& hops = entry->second;
    if (!is_new) return hops;
    hops.assign(graph_.nodes(), -1);
    hops[to] = 0;
    std::vector<std::int32_t> queue{to};
    for (std::size_t next = 0; next < queue.size(); ++next) {
      poll_point();
      for (const std::int32_t out : graph_.links_from(queue[next])) {
        const std::int32_t node = graph_.to(out);
        if (hops[node] >= 0 || !graph_.alive(LinkGraph::reverse(out))) continue;
        hops[node] = static_cast<std::int16_t>(hops[queue[next]] + 1);
        queue.push_back(node);
      }
    }
    return hops;
  }

  /// Adds all shortest paths that continue `links_`.
  void descend(PathSets& paths, const std::vector<std::int16_t>& hops, std::int32_t from,
               std::int32_t to) {
    poll_point();
    if (from == to) {
      add_path(paths, links_, found_++);
      return;
    }
    if (hops[from] < 0) return;
    for (const std::int32_t out : graph_.links_from(from)) {
      if (found_ >= limits_.shortest) return;
      if (hops[graph_.to(out)] != hops[from] - 1 || !graph_.alive(out)) continue;
      links_.push_back(out);
      descend(paths, hops, graph_.to(out), to);
      links_.pop_back();
    }
  }

  /// Appends the links of the first shortest path; false where no path exists.
  bool append_shortest(std::int32_t from, std::int32_t to) {
    const std::vector<std::int16_t>& hops = hops_to(to);
    if (hops[from] < 0) return false;
    while (from != to) {
      for (const std::int32_t out : graph_.links_from(from)) {
        if (hops[graph_.to(out)] != hops[from] - 1 || !graph_.alive(out)) continue;
        links_.push_back(out);
        from = graph_.to(out);
        break;
      }
    }
    return true;
  }

  /// Adds paths through leaves at even distances; the first one depends on the pair.
  void add_detours(PathSets& paths, std::int32_t from, std::int32_t to) {
    std::int32_t leaves = 0;
    while (leaves < graph_.nodes() && graph_.kind(leaves) == NodeKind::leaf) ++leaves;
    const std::int32_t count = std::min<std::int32_t>(limits_.detours, leaves);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int64_t step = static_cast<std::int64_t>(i) * leaves / count;
      const auto way = static_cast<std::int32_t>((from + to + step) % leaves);
      if (way == from || way == to) continue;
      links_.clear();
      if (!append_shortest(from, way) || !append_shortest(way, to)) continue;
      const bool turns_back = std::ranges::any_of(links_, [&](std::int32_t link) {
        return std::ranges::find(links_, LinkGraph::reverse(link)) != links_.end();
      });
      if (!turns_back) add_path(paths, links_, found_++);
    }
  }

  const LinkGraph& graph_;
  PathLimits limits_;
  std::int32_t found_ = 0;
  Links links_;
  std::unordered_map<std::int32_t, std::vector<std::int16_t>> hops_;
};

}  // namespace

PathSets find_paths(const LinkGraph& graph, std::span<const std::int32_t> sources,
                    std::span<const std::int32_t> destinations, const PathLimits& limits) {
  PathSets paths;
  const std::size_t count = sources.size();
  resize_large(paths.set, count);
  resize_large(paths.host_up, count);
  resize_large(paths.host_down, count);
  const bool two_tier = graph.two_tier().leaves > 0;
  PairNumbers numbers(two_tier ? graph.two_tier().leaves : graph.nodes());
  std::vector<std::size_t> disconnected;  // commodities whose NICs have a link that is down
  PollPoints points;
  for (std::size_t c = 0; c < count; ++c) {
    points();
    const std::int32_t out = graph.only_link(sources[c]), in = graph.only_link(destinations[c]);
    const bool has_hosts = out == PathSets::kNone || in == PathSets::kNone;
    paths.host_up[c] = has_hosts ? PathSets::kNone : out;
    paths.host_down[c] = has_hosts ? PathSets::kNone : LinkGraph::reverse(in);
    const std::int32_t from = has_hosts ? graph.nic_node(sources[c]) : graph.to(out);
    const std::int32_t to = has_hosts ? graph.nic_node(destinations[c]) : graph.to(in);
    paths.set[c] = from == to ? PathSets::kNone : numbers.number(from, to);
    if (!has_hosts && !(graph.alive(out) && graph.alive(in))) disconnected.push_back(c);
  }
  ShortestPathSearch search(graph, limits);
  for (const auto& [from, to] : numbers.pairs()) {
    poll_point(8);
    if (two_tier) {
      add_two_tier_paths(paths, graph, from, to);
    } else {
      search.add_all(paths, from, to);
    }
    close_set(paths);
  }
  if (!disconnected.empty()) {
    close_set(paths);
    const auto empty = static_cast<std::int32_t>(paths.path_first.size()) - 2;
    for (const std::size_t c : disconnected) paths.set[c] = empty;
  }
  return paths;
}

}  // namespace scalemodel
