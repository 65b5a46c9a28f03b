// A long run failure by failure: checkpoints, restarts, spares and the queue for a repaired node.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/economics/reliability.hpp"

namespace scalemodel {

/// What a simulation needs beside the job.
struct SimulationPlan {
  Seconds work;      ///< productive time of the run
  Seconds interval;  ///< productive time between checkpoints
  int spares = 0;    ///< nodes that stand ready
  Seconds repair;    ///< until a failed node stands ready again; 0: replaced at once
  int runs = 1;
  int seed = 0;
  int replicas = 1;  ///< that fail one by one while the others go on; 1: the job stops whole
  Seconds stall;     ///< of the other replicas at a failure

  bool operator==(const SimulationPlan&) const = default;
};

/// Where the time of one run went. `time` is the sum of the work and of the four losses; of several
/// replicas each counts by its share of the job.
struct SimulatedRun {
  Seconds time;
  Seconds repeated;    ///< work since the last checkpoint, lost
  Seconds writing;     ///< standing still for checkpoints
  Seconds restarting;  ///< restarts, those cut short by another failure included, and stalls
  Seconds queueing;    ///< waiting for a node
  int failures = 0;

  bool operator==(const SimulatedRun&) const = default;
};

/// Most failures of one run: beyond it a run counts as one that never ends.
inline constexpr int kMaxFailures = 1'000'000;

/// Independent runs of one job; the same seed gives the same runs on every platform. Failures come
/// at random (exponential times) while the job runs or restarts, not while it waits in the queue.
/// A run with more than `kMaxFailures` failures ends there, with infinite time.
///
/// Of several replicas one fails at a time: the others stall for `stall` and go on, it takes a
/// spare or the next repaired node, restarts for `restart` and copies the state of another. A
/// replica that waits for a node does not fail. Work is lost only where none is left that has the
/// state: then the run goes back to its last checkpoint. Source: pytorch/torchft README and
/// torchft/manager.py. Preconditions: work and interval positive.
std::vector<SimulatedRun> simulate_runs(const FailingJob& job, const SimulationPlan& plan);

template <>
struct RecordOf<SimulationPlan> {
  static constexpr std::string_view name = "SimulationPlan";
  using T = SimulationPlan;
  static constexpr FieldTable fields{
      field("work_s", &T::work, 1e-3, 1e12, "productive time of the run"),
      field("interval_s", &T::interval, 1e-3, 1e12, "productive time between checkpoints"),
      field("spares", &T::spares, 0, 1'000'000, "nodes that stand ready"),
      field("repair_s", &T::repair, 0, 1e9, "until a failed node stands ready; 0 = at once"),
      field("runs", &T::runs, 1, 1'000'000, "independent runs"),
      field("seed", &T::seed, 0, 2'000'000'000, "of the random numbers"),
      field("replicas", &T::replicas, 1, 1'000'000,
            "that fail one by one; 1 = the job stops whole"),
      field("stall_s", &T::stall, 0, 1e8, "of the other replicas at a failure")};
};

}  // namespace scalemodel
