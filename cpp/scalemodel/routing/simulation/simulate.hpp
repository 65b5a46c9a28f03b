// Ring steps over time: who sends when, and how long collectives take while jobs meet and part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// What a job repeats: a collective of `steps` steps in every one of its groups, one phase after
/// the other, then silence.
struct JobSchedule {
  int steps = 2;
  int epochs = 1;
  Seconds start;    ///< of the first collective
  Seconds compute;  ///< between the end of a collective and the start of the next

  bool operator==(const JobSchedule&) const = default;
};

template <>
struct RecordOf<JobSchedule> {
  static constexpr std::string_view name = "JobSchedule";
  using T = JobSchedule;
  static constexpr std::tuple fields{
      field("steps", &T::steps, 1, 1e9, "of a collective"),
      field("epochs", &T::epochs, 1, 1e9, "collectives"),
      field("start_s", &T::start, 0, 1e12, "of the first collective"),
      field("compute_s", &T::compute, 0, 1e12, "from a collective to the next")};
};

struct NetworkRun {
  std::vector<std::int32_t> job;   ///< of every collective, in the order in which they end
  std::vector<double> start, end;  ///< seconds
  // Of every phase of a collective, where flows have phases, in the order in which they end.
  std::vector<std::int32_t> phase_job, phase_epoch, phase;
  std::vector<double> phase_start, phase_end;
  std::vector<double> delivered_bytes;  ///< by job: flows that ended times their sizes
  std::vector<double> moved_bytes;      ///< by job: rates integrated over time
  std::int64_t events = 0;              ///< instants at which some flow ended or started
  std::int64_t solved_flows = 0;        ///< flows whose rates were solved, over all events
  std::int64_t stalled_flows = 0;       ///< parts of flows that never arrive: their path stays down
};

/// Runs all jobs until their last collective ends. At every instant rates are max-min fair over the
/// parts of flows that are on their way; a group takes its next step when all of its flows have
/// arrived, after `step_latency` during which its flows already hold their share. A flow that ends
/// before the others of its group frees its share until then. A phase of a job ends with the last
/// of its groups, a collective with its last phase.
///
/// Not modelled: convergence of transport protocols, incast, priority flow control, queues and the
/// latency of packets. Flows that end within a relative 1e-12 of each other end together.
/// Precondition: no flow is disconnected, one schedule per job.
NetworkRun simulate_network(const RoutingInstance& instance, const Routing& routing,
                            std::span<const JobSchedule> schedules, Seconds step_latency);

/// Time of a collective of every job alone and bounded by its NICs only: the sum over its phases.
std::vector<double> isolated_times(const RoutingInstance& instance,
                                   std::span<const JobSchedule> schedules);

}  // namespace scalemodel
