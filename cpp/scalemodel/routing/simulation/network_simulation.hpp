// Ring steps of jobs as events, on paths that may change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/fair_update.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {

/// The state of `simulate_network` between two instants. Parts of flows, in the order of their
/// flows, are what `uses` lists.
class NetworkSimulation {
 public:
  /// Refers to `capacity` until the next `reroute`, and to `schedules`.
  NetworkSimulation(const RoutingInstance& instance, const Routing& routing,
                    std::span<const JobSchedule> schedules, Seconds step_latency);
  NetworkSimulation(const NetworkSimulation&) = delete;  // its rates refer to its links
  NetworkSimulation& operator=(const NetworkSimulation&) = delete;

  /// Everything that happens until then, and then.
  void run_until(double time);
  /// Other links for the parts, or other capacities of the links; whatever is on its way stays so.
  void reroute(Incidence uses, std::span<const double> capacity, double now);

  const Incidence& uses() const { return uses_; }
  /// Whether anything will happen without another `reroute`.
  bool has_events() { return drop_outdated() || !releases_.empty(); }
  /// Some group of the job is in a collective.
  bool communicates(std::int32_t job) const { return jobs_[job].busy > 0; }
  /// The job has collectives before it.
  bool remains(std::int32_t job) const;
  /// When the next collective of the job starts, where that is known; infinite otherwise.
  double next_start(std::int32_t job) const { return jobs_[job].next_start; }

  struct Progress {
    double moved = 0;   ///< bytes of all jobs so far
    double wanted = 0;  ///< bytes that flows on their way would have moved were their jobs alone
  };
  Progress progress(double now);
  /// The last instant at which anything happened.
  double now() const { return now_; }

  /// What happened; ends the simulation.
  NetworkRun finish();

 private:
  /// Something that happens to a part of a flow or to a job.
  struct Event {
    double time;
    std::int32_t who;
    std::int32_t version;  ///< of the prediction; older ones no longer count

    bool operator>(const Event& other) const {
      return time > other.time || (time == other.time && who > other.who);
    }
  };
  using Queue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;
  struct Part {
    std::int32_t group;
    double bytes;
    double alone;      ///< rate were the job alone
    double left = 0;   ///< bytes at `since`
    double since = 0;  ///< nothing moves before
    double rate = 0;   ///< from `since` on
    std::int32_t version = 0;
    bool ended = true;
  };
  struct Group {
    std::int32_t job = 0;
    std::int32_t phase = 0;
    std::int32_t first = 0, parts = 0;
    std::int32_t on_the_way = 0;
    std::int32_t step = 0;
  };
  struct Job {
    std::vector<std::int32_t> groups;  ///< by phase
    std::int32_t next_group = 0;       ///< first of those whose phase has not begun
    std::int32_t busy = 0;             ///< groups
    std::int32_t epoch = 0;
    double start = 0, phase_start = 0;
    double next_start = 0;
  };

  bool drop_outdated();
  double next_time() const;
  void end_parts(double now);
  void end_step(std::int32_t number, double now);
  void start_step(Group& group, double now);
  void start_phase(Job& job, double now);
  void release_jobs(double now);
  void settle(double now);
  void predict(std::int32_t p, double from);
  void pass_time(double now);

  std::span<const JobSchedule> schedules_;
  double latency_;
  Incidence uses_;
  std::unique_ptr<FairUpdate> fair_;  ///< made anew with every `reroute`
  std::vector<Part> parts_;
  std::vector<Group> groups_;
  bool phased_ = false;
  std::vector<Job> jobs_;
  Queue ends_, releases_;
  std::vector<std::int32_t> ended_;
  std::int64_t solved_before_ = 0;  ///< by rates before the last `reroute`
  double now_ = 0, wanted_ = 0, wanted_rate_ = 0;
  NetworkRun run_;
};

}  // namespace scalemodel
