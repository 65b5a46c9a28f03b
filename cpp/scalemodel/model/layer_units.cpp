#include "scalemodel/model/layer_units.hpp"

#include <utility>

#include "scalemodel/model/group_units.hpp"

namespace scalemodel {
namespace {

using building::gemm;
using building::passing;

/// Norms over the residual stream before a block.
void add_norms(Unit& unit, const LayerShape& layer, int norms) {
  if (norms == 0) return;
  LayerOperator norm = passing(OperatorKind::norm, "norm", layer.hidden);
  norm.copies = norms;
  norm.bias = static_cast<double>(norms) * layer.norm_vectors * layer.hidden;
  unit.operators.push_back(norm);
}

void finish(Unit& unit) {
  count_parameters(unit);
  count_saved(unit);
}

LayerOperator& project(Unit& unit, std::string_view name, double columns, double depth, Cut cut) {
  LayerOperator& op = unit.operators.emplace_back(gemm(name, columns, depth, cut));
  op.adapts = true;
  return op;
}

/// Multi-head latent attention: DeepSeek-AI, arXiv 2405.04434, section 2.1. Every tensor rank has
/// whole latents, and its heads of what is made of them.
void add_latent_projections(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden, q = static_cast<double>(a.heads) * a.head_dim;
  const double latent = a.kv_lora_rank, rope = a.rope_head_dim, q_latent = a.q_lora_rank;
  if (a.q_lora_rank > 0) {
    project(unit, "q_down", q_latent, h, Cut::none);
    project(unit, "q_up", q, q_latent, Cut::columns);
  } else {
    project(unit, "q", q, h, Cut::columns);
  }
  project(unit, "kv_down", latent + rope, h, Cut::none).shares_input = true;
  LayerOperator& up = project(
      unit, "kv_up", a.heads * static_cast<double>(a.head_dim - a.rope_head_dim + a.v_head_dim),
      latent, Cut::columns);
  up.absorbed = true;
  up.attention = a;
  LayerOperator norms = passing(OperatorKind::latent_norm, "latent_norms", q_latent + latent);
  norms.bias = q_latent + latent;
  unit.operators.push_back(norms);
}

/// Queries, keys and values of every head in one GEMM.
void add_head_projections(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double q = static_cast<double>(a.heads) * a.head_dim;
  const double k = static_cast<double>(a.kv_heads) * a.head_dim;
  const double v = static_cast<double>(a.kv_heads) * a.v_head_dim;
  LayerOperator& qkv = project(unit, "qkv", q + k + v, layer.hidden, Cut::columns);
  qkv.parts = {{q, 0}, {k, a.kv_heads}, {v, a.kv_heads}};
  const double normed = layer.qk_norm ? 2.0 * a.head_dim : 0;
  const double normed_full = layer.qk_norm_full ? q + k : 0;
  qkv.bias = (layer.qkv_bias ? q + k + v : 0) + layer.norm_vectors * (normed + normed_full);
}

/// What a block of experts adds for every token: the router, in front of everything.
void add_router(Unit& unit, const LayerShape& layer) {
  const double experts = layer.feed_forward.experts;
  LayerOperator router = gemm("router", experts, layer.hidden, Cut::none);
  router.routes = true;
  router.bias = layer.router_bias ? experts : 0;
  unit.operators.push_back(router);
}

/// Two or three matrices with an activation between them.
void add_mlp(Unit& unit, const LayerShape& layer, int width, bool biased) {
  const FeedForwardShape& ff = layer.feed_forward;
  const double h = layer.hidden, w = width;
  LayerOperator up = gemm("mlp_up", ff.gated ? 2 * w : w, h, Cut::columns);
  if (ff.gated) up.parts = {{w, 0}, {w, 0}};
  up.bias = biased ? up.columns : 0;
  LayerOperator activation = passing(OperatorKind::activation, "activation", w, Cut::columns);
  activation.gated = ff.gated;
  LayerOperator down = gemm("mlp_down", h, w, Cut::depth);
  down.bias = biased ? h : 0;
  unit.operators.push_back(std::move(up));
  unit.operators.push_back(std::move(activation));
  unit.operators.push_back(std::move(down));
}

/// The block that reads the residual stream: its norms come first, its addition last.
Unit begun_block(std::string_view name, const LayerShape& layer, int norms) {
  Unit unit;
  unit.name = name;
  unit.starts = false;
  unit.width_in = unit.width_out = layer.hidden;
  add_norms(unit, layer, norms);
  return unit;
}

Unit dense_unit(const LayerShape& layer, int width, bool biased, int norms) {
  Unit unit = begun_block("feed_forward", layer, norms);
  add_mlp(unit, layer, width, biased);
  unit.operators.push_back(passing(OperatorKind::residual, "residual", layer.hidden));
  unit.cut_limit = width;
  return unit;
}

/// `beside` shared experts, whose block it is then.
Unit expert_unit(const LayerShape& layer, bool beside, int norms) {
  const FeedForwardShape& ff = layer.feed_forward;
  Unit unit = begun_block("experts", layer, beside ? 0 : norms);
  unit.experts = ff.experts;
  unit.experts_per_token = ff.experts_per_token;
  unit.reads_stream = !beside;
  add_router(unit, layer);
  add_mlp(unit, layer, ff.width, layer.expert_bias);
  if (!beside) unit.operators.push_back(passing(OperatorKind::residual, "residual", layer.hidden));
  unit.cut_limit = ff.width;
  finish(unit);
  // Rows in the order of their experts and what comes back; probabilities of the router in FP32;
  // of the token itself, the norm's input and output.
  const double h = layer.hidden;
  unit.saved_whole = 2 * h;
  unit.saved_token = 2.0 * ff.experts + (beside ? 0 : 2 * h);
  return unit;
}

}  // namespace

LayerShape layer_shape(const DecoderShape& s, bool routed, bool full_attention) {
  LayerShape layer;
  layer.hidden = s.hidden;
  layer.attention = {s.heads,
                     s.kv_heads,
                     s.head_dim,
                     s.v_head_dim,
                     s.q_lora_rank,
                     s.kv_lora_rank,
                     s.qk_rope_head_dim,
                     full_attention ? 0 : s.window,
                     s.position == Position::rope};
  layer.norms = s.norms_per_layer;
  layer.norm_vectors = norm_vectors(s.norm);
  layer.qkv_bias = s.qkv_bias;
  layer.out_bias = s.out_bias;
  layer.qk_norm = s.qk_norm;
  layer.qk_norm_full = s.qk_norm_full;
  layer.attention_sinks = s.attention_sinks;
  layer.mlp_bias = s.mlp_bias;
  layer.expert_bias = s.expert_bias;
  layer.router_bias = s.router_bias;
  layer.shared_expert_gate = s.shared_expert_gate;
  FeedForwardShape& ff = layer.feed_forward;
  ff.gated = s.gated;
  ff.width = routed ? s.expert_ffn : s.ffn;
  if (!routed) return layer;
  ff.experts = s.experts;
  ff.experts_per_token = s.experts_per_token;
  ff.shared_width = s.shared_experts * s.shared_ffn;
  return layer;
}

Unit attention_unit(const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  Unit unit = begun_block("attention", layer, (layer.norms + 1) / 2);
  unit.starts = true;
  if (a.latent()) {
    add_latent_projections(unit, layer);
  } else {
    add_head_projections(unit, layer);
  }
  const int key_heads = a.latent() ? a.heads : a.kv_heads;
  if (a.rotary) {
    const double q = static_cast<double>(a.heads) * a.head_dim;
    const double k = static_cast<double>(key_heads) * a.head_dim;
    LayerOperator rope = passing(OperatorKind::rotary, "rope", q + k, Cut::columns);
    rope.parts = {{q, 0}, {k, key_heads}};
    unit.operators.push_back(std::move(rope));
  }
  LayerOperator core = passing(OperatorKind::attention, "attention", 0, Cut::columns);
  core.attention = a;
  core.attention.kv_heads = key_heads;
  core.causal = layer.causal;
  core.bias = layer.attention_sinks ? a.heads : 0;
  unit.operators.push_back(core);
  LayerOperator& out = project(unit, "attention_out", layer.hidden,
                               static_cast<double>(a.heads) * a.v_head_dim, Cut::depth);
  out.reads_attention = true;
  out.bias = layer.out_bias ? layer.hidden : 0;
  unit.operators.push_back(passing(OperatorKind::residual, "residual", layer.hidden));
  unit.head_limit = a.heads;
  finish(unit);
  return unit;
}

std::vector<Unit> feed_forward_units(const LayerShape& layer) {
  const FeedForwardShape& ff = layer.feed_forward;
  const int norms = layer.norms / 2;
  std::vector<Unit> units;
  if (!ff.routed()) {
    finish(units.emplace_back(dense_unit(layer, ff.width, layer.mlp_bias, norms)));
    return units;
  }
  const bool shares = ff.shared_width > 0;
  if (shares) {
    Unit& shared = units.emplace_back(dense_unit(layer, ff.shared_width, layer.shared_bias, norms));
    if (layer.shared_expert_gate) {  // one number a token: parameters, hardly any time
      shared.operators.back().bias += layer.hidden;
    }
    finish(shared);
  }
  units.push_back(expert_unit(layer, shares, norms));
  return units;
}

std::vector<Unit> layer_units(const LayerShape& layer) {
  std::vector<Unit> units{attention_unit(layer)};
  for (Unit& unit : feed_forward_units(layer)) units.push_back(std::move(unit));
  return units;
}

}  // namespace scalemodel
