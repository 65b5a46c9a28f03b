#include "scalemodel/model/shared_units.hpp"

#include <string_view>

#include "scalemodel/model/group_units.hpp"
#include "scalemodel/model/recurrent_units.hpp"

namespace scalemodel {
namespace {

using building::gemm;
using building::passing;

/// The norm that a block begins with, over `columns` values.
void add_shared_norm(Unit& unit, const LayerShape& layer, double columns) {
  LayerOperator norm = passing(OperatorKind::norm, "norm", columns);
  norm.bias = layer.norm_vectors * columns;
  unit.operators.push_back(norm);
}

/// A low-rank projection beside one from `depth` to `columns` values: every layer has its own.
void add_own_rank(Unit& unit, std::string_view down, std::string_view up, double rank, double depth,
                  double columns) {
  if (rank == 0) return;
  unit.operators.push_back(gemm(down, rank, depth, Cut::none));
  unit.operators.back().shares_input = true;
  unit.operators.push_back(gemm(up, columns, rank, Cut::columns));
}

/// What the layers use in turn counts in part; what was added for this layer alone is its own.
void share(Unit& unit, double owned) {
  for (LayerOperator& op : unit.operators) op.owned = owned;
}

Unit shared_attention(const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden, doubled = 2 * h;
  const double q = 1.0 * a.heads * a.head_dim, k = 1.0 * a.kv_heads * a.head_dim;
  const double v = 1.0 * a.kv_heads * a.v_head_dim;
  Unit unit = begun_block("shared_attention", layer, 0);
  unit.operators.push_back(passing(OperatorKind::elementwise, "concat", doubled));
  unit.operators.back().depth = 1;
  add_shared_norm(unit, layer, doubled);
  LayerOperator& qkv = project(unit, "qkv", q + k + v, doubled, Cut::columns);
  qkv.parts = {{q, 0}, {k, a.kv_heads}, {v, a.kv_heads}};
  qkv.bias = layer.qkv_bias ? q + k + v : 0;
  if (a.rotary) {
    LayerOperator rope = passing(OperatorKind::rotary, "rope", q + k, Cut::columns);
    rope.parts = {{q, 0}, {k, a.kv_heads}};
    unit.operators.push_back(rope);
  }
  LayerOperator core = passing(OperatorKind::attention, "attention", 0, Cut::columns);
  core.attention = a;
  core.causal = layer.causal;
  unit.operators.push_back(core);
  LayerOperator& out = project(unit, "attention_out", h, 1.0 * a.heads * a.v_head_dim, Cut::depth);
  out.reads_attention = true;
  out.attention = a;
  out.bias = layer.out_bias ? h : 0;
  share(unit, layer.shared_owned);
  for (int part = 0; part < 3; ++part) {
    add_own_rank(unit, "rank_down", "rank_up", layer.shared_attention_rank, doubled,
                 (q + k + v) / 3);
  }
  unit.mixes = true;
  unit.head_limit = a.heads;
  finish_unit(unit);
  return unit;
}

Unit shared_feed_forward(const LayerShape& layer) {
  const FeedForwardShape& ff = layer.feed_forward;
  const double h = layer.hidden, w = ff.width, up_columns = ff.gated ? 2 * w : w;
  Unit unit = begun_block("shared_feed_forward", layer, 0);
  add_shared_norm(unit, layer, h);
  LayerOperator up = gemm("mlp_up", up_columns, h, Cut::columns);
  if (ff.gated) up.parts = {{w, 0}, {w, 0}};
  up.bias = layer.mlp_bias ? up_columns : 0;
  unit.operators.push_back(up);
  LayerOperator activation = passing(OperatorKind::activation, "activation", w, Cut::columns);
  activation.gated = ff.gated;
  unit.operators.push_back(activation);
  unit.operators.push_back(gemm("mlp_down", h, w, Cut::depth));
  unit.operators.back().bias = layer.mlp_bias ? h : 0;
  share(unit, layer.shared_owned);
  add_own_rank(unit, "rank_down", "rank_up", layer.shared_rank, h, up_columns);
  unit.operators.push_back(gemm("shared_out", h, h, Cut::none));
  unit.operators.push_back(passing(OperatorKind::residual, "residual", h));
  unit.cut_limit = ff.width;
  finish_unit(unit);
  return unit;
}

}  // namespace

std::vector<Unit> shared_block_units(const LayerShape& layer) {
  std::vector<Unit> units{shared_attention(layer), shared_feed_forward(layer),
                          recurrent_unit(layer, false)};
  for (Unit& unit : units) unit.starts = false;
  units.front().starts = true;
  return units;
}

}  // namespace scalemodel
