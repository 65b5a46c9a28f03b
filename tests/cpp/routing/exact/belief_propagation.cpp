#include "scalemodel/routing/exact/belief_propagation.hpp"

#include <cstdint>
#include <optional>

#include "approx.hpp"
#include "routing/instances.hpp"
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
    const std::optional<Choice> found = propagate_beliefs(instance, bound, 16, seed);
    CHECK(found == propagate_beliefs(instance, bound, 16, seed));
    if (!found) continue;
    ++filled;
    CHECK(drain_of(instance, *found).base() <= bound * (1 + 1e-8));
    CHECK(drain_of(instance, longest_first(instance)).base() > 1.05 * bound);
  }
  CHECK(filled >= 2);
}

TEST_CASE("links without enough room have no answer, nor do no runs") {
  const LinkGraph graph = testing::clos(6, 5, 8);
  const Flows flows = testing::few_size_flows(graph, 12, 2, 7, 1 * unit::MB, 3);
  const RoutingInstance instance(graph, flows);
  const double bound = load_bound(instance).drain().base();
  CHECK_FALSE(propagate_beliefs(instance, 0.9 * bound, 2, 0).has_value());
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
