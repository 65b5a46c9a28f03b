#include "scalemodel/routing/simulation/flow_classes.hpp"

#include <cstdint>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/policies/spray.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {
namespace {

FlowStates states_of(const Flows& flows) {
  FlowStates states{flows.group, {}, {}};
  for (const double bytes : flows.bytes) {
    states.part_state.push_back(static_cast<std::uint64_t>(bytes));
  }
  states.group_state.assign(flows.groups, 0);
  return states;
}

TEST_CASE("one entity per class has the rates of all flows") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const LinkGraph graph = testing::clos(6, 3, 8);
    const Flows flows = testing::random_flows(graph, 20 + 5 * static_cast<int>(seed), seed);
    const RoutingInstance instance(graph, flows);
    for (const Routing& routing : {single_path(ecmp(instance)), spray(instance)}) {
      const Incidence uses = flow_links(instance, routing);
      FlowStates states = states_of(flows);
      const FlowClasses classes = flow_classes(uses, graph.capacities(), states);
      std::vector<double> rates(flows.size()), merged(classes.parts.size());
      WaterFilling().solve(graph.capacities(), uses, rates);
      WaterFilling().solve(classes.capacity, classes.uses, merged);
      std::size_t members = 0;
      for (const std::int32_t size : classes.size) members += static_cast<std::size_t>(size);
      CHECK(members == flows.size());
      for (std::size_t f = 0; f < flows.size(); ++f) {
        CHECK(merged[classes.of_part[f]] == testing::Approx(rates[f]).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("flows that no other one meets are of one class, those of other sizes are not") {
  const LinkGraph graph = testing::clos(8, 8, 8);
  Flows flows = testing::full_ring(graph, 1);
  const RoutingInstance instance(graph, flows);
  const Incidence uses = flow_links(instance, *colouring(instance));
  const FlowClasses alike = flow_classes(uses, graph.capacities(), states_of(flows));
  CHECK(alike.parts.size() <= 2);  // within a leaf, and between leaves
  CHECK(alike.groups.size() == 1);
  flows.bytes[5] *= 2;
  const FlowClasses unlike = flow_classes(uses, graph.capacities(), states_of(flows));
  CHECK(unlike.parts.size() == alike.parts.size() + 1);
}

TEST_CASE("a long ring takes as many instants as one step after another, in few solutions") {
  for (const int leaves : {4, 16}) {
    const LinkGraph graph = testing::clos(leaves, 16, 16);
    const Flows flows = testing::full_ring(graph, 2);
    const RoutingInstance instance(graph, flows);
    const int steps = 2 * (graph.nics() - 1);
    const std::vector<JobSchedule> schedules{{steps, 2, Seconds{1}, Seconds{0.5}}};
    for (const Routing& routing :
         {single_path(*colouring(instance)), single_path(ecmp(instance))}) {
      const NetworkRun run = simulate_network(instance, routing, schedules, 1 * unit::us);
      REQUIRE(run.end.size() == 2);
      std::int64_t flow_count = 0, step_count = 0;
      for (const std::int64_t count : run.flow_times.count) flow_count += count;
      double whole = 0;
      for (std::size_t i = 0; i < run.step_times.count.size(); ++i) {
        step_count += run.step_times.count[i];
        whole += run.step_times.time[i] * static_cast<double>(run.step_times.count[i]);
      }
      CHECK(flow_count == 2 * std::int64_t{steps} * graph.nics());
      CHECK(step_count == 2 * steps);
      CHECK(whole == testing::Approx(run.end[0] - run.start[0] + run.end[1] - run.start[1]));
      CHECK(run.end[1] - run.start[1] == testing::Approx(run.end[0] - run.start[0]));
      CHECK(run.start[1] == testing::Approx(run.end[0] + 0.5));
      CHECK(run.moved_bytes[0] == testing::Approx(run.delivered_bytes[0]).epsilon(1e-9));
      CHECK(run.ring.size() == 2);
      CHECK(run.events >= 2 * steps);
      // Two epochs of two or three simulated steps, not `steps` of them.
      CHECK(run.solved_flows <= 40 * graph.nics());
      for (const Completions& flow : run.flows) {
        CHECK(flow.count == 2 * steps);
        CHECK(flow.most <= whole / (2 * steps) * (1 + 1e-9));
        CHECK(flow.least <= flow.sum / static_cast<double>(flow.count) * (1 + 1e-9));
      }
    }
  }
}

TEST_CASE("repeated steps stop at the start of another job") {
  // Two rings share the uplink of leaf 0 from second 5 on; before, the first has it alone.
  const LinkGraph graph = testing::clos(2, 1, 2);
  Flows flows = testing::flows_of({{0, 2}, {1, 3}}, Bytes{testing::kPort.base()});
  const RoutingInstance instance(graph, flows);
  const std::vector<JobSchedule> schedules{{10, 1, Seconds{0}, Seconds{}},
                                           {3, 1, Seconds{5.5}, Seconds{}}};
  const NetworkRun run =
      simulate_network(instance, single_path(ecmp(instance)), schedules, Seconds{});
  REQUIRE(run.end.size() == 2);
  // Half rate for 6 s from 5.5 s on moves what 3 steps need.
  CHECK(run.job[0] == 1);
  CHECK(run.end[0] == testing::Approx(11.5));
  CHECK(run.end[1] == testing::Approx(13));
}

}  // namespace
}  // namespace scalemodel
