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

Orthogonalisation orthogonalisation(const LayerKind& kind, const LayerLayout& layout,
                                    const GemmTimer& timer, const Cluster& cluster,
                                    const Stack& stack) {
  Orthogonalisation sum;
  const auto add = [&](const Unit& unit, const LayerOperator& op, double columns) {
    const bool expert = unit.on_copies(op);
    const double tp = expert ? layout.etp : layout.tp;
    const double count = expert ? std::max(1.0, static_cast<double>(unit.experts) / layout.ep) : 1;
    (expert ? sum.expert : sum.dense) += count;
    (expert ? sum.expert_time : sum.dense_time) +=
        count * newton_schulz_time(columns, op.local_depth(tp), timer, cluster, stack);
  };
  for (const Unit& unit : kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (!op.has_weight() || op.routes || op.vocabulary) continue;
      const double tp = unit.on_copies(op) ? layout.etp : layout.tp;
      // Queries, keys and values are told apart; gate and up only where they are two layers.
      if (op.parts.empty() || (op.is_gate_and_up() && !stack.split_gate)) {
        add(unit, op, op.local_columns(tp));
      } else {
        for (const ColumnPart& part : op.parts) add(unit, op, op.local_columns(part, tp));
      }
    }
  }
  return sum;
}

}  // namespace scalemodel
