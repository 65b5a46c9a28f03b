#include <pybind11/numpy.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/columns.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/routing/exact/few_sizes.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/route.hpp"
#include "scalemodel/routing/simulation/controller.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"
#include "scalemodel/traffic/flows.hpp"
#include "scalemodel/traffic/patterns.hpp"
#include "scalemodel/traffic/ring_jobs.hpp"

namespace scalemodel::bindings {
namespace {

[[noreturn]] void reject_flow(const char* column, std::size_t flow, const std::string& legal) {
  throw MalformedQuestion(std::string(column) + "[" + std::to_string(flow) + "]: must be " + legal);
}

/// Checks what the engine takes for granted; groups must be consecutive.
Flows make_flows(const IndexColumn& job, const IndexColumn& group, const IndexColumn& source,
                 const IndexColumn& destination, const NumberColumn& bytes, std::int32_t jobs,
                 const std::vector<std::int32_t>& phase) {
  for (const py::ssize_t size : {group.size(), source.size(), destination.size(), bytes.size()}) {
    if (size != job.size()) throw MalformedQuestion("flows: columns must have the same length");
  }
  Flows flows;
  flows.job = vector_of<std::int32_t>(job);
  flows.group = vector_of<std::int32_t>(group);
  flows.source = vector_of<std::int32_t>(source);
  flows.destination = vector_of<std::int32_t>(destination);
  flows.bytes = vector_of<double>(bytes);
  flows.jobs = jobs;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    if (flows.job[f] < 0 || flows.job[f] >= jobs) {
      reject_flow("job", f, "below " + std::to_string(jobs));
    }
    const std::int32_t next = f == 0 ? 0 : flows.group[f - 1];
    if (flows.group[f] < next || flows.group[f] > next + (f == 0 ? 0 : 1)) {
      reject_flow("group", f, "consecutive from 0");
    }
    if (!(flows.bytes[f] > 0) || !(flows.bytes[f] < 1e18)) {
      reject_flow("size_bytes", f, "above 0 and below 1e18");
    }
    flows.groups = flows.group[f] + 1;
  }
  if (!phase.empty() && phase.size() != static_cast<std::size_t>(flows.groups)) {
    throw MalformedQuestion("phase: must have one entry per group");
  }
  flows.phase = phase;
  return flows;
}

py::tuple stored_flows(const Flows& f) {
  return py::make_tuple(f.job, f.group, f.source, f.destination, f.bytes, f.jobs, f.groups,
                        f.phase);
}

Flows restored_flows(const py::tuple& state) {
  using Numbers = std::vector<std::int32_t>;
  if (state.size() != 8) throw py::value_error("no state of Flows");
  Flows flows;
  flows.job = state[0].cast<Numbers>();
  flows.group = state[1].cast<Numbers>();
  flows.source = state[2].cast<Numbers>();
  flows.destination = state[3].cast<Numbers>();
  flows.bytes = state[4].cast<std::vector<double>>();
  flows.jobs = state[5].cast<std::int32_t>();
  flows.groups = state[6].cast<std::int32_t>();
  flows.phase = state[7].cast<Numbers>();
  return flows;
}

void require_nics(const LinkGraph& graph, const Flows& flows) {
  const std::string legal = "a NIC, 0 to " + std::to_string(graph.nics() - 1);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const std::int32_t from = flows.source[f], to = flows.destination[f];
    if (from < 0 || from >= graph.nics()) reject_flow("source", f, legal);
    if (to < 0 || to >= graph.nics()) reject_flow("destination", f, legal);
    if (from == to) reject_flow("destination", f, "another NIC than the source");
  }
}

py::dict flow_columns(const Flows& flows) {
  py::dict columns;
  columns["job"] = array_of(flows.job);
  columns["group"] = array_of(flows.group);
  columns["source"] = array_of(flows.source);
  columns["destination"] = array_of(flows.destination);
  columns["size_bytes"] = array_of(flows.bytes);
  return columns;
}

/// Number of the plane of every part of a two-tier routing, position of the path elsewhere.
std::vector<std::int32_t> planes_of(const RoutingInstance& instance, const Routing& routing) {
  std::vector<std::int32_t> planes;
  reserve_large(planes, routing.choice.size());
  planes.assign(routing.choice.size(), PathSets::kNone);
  for (std::size_t f = 0; f < instance.size(); ++f) {
    for (std::int32_t p = routing.first[f]; p < routing.first[f + 1]; ++p) {
      if (routing.choice[p] == PathSets::kNone) continue;
      const std::int32_t path = instance.paths.path_first[instance.paths.set[f]];
      planes[p] = instance.paths.via[path + routing.choice[p]];
    }
  }
  return planes;
}

/// A routing and all that is answered of it.
struct Judged {
  RoutingInstance instance;
  Routing routing;
  RoutingQuality quality;
  std::vector<double> bytes;         ///< by link
  std::vector<std::int32_t> planes;  ///< by part
  std::size_t disconnected;
};

Judged judged_routing(RoutingInstance&& instance, Routing&& routing) {
  RoutingQuality q = quality(instance, routing);
  std::vector<double> bytes = link_bytes(instance, routing);
  std::vector<std::int32_t> planes = planes_of(instance, routing);
  const std::size_t disconnected = instance.disconnected();
  return {std::move(instance), std::move(routing), std::move(q),
          std::move(bytes),    std::move(planes),  disconnected};
}

/// What is found becomes the columns themselves.
py::dict quality_columns(Judged&& judged) {
  Routing& routing = judged.routing;
  RoutingQuality& q = judged.quality;
  py::dict answer;
  answer["first"] = array_of(std::move(routing.first));
  answer["path"] = array_of(std::move(routing.choice));
  answer["plane"] = array_of(std::move(judged.planes));
  answer["share"] = array_of(std::move(routing.share));
  answer["sprayed"] = routing.sprayed;
  answer["rate_bytes_per_s"] = array_of(std::move(q.rates));
  answer["fair_steps_per_s"] = array_of(std::move(q.fair));
  answer["allocated_steps_per_s"] = array_of(std::move(q.allocated));
  answer["isolated_steps_per_s"] = array_of(std::move(q.isolated));
  answer["link_rate_bytes_per_s"] = array_of(std::move(q.carried));
  answer["link_bytes"] = array_of(std::move(judged.bytes));
  answer["max_flows"] = q.load.flows;
  answer["max_bytes"] = q.load.bytes.base();
  answer["drain_s"] = q.load.drain.base();
  answer["bound_flows"] = q.bound.flows;
  answer["bound_s"] = q.bound.drain().base();
  answer["spray_bound_s"] = q.bound.spread.base();
  answer["disconnected"] = judged.disconnected;
  return answer;
}

Routing given_routing(const RoutingInstance& instance, const IndexColumn& path) {
  if (static_cast<std::size_t>(path.size()) != instance.size()) {
    throw MalformedQuestion("path: must have one entry per flow");
  }
  Choice choice = vector_of<std::int32_t>(path);
  for (std::size_t f = 0; f < choice.size(); ++f) {
    const std::int32_t paths = instance.paths_of(f);
    if (paths == 0 ? choice[f] != PathSets::kNone : choice[f] < 0 || choice[f] >= paths) {
      reject_flow("path", f, paths == 0 ? "-1" : "0 to " + std::to_string(paths - 1));
    }
  }
  return single_path(std::move(choice));
}

PathLimits limits_of(int max_paths, int detours) {
  if (max_paths < 1) throw MalformedQuestion("max_paths: must be at least 1");
  if (detours < 0) throw MalformedQuestion("detours: must be at least 0");
  return {max_paths, detours};
}

py::dict route_flows(const LinkGraph& graph, const Flows& flows, const RouteOptions& options,
                     int max_paths, int detours) {
  const PathLimits limits = limits_of(max_paths, detours);
  std::chrono::duration<double> spent{};
  Judged judged = listening([&] {
    require_nics(graph, flows);
    RoutingInstance instance(graph, flows, limits);
    const auto start = std::chrono::steady_clock::now();
    Routing routing = route(instance, options);
    spent = std::chrono::steady_clock::now() - start;
    return judged_routing(std::move(instance), std::move(routing));
  });
  py::dict answer = quality_columns(std::move(judged));
  answer["assignment_s"] = spent.count();
  return answer;
}

py::dict judge_routing(const LinkGraph& graph, const Flows& flows, const IndexColumn& path,
                       int max_paths, int detours) {
  const PathLimits limits = limits_of(max_paths, detours);
  return quality_columns(listening([&] {
    require_nics(graph, flows);
    RoutingInstance instance(graph, flows, limits);
    Routing routing = given_routing(instance, path);
    return judged_routing(std::move(instance), std::move(routing));
  }));
}

/// Links of every path of every flow: rows (flow, path, link), and the planes of the paths.
py::dict path_columns(const LinkGraph& graph, const Flows& flows, int max_paths, int detours) {
  const PathLimits limits = limits_of(max_paths, detours);
  std::vector<std::int32_t> flow, path, link;
  const RoutingInstance instance = listening([&] {
    require_nics(graph, flows);
    RoutingInstance found(graph, flows, limits);
    for (std::size_t f = 0; f < found.size(); ++f) {
      for (std::int32_t p = 0; p < found.paths_of(f); ++p) {
        poll_point();
        for (const std::int32_t l : found.links(f, p)) {
          flow.push_back(static_cast<std::int32_t>(f));
          path.push_back(p);
          link.push_back(l);
        }
      }
    }
    return found;
  });
  py::dict columns;
  columns["flow"] = array_of(flow);
  columns["path"] = array_of(path);
  columns["link"] = array_of(link);
  columns["host_up"] = array_of(instance.paths.host_up);
  columns["host_down"] = array_of(instance.paths.host_down);
  return columns;
}

using PatternRow = std::tuple<TrafficPattern, std::vector<std::vector<std::int32_t>>, double,
                              std::vector<std::int32_t>>;  // pattern, groups, size, shape

Flows pattern_flows(const std::vector<PatternRow>& jobs) {
  Flows flows;
  for (const auto& [pattern, groups, size, shape] : jobs) {
    if (!(size > 0) || !(size < 1e18)) {
      throw MalformedQuestion("size_bytes: must be above 0 and below 1e18");
    }
    open_job(flows);
    for (const auto& members : groups) {
      if (shape.empty()) {
        add_pattern(flows, pattern, members, Bytes{size});
      } else {
        add_decomposed_rings(flows, members, shape, Bytes{size});
      }
    }
  }
  return flows;
}

void add_times(py::dict& answer, const std::string& name, const TimeCounts& times) {
  answer[py::str(name + "_job")] = array_of(times.job);
  answer[py::str(name + "_time_s")] = array_of(times.time);
  answer[py::str(name + "_count")] = array_of(times.count);
}

/// Completion times: of flows and steps with their counts, of groups in every collective, and by
/// flow.
void add_completions(py::dict& answer, const NetworkRun& run) {
  add_times(answer, "flow", run.flow_times);
  add_times(answer, "step", run.step_times);
  answer["ring"] = array_of(run.ring);
  answer["ring_epoch"] = array_of(run.ring_epoch);
  answer["ring_start_s"] = array_of(run.ring_start);
  answer["ring_end_s"] = array_of(run.ring_end);
  std::vector<std::int64_t> count;
  std::vector<double> sum, least, most;
  for (const Completions& of_flow : run.flows) {
    count.push_back(of_flow.count);
    sum.push_back(of_flow.sum);
    least.push_back(of_flow.least);
    most.push_back(of_flow.most);
  }
  answer["completions"] = array_of(count);
  answer["completion_sum_s"] = array_of(sum);
  answer["completion_min_s"] = array_of(least);
  answer["completion_max_s"] = array_of(most);
}

using ChangeRow = std::pair<double, const LinkGraph*>;  // time, graph from then on

/// Runs the routing of the options; under the controller where it runs or something changes.
py::dict run_network(const LinkGraph& graph, const Flows& flows, const RouteOptions& options,
                     const std::vector<JobSchedule>& schedules, double step_latency_s,
                     int max_paths, int detours, const Controller& controller,
                     const std::vector<ChangeRow>& rows, const py::object& progress) {
  if (schedules.size() != static_cast<std::size_t>(flows.jobs)) {
    throw MalformedQuestion("schedules: must have one entry per job");
  }
  if (!(step_latency_s >= 0)) throw MalformedQuestion("step_latency_s: must be at least 0");
  const PathLimits limits = limits_of(max_paths, detours);
  std::vector<NetworkChange> changes;
  changes.reserve(rows.size());
  for (const auto& [time, after] : rows) changes.push_back({Seconds{time}, after});
  std::vector<double> isolated;
  std::size_t disconnected = 0;
  const ControlledRun run = listening(progress, [&] {
    require_nics(graph, flows);
    ControlledRun found;
    const RoutingInstance instance(graph, flows, limits);
    disconnected = instance.disconnected();
    isolated = isolated_times(instance, schedules);
    if (controller.period > Seconds{} || !changes.empty()) {
      found = simulate_controlled(graph, flows, limits, options, schedules, Seconds{step_latency_s},
                                  controller, changes);
      disconnected = static_cast<std::size_t>(found.network.stalled_flows);
    } else if (disconnected == 0) {
      found.network =
          simulate_network(instance, route(instance, options), schedules, Seconds{step_latency_s});
    }
    return found;
  });
  py::dict answer;
  answer["job"] = array_of(run.network.job);
  answer["start_s"] = array_of(run.network.start);
  answer["end_s"] = array_of(run.network.end);
  answer["isolated_s"] = array_of(isolated);
  answer["phase_job"] = array_of(run.network.phase_job);
  answer["phase_epoch"] = array_of(run.network.phase_epoch);
  answer["phase"] = array_of(run.network.phase);
  answer["phase_start_s"] = array_of(run.network.phase_start);
  answer["phase_end_s"] = array_of(run.network.phase_end);
  add_completions(answer, run.network);
  answer["delivered_bytes"] = array_of(run.network.delivered_bytes);
  answer["moved_bytes"] = array_of(run.network.moved_bytes);
  answer["events"] = run.network.events;
  answer["solved_flows"] = run.network.solved_flows;
  answer["disconnected"] = disconnected;
  answer["controller_time_s"] = array_of(run.controller.time);
  answer["routed_flows"] = array_of(run.controller.routed);
  answer["moved_flows"] = array_of(run.controller.moved);
  answer["efficiency_fraction"] = array_of(run.controller.efficiency);
  answer["assignment_s"] = run.controller.assignment_s;
  return answer;
}

py::tuple ring_traffic(const LinkGraph& graph, const std::vector<RingJob>& jobs,
                       JobPlacement placement, std::int32_t server, std::uint64_t seed,
                       bool drop_local) {
  const auto nics = place_jobs(graph, jobs, placement, server, seed);
  py::list placed;
  for (const auto& of_job : nics) placed.append(array_of(of_job));
  return py::make_tuple(ring_flows(graph, jobs, nics, drop_local), placed);
}

}  // namespace

void bind_routing(py::module_& m) {
  bind_record<RingJob>(m, "Copies of a model that exchange gradients in rings.")
      .def_property_readonly(
          "step_bytes", [](const RingJob& job) { return ring_step_bytes(job); },
          "Bytes of a NIC in one step of its ring.")
      .def_property_readonly(
          "steps", [](const RingJob& job) { return ring_steps(job); }, "Steps of an all-reduce.")
      .def("compute_s", &scaled_compute_time, py::arg("peak_flop_per_s"),
           "Scaled seconds between two all-reduces.");
  bind_record<JobSchedule>(m, "Collectives and silence of a job over time.");
  bind_record<RouteOptions>(m, "How paths are chosen.");
  bind_record<Controller>(m, "When paths are chosen anew, and for which demands.");
  py::class_<Flows>(m, "Flows", "Who sends how much to whom in one step.")
      .def(py::init(&make_flows), py::arg("job"), py::arg("group"), py::arg("source"),
           py::arg("destination"), py::arg("size_bytes"), py::arg("jobs"),
           py::arg("phase") = std::vector<std::int32_t>{})
      .def_property_readonly("size", &Flows::size, "Flows.")
      .def_readonly("jobs", &Flows::jobs, "Jobs.")
      .def(
          "__eq__", [](const Flows& a, const Flows& b) { return a == b; }, py::is_operator())
      .def(py::pickle(&stored_flows, &restored_flows))
      .def("columns", &flow_columns, "Job, group, source, destination and size of every flow.");
  m.def("pattern_flows", &pattern_flows, py::arg("jobs"),
        "Flows of jobs: rows (pattern, groups of NICs, size in bytes, shape of decomposed rings).");
  m.def("pattern_steps", &pattern_steps, py::arg("pattern"), py::arg("members"),
        "Steps of one collective of a pattern.");
  m.def("ring_traffic", &ring_traffic, py::arg("graph"), py::arg("jobs"), py::arg("placement"),
        py::arg("server"), py::arg("seed"), py::arg("drop_local"),
        "Flows of placed ring jobs, and the NICs of every job.");
  m.attr("MAX_FLOW_SIZES") = kMaxFlowSizes;
  m.attr("MAX_LINK_UNITS") = kMaxLinkUnits;
  m.def("route_flows", &route_flows, py::arg("graph"), py::arg("flows"), py::arg("options"),
        py::arg("max_paths") = 256, py::arg("detours") = 0,
        "Chosen paths, rates, job values, loads and bounds.");
  m.def("judge_routing", &judge_routing, py::arg("graph"), py::arg("flows"), py::arg("path"),
        py::arg("max_paths") = 256, py::arg("detours") = 0,
        "Rates, job values, loads and bounds of given paths.");
  m.def("path_columns", &path_columns, py::arg("graph"), py::arg("flows"),
        py::arg("max_paths") = 256, py::arg("detours") = 0, "Every path that a flow may take.");
  m.def("run_network", &run_network, py::arg("graph"), py::arg("flows"), py::arg("options"),
        py::arg("schedules"), py::arg("step_latency_s"), py::arg("max_paths") = 256,
        py::arg("detours") = 0, py::arg("controller") = Controller{},
        py::arg("changes") = std::vector<ChangeRow>{}, py::arg("progress") = py::none(),
        "Every collective of a run: job, start and end; what the controller did.");
  m.def("ecmp_hash", &ecmp_hash, py::arg("value"), "The mixing hash of the ECMP router.");
}

}  // namespace scalemodel::bindings
