#include "scalemodel/model/operators.hpp"

#include <algorithm>
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
  return owned * (weight + (cut == Cut::columns ? bias / tp : bias));
}

AttentionWork LayerOperator::attention_work(double tp) const {
  AttentionWork work;
  const double ranks = cut == Cut::columns ? tp : 1;
  work.heads = attention.heads / ranks;
  work.kv_heads = std::ceil(attention.kv_heads / ranks);
  work.head_dim = attention.head_dim;
  work.v_head_dim = attention.v_head_dim;
  if (attention.reads_latents()) {
    work.kv_heads = 1;
    work.head_dim = attention.kv_lora_rank + attention.rope_head_dim;
    work.v_head_dim = attention.kv_lora_rank;
  }
  work.window = attention.attended_where(true);
  work.ratio = attention.ratio;
  work.causal = causal;
  return work;
}

AttentionValues LayerOperator::attention_values(double tp) const {
  const AttentionWork work = attention_work(tp);
  const double keys = work.kv_heads / attention.ratio;
  const bool alone = attention.shared_values || attention.reads_latents();
  AttentionValues each;
  each.keys = keys * work.head_dim;
  each.values = alone ? 0 : keys * work.v_head_dim;
  if (continues) return each;
  each.queries = work.heads * work.head_dim;
  each.outputs = work.heads * work.v_head_dim;
  return each;
}

double LayerOperator::saved_keys(double tp) const {
  const AttentionValues each = attention_values(tp);
  if (attention.reuses_keys) return 0;
  return (other_keys > 0 ? rows : 1) * (each.keys + each.values);
}

double LayerOperator::exchanged_share(double own_tokens) const {
  return halo ? std::min(1.0, attention.window / own_tokens) : 1;
}

Flop LayerOperator::activation_flop(double tokens) const {
  if (weightless) return Flop{2 * tokens * rows * copies * columns * depth};
  if (kind == OperatorKind::scan) return scan_flop({recurrence, 1, tokens});
  if (kind != OperatorKind::attention) return Flop{};
  AttentionWork work = attention_work(1);
  work.queries = tokens;
  work.keys = other_keys > 0 ? other_keys : tokens;
  return attention_model_flop(work);
}

void count_parameters(Unit& unit) {
  unit.parameters_cut = unit.parameters_whole = 0;
  for (const LayerOperator& op : unit.operators) {
    if (op.cut == Cut::none) {
      unit.parameters_whole += op.parameters();
      continue;
    }
    unit.parameters_cut += op.owned * op.weights();
    const bool with_expert = unit.on_copies(op);
    (op.cut == Cut::columns || with_expert ? unit.parameters_cut : unit.parameters_whole) +=
        op.owned * op.bias;
  }
}

namespace {

/// Queries, outputs, keys and values of attention, and the 32-bit ids of the keys that its indexer
/// selects, in 16-bit values.
void count_attention(Unit& unit, const LayerOperator& op) {
  constexpr double kValuesOfId = 2;
  const AttentionShape& a = op.attention;
  const AttentionValues each = op.attention_values(1);
  const bool whole = op.cut == Cut::none;
  (whole ? unit.saved_repeated : unit.saved_cut) += each.queries + each.outputs;
  (whole || a.reads_latents() ? unit.saved_repeated : unit.saved_cut) += op.saved_keys(1);
  if (a.index_heads > 0) unit.saved_repeated += kValuesOfId * a.selected;
}

/// The input of a GEMM with a weight, or the operands of one without.
void count_gemm(Unit& unit, const LayerOperator& op, double rows) {
  const AttentionShape& a = op.attention;
  if (op.absorbed && a.reads_latents()) {  // of queries and of outputs, head by head
    unit.saved_cut += a.heads * static_cast<double>(a.head_dim - a.rope_head_dim + a.v_head_dim);
  }
  if (op.routes || (!op.weightless && !op.keeps_input())) return;
  (!op.weightless && op.cut == Cut::depth ? unit.saved_cut : unit.saved_whole) +=
      rows * op.depth / op.taps;
}

}  // namespace

void count_saved(Unit& unit) {
  for (const LayerOperator& op : unit.operators) {
    const double rows = op.rows * op.copies;
    double& cut = op.cut == Cut::none ? unit.saved_whole : unit.saved_cut;
    switch (op.kind) {
      case OperatorKind::gemm:
        count_gemm(unit, op, rows);
        break;
      case OperatorKind::attention:
        count_attention(unit, op);
        break;
      case OperatorKind::scan:
        (op.cut == Cut::none ? unit.saved_repeated : unit.saved_cut) +=
            op.recurrence.saved_values();
        break;
      case OperatorKind::norm:
      case OperatorKind::latent_norm:
      case OperatorKind::head_norm:
        cut += rows * op.columns;
        break;
      case OperatorKind::activation:
        cut += rows * op.columns * (op.gated ? 2 : 1);
        break;
      case OperatorKind::convolution:  // what it reads and writes is the scan's
      case OperatorKind::residual:
      case OperatorKind::rotary:
      case OperatorKind::elementwise:
      case OperatorKind::stream_mixing:
      case OperatorKind::loss:  // logits are counted by themselves
        break;
    }
  }
}

}  // namespace scalemodel
