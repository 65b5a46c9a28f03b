#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/ops/elementwise.hpp"
#include "scalemodel/ops/embedding.hpp"

namespace scalemodel::bindings {
namespace {

void require_equal(const char* name, const NumberColumn& values, py::ssize_t rows) {
  if (values.ndim() == 1 && values.size() == rows) return;
  throw MalformedQuestion(std::string(name) + ": must have one dimension of " +
                          std::to_string(rows) + " values");
}

}  // namespace

void bind_elementwise(py::module_& m) {
  bind_record<StreamingKernel>(m, "Constants of an elementwise or row-wise operation.");
  bind_record<LookupKernel>(m, "Constants of an embedding lookup kernel.");
  m.def(
      "streaming_time_s",
      [](const Accelerator& accelerator, const StreamingKernel& kernel, const NumberColumn& rows,
         const NumberColumn& columns, const NumberColumn& value_bytes) {
        const py::ssize_t count = rows.size();
        require_equal("rows", rows, count);
        require_equal("columns", columns, count);
        require_equal("value_bytes", value_bytes, count);
        const double *r = rows.data(), *c = columns.data(), *b = value_bytes.data();
        py::array_t<double> out(count);
        double* const values = out.mutable_data();
        {
          const py::gil_scoped_release released;
          for (py::ssize_t i = 0; i < count; ++i) {
            values[i] = streaming_time(r[i], c[i], b[i], kernel, accelerator).base();
          }
        }
        return out;
      },
      py::arg("accelerator"), py::arg("kernel"), py::arg("rows"), py::arg("columns"),
      py::arg("value_bytes"), "Seconds of one operation over matrices, one per row.");
  m.def(
      "lookup_time_s",
      [](const Accelerator& accelerator, const LookupKernel& kernel, const NumberColumn& tables,
         const NumberColumn& batch, const NumberColumn& pooling, const NumberColumn& dim,
         const NumberColumn& value_bytes) {
        const py::ssize_t count = tables.size();
        require_equal("tables", tables, count);
        require_equal("batch", batch, count);
        require_equal("pooling", pooling, count);
        require_equal("dim", dim, count);
        require_equal("value_bytes", value_bytes, count);
        const double *t = tables.data(), *n = batch.data(), *p = pooling.data(), *d = dim.data(),
                     *b = value_bytes.data();
        py::array_t<double> out(count);
        double* const values = out.mutable_data();
        {
          const py::gil_scoped_release released;
          for (py::ssize_t i = 0; i < count; ++i) {
            values[i] = lookup_time({t[i], n[i], p[i], d[i], b[i]}, kernel, accelerator).base();
          }
        }
        return out;
      },
      py::arg("accelerator"), py::arg("kernel"), py::arg("tables"), py::arg("batch"),
      py::arg("pooling"), py::arg("dim"), py::arg("value_bytes"),
      "Seconds of one embedding lookup, one per row.");
}

}  // namespace scalemodel::bindings
