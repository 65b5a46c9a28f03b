#include "scalemodel/costs/matrix_updates.hpp"

#include <algorithm>

#include "scalemodel/costs/newton_schulz.hpp"
#include "scalemodel/costs/preconditioners.hpp"

namespace scalemodel {
namespace {

/// GEMMs of an optimizer: Muon's are of BF16 values; factors are FP32, and PyTorch multiplies those
/// without tensor cores unless it is told otherwise (torch.set_float32_matmul_precision).
GemmTimer update_timer(Optimizer optimizer, const GemmTimer& storage, const Cluster& cluster) {
  return optimizer == Optimizer::muon ? storage : GemmTimer(cluster.accelerator, Precision::fp32);
}

MatrixUpdates matrix_update(Optimizer optimizer, double rows, double columns,
                            const GemmTimer& timer, const Cluster& cluster, const Stack& stack) {
  switch (optimizer) {
    case Optimizer::muon:
      return {1, newton_schulz_time(rows, columns, timer, cluster, stack), {}};
    case Optimizer::shampoo:
      return shampoo_update(rows, columns, timer, cluster, stack);
    case Optimizer::soap:
      return soap_update(rows, columns, timer, cluster, stack);
    case Optimizer::adam:
    case Optimizer::sgd:
    case Optimizer::sgd_momentum:
    case Optimizer::lion:
    case Optimizer::adafactor:
    case Optimizer::adam_8bit:
      break;
  }
  return {};
}

/// Vectors of `length` values, or shorter ones, that hold `values` in all: Shampoo's.
MatrixUpdates vector_updates(double values, double length, const GemmTimer& timer,
                             const Cluster& cluster, const Stack& stack) {
  if (values <= 0) return {};
  const double each = length > 0 ? std::min(values, length) : values;
  return values / each * shampoo_vector_update(each, timer, cluster, stack);
}

}  // namespace

void add_matrix_updates(LayerCost& cost, const LayerKind& kind, const LayerLayout& layout,
                        const Conditions& conditions, const Cluster& cluster,
                        const LayerTimers& timers) {
  const Optimizer optimizer = *conditions.matrix_optimizer;
  const Stack& stack = conditions.stack;
  const GemmTimer timer = update_timer(optimizer, timers.storage, cluster);
  for (const Unit& unit : kind.units) {
    const double experts = std::max(1.0, static_cast<double>(unit.experts) / layout.ep);
    for (const LayerOperator& op : unit.operators) {
      const bool expert = unit.on_copies(op);
      const double tp = expert ? layout.etp : layout.tp, count = expert ? experts : 1;
      MatrixUpdates& sum = expert ? cost.expert_updates : cost.dense_updates;
      if (optimizer == Optimizer::shampoo) {
        const double bias = op.cut == Cut::columns ? op.bias / tp : op.bias;
        sum += count * vector_updates(bias, op.local_columns(tp), timer, cluster, stack);
      }
      const bool of_adam = op.vocabulary || (op.routes && optimizer == Optimizer::muon);
      if (!op.has_weight() || of_adam) continue;
      const auto add = [&](double columns) {
        sum += count * matrix_update(optimizer, columns, op.local_depth(tp), timer, cluster, stack);
      };
      // Queries, keys and values are told apart; gate and up only where they are two layers.
      if (op.parts.empty() || (op.is_gate_and_up() && !stack.split_gate)) {
        add(op.local_columns(tp));
      } else {
        for (const ColumnPart& part : op.parts) add(op.local_columns(part, tp));
      }
    }
  }
}

MatrixUpdates word_updates(double parameters, double width, double norm,
                           const Conditions& conditions, const Cluster& cluster) {
  const Optimizer optimizer = *conditions.matrix_optimizer;
  const Stack& stack = conditions.stack;
  if (optimizer == Optimizer::muon) return {};
  const GemmTimer timer(cluster.accelerator, Precision::fp32);
  MatrixUpdates sum;
  if (parameters > 0) {
    sum = matrix_update(optimizer, parameters / width, width, timer, cluster, stack);
  }
  if (optimizer == Optimizer::shampoo) {
    sum += vector_updates(norm, width, timer, cluster, stack);
  }
  return sum;
}

}  // namespace scalemodel
