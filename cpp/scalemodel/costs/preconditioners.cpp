#include "scalemodel/costs/preconditioners.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

constexpr double kFactorValueBytes = 4;              ///< FP32
constexpr double kQrKernels = 2, kEigenKernels = 5;  ///< of a column, one after the other
constexpr double kPanel = 32;                        ///< columns of a QR between GEMMs
/// Kernels of a block or matrix, launched one by one by a loop in Python: GEMMs, averages of two
/// factors, and those of Adam or of what a step is scaled by.
constexpr double kShampooKernels = 4 + 2 + 2, kSoapKernels = 10 + 2 + 14;

/// GEMMs and other kernels of one matrix.
struct Kernels {
  const GemmTimer& timer;
  const Cluster& cluster;
  const Stack& stack;

  Seconds gemm(double m, double n, double k, double output_bytes = kFactorValueBytes) const {
    return timer.time({m, n, k, 1, output_bytes, false, false, 1}) / stack.gemm_efficiency;
  }
  Seconds moved(double bytes) const {
    const Accelerator& accelerator = cluster.accelerator;
    return memory_time(Bytes{bytes}, accelerator.elementwise.add_fraction * stack.memory_efficiency,
                       accelerator);
  }
  /// Products of an m x n matrix with one of a factor's size.
  Seconds products(double side, double other) const { return gemm(side, other, side); }
  /// A factor of one side: G G' of m x n values, and their average with what is kept.
  Seconds average(double side, double other) const {
    return gemm(side, side, other) + moved(3 * kFactorValueBytes * side * side);
  }
  /// Kernels that are launched one by one hold the CPU.
  Seconds launched(Seconds time, double kernels) const {
    return max(time, stack.update_launches * kernels * stack.host_launch);
  }
  Seconds columns(double n, double kernels) const {
    return n * kernels * cluster.accelerator.elementwise.launch;
  }
};

Seconds qr_time(double n, const Kernels& run) {
  // The mean square of what is left of n columns is n^2 / 3; two GEMMs of a panel, twice: once for
  // the triangle, once for the orthogonal factor.
  const double left = n / std::numbers::sqrt3;
  return run.columns(n, kQrKernels) +
         4 * std::ceil(n / kPanel) * run.gemm(left, left, kPanel, 2 * kFactorValueBytes);
}

Seconds eigen_time(double n, const Kernels& run) {
  return run.columns(n, kEigenKernels) + run.moved(kFactorValueBytes * n * n * n / 6) +
         2 * run.gemm(n, n, n);
}

/// Blocks of a side, as many of one length as `count` says.
struct EqualBlocks {
  double length = 0, count = 0;
};

/// A side cut into whole blocks and a rest.
std::array<EqualBlocks, 2> blocks(double side) {
  const double whole = std::floor(side / kShampooBlock);
  const double rest = side - whole * kShampooBlock;
  return {EqualBlocks{kShampooBlock, whole}, EqualBlocks{rest, rest > 0 ? 1.0 : 0.0}};
}

/// The inverse root of a factor: its eigenvectors scaled, times themselves.
Seconds root_time(double side, const Kernels& run) {
  return eigen_time(side, run) + run.gemm(side, side, side);
}

MatrixUpdates shampoo_block(double m, double n, const Kernels& run, double frequency) {
  const Seconds each =
      run.average(m, n) + run.average(n, m) + run.products(m, n) + run.products(n, m);
  const Seconds roots = root_time(m, run) + root_time(n, run);
  return {1, run.launched(each + roots / frequency, kShampooKernels),
          Bytes{2 * kFactorValueBytes * (m * m + n * n)}};
}

}  // namespace

Seconds qr_time(double n, const GemmTimer& timer, const Cluster& cluster, const Stack& stack) {
  return qr_time(n, Kernels{timer, cluster, stack});
}

Seconds eigen_time(double n, const GemmTimer& timer, const Cluster& cluster, const Stack& stack) {
  return eigen_time(n, Kernels{timer, cluster, stack});
}

MatrixUpdates shampoo_update(double rows, double columns, const GemmTimer& timer,
                             const Cluster& cluster, const Stack& stack, double frequency) {
  const Kernels run{timer, cluster, stack};
  MatrixUpdates sum;
  for (const EqualBlocks& down : blocks(rows)) {
    for (const EqualBlocks& across : blocks(columns)) {
      const double count = down.count * across.count;
      if (count > 0) sum += count * shampoo_block(down.length, across.length, run, frequency);
    }
  }
  return sum;
}

MatrixUpdates shampoo_vector_update(double length, const GemmTimer& timer, const Cluster& cluster,
                                    const Stack& stack, double frequency) {
  const Kernels run{timer, cluster, stack};
  MatrixUpdates sum;
  for (const EqualBlocks& part : blocks(length)) {
    const double n = part.length;
    if (part.count == 0) continue;
    const Seconds each = run.average(n, 1) + run.products(n, 1);
    sum += part.count *
           MatrixUpdates{1, run.launched(each + root_time(n, run) / frequency, kShampooKernels / 2),
                         Bytes{2 * kFactorValueBytes * n * n}};
  }
  return sum;
}

MatrixUpdates soap_update(double rows, double columns, const GemmTimer& timer,
                          const Cluster& cluster, const Stack& stack, double frequency) {
  const Kernels run{timer, cluster, stack};
  Seconds each, bases;
  double values = 0;
  const auto add = [&](double side, double other) {
    if (side > kSoapLongest) return;
    each += run.average(side, other) + 4 * run.products(side, other);
    bases += 3 * run.gemm(side, side, side) + qr_time(side, run);
    values += 2 * side * side;
  };
  add(rows, columns);
  add(columns, rows);
  return {1, run.launched(each + bases / frequency, kSoapKernels),
          Bytes{kFactorValueBytes * values}};
}

}  // namespace scalemodel
