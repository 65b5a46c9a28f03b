#include "scalemodel/routing/trees/tree_packing.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

constexpr BytesPerSecond kLink{25e9};

/// GPUs 0 to 7 of a DGX-1 with V100: six links each, some of them double.
std::vector<Edge> cube_mesh() {
  constexpr std::array<std::array<int, 3>, 16> kLinks{{{0, 1, 1},
                                                       {0, 2, 1},
                                                       {0, 3, 2},
                                                       {0, 4, 2},
                                                       {1, 2, 2},
                                                       {1, 3, 1},
                                                       {1, 5, 2},
                                                       {2, 3, 2},
                                                       {2, 6, 1},
                                                       {3, 7, 1},
                                                       {4, 5, 1},
                                                       {4, 6, 1},
                                                       {4, 7, 2},
                                                       {5, 6, 2},
                                                       {5, 7, 1},
                                                       {6, 7, 2}}};
  std::vector<Edge> edges;
  for (const auto& [a, b, width] : kLinks) edges.push_back({a, b, width * kLink, {}});
  return edges;
}

LinkGraph allocation(const std::vector<int>& gpus) {
  std::vector<Edge> edges;
  for (Edge edge : cube_mesh()) {
    const auto a = std::ranges::find(gpus, edge.a), b = std::ranges::find(gpus, edge.b);
    if (a == gpus.end() || b == gpus.end()) continue;
    edge.a = static_cast<std::int32_t>(a - gpus.begin());
    edge.b = static_cast<std::int32_t>(b - gpus.begin());
    edges.push_back(edge);
  }
  return custom_fabric(static_cast<std::int32_t>(gpus.size()), 0, edges);
}

void check_packing(const LinkGraph& graph, const TreePacking& packing, std::int32_t root,
                   bool both_ways) {
  std::vector<double> load(graph.links(), 0.0);
  for (std::size_t t = 0; t < packing.rate.size(); ++t) {
    CHECK(packing.rate[t] > 0);
    std::vector<char> reached(graph.nodes(), 0);
    reached[root] = 1;
    REQUIRE(packing.first[t + 1] - packing.first[t] == graph.nodes() - 1);
    for (std::int32_t i = packing.first[t]; i < packing.first[t + 1]; ++i) {
      const std::int32_t link = packing.link[i];
      CHECK(reached[graph.from(link)] == 1);
      CHECK(reached[graph.to(link)] == 0);
      reached[graph.to(link)] = 1;
      load[link] += packing.rate[t];
      if (both_ways) load[LinkGraph::reverse(link)] += packing.rate[t];
    }
  }
  for (std::int32_t link = 0; link < graph.links(); ++link) {
    CHECK(load[link] <= graph.capacity(link).base() * (1 + 1e-9));
  }
}

TEST_CASE("broadcast trees carry the least maximum flow on random graphs") {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SplitMix random(seed);
    const int nics = 2 + random.below(7);
    std::vector<Edge> edges;
    for (int a = 1; a < nics; ++a) {
      edges.push_back({a, random.below(a), (1 + random.below(3)) * kLink, {}});
    }
    for (int extra = random.below(8); extra > 0; --extra) {
      const int a = random.below(nics), b = random.below(nics);
      if (a != b) edges.push_back({a, b, (1 + random.below(3)) * kLink, {}});
    }
    const LinkGraph graph = custom_fabric(nics, 0, edges);
    const std::int32_t root = random.below(nics);
    CAPTURE(seed);
    const TreePacking trees = pack_broadcast(graph, root);
    check_packing(graph, trees, root, false);
    CHECK(trees.total().base() == testing::Approx(broadcast_bound(graph, root).base()));
    const TreePacking both = pack_all_reduce(graph, root, 0.05);
    check_packing(graph, both, root, true);
    CHECK(both.total() <= all_reduce_bound(graph) * (1 + 1e-9));
    CHECK(both.total() <= trees.total() * (1 + 1e-9));
  }
}

TEST_CASE("trees use all links of a DGX-1 where rings cannot") {
  const LinkGraph whole = allocation({0, 1, 2, 3, 4, 5, 6, 7});
  const TreePacking trees = pack_broadcast(whole, 0);
  check_packing(whole, trees, 0, false);
  // Six links of 25 GB/s leave the root, and every other GPU receives 150 GB/s.
  CHECK(trees.total().base() == testing::Approx(150e9));
  CHECK(trees.rate.size() <= 6);
  // 24 links over 7: what three double rings reach, 150 GB/s of bus bandwidth over 2 (7 / 8).
  const TreePacking both = pack_all_reduce(whole, 0, 0.03);
  CHECK(both.total().base() == testing::Approx(24.0 / 7 * 25e9).epsilon(0.03));
  CHECK(all_reduce_bound(whole).base() == testing::Approx(24.0 / 7 * 25e9));
  // Without a ring over GPUs 0, 1 and 4, NCCL falls back to PCIe; trees still have links.
  const LinkGraph chain = allocation({1, 0, 4});
  CHECK(pack_broadcast(chain, 1).total().base() == testing::Approx(25e9));
  CHECK(pack_broadcast(chain, 0).total().base() == testing::Approx(25e9));
  // A whole half: every GPU has four links to the others.
  const LinkGraph half = allocation({0, 1, 2, 3});
  CHECK(pack_broadcast(half, 0).total().base() == testing::Approx(100e9));
}

TEST_CASE("fabrics with switches, gaps or strange bandwidths are not packed") {
  CHECK_THROWS_AS(pack_broadcast(testing::clos(2, 2, 2), 0), MalformedQuestion);
  const LinkGraph gap = custom_fabric(3, 0, std::vector<Edge>{{0, 1, testing::kPort, {}}});
  CHECK_THROWS_AS(pack_broadcast(gap, 0), MalformedQuestion);
  CHECK_THROWS_AS(pack_all_reduce(gap, 0, 0.1), MalformedQuestion);
  const std::vector<Edge> strange{{0, 1, testing::kPort, {}},
                                  {1, 2, 1.23456789 * testing::kPort, {}}};
  CHECK_THROWS_AS(pack_broadcast(custom_fabric(3, 0, strange), 0), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
