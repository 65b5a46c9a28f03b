#include "scalemodel/routing/simulation/simulate.hpp"

#include <algorithm>
#include <set>

#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/simulation/network_simulation.hpp"

namespace scalemodel {

NetworkRun simulate_network(const RoutingInstance& instance, const Routing& routing,
                            std::span<const JobSchedule> schedules, Seconds step_latency) {
  NetworkSimulation simulation(instance, routing, schedules, step_latency);
  simulation.run_until(kInfinity);
  return simulation.finish();
}

std::vector<double> isolated_times(const RoutingInstance& instance,
                                   std::span<const JobSchedule> schedules) {
  const Flows& flows = instance.flows;
  const std::set<std::int32_t> phases(flows.phase.begin(), flows.phase.end());
  std::vector<double> times(flows.jobs, 0.0);
  const auto add = [&](const RoutingInstance& part) {
    const std::vector<double> values = isolated_values(part);
    for (std::size_t j = 0; j < values.size(); ++j) times[j] += schedules[j].steps / values[j];
  };
  if (phases.size() <= 1) {
    add(instance);
    return times;
  }
  for (const std::int32_t phase : phases) {
    Flows own;
    own.jobs = flows.jobs;
    own.groups = flows.groups;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (flows.phase[flows.group[f]] != phase) continue;
      own.job.push_back(flows.job[f]);
      own.group.push_back(flows.group[f]);
      own.source.push_back(flows.source[f]);
      own.destination.push_back(flows.destination[f]);
      own.bytes.push_back(flows.bytes[f]);
    }
    add(RoutingInstance(instance.graph, own, instance.limits));
  }
  return times;
}

}  // namespace scalemodel
