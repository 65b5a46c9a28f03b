// Completion times of flows and steps during a simulation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {

/// Counts which times the classes of parts, or of groups, take. Times of a class that repeat one
/// after the other become one entry.
class CompletionTimes {
 public:
  /// Starts the counts of classes; pending entries must have been flushed.
  void start(std::size_t classes) { pending_.assign(classes, {}); }

  void add(std::int32_t of, std::int32_t job, double time, std::int64_t count, TimeCounts& into) {
    Pending& pending = pending_[of];
    const double difference = std::abs(time - pending.time);
    if (difference > kRounding * std::max(time, pending.time)) hand_on(pending, into);
    if (pending.count == 0) pending = {job, time, 0};
    pending.count += count;
  }
  void flush(TimeCounts& into) {
    for (Pending& pending : pending_) hand_on(pending, into);
  }

 private:
  struct Pending {
    std::int32_t job = 0;
    double time = 0;
    std::int64_t count = 0;
  };
  static void hand_on(Pending& pending, TimeCounts& into) {
    if (pending.count == 0) return;
    into.job.push_back(pending.job);
    into.time.push_back(pending.time);
    into.count.push_back(pending.count);
    pending.count = 0;
  }

  std::vector<Pending> pending_;
};

}  // namespace scalemodel
