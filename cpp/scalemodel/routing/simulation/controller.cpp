#include "scalemodel/routing/simulation/controller.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/routing/simulation/network_simulation.hpp"

namespace scalemodel {
namespace {

/// Flows of some jobs, and where they stand among all.
struct Demands {
  std::vector<char> jobs;
  Flows flows;
  std::vector<std::int32_t> place;
};

Demands demands_of(const Flows& all, std::vector<char> jobs) {
  Demands demands{std::move(jobs), {}, {}};
  demands.flows.jobs = all.jobs;
  demands.flows.groups = all.groups;
  for (std::size_t f = 0; f < all.size(); ++f) {
    if (demands.jobs[all.job[f]] == 0) continue;
    demands.place.push_back(static_cast<std::int32_t>(f));
    demands.flows.job.push_back(all.job[f]);
    demands.flows.group.push_back(all.group[f]);
    demands.flows.source.push_back(all.source[f]);
    demands.flows.destination.push_back(all.destination[f]);
    demands.flows.bytes.push_back(all.bytes[f]);
  }
  return demands;
}

std::span<const std::int32_t> row(const Incidence& uses, std::size_t entity) {
  return std::span(uses.link).subspan(uses.first[entity],
                                      uses.first[entity + 1] - uses.first[entity]);
}

/// Links for some of the flows.
struct Paths {
  std::vector<std::int32_t> place;  ///< of the flows among all
  Incidence uses;
  std::vector<char> connected;
};

class ControlledNetwork {
 public:
  ControlledNetwork(const LinkGraph& graph, const Flows& flows, const PathLimits& limits,
                    const RouteOptions& options, std::span<const JobSchedule> schedules,
                    Seconds step_latency, const Controller& controller,
                    std::span<const NetworkChange> changes)
      : graph_(&graph),
        flows_(flows),
        limits_(limits),
        options_(options),
        controller_(controller),
        changes_(changes),
        simulation_(start(schedules, step_latency)) {}

  ControlledRun run() {
    const double period = controller_.period.base();
    double next_run = period > 0 ? 0 : kInfinity, next_move = kInfinity;
    bool idle = false;
    if (period == 0) record(0, static_cast<std::int32_t>(flows_.size()), 0);
    while (!idle) {
      const double next_change = changes_.empty() ? kInfinity : changes_.front().time.base();
      const double now = std::min({next_run, next_move, next_change});
      // The first run sees nothing yet but what is announced, and comes before all events.
      if (now > 0) simulation_.run_until(now);
      if (now == kInfinity || nothing_remains()) break;
      if (now == next_change) change(now);
      if (now == next_move) {
        move(now);
        next_move = kInfinity;
      }
      if (now == next_run) {
        find_paths_for(forecast(now));
        seen_ = true;
        next_run = now + period;
        if (controller_.delay > Seconds{}) {
          next_move = now + controller_.delay.base();
        } else {
          move(now);
        }
      }
      // Whoever still waits now waits for ever.
      idle = next_move == kInfinity && changes_.empty() && (seen_ || next_run == kInfinity) &&
             !simulation_.has_events();
    }
    close_interval(simulation_.now());
    return {simulation_.finish(), std::move(log_)};
  }

 private:
  NetworkSimulation start(std::span<const JobSchedule> schedules, Seconds step_latency) {
    const RoutingInstance instance(*graph_, flows_, limits_);
    RouteOptions first = options_;
    if (controller_.period > Seconds{}) first.policy = RoutingPolicy::ecmp;
    return {instance, timed_route(instance, first), schedules, step_latency};
  }

  Routing timed_route(const RoutingInstance& instance, const RouteOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    Routing routing = route(instance, options);
    log_.assignment_s +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return routing;
  }

  bool nothing_remains() const {
    for (std::int32_t job = 0; job < flows_.jobs; ++job) {
      if (simulation_.remains(job)) return false;
    }
    return true;
  }

  std::vector<char> forecast(double now) const {
    std::vector<char> jobs(flows_.jobs, 0);
    const double horizon = now + controller_.delay.base() + controller_.period.base();
    for (std::int32_t job = 0; job < flows_.jobs; ++job) {
      switch (controller_.forecast) {
        case Forecast::active:
          jobs[job] = simulation_.communicates(job) ? 1 : 0;
          break;
        case Forecast::announced:
          jobs[job] =
              simulation_.communicates(job) || simulation_.next_start(job) <= horizon ? 1 : 0;
          break;
        case Forecast::admitted:
          jobs[job] = simulation_.remains(job) ? 1 : 0;
          break;
      }
    }
    return jobs;
  }

  void find_paths_for(std::vector<char> jobs) {
    if (jobs == found_for_) return;  // the same demands on the same network have the same paths
    found_for_ = std::move(jobs);
    const Demands demands = demands_of(flows_, found_for_);
    const RoutingInstance instance(*graph_, demands.flows, limits_);
    found_.place = demands.place;
    found_.uses = flow_links(instance, timed_route(instance, options_));
    found_.connected.clear();
    for (std::size_t f = 0; f < instance.size(); ++f) {
      found_.connected.push_back(instance.is_local(f) || instance.paths_of(f) > 0 ? 1 : 0);
    }
  }

  /// Flows that have no path keep the one they had: its dead link holds them.
  void move(double now) {
    const Incidence& old = simulation_.uses();
    Incidence uses;
    uses.link.reserve(old.link.size());
    std::int32_t moved = 0;
    std::size_t next = 0;
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      auto links = row(old, f);
      if (next < found_.place.size() && found_.place[next] == static_cast<std::int32_t>(f)) {
        const auto found = row(found_.uses, next);
        if (found_.connected[next] != 0 && !std::ranges::equal(links, found)) {
          links = found;
          ++moved;
        }
        ++next;
      }
      uses.link.insert(uses.link.end(), links.begin(), links.end());
      uses.first.push_back(static_cast<std::int32_t>(uses.link.size()));
    }
    if (moved > 0) simulation_.reroute(std::move(uses), graph_->capacities(), now);
    record(now, static_cast<std::int32_t>(found_.place.size()), moved);
  }

  void change(double now) {
    graph_ = changes_.front().graph;
    changes_ = changes_.subspan(1);
    found_for_.clear();
    seen_ = false;
    simulation_.reroute(simulation_.uses(), graph_->capacities(), now);
    if (options_.policy == RoutingPolicy::ecmp) {
      find_paths_for(std::vector<char>(flows_.jobs, 1));
      move(now);
    } else {
      record(now, 0, 0);
    }
  }

  void record(double now, std::int32_t routed, std::int32_t moved) {
    close_interval(now);
    log_.time.push_back(now);
    log_.routed.push_back(routed);
    log_.moved.push_back(moved);
  }

  /// Ends the interval of the last entry.
  void close_interval(double now) {
    const NetworkSimulation::Progress progress = simulation_.progress(now);
    if (log_.efficiency.size() < log_.time.size()) {
      const double moved = progress.moved - before_.moved;
      const double wanted = progress.wanted - before_.wanted;
      const bool any = wanted > kNothing * progress.wanted;
      log_.efficiency.push_back(any ? std::min(moved / wanted, 1.0) : 1.0);
    }
    before_ = progress;
  }

  static constexpr double kNothing = 1e-12;  ///< of all bytes: rounding

  const LinkGraph* graph_;
  const Flows& flows_;
  PathLimits limits_;
  RouteOptions options_;
  Controller controller_;
  std::span<const NetworkChange> changes_;
  ControllerLog log_;
  bool seen_ = false;  ///< a run has seen the network as it is
  std::vector<char> found_for_;
  Paths found_;
  NetworkSimulation::Progress before_;
  NetworkSimulation simulation_;
};

}  // namespace

ControlledRun simulate_controlled(const LinkGraph& graph, const Flows& flows,
                                  const PathLimits& limits, const RouteOptions& options,
                                  std::span<const JobSchedule> schedules, Seconds step_latency,
                                  const Controller& controller,
                                  std::span<const NetworkChange> changes) {
  if (options.policy == RoutingPolicy::spray || options.policy == RoutingPolicy::subflow_ecmp) {
    throw MalformedQuestion("policy='" + std::string(name_of(options.policy)) +
                            "': a controller moves whole flows; take a policy that does not split "
                            "them");
  }
  if (controller.delay > controller.period) {
    throw MalformedQuestion("delay_s: must not be above the period between runs");
  }
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].graph->links() != graph.links()) {
      throw MalformedQuestion("changes[" + std::to_string(i) +
                              "]: has other links than the fabric");
    }
    if (i > 0 && changes[i].time < changes[i - 1].time) {
      throw MalformedQuestion("changes[" + std::to_string(i) +
                              "]: must not be before the last one");
    }
  }
  return ControlledNetwork(graph, flows, limits, options, schedules, step_latency, controller,
                           changes)
      .run();
}

}  // namespace scalemodel
