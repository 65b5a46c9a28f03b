#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/gemm.hpp"

namespace scalemodel::bindings {

void bind_ops(py::module_& m) {
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
}

}  // namespace scalemodel::bindings
