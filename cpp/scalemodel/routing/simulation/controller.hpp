// Paths chosen anew while jobs come, go and lose links.
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

/// What a controller knows of the demands that its paths will meet.
enum class Forecast : std::uint8_t {
  active,     // jobs in a collective now
  announced,  // also those that will start one before the next run
  admitted,   // all jobs with collectives before them
};

template <>
struct EnumNames<Forecast> {
  static constexpr std::string_view what = "forecast";
  static constexpr std::array<std::string_view, 3> names{"active", "announced", "admitted"};
};

struct Controller {
  Seconds period;  ///< between runs; none: paths are chosen once, for all jobs together
  Seconds delay;   ///< from seeing the demands to new paths
  Forecast forecast = Forecast::announced;

  bool operator==(const Controller&) const = default;
};

template <>
struct RecordOf<Controller> {
  static constexpr std::string_view name = "Controller";
  using T = Controller;
  static constexpr std::tuple fields{
      field("period_s", &T::period, 0, 1e12, "between runs; 0 = paths are chosen once"),
      field("delay_s", &T::delay, 0, 1e12, "from seeing the demands to new paths"),
      field("forecast", &T::forecast, "which jobs a run routes")};
};

/// From `time` on the links of the network have the capacities of `graph`, a copy of the fabric in
/// which something is down, degraded or repaired.
struct NetworkChange {
  Seconds time;
  const LinkGraph* graph;
};

/// What the controller did, by the instant at which its paths took effect or links changed.
struct ControllerLog {
  std::vector<double> time;
  std::vector<std::int32_t> routed, moved;  ///< flows that the run saw; that changed their path
  /// Until the next instant: bytes moved over those that the flows on their way would have moved
  /// were their jobs alone; one where nobody was.
  std::vector<double> efficiency;
  double assignment_s = 0;  ///< spent choosing paths, measured
};

struct ControlledRun {
  NetworkRun network;
  ControllerLog controller;
};

/// `simulate_network` under a controller: every `period` it sees the demands of its forecast,
/// routes them together by the policy and moves them `delay` later, running flows too and at no
/// cost. Flows of other jobs keep their paths; until its first run, paths are hashed. A path with a
/// link that is down moves nothing until the next run, but hashed paths (policy ecmp) are chosen
/// anew at once. Flows without any path wait for a repair; `stalled_flows` counts those that wait
/// for ever. Source: the periodic scheme of arXiv 2503.05324, whose public code runs at every
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
