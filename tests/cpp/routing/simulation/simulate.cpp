#include "scalemodel/routing/simulation/simulate.hpp"

#include <cstdint>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/spray.hpp"
#include "scalemodel/routing/route.hpp"

namespace scalemodel {
namespace {

using testing::clos;
using testing::kPort;

struct Run {
  std::vector<RingJob> jobs;
  LinkGraph graph = clos(8, 8, 8);
  std::vector<JobSchedule> schedules;
  Flows flows;

  explicit Run(int count) {
    for (int j = 0; j < count; ++j) {
      jobs.push_back({1e9 * (1 + j), 1e9, 8, 2 + 2 * (j % 2)});
      schedules.push_back({ring_steps(jobs.back()), 4, Seconds{0.01 * j}, Seconds{0.05}});
    }
    const auto nics = place_jobs(graph, jobs, JobPlacement::random_leaves, 8, 3);
    flows = ring_flows(graph, jobs, nics, false);
  }
};

TEST_CASE("bytes are conserved over time, flow by flow and as rates") {
  const Run run(3);
  const RoutingInstance instance(run.graph, run.flows);
  for (const Routing& routing : {single_path(ecmp(instance)), single_path(greedy(instance)),
                                 subflow_ecmp(instance, 3), spray(instance)}) {
    const NetworkRun result = simulate_network(instance, routing, run.schedules, 1 * unit::us);
    CHECK(result.end.size() == 3 * 4);
    for (std::size_t j = 0; j < run.jobs.size(); ++j) {
      const RingJob& job = run.jobs[j];
      const double whole =
          4.0 * ring_steps(job) * job.copy * job.copies * ring_step_bytes(job).base();
      CHECK(result.delivered_bytes[j] == testing::Approx(whole).epsilon(1e-12));
      CHECK(result.moved_bytes[j] == testing::Approx(whole).epsilon(1e-9));
    }
  }
}

TEST_CASE("a job alone takes its ideal time") {
  Run run(1);
  const RoutingInstance instance(run.graph, run.flows);
  const Routing routing = single_path(*colouring(instance));
  const NetworkRun result = simulate_network(instance, routing, run.schedules, 1 * unit::us);
  const double step = (ring_step_bytes(run.jobs[0]) / kPort).base() + 1e-6;
  REQUIRE(result.end.size() == 4);
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    CHECK(result.end[epoch] - result.start[epoch] ==
          testing::Approx(run.schedules[0].steps * step).epsilon(1e-12));
    if (epoch > 0) CHECK(result.start[epoch] == testing::Approx(result.end[epoch - 1] + 0.05));
  }
}

TEST_CASE("a flow that ends early frees its share for those that remain") {
  // Two flows share the port of NIC 2; the shorter one ends first, then the other has it alone.
  const LinkGraph graph = clos(3, 4, 1);
  Flows flows = testing::flows_of({{0, 2}, {1, 2}}, 1 * unit::GB);
  flows.bytes = {1e9, 3e9};
  const RoutingInstance instance(graph, flows);
  const std::vector<JobSchedule> once(2, {1, 1, Seconds{}, Seconds{}});
  const NetworkRun result =
      simulate_network(instance, single_path(greedy(instance)), once, Seconds{});
  const double alone = 1e9 / kPort.base();
  CHECK(result.end[0] == testing::Approx(2 * alone));
  CHECK(result.end[1] == testing::Approx(4 * alone));
}

TEST_CASE("simultaneous jobs take the step times of the static rates") {
  const LinkGraph graph = testing::paper_fabric();
  const auto jobs = testing::paper_mix(2, 2);
  const auto nics = place_jobs(graph, jobs, JobPlacement::random_leaves, 8, 1);
  const Flows flows = ring_flows(graph, jobs, nics, true);
  const RoutingInstance instance(graph, flows);
  const Routing routing = single_path(*colouring(instance));
  std::vector<JobSchedule> schedules;
  for (const RingJob& job : jobs) schedules.push_back({ring_steps(job), 1, Seconds{}, Seconds{}});
  const NetworkRun result = simulate_network(instance, routing, schedules, Seconds{});
  const RoutingQuality q = quality(instance, routing);
  for (std::size_t i = 0; i < result.job.size(); ++i) {
    const std::int32_t j = result.job[i];
    CHECK(result.end[i] == testing::Approx(schedules[j].steps / q.fair[j]));
  }
}

/// One job of random flows, each a group of its own, in consecutive phases modulo `phases`.
Flows phased_flows(const LinkGraph& graph, int count, int phases, std::uint64_t seed) {
  Flows flows = testing::random_flows(graph, count, seed);
  for (std::int32_t g = 0; g < flows.groups; ++g) flows.phase.push_back(g % phases);
  return flows;
}

TEST_CASE("phases of a job follow each other and conserve bytes") {
  const LinkGraph graph = testing::clos(6, 3, 4);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Flows flows = phased_flows(graph, 24, 3, seed);
    const RoutingInstance instance(graph, flows);
    const Routing routing = single_path(ecmp(instance));
    const std::vector<JobSchedule> schedules{{2, 3, Seconds{}, Seconds{0.1}}};
    const NetworkRun run = simulate_network(instance, routing, schedules, Seconds{});
    REQUIRE(run.end.size() == 3);
    REQUIRE(run.phase.size() == 9);
    for (std::size_t i = 0; i < run.phase.size(); ++i) {
      CHECK(run.phase[i] == static_cast<std::int32_t>(i % 3));
      CHECK(run.phase_epoch[i] == static_cast<std::int32_t>(i / 3));
      const double begin = i % 3 == 0 ? run.start[i / 3] : run.phase_end[i - 1];
      CHECK(run.phase_start[i] == begin);
      if (i % 3 == 2) CHECK(run.phase_end[i] == run.end[i / 3]);
    }
    CHECK(run.delivered_bytes[0] == testing::Approx(3 * 2 * 24e6));
    CHECK(run.moved_bytes[0] == testing::Approx(3 * 2 * 24e6));
    // Never faster than alone on its NICs; all at once is never slower than one after the other
    // where it is alone.
    const double alone = isolated_times(instance, schedules)[0];
    CHECK(run.end[0] - run.start[0] >= alone * (1 - 1e-9));
    Flows at_once = flows;
    at_once.phase.clear();
    const RoutingInstance together(graph, at_once);
    CHECK(isolated_times(together, schedules)[0] <= alone * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace scalemodel
