#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/columns.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/fabric/direct_connect.hpp"
#include "scalemodel/routing/route.hpp"
#include "scalemodel/routing/simulation/time_shift.hpp"
#include "scalemodel/routing/trees/tree_packing.hpp"

namespace scalemodel::bindings {
namespace {

using DemandRow = std::tuple<std::int32_t, std::int32_t, double>;

LinkGraph direct_connect_of(std::int32_t nics, int ports, const std::vector<std::int32_t>& strides,
                            const std::vector<DemandRow>& rows, const Cable& cable) {
  std::vector<NicDemand> demands;
  demands.reserve(rows.size());
  for (const auto& [source, destination, bytes] : rows) {
    demands.push_back({source, destination, bytes});
  }
  return direct_connect(nics, ports, strides, demands, cable);
}

py::dict shift_columns(const LinkGraph& graph, const Flows& flows, const RouteOptions& options,
                       const std::vector<JobSchedule>& schedules, int finest) {
  if (schedules.size() != static_cast<std::size_t>(flows.jobs)) {
    throw MalformedQuestion("schedules: must have one entry per job");
  }
  const TimeShifts shifts = listening([&] {
    const RoutingInstance instance(graph, flows);
    return time_shifts(instance, route(instance, options), schedules, finest,
                       static_cast<std::uint64_t>(options.seed));
  });
  py::dict answer;
  answer["period_s"] = array_of(shifts.period);
  answer["communication_s"] = array_of(shifts.busy);
  answer["shift_s"] = array_of(shifts.shift);
  answer["slot_s"] = shifts.slot;
  answer["slots"] = shifts.slots;
  answer["period_error_fraction"] = shifts.period_error;
  answer["score_before"] = shifts.score_before;
  answer["score"] = shifts.score;
  return answer;
}

py::dict tree_columns(const LinkGraph& graph, std::int32_t root, bool both_ways, double accuracy) {
  const TreePacking packing = listening([&] {
    return both_ways ? pack_all_reduce(graph, root, accuracy) : pack_broadcast(graph, root);
  });
  std::vector<std::int32_t> tree, parent, child;
  std::vector<double> rate;
  for (std::size_t t = 0; t < packing.rate.size(); ++t) {
    for (std::int32_t i = packing.first[t]; i < packing.first[t + 1]; ++i) {
      tree.push_back(static_cast<std::int32_t>(t));
      parent.push_back(graph.from(packing.link[i]));
      child.push_back(graph.to(packing.link[i]));
      rate.push_back(packing.rate[t]);
    }
  }
  py::dict answer;
  answer["tree"] = array_of(tree);
  answer["parent"] = array_of(parent);
  answer["child"] = array_of(child);
  answer["rate_bytes_per_s"] = array_of(rate);
  answer["total_bytes_per_s"] = packing.total().base();
  answer["bound_bytes_per_s"] =
      both_ways ? all_reduce_bound(graph).base()
                : listening([&] { return broadcast_bound(graph, root); }).base();
  return answer;
}

}  // namespace

void bind_plans(py::module_& m) {
  m.def("ring_strides", &ring_strides, py::arg("nics"), py::arg("count"),
        "Strides at which a ring visits all NICs.");
  m.def("direct_connect", &direct_connect_of, py::arg("nics"), py::arg("ports"), py::arg("strides"),
        py::arg("demands"), py::arg("cable"),
        "Rings and heavy matchings without switches; demands are rows (source, destination, "
        "bytes).");
  m.def("time_shifts", &shift_columns, py::arg("graph"), py::arg("flows"), py::arg("options"),
        py::arg("schedules"), py::arg("finest"), "When periodic jobs should communicate.");
  m.def("pack_trees", &tree_columns, py::arg("graph"), py::arg("root"), py::arg("both_ways"),
        py::arg("accuracy"), "Spanning trees that share the links of a direct-connect fabric.");
}

}  // namespace scalemodel::bindings
