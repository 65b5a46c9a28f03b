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

/// Flows of some jobs, and their numbers among all flows.
struct Demands {
  std::vector<char> jobs;
  Flows flows;
  std::vector<std::int32_t> number;
};

Demands demands_of(const Flows& all, std::vector<char> jobs) {
  Demands demands{std::move(jobs), {}, {}};
  demands.flows.jobs = all.jobs;
  demands.flows.groups = all.groups;
  for (std::size_t f = 0; f < all.size(); ++f) {
    if (demands.jobs[all.job[f]] == 0) continue;
    demands.number.push_back(static_cast<std::int32_t>(f));
    demands.flows.job.push_back(all.job[f]);
    demands.flows.group.push_back(all.group[f]);
    demands.flows.source.push_back(all.source[f]);
    demands.flows.destination.push_back(all.destination[f]);
    demands.flows.bytes.push_back(all.bytes[f]);
  }
  return demands;
}

std::span<const std::int32_t> links_of(const Incidence& uses, std::size_t entity) {
  return std::span(uses.link).subspan(uses.first[entity],
                                      uses.first[entity + 1] - uses.first[entity]);
}

/// Links of some of the flows.
struct Paths {
  std::vector<std::int32_t> number;  ///< of the flows among all
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
      // The first run comes before all events: it knows announced and admitted jobs only.
      if (now > 0) simulation_.run_until(now);
      if (now == kInfinity || is_finished()) break;
      if (now == next_change) change(now);
      if (now == next_move) {
        move(now);
        next_move = kInfinity;
      }
      if (now == next_run) {
        route_jobs(forecast(now));
        is_routed_ = true;
        next_run = now + period;
        if (controller_.delay > Seconds{}) {
          next_move = now + controller_.delay.base();
        } else {
          move(now);
        }
      }
      // Without another event, run or change, a flow that still waits never ends.
      idle = next_move == kInfinity && changes_.empty() && (is_routed_ || next_run == kInfinity) &&
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

  bool is_finished() const {
    for (std::int32_t job = 0; job < flows_.jobs; ++job) {
      if (simulation_.is_unfinished(job)) return false;
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
          jobs[job] = simulation_.is_unfinished(job) ? 1 : 0;
          break;
      }
    }
    return jobs;
  }

  void route_jobs(std::vector<char> jobs) {
    if (jobs == routed_jobs_) return;  // same demands, same network: same paths
    routed_jobs_ = std::move(jobs);
    const Demands demands = demands_of(flows_, routed_jobs_);
    const RoutingInstance instance(*graph_, demands.flows, limits_);
    new_paths_.number = demands.number;
    new_paths_.uses = flow_links(instance, timed_route(instance, options_));
    new_paths_.connected.clear();
    for (std::size_t f = 0; f < instance.size(); ++f) {
      new_paths_.connected.push_back(instance.is_local(f) || instance.paths_of(f) > 0 ? 1 : 0);
    }
  }

  /// Gives flows their new paths. A flow without any path keeps its old one, which is down.
  void move(double now) {
    const Incidence& old = simulation_.uses();
    Incidence uses;
    uses.link.reserve(old.link.size());
    std::int32_t moved = 0;
    std::size_t next = 0;
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      auto links = links_of(old, f);
      if (next < new_paths_.number.size() &&
          new_paths_.number[next] == static_cast<std::int32_t>(f)) {
        const auto found = links_of(new_paths_.uses, next);
        if (new_paths_.connected[next] != 0 && !std::ranges::equal(links, found)) {
          links = found;
          ++moved;
        }
        ++next;
      }
      uses.link.insert(uses.link.end(), links.begin(), links.end());
      uses.first.push_back(static_cast<std::int32_t>(uses.link.size()));
    }
    if (moved > 0) simulation_.reroute(std::move(uses), graph_->capacities(), now);
    record(now, static_cast<std::int32_t>(new_paths_.number.size()), moved);
  }

  void change(double now) {
    graph_ = changes_.front().graph;
    changes_ = changes_.subspan(1);
    routed_jobs_.clear();
    is_routed_ = false;
    simulation_.reroute(simulation_.uses(), graph_->capacities(), now);
    if (options_.policy == RoutingPolicy::ecmp) {
      route_jobs(std::vector<char>(flows_.jobs, 1));
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

  /// Ends the interval of the last entry of the log.
  void close_interval(double now) {
    const NetworkSimulation::Progress progress = simulation_.progress(now);
    if (log_.efficiency.size() < log_.time.size()) {
      const double moved = progress.moved - before_.moved;
      const double isolated = progress.isolated - before_.isolated;
      const bool any = isolated > kRoundingShare * progress.isolated;
      log_.efficiency.push_back(any ? std::min(moved / isolated, 1.0) : 1.0);
    }
    before_ = progress;
  }

  static constexpr double kRoundingShare = 1e-12;  ///< of all bytes: not more than rounding

  const LinkGraph* graph_;
  const Flows& flows_;
  PathLimits limits_;
  RouteOptions options_;
  Controller controller_;
  std::span<const NetworkChange> changes_;
  ControllerLog log_;
  bool is_routed_ = false;         ///< whether a run followed the last change of the network
  std::vector<char> routed_jobs_;  ///< jobs of `new_paths_`
  Paths new_paths_;
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
