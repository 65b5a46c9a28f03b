#include "scalemodel/fabric/graph.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/fabric/paths.hpp"

namespace scalemodel {
namespace {

using testing::clos;
using testing::kPort;

Cable port() { return {kPort, Seconds{}}; }

/// Every path connects the source's switch to the destination's over links that are up, and all
/// paths differ.
void check_paths(const LinkGraph& graph, std::int32_t source, std::int32_t destination,
                 std::int32_t expected) {
  const std::vector<std::int32_t> from{source}, to{destination};
  const PathSets paths = find_paths(graph, from, to);
  REQUIRE(paths.set[0] != PathSets::kNone);
  CHECK(paths.paths(paths.set[0]) == expected);
  std::set<std::vector<std::int32_t>> distinct;
  for (std::int32_t p = 0; p < expected; ++p) {
    const auto links = paths.links(p);
    const std::int32_t up = paths.host_up[0], down = paths.host_down[0];
    std::int32_t at = up == PathSets::kNone ? graph.nic_node(source) : graph.to(up);
    for (const std::int32_t link : links) {
      CHECK(graph.from(link) == at);
      CHECK(graph.alive(link));
      at = graph.to(link);
    }
    CHECK(at == (down == PathSets::kNone ? graph.nic_node(destination) : graph.from(down)));
    distinct.insert({links.begin(), links.end()});
  }
  CHECK(static_cast<std::int32_t>(distinct.size()) == expected);
}

TEST_CASE("the numbers of nodes, cables and paths follow from the parameters") {
  SUBCASE("leaf-spine") {
    LeafSpine spec;
    spec.leaves = 5;
    spec.spines = 3;
    spec.nics_per_leaf = 4;
    spec.cables = 2;
    const LinkGraph graph = leaf_spine(spec);
    CHECK(graph.nics() == 20);
    CHECK(graph.nodes() == 28);
    CHECK(graph.links() == 2 * (20 + 5 * 3 * 2));
    CHECK(graph.two_tier().planes == 6);
    CHECK(graph.nic_node(7) == 15);
    CHECK(graph.leaf_of(7) == 1);
    check_paths(graph, 0, 19, 6);
  }
  SUBCASE("fat tree") {
    for (const int k : {2, 4, 8}) {
      FatTree spec;
      spec.ports = k;
      const LinkGraph graph = fat_tree(spec);
      CHECK(graph.nics() == k * k * k / 4);
      CHECK(graph.nodes() - graph.nics() == 5 * k * k / 4);
      check_paths(graph, 0, graph.nics() - 1, k * k / 4);
      if (k > 2) check_paths(graph, 0, k / 2, k / 2);  // the next leaf of the pod
    }
  }
  SUBCASE("rails with and without spines") {
    Rails spec;
    spec.servers = 4;
    spec.gpus = 2;
    spec.servers_per_unit = 2;
    spec.spines = 3;
    const LinkGraph graph = rails(spec);
    CHECK(graph.two_tier().leaves == 4);
    CHECK(graph.leaf_of(3) == 1);  // second accelerator of the second server
    CHECK(graph.leaf_of(4) == 2);  // first one of the next unit
    check_paths(graph, 0, 7, 3);
    Rails only = spec;
    only.spines = 0;
    only.servers_per_unit = 4;
    only.scale_up = {10 * kPort, Seconds{}};
    // Across rails: change inside the first server, or inside the last one.
    check_paths(rails(only), 0, 3, 2);
    check_paths(rails(only), 0, 1, 1);
  }
  SUBCASE("dragonfly") {
    Dragonfly spec;
    spec.routers = 4;
    spec.nics = 2;
    spec.global_cables = 2;
    const LinkGraph graph = dragonfly(spec);
    CHECK(graph.nics() == 2 * 4 * 9);
    CHECK(graph.links() == 2 * (graph.nics() + 9 * 6 + 9 * 8 / 2));
    // Every router has its local and global cables, and no pair of routers is more than 3 apart.
    for (std::int32_t router = 0; router < 36; ++router) {
      CHECK(graph.links_from(router).size() == 3 + 2 + 2);
    }
    std::vector<std::int32_t> from(35, 0), to;
    for (std::int32_t router = 1; router < 36; ++router) to.push_back(2 * router);
    const PathSets paths = find_paths(graph, from, to);
    for (std::size_t c = 0; c < to.size(); ++c) {
      REQUIRE(paths.paths(paths.set[c]) >= 1);
      CHECK(paths.links(paths.path_first[paths.set[c]]).size() <= 3);
    }
  }
  SUBCASE("torus") {
    Torus spec;
    spec.x = 4;
    spec.y = 3;
    spec.z = 2;
    const LinkGraph graph = torus(spec);
    CHECK(graph.nics() == 24);
    CHECK(graph.links() == 2 * (24 + 24 + 24 + 12));
    check_paths(graph, 0, 1, 1);
    check_paths(graph, 0, 2, 2);  // half way round, either way
    // Dimension order comes first.
    const std::vector<std::int32_t> from{0}, to{5};
    const PathSets paths = find_paths(graph, from, to);
    CHECK(graph.to(paths.links(0)[0]) == 1);
  }
  SUBCASE("scale-up domain") {
    const LinkGraph graph = scale_up_domain(8, port());
    CHECK(graph.links() == 16);
    check_paths(graph, 0, 5, 1);
  }
  SUBCASE("direct-connect ring") {
    const std::vector<Edge> edges{
        {0, 1, kPort, {}}, {1, 2, kPort, {}}, {2, 3, kPort, {}}, {3, 0, kPort, {}}};
    check_paths(custom_fabric(4, 0, edges), 0, 2, 2);
  }
}

TEST_CASE("inconsistent parameters are rejected") {
  FatTree odd;
  odd.ports = 5;
  CHECK_THROWS_AS(fat_tree(odd), MalformedQuestion);
  const std::vector<Edge> outside{{0, 9, kPort, {}}}, loop{{1, 1, kPort, {}}};
  CHECK_THROWS_AS(custom_fabric(2, 1, outside), MalformedQuestion);
  CHECK_THROWS_AS(custom_fabric(2, 1, loop), MalformedQuestion);
}

TEST_CASE("no path uses a link that is down, and a repair restores its paths") {
  LinkGraph graph = clos(4, 3, 2);
  graph.fail_node(4);  // the first spine
  check_paths(graph, 0, 7, 2);
  const std::int32_t cable = graph.two_tier().up[graph.two_tier().at(3, 1)];
  graph.fail_cable(LinkGraph::reverse(cable));
  CHECK_FALSE(graph.alive(cable));
  check_paths(graph, 0, 7, 1);
  check_paths(graph, 0, 3, 2);
  graph.scale_cable(cable, 0.5);
  CHECK(graph.capacity(cable) == 0.5 * kPort);
  check_paths(graph, 0, 7, 2);
  graph.fail_node(graph.nic_node(7));
  const std::vector<std::int32_t> from{0, 6, 0}, to{7, 7, 2};
  const Flows flows = testing::flows_of({{0, 7}, {6, 7}, {0, 2}}, 1 * unit::MB);
  const RoutingInstance instance(graph, flows);
  CHECK(instance.disconnected() == 2);
}

TEST_CASE("detours are longer than shortest paths and never turn back") {
  Dragonfly spec;
  const LinkGraph graph = dragonfly(spec);
  const std::vector<std::int32_t> from{0}, to{graph.nics() - 1};
  const PathSets paths = find_paths(graph, from, to, {256, 12});
  REQUIRE(paths.paths(0) > 2);
  for (std::int32_t p = 0; p < paths.paths(0); ++p) {
    const auto links = paths.links(p);
    CHECK(links.size() <= 6);
    for (const std::int32_t link : links) {
      CHECK(std::ranges::find(links, LinkGraph::reverse(link)) == links.end());
    }
  }
}

}  // namespace
}  // namespace scalemodel
