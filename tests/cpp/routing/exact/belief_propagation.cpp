#include "scalemodel/routing/exact/belief_propagation.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/exact/few_sizes.hpp"
#include "scalemodel/routing/exact/plane_repair.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {
namespace {

TEST_CASE("messages fill links exactly where planes are few") {
  const LinkGraph graph = testing::clos(8, 4, 16);
  int filled = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Flows flows = testing::few_size_flows(graph, 12, 2, 7, 1 * unit::MB, seed);
    const RoutingInstance instance(graph, flows);
    const double bound = load_bound(instance).drain().base();
    const std::optional<Choice> found = propagate_beliefs(instance, bound, 4, seed);
    CHECK(found == propagate_beliefs(instance, bound, 4, seed));
    if (!found) continue;
    ++filled;
    CHECK(drain_of(instance, *found).base() <= bound * (1 + 1e-8));
    CHECK(drain_of(instance, longest_first(instance)).base() > 1.05 * bound);
  }
  CHECK(filled >= 2);
}

TEST_CASE("repairs and messages in turn fill sixteen leaves and eight spines exactly") {
  const LinkGraph graph = testing::clos(16, 8, 16);
  for (const std::uint64_t seed : {0, 1, 5}) {
    CAPTURE(seed);
    const Flows flows = testing::few_size_flows(graph, 12, 2, 7, 1 * unit::MB, seed);
    const RoutingInstance instance(graph, flows);
    const double bound = load_bound(instance).drain().base();
    const std::optional<Choice> found = propagate_beliefs(instance, bound, 60, seed);
    REQUIRE(found.has_value());
    CHECK(drain_of(instance, *found).base() <= bound * (1 + 1e-8));
  }
}

TEST_CASE("a repair counts the squared units that links have too many or too few") {
  const LinkGraph graph = testing::clos(8, 4, 16);
  const Flows flows = testing::few_size_flows(graph, 12, 2, 7, 1 * unit::MB, 4);
  const RoutingInstance instance(graph, flows);
  const auto few = few_sizes(instance, load_bound(instance).drain().base());
  REQUIRE(few.has_value());
  std::vector<std::int32_t> units;
  for (const std::int32_t size : few->size) {
    units.push_back(static_cast<std::int32_t>(std::lround(few->sizes[size] / 1e6)));
  }
  PlaneRepair repair(*few, units, 12, 4);
  // All on one plane of four: every side has 36 units too many on it, and 12 too few on the others.
  repair.assign(std::vector<std::int32_t>(few->flow.size(), 0));
  CHECK(repair.excess() == 16 * (36 * 36 + 3 * 12 * 12));
  const auto counted = [&] {
    std::vector<int> load(16 * 4, 0);
    for (std::size_t i = 0; i < units.size(); ++i) {
      load[few->up[i] * 4 + repair.planes()[i]] += units[i];
      load[few->down[i] * 4 + repair.planes()[i]] += units[i];
    }
    std::int64_t sum = 0;
    for (const int on_link : load) sum += (on_link - 12) * (on_link - 12);
    return sum;
  };
  SplitMix random(1);
  std::int64_t before = repair.excess();
  for (int run = 0; run < 5; ++run) {
    const bool fits = repair.run(2000, random);
    CHECK(fits == (repair.excess() == 0));
    CHECK(repair.excess() == counted());
    if (run < 3) CHECK(repair.excess() < before);
    before = repair.excess();
  }
}

TEST_CASE("links without enough room have no answer, nor has no effort") {
  const LinkGraph graph = testing::clos(6, 5, 8);
  const Flows flows = testing::few_size_flows(graph, 12, 2, 7, 1 * unit::MB, 3);
  const RoutingInstance instance(graph, flows);
  const double bound = load_bound(instance).drain().base();
  CHECK_FALSE(propagate_beliefs(instance, 0.9 * bound, 1, 0).has_value());
  CHECK_FALSE(propagate_beliefs(instance, bound, 0, 0).has_value());
}

TEST_CASE("links that differ and sizes without a common measure have no answer") {
  LinkGraph graph = testing::clos(4, 3, 4);
  Flows flows = testing::random_flows(graph, 30, 1);
  const double enough = 30 * (1 * unit::MB / testing::kPort).base();
  CHECK(propagate_beliefs(RoutingInstance(graph, flows), enough, 1, 1).has_value());
  flows.bytes[0] *= 1.0001;
  CHECK_FALSE(propagate_beliefs(RoutingInstance(graph, flows), enough, 1, 1).has_value());
  flows.bytes[0] = flows.bytes[1];
  graph.scale_cable(graph.two_tier().up[2], 0.5);
  CHECK_FALSE(propagate_beliefs(RoutingInstance(graph, flows), enough, 1, 1).has_value());
}

}  // namespace
}  // namespace scalemodel
