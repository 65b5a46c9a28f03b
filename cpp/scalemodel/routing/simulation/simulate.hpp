// Collectives of jobs over time on shared links.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// The schedule of a job: every epoch is a collective of `steps` steps in each of its groups, one
/// phase after the other, and then computation without traffic.
struct JobSchedule {
  int steps = 2;    ///< steps of a collective, >= 1
  int epochs = 1;   ///< collectives, >= 1
  Seconds start;    ///< start of the first collective
  Seconds compute;  ///< from the end of a collective to the start of the next

  bool operator==(const JobSchedule&) const = default;
};

template <>
struct RecordOf<JobSchedule> {
  static constexpr std::string_view name = "JobSchedule";
  using T = JobSchedule;
  static constexpr FieldTable fields{
      field("steps", &T::steps, 1, 1e9, "of a collective"),
      field("epochs", &T::epochs, 1, 1e9, "collectives"),
      field("start_s", &T::start, 0, 1e12, "of the first collective"),
      field("compute_s", &T::compute, 0, 1e12, "from a collective to the next")};
};

/// Times in seconds, each with the number of cases that took as long (up to kRounding).
struct TimeCounts {
  std::vector<std::int32_t> job;
  std::vector<double> time;
  std::vector<std::int64_t> count;
};

/// Times from the start of a step to the end of a flow, over all of its steps.
struct Completions {
  std::int64_t count = 0;
  double sum = 0, least = 0, most = 0;  ///< seconds

  void add(double time, std::int64_t times) {
    least = count == 0 ? time : std::min(least, time);
    most = std::max(most, time);
    sum += time * static_cast<double>(times);
    count += times;
  }
  void add(const Completions& other) {
    if (other.count == 0) return;
    least = count == 0 ? other.least : std::min(least, other.least);
    most = std::max(most, other.most);
    sum += other.sum;
    count += other.count;
  }
};

struct NetworkRun {
  // By collective, in the order of their ends.
  std::vector<std::int32_t> job;
  std::vector<double> start, end;  ///< seconds
  // By phase of a collective in the order of their ends; empty where flows have no phases.
  std::vector<std::int32_t> phase_job, phase_epoch, phase;
  std::vector<double> phase_start, phase_end;
  // By group (a ring, say) of a collective, in the order of their ends.
  std::vector<std::int32_t> ring, ring_epoch;
  std::vector<double> ring_start, ring_end;
  TimeCounts flow_times;                ///< from the start of a step to the end of a part of a flow
  TimeCounts step_times;                ///< from the start of a step to its end, by group
  std::vector<Completions> flows;       ///< by flow: those of its parts
  std::vector<double> delivered_bytes;  ///< by job: sizes of the flows that ended
  std::vector<double> moved_bytes;      ///< by job: rates integrated over time
  std::int64_t events = 0;              ///< instants at which a flow ends or starts
  std::int64_t solved_flows = 0;        ///< classes of flows whose rates were solved, over events
  std::int64_t stalled_flows = 0;       ///< parts of flows that never end: their path stays down
};

/// Simulates all jobs until their last collective ends. At every instant the rates of the parts of
/// flows in flight are max-min fair. A group starts its next step when all of its flows have ended;
/// the flows transfer nothing during the first `step_latency` of a step but already take their
/// share of links. A flow that ends before the others of its group frees its share until the next
/// step. A phase of a job ends with the last of its groups, a collective with its last phase.
///
/// Flows that behave alike are simulated once (`flow_classes`), and steps that repeat are counted:
/// where all groups in flight start a step at one instant, what happens until they do so again
/// repeats until one of them has no steps left or a collective starts. A ring alone on its links
/// thus costs as much as one flow.
///
/// Not modelled: convergence of transport protocols, incast, priority flow control, queues and the
/// latency of packets. Flows whose ends differ by less than a relative 1e-12 end at one instant.
/// Preconditions: no flow is disconnected; one schedule per job.
NetworkRun simulate_network(const RoutingInstance& instance, const Routing& routing,
                            std::span<const JobSchedule> schedules, Seconds step_latency);

/// Time of a collective of every job alone on its NICs, the sum over its phases, seconds.
std::vector<double> isolated_times(const RoutingInstance& instance,
                                   std::span<const JobSchedule> schedules);

}  // namespace scalemodel
