#include "scalemodel/routing/exact/plane_extraction.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/exact/size_patterns.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/local_search.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {
namespace {

TEST_CASE("planes are filled exactly where flows of few sizes can fill every link") {
  // Links of 12 units, flows of 2 to 7: one unit more is 8 % above the planted optimum.
  for (const auto& [leaves, spines] : {std::pair{64, 32}, std::pair{32, 24}}) {
    const LinkGraph graph = testing::clos(leaves, spines, 16);
    const Flows flows = testing::few_size_flows(graph, 12, 2, 7, 1 * unit::MB, 7);
    const RoutingInstance instance(graph, flows);
    const Seconds bound = load_bound(instance).drain();
    CHECK(bound.base() == testing::Approx((12 * unit::MB / testing::kPort).base()));
    const std::optional<Choice> filled = extract_planes(instance, bound.base(), 1);
    CAPTURE(leaves);
    REQUIRE(filled.has_value());
    CHECK(drain_of(instance, *filled).base() == testing::Approx(bound.base()));
    CHECK(drain_of(instance, longest_first(instance)).base() > 1.05 * bound.base());
  }
}

TEST_CASE("links of 40 and 100 units are filled to five percent") {
  const LinkGraph graph = testing::clos(16, 8, 16);
  for (const int full : {40, 100}) {
    const Flows flows = testing::few_size_flows(graph, full, 2, 7, 1 * unit::MB, 3);
    const RoutingInstance instance(graph, flows);
    const Choice found = lower_drain(instance, longest_first(instance), {1, 0});
    CHECK(drain_of(instance, found).base() <=
          1.05 * (full * unit::MB / testing::kPort).base() * (1 + 1e-9));
  }
}

TEST_CASE("links that differ, many sizes and too little time have no answer") {
  LinkGraph graph = testing::clos(4, 3, 4);
  Flows flows = testing::random_flows(graph, 40, 1);
  const double enough = 40 * (1 * unit::MB / testing::kPort).base();
  const RoutingInstance equal(graph, flows);
  const std::optional<Choice> easy = extract_planes(equal, enough, 1);
  REQUIRE(easy.has_value());
  CHECK(drain_of(equal, *easy).base() <= enough * (1 + 1e-9));
  CHECK_FALSE(extract_planes(equal, 0.5 * load_bound(equal).drain().base(), 1).has_value());
  LinkGraph unlike = graph;
  unlike.scale_cable(unlike.two_tier().up[2], 0.5);
  CHECK_FALSE(extract_planes(RoutingInstance(unlike, flows), enough, 1).has_value());
  for (std::size_t f = 0; f < flows.size(); ++f) flows.bytes[f] += static_cast<double>(f);
  CHECK_FALSE(extract_planes(RoutingInstance(graph, flows), enough, 1).has_value());
}

/// Whether the flows fit, by trying every link for each.
bool fits(const std::vector<double>& loads, std::vector<double>& left, std::size_t next = 0) {
  if (next == loads.size()) return true;
  return std::ranges::any_of(left, [&](double& link) {
    if (link < loads[next]) return false;
    link -= loads[next];
    const bool rest = fits(loads, left, next + 1);
    link += loads[next];
    return rest;
  });
}

TEST_CASE("patterns of sizes fit exactly where some packing does") {
  const std::vector<double> sizes{2, 3, 5, 7};
  SizePatterns patterns(sizes, 12);
  int fitting = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SplitMix random(seed);
    std::vector<std::int32_t> count(4);
    std::vector<double> loads;
    for (int i = 3; i >= 0; --i) {
      count[i] = random.below(4);
      loads.insert(loads.end(), count[i], sizes[i]);
    }
    const std::int32_t links = 1 + random.below(3);
    std::vector<double> left(links, 12);
    const bool expected = fits(loads, left);
    CAPTURE(seed);
    CHECK(patterns.fit(count, links) == expected);
    fitting += expected ? 1 : 0;
  }
  CHECK(fitting > 50);
  CHECK(fitting < 250);
}

}  // namespace
}  // namespace scalemodel
