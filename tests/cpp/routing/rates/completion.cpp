#include "scalemodel/routing/rates/completion.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {
namespace {

TEST_CASE("one step of all jobs ends when the simulation of the network says") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const LinkGraph graph = testing::clos(5, 3, 4);
    Flows flows = testing::random_flows(graph, 60, seed);
    SplitMix random(seed);
    flows.jobs = 7;
    flows.groups = 60;
    for (std::int32_t f = 0; f < 60; ++f) {
      flows.job[f] = f % 7;
      flows.group[f] = f;
      flows.bytes[f] = 1e8 * (1 + random.below(9));
    }
    const RoutingInstance instance(graph, flows);
    const Choice choice = ecmp(instance);
    const std::vector<double> ends = step_completions(instance, choice);
    const std::vector<JobSchedule> once(7, {1, 1, Seconds{}, Seconds{}});
    const NetworkRun run = simulate_network(instance, single_path(choice), once, Seconds{});
    REQUIRE(run.job.size() == 7);
    for (std::size_t i = 0; i < 7; ++i) {
      CHECK(ends[run.job[i]] == testing::Approx(run.end[i]).epsilon(1e-8));
    }
  }
}

TEST_CASE("a job without a path never ends, one without flows at once") {
  LinkGraph graph = testing::clos(2, 1, 2);
  Flows flows = testing::flows_of({{0, 2}, {0, 1}}, 1 * unit::GB);
  flows.jobs = 3;
  graph.fail_node(2);
  const RoutingInstance instance(graph, flows);
  const std::vector<double> ends = step_completions(instance, ecmp(instance));
  CHECK(ends[0] == std::numeric_limits<double>::infinity());
  CHECK(ends[1] == testing::Approx(1e9 / testing::kPort.base()));
  CHECK(ends[2] == 0);
}

}  // namespace
}  // namespace scalemodel
