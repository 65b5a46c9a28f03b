#include "scalemodel/fabric/builders.hpp"

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

/// Adds `count` nodes of a kind and returns the first one.
std::int32_t add_nodes(LinkGraph& graph, NodeKind kind, std::int64_t count) {
  if (count > std::numeric_limits<std::int32_t>::max() / 8) {
    throw MalformedQuestion("fabric: " + std::to_string(count) + " nodes are too many");
  }
  const std::int32_t first = graph.nodes();
  for (std::int64_t i = 0; i < count; ++i) graph.add_node(kind);
  return first;
}

/// Adds `count` NICs, `per_switch` of them on each switch from `first_switch` on.
void add_nics(LinkGraph& graph, std::int64_t count, std::int32_t first_switch, int per_switch,
              const Cable& cable) {
  const std::int32_t first = add_nodes(graph, NodeKind::nic, count);
  for (std::int32_t k = 0; k < count; ++k) {
    graph.add_cable(first + k, first_switch + k / per_switch, cable.bandwidth, cable.latency);
    graph.add_nic(first + k);
  }
}

/// Connects every leaf (from node 0 on) with every spine (from node `leaves` on); sets the two-tier
/// view.
void connect_tiers(LinkGraph& graph, std::int32_t leaves, int spines, int cables,
                   const Cable& cable) {
  TwoTier tiers;
  tiers.leaves = leaves;
  tiers.planes = spines * cables;
  for (std::int32_t leaf = 0; leaf < leaves; ++leaf) {
    for (std::int32_t spine = 0; spine < spines; ++spine) {
      for (int c = 0; c < cables; ++c) {
        const std::int32_t up =
            graph.add_cable(leaf, leaves + spine, cable.bandwidth, cable.latency);
        tiers.up.push_back(up);
        tiers.down.push_back(LinkGraph::reverse(up));
      }
    }
  }
  graph.set_two_tier(std::move(tiers));
}

}  // namespace

LinkGraph leaf_spine(const LeafSpine& spec) {
  LinkGraph graph;
  add_nodes(graph, NodeKind::leaf, spec.leaves);
  add_nodes(graph, NodeKind::spine, spec.spines);
  connect_tiers(graph, spec.leaves, spec.spines, spec.cables, spec.fabric);
  add_nics(graph, static_cast<std::int64_t>(spec.leaves) * spec.nics_per_leaf, 0,
           spec.nics_per_leaf, spec.host);
  graph.finish();
  return graph;
}

LinkGraph fat_tree(const FatTree& spec) {
  if (spec.ports % 2 != 0) {
    throw MalformedQuestion("ports=" + std::to_string(spec.ports) + ": must be even");
  }
  const int half = spec.ports / 2;
  const std::int32_t tier = spec.ports * half;
  LinkGraph graph;
  const std::int32_t leaves = add_nodes(graph, NodeKind::leaf, tier);
  const std::int32_t spines = add_nodes(graph, NodeKind::spine, tier);
  const std::int32_t cores =
      add_nodes(graph, NodeKind::core, static_cast<std::int64_t>(half) * half);
  const auto connect = [&](std::int32_t a, std::int32_t b) {
    graph.add_cable(a, b, spec.fabric.bandwidth, spec.fabric.latency);
  };
  for (std::int32_t leaf = 0; leaf < tier; ++leaf) {
    const std::int32_t pod = leaf / half;
    for (int i = 0; i < half; ++i) connect(leaves + leaf, spines + pod * half + i);
  }
  for (std::int32_t spine = 0; spine < tier; ++spine) {
    for (int i = 0; i < half; ++i) connect(spines + spine, cores + spine % half * half + i);
  }
  add_nics(graph, static_cast<std::int64_t>(tier) * half, leaves, half, spec.host);
  graph.set_fat_tree_half(half);
  graph.finish();
  return graph;
}

LinkGraph rails(const Rails& spec) {
  LinkGraph graph;
  const std::int32_t units = (spec.servers + spec.servers_per_unit - 1) / spec.servers_per_unit;
  const std::int32_t leaves = units * spec.gpus;
  add_nodes(graph, NodeKind::leaf, leaves);
  add_nodes(graph, NodeKind::spine, spec.spines);
  const bool scales_up = spec.scale_up.bandwidth > BytesPerSecond{};
  if (spec.spines > 0) connect_tiers(graph, leaves, spec.spines, 1, spec.fabric);
  if (scales_up) graph.set_two_tier({});
  const std::int32_t domains =
      scales_up ? add_nodes(graph, NodeKind::domain, spec.servers) : graph.nodes();
  for (std::int32_t server = 0; server < spec.servers; ++server) {
    const std::int32_t unit = server / spec.servers_per_unit;
    for (int r = 0; r < spec.gpus; ++r) {
      const std::int32_t node = graph.add_node(NodeKind::nic);
      graph.add_cable(node, unit * spec.gpus + r, spec.host.bandwidth, spec.host.latency);
      if (scales_up) {
        graph.add_cable(node, domains + server, spec.scale_up.bandwidth, spec.scale_up.latency);
      }
      graph.add_nic(node);
    }
  }
  graph.finish();
  return graph;
}

LinkGraph dragonfly(const Dragonfly& spec) {
  LinkGraph graph;
  const std::int32_t per_group = spec.routers * spec.global_cables;
  const std::int32_t groups = per_group + 1;
  const std::int64_t routers = static_cast<std::int64_t>(groups) * spec.routers;
  add_nodes(graph, NodeKind::leaf, routers);
  for (std::int32_t group = 0; group < groups; ++group) {
    for (int a = 0; a < spec.routers; ++a) {
      for (int b = a + 1; b < spec.routers; ++b) {
        graph.add_cable(group * spec.routers + a, group * spec.routers + b, spec.local.bandwidth,
                        spec.local.latency);
      }
    }
  }
  // Global port p of group g leads to the p-th other group, whose port towards g is g or g - 1.
  for (std::int32_t g = 0; g < groups; ++g) {
    for (std::int32_t other = g + 1; other < groups; ++other) {
      const std::int32_t out = (other - 1) / spec.global_cables;
      const std::int32_t in = g / spec.global_cables;
      graph.add_cable(g * spec.routers + out, other * spec.routers + in, spec.global.bandwidth,
                      spec.global.latency);
    }
  }
  add_nics(graph, routers * spec.nics, 0, spec.nics, spec.host);
  graph.finish();
  return graph;
}

LinkGraph torus(const Torus& spec) {
  LinkGraph graph;
  const std::array<std::int32_t, 3> size{spec.x, spec.y, spec.z};
  const std::array<std::int32_t, 3> stride{1, spec.x, spec.x * spec.y};
  const std::int64_t nodes = static_cast<std::int64_t>(spec.x) * spec.y * spec.z;
  add_nodes(graph, NodeKind::leaf, nodes);
  for (std::size_t d = 0; d < size.size(); ++d) {
    if (size[d] == 1) continue;
    for (std::int32_t node = 0; node < nodes; ++node) {
      const std::int32_t at = node / stride[d] % size[d];
      if (size[d] == 2 && at == 1) continue;
      const std::int32_t next = node + ((at + 1) % size[d] - at) * stride[d];
      graph.add_cable(node, next, spec.fabric.bandwidth, spec.fabric.latency);
    }
  }
  add_nics(graph, nodes, 0, 1, spec.host);
  graph.finish();
  return graph;
}

LinkGraph scale_up_domain(int nics, const Cable& cable) {
  LinkGraph graph;
  add_nodes(graph, NodeKind::domain, 1);
  add_nics(graph, nics, 0, nics, cable);
  graph.finish();
  return graph;
}

LinkGraph custom_fabric(std::int32_t nics, std::int32_t switches, std::span<const Edge> edges) {
  LinkGraph graph;
  add_nodes(graph, NodeKind::nic, nics);
  add_nodes(graph, NodeKind::leaf, switches);
  for (const Edge& edge : edges) {
    for (const std::int32_t end : {edge.a, edge.b}) {
      if (end < 0 || end >= graph.nodes()) {
        throw MalformedQuestion("edges: node " + std::to_string(end) +
                                " does not exist; nodes are 0 to " +
                                std::to_string(graph.nodes() - 1));
      }
    }
    if (edge.a == edge.b) {
      throw MalformedQuestion("edges: node " + std::to_string(edge.a) + " is joined to itself");
    }
    graph.add_cable(edge.a, edge.b, edge.bandwidth, edge.latency);
  }
  for (std::int32_t nic = 0; nic < nics; ++nic) graph.add_nic(nic);
  graph.finish();
  return graph;
}

}  // namespace scalemodel
