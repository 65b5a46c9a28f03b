#include "scalemodel/fabric/direct_connect.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

TEST_CASE("strides visit every NIC and differ") {
  for (const int nics : {2, 3, 8, 12, 16, 31, 128}) {
    const auto strides = ring_strides(nics, 3);
    CHECK_FALSE(strides.empty());
    CHECK(strides.front() == 1);
    for (std::size_t i = 0; i < strides.size(); ++i) {
      CHECK(std::gcd(strides[i], nics) == 1);
      CHECK(2 * strides[i] <= nics);
      CHECK(std::ranges::count(strides, strides[i]) == 1);
    }
  }
  CHECK(ring_strides(16, 4) == std::vector<std::int32_t>{1, 3, 5, 7});
}

TEST_CASE("a heavy matching has no NIC twice and at least half of the maximum weight") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SplitMix random(seed);
    const std::int32_t nics = 6;
    std::vector<NicDemand> demands;
    std::array<std::array<double, 6>, 6> weight{};
    for (std::int32_t a = 0; a < nics; ++a) {
      for (std::int32_t b = a + 1; b < nics; ++b) {
        if (random.below(3) == 0) continue;
        demands.push_back({a, b, random.unit()});
        weight[a][b] = weight[b][a] = demands.back().bytes;
      }
    }
    double found = 0;
    std::array<int, 6> used{};
    for (const Edge& edge : heavy_matching(nics, demands)) {
      found += weight[edge.a][edge.b];
      CHECK(++used[edge.a] == 1);
      CHECK(++used[edge.b] == 1);
    }
    // The best perfect matching of six NICs, over all of their orders taken in pairs.
    std::array<int, 6> order{0, 1, 2, 3, 4, 5};
    double best = 0;
    do {
      best = std::max(best, weight[order[0]][order[1]] + weight[order[2]][order[3]] +
                                weight[order[4]][order[5]]);
    } while (std::ranges::next_permutation(order).found);
    CHECK(found >= 0.5 * best);
    CHECK(found <= best + 1e-12);
  }
}

TEST_CASE("a direct-connect fabric gives no NIC more cables than ports") {
  const std::vector<NicDemand> demands{{0, 5, 8}, {5, 0, 8}, {1, 2, 3}, {3, 6, 5}};
  const std::vector<std::int32_t> strides = ring_strides(8, 1);
  const LinkGraph graph = direct_connect(8, 4, strides, demands, {testing::kPort, {}});
  for (std::int32_t nic = 0; nic < 8; ++nic) {
    CHECK(graph.links_from(nic).size() <= 4);
    CHECK(graph.links_from(nic).size() >= 2);
  }
  // Half of the heaviest pair's demand is more than any other's.
  const auto cables = [&](std::int32_t a, std::int32_t b) {
    return std::ranges::count_if(graph.links_from(a),
                                 [&](std::int32_t l) { return graph.to(l) == b; });
  };
  CHECK(cables(0, 5) == 2);
  CHECK(cables(3, 6) == 2);
  CHECK_THROWS_AS(direct_connect(8, 1, strides, demands, {}), MalformedQuestion);
  const std::vector<std::int32_t> even{2};
  CHECK_THROWS_AS(direct_connect(8, 4, even, {}, {}), MalformedQuestion);
  const std::vector<NicDemand> unknown_nic{{0, 8, 1}};
  CHECK_THROWS_AS(direct_connect(8, 4, strides, unknown_nic, {}), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
