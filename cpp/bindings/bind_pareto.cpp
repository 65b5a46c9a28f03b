#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/columns.hpp"
#include "bindings/interpreter.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/search/pareto.hpp"

namespace scalemodel::bindings {

namespace py = pybind11;

void bind_pareto(py::module_& m) {
  m.def(
      "pareto_front",
      [](const std::vector<NumberColumn>& columns) {
        std::vector<std::span<const double>> views;
        for (const NumberColumn& column : columns) {
          if (column.ndim() != 1) throw MalformedQuestion("columns: each must have one dimension");
          views.emplace_back(column.data(), static_cast<std::size_t>(column.size()));
        }
        return array_of(listening([&] { return pareto_front(views); }));
      },
      py::arg("columns"),
      "Indices of the rows that no row dominates, in lexicographic order of their values; every "
      "column is an objective, minimised.");
}

}  // namespace scalemodel::bindings
