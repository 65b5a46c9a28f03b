#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel::bindings {

void bind_strategy(py::module_& m) {
  bind_record<Strategy>(m, R"(How a model is laid out on a cluster.

Keyword arguments only; zero means derived where the field says so.

Examples
--------
>>> plan = Strategy(tp=8, pp=4)
>>> plan.replace(pp=8, vpp=2)
Strategy(tp=8, pp=8, vpp=2)
>>> plan.to_dict()["micro_batch"]
1)");
  bind_record<Task>(m, "A training step.");
  bind_record<Stack>(m, "One version of a software stack.");
  py::class_<Degrees>(m, "Degrees", "Degrees of a strategy with everything left open filled in.")
      .def_readonly("dp", &Degrees::dp)
      .def_readonly("etp", &Degrees::etp)
      .def_readonly("shard", &Degrees::shard, "Ranks over which the sharding partitions.");
  m.def("resolve_degrees", &resolve_degrees, py::arg("strategy"), py::arg("cluster"),
        py::arg("task"), "What a strategy left open, on this cluster.");
}

}  // namespace scalemodel::bindings
