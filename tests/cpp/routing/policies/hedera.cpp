#include "scalemodel/routing/policies/hedera.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {
namespace {

LinkGraph tree(int ports) {
  FatTree spec;
  spec.ports = ports;
  spec.host.bandwidth = spec.fabric.bandwidth = testing::kPort;
  return fat_tree(spec);
}

/// Every NIC sends to another one and receives from one, at random.
Flows bijection(const LinkGraph& graph, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<int> to(graph.nics());
  std::iota(to.begin(), to.end(), 0);
  for (int i = graph.nics() - 1; i > 0; --i) std::swap(to[i], to[random.below(i)]);  // one cycle
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < graph.nics(); ++i) pairs.emplace_back(i, to[i]);
  return testing::flows_of(pairs, 1 * unit::GB);
}

/// Mean fair rate as a share of a port.
double bisection(const RoutingInstance& instance, const Choice& choice) {
  WaterFilling filling;
  const std::vector<double> rates = fair_rates(instance, single_path(choice), filling);
  return std::accumulate(rates.begin(), rates.end(), 0.0) /
         (static_cast<double>(rates.size()) * testing::kPort.base());
}

TEST_CASE("natural demands are the rates that senders and receivers agree on") {
  const LinkGraph graph = testing::clos(4, 4, 4);
  // NIC 0 sends to 4, 8 and 12; NIC 1 to 8 too, NIC 2 and 5 to 12: the example of three receivers.
  const Flows flows =
      testing::flows_of({{0, 4}, {0, 8}, {0, 12}, {1, 8}, {2, 12}, {5, 12}}, 1 * unit::GB);
  const RoutingInstance instance(graph, flows);
  const std::vector<double> demand = natural_demands(instance);
  const std::vector<double> expected{1.0 / 3, 1.0 / 3, 1.0 / 3, 2.0 / 3, 1.0 / 3, 1.0 / 3};
  for (std::size_t f = 0; f < demand.size(); ++f) {
    CHECK(demand[f] / testing::kPort.base() == testing::Approx(expected[f]));
  }
  LinkGraph down = graph;
  down.fail_node(down.nic_node(4));
  CHECK(natural_demands(RoutingInstance(down, flows)).front() == 0);
}

TEST_CASE("annealing over cores reaches the published share of a fat tree's bisection") {
  // Hedera, NSDI 2010: 96 % of the optimum, far above hashing; here 128 and 1,024 hosts.
  for (const auto& [ports, seeds] : {std::pair{8, 4}, std::pair{16, 1}}) {
    const LinkGraph graph = tree(ports);
    for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds); ++seed) {
      const Flows flows = bijection(graph, seed);
      const RoutingInstance instance(graph, flows);
      const Choice found = hedera(instance, {}, seed);
      CAPTURE(ports);
      CHECK(found == hedera(instance, {}, seed));
      const double annealed = bisection(instance, found);
      CHECK(annealed >= 0.9);
      CHECK(annealed >= 1.5 * bisection(instance, ecmp(instance)));
    }
  }
}

TEST_CASE("destinations keep one core, and those of a pod have different ones") {
  const LinkGraph graph = tree(8);
  const Flows flows = bijection(graph, 3);
  const RoutingInstance instance(graph, flows);
  const Choice found = hedera(instance, {10}, 1);
  std::vector<std::vector<int>> uses(8, std::vector<int>(16, 0));
  for (std::size_t f = 0; f < flows.size(); ++f) {
    if (instance.paths_of(f) == 16) ++uses[flows.destination[f] / 16][found[f]];
  }
  for (const auto& of_pod : uses) CHECK(std::ranges::max(of_pod) <= 1);
}

TEST_CASE("two tiers, failures and NICs of one switch keep every flow on a path of its own") {
  LinkGraph graph = testing::clos(6, 5, 7);
  graph.fail_cable(graph.two_tier().up[3]);
  const Flows flows = testing::random_flows(graph, 90, 2);
  const RoutingInstance instance(graph, flows);
  const Choice found = hedera(instance, {100}, 4);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    CHECK(found[f] >= 0);
    CHECK(found[f] < instance.paths_of(f));
  }
  const Flows local = testing::flows_of({{0, 1}}, 1 * unit::GB);
  CHECK(hedera(RoutingInstance(graph, local), {}, 0) == Choice{PathSets::kNone});
}

}  // namespace
}  // namespace scalemodel
