#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/economics/scaling.hpp"
#include "scalemodel/estimator/scaling_point.hpp"

namespace scalemodel::bindings {

void bind_scaling(py::module_& m) {
  bind_record<ScalingPoint>(m, "One size of a scaling study.");
  m.def(
      "scaling_point",
      [](Tables& tables, const Strategy& strategy, const Estimate& estimate) {
        if (is_illegal(estimate.verdict)) {
          throw MalformedQuestion("estimate: an illegal strategy has no throughput");
        }
        tables.tabulate(strategy);
        return scaling_point(tables, strategy, estimate);
      },
      py::arg("tables"), py::arg("strategy"), py::arg("estimate"),
      "What an estimate says per accelerator, joule and dollar.");
  m.def("scaling_efficiency", py::vectorize(&scaling_efficiency), py::arg("tokens_per_s"),
        py::arg("accelerators"), py::arg("reference_tokens_per_s"),
        py::arg("reference_accelerators"),
        "Throughput of an accelerator over that at the reference size; arguments broadcast.");
  m.def("marginal_return", py::vectorize(&marginal_return), py::arg("tokens_per_s"),
        py::arg("accelerators"), py::arg("previous_tokens_per_s"), py::arg("previous_accelerators"),
        "Throughput of each added accelerator over that of one before; arguments broadcast.");
}

}  // namespace scalemodel::bindings
