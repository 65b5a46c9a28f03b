#include "scalemodel/model/operators.hpp"

#include <cmath>

namespace scalemodel {

double AttentionShape::cached_values(double tp) const {
  if (reuses_keys) return 0;
  if (latent()) return kv_lora_rank + rope_head_dim;
  return std::ceil(kv_heads / tp) * (head_dim + (shared_values ? 0 : v_head_dim)) / ratio;
}

double LayerOperator::local_columns(const ColumnPart& part, double tp) const {
  if (cut != Cut::columns) return part.columns;
  if (part.kv_heads == 0) return part.columns / tp;
  return part.columns / part.kv_heads * std::ceil(part.kv_heads / tp);
}

double LayerOperator::local_columns(double tp) const {
  if (cut != Cut::columns) return columns;
  if (parts.empty()) return columns / tp;
  double sum = 0;
  for (const ColumnPart& part : parts) sum += local_columns(part, tp);
  return sum;
}

double LayerOperator::local_parameters(double tp) const {
  const double weight = has_weight() ? local_columns(tp) * local_depth(tp) : 0;
  // What is added to a sum over ranks is added once, by all of them.
  return weight + (cut == Cut::columns ? bias / tp : bias);
}

AttentionWork LayerOperator::attention_work(double tp) const {
  AttentionWork work;
  const double ranks = cut == Cut::columns ? tp : 1;
  work.heads = attention.heads / ranks;
  work.kv_heads = std::ceil(attention.kv_heads / ranks);
  work.head_dim = attention.head_dim;
  work.v_head_dim = attention.v_head_dim;
  if (attention.latent() && attention.selected > 0) {
    // Keys that are chosen one by one are read as latents, by all heads.
    work.kv_heads = 1;
    work.head_dim = attention.kv_lora_rank + attention.rope_head_dim;
    work.v_head_dim = attention.kv_lora_rank;
  }
  work.window = attention.attended_where(true);
  work.ratio = attention.ratio;
  work.causal = causal;
  return work;
}

Flop LayerOperator::activation_flop(double tokens) const {
  if (weightless) return Flop{2 * tokens * rows * copies * columns * depth};
  if (kind == OperatorKind::scan) return scan_flop({recurrence, 1, tokens});
  if (kind != OperatorKind::attention) return Flop{};
  AttentionWork work = attention_work(1);
  work.queries = work.keys = tokens;
  return attention_model_flop(work);
}

void count_parameters(Unit& unit) {
  unit.parameters_cut = unit.parameters_whole = 0;
  for (const LayerOperator& op : unit.operators) {
    if (op.cut == Cut::none) {
      unit.parameters_whole += op.parameters();
      continue;
    }
    unit.parameters_cut += op.weights();
    const bool with_expert = unit.on_copies(op);
    (op.cut == Cut::columns || with_expert ? unit.parameters_cut : unit.parameters_whole) +=
        op.bias;
  }
}

void count_saved(Unit& unit) {
  for (const LayerOperator& op : unit.operators) {
    const double rows = op.rows * op.copies;
    double& cut = op.cut == Cut::none ? unit.saved_whole : unit.saved_cut;
    switch (op.kind) {
      case OperatorKind::gemm:
        if (op.routes || (!op.weightless && !op.keeps_input())) break;
        (!op.weightless && op.cut == Cut::depth ? unit.saved_cut : unit.saved_whole) +=
            rows * op.depth;
        break;
      case OperatorKind::attention: {
        const AttentionShape& a = op.attention;
        const double each = a.head_dim + a.v_head_dim;
        unit.saved_cut += a.heads * each + a.kv_heads * each;
        break;
      }
      case OperatorKind::scan:
        unit.saved_cut += op.recurrence.saved_values();
        break;
      case OperatorKind::norm:
      case OperatorKind::latent_norm:
        cut += rows * op.columns;
        break;
      case OperatorKind::activation:
        cut += rows * op.columns * (op.gated ? 2 : 1);
        break;
      case OperatorKind::convolution:  // what it reads and writes is the scan's
      case OperatorKind::residual:
      case OperatorKind::rotary:
      case OperatorKind::elementwise:
      case OperatorKind::loss:  // logits are counted by themselves
        break;
    }
  }
}

}  // namespace scalemodel
