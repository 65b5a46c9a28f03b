#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"

namespace scalemodel::bindings {
namespace {

py::list operator_rows(const Tables& tables, const Strategy& strategy, std::size_t kind) {
  py::list rows;
  for (const OperatorCost& cost : tables.operators(strategy, kind)) {
    py::dict row;
    row["operator"] = py::str(cost.name.data(), cost.name.size());
    row["m"] = cost.m;
    row["n"] = cost.n;
    row["k"] = cost.k;
    row["batch"] = cost.batch;
    row["bytes"] = cost.bytes.base();
    row["forward_s"] = cost.forward.base();
    row["backward_s"] = cost.backward.base();
    rows.append(row);
  }
  return rows;
}

}  // namespace

void bind_estimator(py::module_& m) {
  bind_record<Estimate>(m, "One step by cause and kind.");
  py::class_<Tables>(m, "Tables", "Costs of a (model, cluster, task, stack) on small axes.")
      .def(py::init<Model, Cluster, Task, Stack>(), py::arg("model"), py::arg("cluster"),
           py::arg("task"), py::arg("stack"))
      .def("estimate",
           [](Tables& tables, const Strategy& strategy) {
             tables.tabulate(strategy);
             return evaluate(tables, strategy);
           },
           py::arg("strategy"), "The estimate of one strategy.")
      .def("operators", &operator_rows, py::arg("strategy"), py::arg("kind"),
           "Operators of one layer of a kind; kind = number of kinds: the head.")
      .def_property_readonly("cells", &Tables::cells, "Tabulated degrees.")
      .def("model_flop",
           [](const Tables& tables) {
             return py::make_tuple(tables.flop().forward.base(), tables.flop().attention.base());
           },
           "Forward flop of one sequence, and the attention part of it.");
}

}  // namespace scalemodel::bindings
