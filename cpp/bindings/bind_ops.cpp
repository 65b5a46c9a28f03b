#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/gemm.hpp"

namespace scalemodel::bindings {
namespace {

void check_extents(std::string_view name, const NumberColumn& values, py::ssize_t rows) {
  if (values.ndim() != 1 || values.size() != rows) {
    throw MalformedQuestion(std::string(name).append(": one number per row is needed"));
  }
  for (py::ssize_t i = 0; i < rows; ++i) {
    if (!std::isfinite(values.at(i)) || values.at(i) < 1) {
      throw MalformedQuestion(std::string(name)
                                  .append("=" + text_of(values.at(i)))
                                  .append(": must be a number from 1 upwards"));
    }
  }
}

}  // namespace

void bind_ops(py::module_& m) {
  bind_record<GemmFormat>(m, "Number formats and peak of a matrix multiplication.");
  m.def(
      "gemm_time_s",
      [](const Accelerator& accelerator, Precision precision, const py::array_t<double>& m_,
         const py::array_t<double>& n, const py::array_t<double>& k, double batch) {
        const GemmTimer timer(accelerator, precision);
        return py::vectorize([&](double rows, double columns, double depth) {
          return timer.time({rows, columns, depth, batch, 2}).base();
        })(m_, n, k);
      },
      py::arg("accelerator"), py::arg("precision"), py::arg("m"), py::arg("n"), py::arg("k"),
      py::arg("batch") = 1.0, "Seconds of C[m,n] = A[m,k] B[k,n]; m, n, k broadcast.");
  m.def(
      "gemm_kernel_time_s",
      [](const Accelerator& accelerator, const TileGemm& kernel, const GemmFormat& format,
         const NumberColumn& m_, const NumberColumn& n, const NumberColumn& k,
         const NumberColumn& batch, double output_bytes) {
        const py::ssize_t rows = m_.size();
        check_extents("m", m_, rows);
        check_extents("n", n, rows);
        check_extents("k", k, rows);
        check_extents("batch", batch, rows);
        NumberColumn seconds(rows);
        double* const out = seconds.mutable_data();
        const double *const a = m_.data(), *const b = n.data(), *const c = k.data(),
                            *const d = batch.data();
        const py::gil_scoped_release release;
        const GemmTimer timer(accelerator, kernel, format);
        for (py::ssize_t i = 0; i < rows; ++i) {
          out[i] = timer.time({a[i], b[i], c[i], d[i], output_bytes}).base();
        }
        return seconds;
      },
      py::arg("accelerator"), py::arg("kernel"), py::arg("format"), py::arg("m"), py::arg("n"),
      py::arg("k"), py::arg("batch"), py::arg("output_bytes") = 2.0,
      "Seconds of each GEMM (m, n, k, batch) with a named kernel's constants.");
}

}  // namespace scalemodel::bindings
