#include "scalemodel/costs/newton_schulz.hpp"

#include <algorithm>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

constexpr int kSteps = 5;
constexpr double kValueBytes = 2;  ///< BF16
/// Kernels of a matrix, launched one by one by a loop in Python: three GEMMs and two copies a step,
/// and those of the momentum around them.
constexpr double kKernels = 5 * kSteps + 12;

}  // namespace

Seconds newton_schulz_time(double rows, double columns, const GemmTimer& timer,
                           const Cluster& cluster, const Stack& stack) {
  const double m = std::min(rows, columns), n = std::max(rows, columns);
  const auto gemm = [&](double width, double depth) {
    return timer.time({m, width, depth, 1, kValueBytes, false, false, 1}) / stack.gemm_efficiency;
  };
  const Seconds copies = memory_time(
      Bytes{2 * kValueBytes * (m * m + m * n)},
      cluster.accelerator.elementwise.add_fraction * stack.memory_efficiency, cluster.accelerator);
  return max(kSteps * (gemm(m, n) + gemm(m, m) + gemm(n, m) + copies),
             stack.update_launches * kKernels * stack.host_launch);
}

}  // namespace scalemodel
