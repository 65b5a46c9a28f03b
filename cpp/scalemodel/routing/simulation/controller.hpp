// A controller that reroutes flows while jobs start and end and links fail.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/routing/route.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {

/// The jobs whose demands a run of the controller knows.
enum class Forecast : std::uint8_t {
  active,     // jobs in a collective
  announced,  // also jobs that start one before the next run takes effect
  admitted,   // all jobs with collectives that have not ended
};

template <>
struct EnumNames<Forecast> {
  static constexpr std::string_view what = "forecast";
  static constexpr std::array<std::string_view, 3> names{"active", "announced", "admitted"};
};

struct Controller {
  Seconds period;  ///< between runs; 0: one routing of all jobs at the start
  Seconds delay;   ///< from the demands of a run to its new paths
  Forecast forecast = Forecast::announced;

  bool operator==(const Controller&) const = default;
};

template <>
struct RecordOf<Controller> {
  static constexpr std::string_view name = "Controller";
  using T = Controller;
  static constexpr FieldTable fields{
      field("period_s", &T::period, 0, 1e12, "between runs; 0 = paths are chosen once"),
      field("delay_s", &T::delay, 0, 1e12, "from seeing the demands to new paths"),
      field("forecast", &T::forecast, "which jobs a run routes")};
};

/// From `time` on the links of the network have the capacities of `graph`, a copy of the fabric
/// with links that are down, degraded or repaired.
struct NetworkChange {
  Seconds time;
  const LinkGraph* graph;
};

/// Actions of the controller, by instant at which its paths take effect or links change.
struct ControllerLog {
  std::vector<double> time;                 ///< seconds
  std::vector<std::int32_t> routed, moved;  ///< flows of the run; flows with a new path
  /// Until the next instant: bytes moved over the bytes that the flows in flight move where their
  /// jobs are alone; 1 without flows in flight.
  std::vector<double> efficiency;
  double assignment_s = 0;  ///< measured time of routing
};

struct ControlledRun {
  NetworkRun network;
  ControllerLog controller;
};

/// `simulate_network` under a controller: every `period` it routes the demands of its forecast
/// together by the policy, and `delay` later their flows take the new paths; flows in flight move
/// at no cost. Flows of other jobs keep their paths; before the first run, paths are hashed. Flows
/// with a link that is down transfer nothing until the next run, but hashed paths (policy ecmp) are
/// hashed again at once. Flows without any path wait for a repair; `stalled_flows` counts those
/// that never end. Source: the periodic scheme of arXiv 2503.05324, whose public code runs at every
/// start and end of an epoch.
///
/// Throws MalformedQuestion for policies that split flows, a delay above the period, or changes
/// out of order.
ControlledRun simulate_controlled(const LinkGraph& graph, const Flows& flows,
                                  const PathLimits& limits, const RouteOptions& options,
                                  std::span<const JobSchedule> schedules, Seconds step_latency,
                                  const Controller& controller,
                                  std::span<const NetworkChange> changes);

}  // namespace scalemodel
