// Discrete-event simulation of the steps of jobs on paths that may change.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/fair_update.hpp"
#include "scalemodel/routing/simulation/completion_times.hpp"
#include "scalemodel/routing/simulation/flow_classes.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {

/// The state of `simulate_network` between two instants. The entities of `uses` are the parts of
/// flows, in the order of their flows; the simulation has one part per class of parts.
class NetworkSimulation {
 public:
  /// Refers to `capacity` until the next `reroute`, and to `schedules`.
  NetworkSimulation(const RoutingInstance& instance, const Routing& routing,
                    std::span<const JobSchedule> schedules, Seconds step_latency);
  NetworkSimulation(const NetworkSimulation&) = delete;  // `fair_` refers to `classes_`
  NetworkSimulation& operator=(const NetworkSimulation&) = delete;

  /// Processes all events up to and including `time`.
  void run_until(double time);
  /// Changes the links of the parts, or the capacities of links; parts in flight stay in flight.
  void reroute(Incidence uses, std::span<const double> capacity, double now);

  const Incidence& uses() const { return uses_; }
  /// Whether any event remains without another `reroute`.
  bool has_events() { return drop_stale_ends() || !releases_.empty(); }
  /// Whether some group of the job is in a collective.
  bool communicates(std::int32_t job) const { return jobs_[job].active_groups > 0; }
  /// Whether the job has collectives that have not ended.
  bool is_unfinished(std::int32_t job) const;
  /// Start of the next collective of the job where it is known, otherwise infinity.
  double next_start(std::int32_t job) const { return jobs_[job].next_start; }

  struct Progress {
    double moved = 0;     ///< bytes of all jobs so far
    double isolated = 0;  ///< bytes of the flows in flight at the rates of their jobs alone
  };
  Progress progress(double now);
  /// Time of the last event.
  double now() const { return now_; }

  /// The record of the run; ends the simulation.
  NetworkRun finish();

 private:
  /// The predicted end of a part of a flow, or the start of a job's collective.
  struct Event {
    double time;
    std::int32_t id;       ///< part or job
    std::int32_t version;  ///< version of the prediction; older ones are stale

    bool operator>(const Event& other) const {
      return time > other.time || (time == other.time && id > other.id);
    }
  };
  using Queue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;
  /// A class of parts; sizes and rates are those of one member.
  struct Part {
    std::int32_t group = 0;
    std::int32_t members = 0;
    double bytes = 0;
    double isolated_rate = 0;  ///< bytes/s where the job is alone
    double left = 0;           ///< bytes left at `since`
    double since = 0;          ///< time from which `rate` is valid
    double rate = 0;           ///< bytes/s
    std::int32_t version = 0;
    bool ended = true;
    Completions completions;  ///< of one member
  };
  /// A class of groups.
  struct Group {
    std::int32_t members = 0;
    std::int32_t job = 0;
    std::int32_t phase = 0;
    std::vector<std::int32_t> parts;
    std::int32_t in_flight = 0;  ///< parts that have not ended
    std::int32_t step = 0;
    double step_start = 0;
  };
  struct Job {
    std::vector<std::int32_t> groups;  ///< in the order of phases
    std::int32_t next_group = 0;       ///< the first one whose phase has not started
    std::int32_t active_groups = 0;    ///< groups in a collective
    std::int32_t next_phase = std::numeric_limits<std::int32_t>::min();  ///< least to start
    std::int32_t epoch = 0;
    double start = 0, phase_start = 0;
    double next_start = 0;
  };
  /// The end of a part or of the step of a group, and the seconds since the start of the step.
  struct End {
    std::int32_t id;
    double time;
  };
  /// The last instant at which all groups in flight started a step.
  struct CommonStart {
    double time = -1;
    double isolated_bytes = 0;
    std::int64_t events = 0;
    std::vector<std::pair<std::int32_t, std::int32_t>> steps;  ///< groups in flight, their steps
    std::vector<End> parts, groups;                            ///< since then
  };

  void merge(std::span<const double> capacity);
  void list_groups();
  FlowStates states() const;
  bool drop_stale_ends();
  double next_time() const;
  void end_parts(double now);
  void end_step(std::int32_t number, double now);
  void end_group(std::int32_t number, double now);
  void start_step(Group& group, double now);
  void start_phase(Job& job, double now);
  void release_jobs(double now);
  void update_rates(double now);
  void predict_end(std::int32_t p, double from);
  void advance(double now);
  void repeat_steps(double now, double until);
  std::int64_t repeats(double period, double until) const;
  void count_part(const End& end, std::int64_t times);
  void count_step(const End& end, std::int64_t times);
  void close_classes();

  std::span<const JobSchedule> schedules_;
  double latency_;
  Incidence uses_;                          ///< of all parts
  std::vector<std::int32_t> flow_, group_;  ///< by part of all: its flow and group
  std::vector<double> bytes_, isolated_;    ///< by part of all: size, rate where the job is alone
  std::vector<std::int32_t> job_of_, phase_of_;  ///< by group of all
  FlowClasses classes_;
  std::vector<std::vector<std::int32_t>> members_;  ///< groups by class
  std::unique_ptr<FairUpdate> fair_;                ///< constructed again by every `reroute`
  std::vector<Part> parts_;
  std::vector<Group> groups_;
  bool phased_ = false;
  std::vector<Job> jobs_;
  Queue ends_, releases_;
  std::vector<std::int32_t> ended_;
  std::int64_t solved_before_ = 0;  ///< before the last `reroute`
  double now_ = 0;
  double isolated_bytes_ = 0, isolated_rate_ = 0;  ///< of the parts in flight
  std::uint64_t collectives_ = 0;                  ///< of all jobs, over all epochs
  std::int32_t in_collective_ = 0, started_ = 0;   ///< groups; those that started a step now
  CommonStart common_;
  CompletionTimes part_times_, step_times_;
  NetworkRun run_;
};

}  // namespace scalemodel
