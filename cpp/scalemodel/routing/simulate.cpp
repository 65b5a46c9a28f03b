#include "scalemodel/routing/simulate.hpp"

#include <limits>

#include "scalemodel/routing/network_simulation.hpp"

namespace scalemodel {

NetworkRun simulate_network(const RoutingInstance& instance, const Routing& routing,
                            std::span<const JobSchedule> schedules, Seconds step_latency) {
  NetworkSimulation simulation(instance, routing, schedules, step_latency);
  simulation.run_until(std::numeric_limits<double>::infinity());
  return simulation.finish();
}

}  // namespace scalemodel
