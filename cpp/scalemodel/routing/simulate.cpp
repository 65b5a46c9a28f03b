#include "scalemodel/routing/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

#include "scalemodel/routing/fair_update.hpp"

namespace scalemodel {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr double kTogether = 1e-12;

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

class Network {
 public:
  Network(const RoutingInstance& instance, const Routing& routing,
          std::span<const JobSchedule> schedules, double latency)
      : schedules_(schedules),
        latency_(latency),
        uses_(flow_links(instance, routing)),
        fair_(instance.graph.capacities(), uses_) {
    const Flows& flows = instance.flows;
    const bool whole = routing.sprayed;
    groups_.resize(flows.groups);
    jobs_.resize(flows.jobs);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const std::int32_t parts = whole ? 1 : routing.first[f + 1] - routing.first[f];
      Group& group = groups_[flows.group[f]];
      if (group.parts == 0) {
        group.first = static_cast<std::int32_t>(parts_.size());
        group.job = flows.job[f];
        jobs_[group.job].groups.push_back(flows.group[f]);
      }
      group.parts += parts;
      for (std::int32_t p = 0; p < parts; ++p) {
        const double share = whole ? 1.0 : routing.share[routing.first[f] + p];
        parts_.push_back({flows.group[f], share * flows.bytes[f]});
      }
    }
    run_.delivered_bytes.assign(flows.jobs, 0.0);
    run_.moved_bytes.assign(flows.jobs, 0.0);
  }

  NetworkRun run() {
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (jobs_[j].groups.empty()) continue;
      releases_.push({schedules_[j].start.base(), static_cast<std::int32_t>(j), 0});
    }
    while (drop_outdated() || !releases_.empty()) {
      const double now = next_time();
      ++run_.events;
      end_parts(now);
      release_jobs(now);
      settle(now);
    }
    run_.solved_flows = fair_.solved();
    return std::move(run_);
  }

 private:
  struct Part {
    std::int32_t group;
    double bytes;
    double left = 0;   ///< bytes at `since`
    double since = 0;  ///< nothing moves before
    double rate = 0;   ///< from `since` on
    std::int32_t version = 0;
    bool ended = true;
  };
  struct Group {
    std::int32_t job = 0;
    std::int32_t first = 0, parts = 0;
    std::int32_t on_the_way = 0;
    std::int32_t step = 0;
  };
  struct Job {
    Numbers groups;
    std::int32_t busy = 0;  ///< groups
    std::int32_t epoch = 0;
    double start = 0;
  };

  bool drop_outdated() {
    while (!ends_.empty() && ends_.top().version != parts_[ends_.top().who].version) ends_.pop();
    return !ends_.empty();
  }
  double next_time() const {
    if (ends_.empty()) return releases_.top().time;
    if (releases_.empty()) return ends_.top().time;
    return std::min(ends_.top().time, releases_.top().time);
  }
  static bool is_due(const Event& event, double now) { return event.time <= now * (1 + kTogether); }

  void end_parts(double now) {
    ended_.clear();
    while (drop_outdated() && is_due(ends_.top(), now)) {
      const std::int32_t p = ends_.top().who;
      ends_.pop();
      Part& part = parts_[p];
      ++part.version;
      part.ended = true;
      ended_.push_back(p);
      Group& group = groups_[part.group];
      run_.delivered_bytes[group.job] += part.bytes;
      run_.moved_bytes[group.job] += part.rate * (now - part.since);
      if (--group.on_the_way == 0) end_step(part.group, now);
    }
    for (const std::int32_t p : ended_) {
      if (parts_[p].ended) {
        parts_[p].rate = 0;
        fair_.stop(p);
      }
    }
  }

  void end_step(std::int32_t number, double now) {
    Group& group = groups_[number];
    Job& job = jobs_[group.job];
    if (++group.step < schedules_[group.job].steps) {
      start_step(group, now);
    } else if (--job.busy == 0) {
      run_.job.push_back(group.job);
      run_.start.push_back(job.start);
      run_.end.push_back(now);
      if (++job.epoch < schedules_[group.job].epochs) {
        releases_.push({now + schedules_[group.job].compute.base(), group.job, 0});
      }
    }
  }

  /// Parts that are still on the way in the fair rates keep their share over the step.
  void start_step(Group& group, double now) {
    group.on_the_way = group.parts;
    for (std::int32_t p = group.first; p < group.first + group.parts; ++p) {
      Part& part = parts_[p];
      part.ended = false;
      part.left = part.bytes;
      part.since = now + latency_;
      if (fair_.active(p)) {
        predict(p, part.since);
      } else {
        part.rate = 0;
        fair_.start(p);
      }
    }
  }

  void release_jobs(double now) {
    while (!releases_.empty() && is_due(releases_.top(), now)) {
      const std::int32_t number = releases_.top().who;
      releases_.pop();
      Job& job = jobs_[number];
      job.start = now;
      job.busy = static_cast<std::int32_t>(job.groups.size());
      for (const std::int32_t g : job.groups) {
        groups_[g].step = 0;
        start_step(groups_[g], now);
      }
    }
  }

  void settle(double now) {
    for (const std::int32_t p : fair_.solve()) {
      Part& part = parts_[p];
      const double rate = fair_.rate(p);
      if (rate == part.rate) continue;
      if (now > part.since) {
        const double moved = part.rate * (now - part.since);
        run_.moved_bytes[groups_[part.group].job] += moved;
        part.left -= moved;
        part.since = now;
      }
      part.rate = rate;
      predict(p, part.since);
    }
  }

  void predict(std::int32_t p, double from) {
    Part& part = parts_[p];
    ++part.version;
    if (part.rate > 0) ends_.push({from + part.left / part.rate, p, part.version});
  }

  std::span<const JobSchedule> schedules_;
  double latency_;
  Incidence uses_;
  FairUpdate fair_;
  std::vector<Part> parts_;
  std::vector<Group> groups_;
  std::vector<Job> jobs_;
  Queue ends_, releases_;
  Numbers ended_;
  NetworkRun run_;
};

}  // namespace

NetworkRun simulate_network(const RoutingInstance& instance, const Routing& routing,
                            std::span<const JobSchedule> schedules, Seconds step_latency) {
  return Network(instance, routing, schedules, step_latency.base()).run();
}

}  // namespace scalemodel
