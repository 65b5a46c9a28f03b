#include "scalemodel/model/layer_units.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/model/group_units.hpp"
#include "scalemodel/model/recurrent_units.hpp"
#include "scalemodel/model/shared_units.hpp"

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

/// Two matrices of what a block reads, of the token itself where the block has experts.
void add_low_rank(Unit& unit, std::string_view down, std::string_view up, double width,
                  double rank) {
  for (const bool first : {true, false}) {
    LayerOperator op =
        gemm(first ? down : up, first ? rank : width, first ? width : rank, Cut::none);
    op.of_token = true;
    unit.operators.push_back(op);
  }
}

/// Streams that every block mixes (hyper-connections: arXiv 2409.19606). Where one kernel does, it
/// reads the m streams and the output of the block before, and writes the m streams and the input
/// of this one. Snapshots of the stream (attention residuals) are read with the running sum, and
/// their mixture is written.
void add_stream_operators(Unit& unit, const LayerShape& layer) {
  const double m = layer.streams, h = layer.hidden;
  if (mixes_streams(layer) && layer.stream_rank > 0) {
    // A block reads a low-rank mixture of all streams, and adds to each a share of its output
    // (transformers, models/qwen4_exp).
    const double rank = layer.stream_rank;
    add_low_rank(unit, "stream_down", "stream_up", m * h, rank);
    LayerOperator mix = passing(OperatorKind::elementwise, "hyper_connection", m * h);
    mix.depth = 4;
    mix.bias = (1 + m) * m * h;
    unit.operators.push_back(mix);
  } else if (mixes_streams(layer)) {
    LayerOperator mix = passing(OperatorKind::stream_mixing, "hyper_connection", m * h);
    mix.copies = m;
    mix.bias = (2 + m) * m * (m * h + 1) + 3;
    unit.operators.push_back(mix);
  } else if (layer.streams > 1) {
    LayerOperator mix = passing(OperatorKind::elementwise, "hyper_connection", m * h);
    mix.depth = 2 + 2 / m;
    mix.bias = m * h + m * m * (m + 1) + m * h;
    unit.operators.push_back(mix);
  }
  if (layer.snapshots > 0) {
    LayerOperator mix = passing(OperatorKind::elementwise, "snapshots", h);
    mix.depth = layer.snapshots + 2;
    mix.bias = 2 * h;
    unit.operators.push_back(mix);
  }
}

/// Multi-head latent attention: DeepSeek-AI, arXiv 2405.04434, section 2.1. Every tensor rank has
/// whole latents, and its heads of what is made of them.
void add_latent_projections(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden, q = static_cast<double>(a.heads) * a.head_dim;
  const double latent = a.kv_lora_rank, rope = a.rope_head_dim, q_latent = a.q_lora_rank;
  if (a.q_lora_rank > 0) {
    project(unit, "q_down", q_latent, h, Cut::none);
    // A gate that comes with the queries reads the latents before their norm too (transformers,
    // models/axk2).
    const bool gated = layer.attention_gate == OutputGate::latents;
    const double gate = gated ? static_cast<double>(a.heads) * a.v_head_dim : 0;
    project(unit, "q_up", q + gate, gated ? 2 * q_latent : q_latent, Cut::columns);
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

/// How many times the weights that a token meets the layer has (Zhang et al., mixtures of attention
/// heads, arXiv 2210.05144).
double attention_parts(const LayerShape& layer) {
  const FeedForwardShape& ff = layer.feed_forward;
  return layer.attention_experts ? 1.0 * ff.experts / ff.experts_per_token : 1.0;
}

/// Queries of the heads that a router chooses, and keys and values that all heads share in groups.
void add_chosen_projections(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden;
  const double k = 1.0 * a.kv_heads * a.head_dim, v = 1.0 * a.kv_heads * a.v_head_dim;
  LayerOperator& kv = project(unit, "kv", k + v, h, Cut::columns);
  kv.parts = {{k + v, a.kv_heads}};
  kv.bias = layer.qkv_bias ? k + v : 0;
  add_scores(unit, layer.feed_forward.experts, h, false);
  project(unit, "q", 1.0 * a.heads * a.head_dim, h, Cut::columns).owned = attention_parts(layer);
}

/// Queries, keys and values of every head in one GEMM, as far as the layer has its own.
void add_head_projections(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden, q = static_cast<double>(a.heads) * a.head_dim;
  const double k = a.reuses_keys ? 0 : static_cast<double>(a.kv_heads) * a.head_dim;
  const double v =
      a.reuses_keys || a.shared_values ? 0 : static_cast<double>(a.kv_heads) * a.v_head_dim;
  const bool low_rank = a.q_lora_rank > 0;
  if (low_rank) {
    project(unit, "q_down", a.q_lora_rank, h, Cut::none);
    project(unit, "q_up", q, a.q_lora_rank, Cut::columns);
    LayerOperator norm = passing(OperatorKind::latent_norm, "latent_norms", a.q_lora_rank);
    norm.bias = a.q_lora_rank;
    unit.operators.push_back(norm);
  }
  const double queries = low_rank ? 0 : q;
  if (queries + k + v > 0) {
    LayerOperator& qkv = project(unit, "qkv", queries + k + v, h, Cut::columns);
    qkv.parts = {{queries, 0}, {k, a.kv_heads}, {v, a.kv_heads}};
    qkv.shares_input = low_rank;
    const double normed = layer.qk_norm ? (a.reuses_keys ? 1.0 : 2.0) * a.head_dim : 0;
    const double normed_full = layer.qk_norm_full ? q + k : 0;
    qkv.bias = (layer.qkv_bias ? q + k + v : 0) + layer.norm_vectors * (normed + normed_full);
    if (layer.qk_norm || layer.qk_norm_full) {
      unit.operators.push_back(passing(OperatorKind::head_norm, "qk_norm", q + k, Cut::columns));
    }
  }
  if (a.compressed()) {  // queries have no scale (DeepSeek-AI, DeepSeek-V4)
    LayerOperator norm = passing(OperatorKind::head_norm, "q_head_norm", q, Cut::columns);
    norm.weightless = true;
    unit.operators.push_back(norm);
  }
}

/// The indexer of sparse attention (DeepSeek-AI, DeepSeek-V3.2, arXiv 2512.02556, section 2.1):
/// queries of a few narrow heads, one key a token, and a weight per head; every tensor rank has all
/// of it. Beside grouped heads (MiniMax-M3) queries come from the stream and heads weigh alike. Of
/// compressed keys it makes its own, and like these it makes them in the storage precision
/// (NVIDIA/Megatron-LM 5308, as DeepSeek's checkpoints).
void add_indexer(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  if (a.index_heads == 0) return;
  const double h = layer.hidden, heads = a.index_heads, dim = a.index_dim;
  const bool weighs = a.q_lora_rank > 0;
  LayerOperator& q = add_whole(unit, "index_q", heads * dim, weighs ? a.q_lora_rank : h);
  q.shares_input = !weighs;
  q.wide = a.ratio > 1;
  double keys = dim + (weighs ? heads : 0);
  double learned = 2 * dim;
  if (a.ratio > 1) {
    keys = 4 * dim + heads;
    learned = 2.0 * a.ratio * dim + dim;
  }
  LayerOperator& k = add_whole(unit, "index_k", keys, h);
  k.shares_input = true;
  k.wide = a.ratio > 1;
  k.bias = learned;
  LayerOperator scores = passing(OperatorKind::attention, "indexer", 0);
  scores.attention.heads = a.index_heads;
  scores.attention.kv_heads = 1;
  scores.attention.head_dim = a.index_dim;
  scores.attention.ratio = a.ratio;
  scores.causal = layer.causal;
  unit.operators.push_back(scores);
}

/// Keys that each stand for `ratio` tokens (DeepSeek-AI, DeepSeek-V4): a projection of values and
/// one of weights, pooled; with an indexer blocks overlap and both are twice as wide.
void add_compressor(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  if (a.ratio <= 1) return;
  const double width = (a.index_heads > 0 ? 2.0 : 1.0) * a.head_dim;
  LayerOperator& op = add_whole(unit, "compressor", 2 * width, layer.hidden);
  op.shares_input = true;
  op.wide = true;
  op.bias = a.ratio * width + a.head_dim;
  LayerOperator pool = passing(OperatorKind::elementwise, "pooling", 2 * width);
  pool.depth = 1;
  unit.operators.push_back(pool);
}

}  // namespace

bool mixes_streams(const LayerShape& layer) {
  return layer.streams > 1 && layer.layer_embedding == 0;
}

LayerOperator& project(Unit& unit, std::string_view name, double columns, double depth, Cut cut) {
  LayerOperator& op = unit.operators.emplace_back(gemm(name, columns, depth, cut));
  op.adapts = true;
  return op;
}

LayerOperator& add_whole(Unit& unit, std::string_view name, double columns, double depth) {
  return unit.operators.emplace_back(gemm(name, columns, depth, Cut::none));
}

void add_scores(Unit& unit, double experts, double depth, bool biased) {
  LayerOperator router = gemm("router", experts, depth, Cut::none);
  router.routes = true;
  router.bias = biased ? experts : 0;
  unit.operators.push_back(router);
}

void add_residual_sum(Unit& unit, const LayerShape& layer) {
  if (mixes_streams(layer)) return;
  unit.operators.push_back(passing(OperatorKind::residual, "residual", layer.hidden));
}

Unit begun_block(std::string_view name, const LayerShape& layer, int norms) {
  Unit unit;
  unit.name = name;
  unit.starts = false;
  unit.width_in = unit.width_out = layer.hidden;
  unit.streams = layer.streams;
  add_norms(unit, layer, norms);
  if (norms > 0 && layer.norm_rank > 0) {
    add_low_rank(unit, "norm_gate_down", "norm_gate_up", layer.hidden, layer.norm_rank);
    unit.operators.push_back(passing(OperatorKind::elementwise, "norm_gate", layer.hidden));
    unit.operators.back().depth = 3;
  }
  if (norms > 0) add_stream_operators(unit, layer);
  return unit;
}

void finish_unit(Unit& unit) {
  count_parameters(unit);
  count_saved(unit);
}

namespace {

/// Scores, softmax and weighted values: over the keys of the layer, and over compressed ones.
void add_cores(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  LayerOperator core = passing(OperatorKind::attention, "attention", 0, Cut::columns);
  core.attention = a;
  core.attention.kv_heads = a.latent() ? a.heads : a.kv_heads;
  core.causal = layer.causal;
  core.bias = layer.attention_sinks ? a.heads : 0;
  if (a.ratio > 1) {
    LayerOperator near = core;
    near.attention.selected = 0;
    near.attention.ratio = 1;
    near.halo = true;
    unit.operators.push_back(near);
    core.continues = true;
    core.name = "compressed_attention";
    core.attention.window = 0;
    core.bias = 0;
  }
  unit.operators.push_back(core);
}

/// The projection of all heads back to the stream, behind their gate.
void add_attention_output(Unit& unit, const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden, values = static_cast<double>(a.heads) * a.v_head_dim;
  if (layer.attention_gate != OutputGate::none) {
    const bool whole = layer.attention_gate != OutputGate::heads;
    if (layer.attention_gate != OutputGate::latents) {
      project(unit, "attention_gate", whole ? values : a.heads, h, Cut::columns).shares_input =
          true;
    }
    LayerOperator gate = passing(OperatorKind::elementwise, "output_gate", values, Cut::columns);
    gate.depth = whole ? 3 : 2;
    unit.operators.push_back(gate);
  }
  if (layer.fused_output) {
    // The mean of both mixers, each behind a norm of its own (arXiv 2411.13676, section 2.1).
    LayerOperator mean = passing(OperatorKind::elementwise, "mixer_norms", values, Cut::columns);
    mean.depth = 3;
    mean.bias = 2 * values;
    unit.operators.push_back(mean);
    return;
  }
  double depth = values;
  if (a.output_groups > 0) {
    // A product of every group of heads with a parameter that no format narrows
    // (NVIDIA/Megatron-LM, experimental_attention_variant/deepseek_v4_hybrid_attention.py).
    const double groups = a.output_groups;
    LayerOperator& grouped =
        project(unit, "output_groups", groups * a.output_rank, values / groups, Cut::columns);
    grouped.reads_attention = true;
    grouped.wide = true;
    depth = groups * a.output_rank;
  }
  LayerOperator& out = project(unit, "attention_out", h, depth, Cut::depth);
  out.reads_attention = a.output_groups == 0;
  out.attention = a;
  out.owned = attention_parts(layer);
  out.bias = layer.out_bias ? h / out.owned : 0;
}

}  // namespace

Unit attention_unit(const LayerShape& layer) {
  const AttentionShape& a = layer.attention;
  Unit unit = begun_block("attention", layer, (layer.norms + 1) / 2);
  unit.starts = true;
  unit.mixes = true;
  if (a.latent()) {
    add_latent_projections(unit, layer);
  } else if (layer.attention_experts) {
    add_chosen_projections(unit, layer);
  } else {
    add_head_projections(unit, layer);
  }
  add_compressor(unit, layer);
  add_indexer(unit, layer);
  const int key_heads = a.latent() ? a.heads : a.kv_heads;
  if (a.rotary) {
    const double q = static_cast<double>(a.heads) * a.head_dim;
    const double k = a.reuses_keys ? 0 : static_cast<double>(key_heads) * a.head_dim;
    LayerOperator rope = passing(OperatorKind::rotary, "rope", q + k, Cut::columns);
    rope.parts = {{q, 0}, {k, key_heads}};
    unit.operators.push_back(std::move(rope));
  }
  add_cores(unit, layer);
  add_attention_output(unit, layer);
  if (layer.residual_rank > 0) {  // a learned residual beside the block
    const double h = layer.hidden, rank = layer.residual_rank;
    unit.operators.push_back(gemm("residual_down", rank, h, Cut::none));
    unit.operators.push_back(gemm("residual_up", h, rank, Cut::none));
    unit.operators.back().bias = h;
  }
  add_residual_sum(unit, layer);
  unit.head_limit = a.heads;
  finish_unit(unit);
  return unit;
}

Unit cross_attention_unit(const LayerShape& layer, double tokens, double rows) {
  const AttentionShape& a = layer.attention;
  const double h = layer.hidden, width = 1.0 * a.heads * a.head_dim;
  const double each = rows > 0 ? rows : 1;
  // In the place of attention to its own tokens, a layer has heads in groups and norms of queries
  // and keys as that would (transformers, models/mllama: MllamaTextCrossAttention).
  const int kv_heads = a.kv_heads > 0 ? a.kv_heads : a.heads;
  const double keys = 1.0 * kv_heads * a.head_dim, norm = a.of_source ? a.head_dim : 0;
  Unit unit = begun_block("cross_attention", layer, std::min(2, (layer.norms + 1) / 2));
  project(unit, "cross_q", width, h, Cut::columns).bias = (layer.qkv_bias ? width : 0) + norm;
  LayerOperator& kv = project(unit, "cross_kv", 2 * keys, layer.source_width, Cut::columns);
  if (kv_heads < a.heads) kv.parts = {{2 * keys, kv_heads}};
  kv.rows = each;
  kv.bias = (layer.qkv_bias ? 2 * keys : 0) + norm;
  kv.of_source = true;
  if (a.of_source) {
    unit.operators.push_back(passing(OperatorKind::head_norm, "q_norm", width, Cut::columns));
  }
  LayerOperator core = passing(OperatorKind::attention, "cross_attention", 0, Cut::columns);
  core.attention.heads = a.heads;
  core.attention.kv_heads = kv_heads;
  core.attention.head_dim = core.attention.v_head_dim = a.head_dim;
  core.causal = false;
  core.other_keys = tokens;
  core.rows = each;
  core.of_source = true;
  unit.operators.push_back(core);
  LayerOperator& out = project(unit, "cross_out", h, width, Cut::depth);
  out.reads_attention = true;
  out.bias = layer.out_bias ? h : 0;
  unit.operators.push_back(passing(OperatorKind::residual, "residual", h));
  unit.head_limit = a.heads;
  unit.mixes = true;
  finish_unit(unit);
  return unit;
}

std::vector<Unit> layer_units(const LayerShape& layer) {
  if (layer.shared_owned > 0) return shared_block_units(layer);
  std::vector<Unit> units;
  const bool attends = layer.attention.present();
  if (attends && !layer.attention.of_source) units.push_back(attention_unit(layer));
  if (layer.recurrence.present()) units.push_back(recurrent_unit(layer, attends));
  if (attends && layer.source_width > 0) units.push_back(cross_attention_unit(layer, 0, 0));
  if (layer.feed_forward.present()) {
    for (Unit& unit : feed_forward_units(layer)) units.push_back(std::move(unit));
  }
  if (!units.empty()) units.front().starts = true;
  if (layer.owned < 1) {
    for (Unit& unit : units) {
      for (LayerOperator& op : unit.operators) op.owned *= layer.owned;
      count_parameters(unit);
    }
  }
  return units;
}

LayerKind layer_kind(const LayerShape& layer) {
  LayerKind kind;
  kind.attention = layer.attention;
  kind.recurrence = layer.recurrence;
  kind.feed_forward = layer.feed_forward;
  kind.owned = layer.owned;
  kind.units = layer_units(layer);
  for (const Unit& unit : kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.kind == OperatorKind::norm) {
        kind.norm_parameters += op.parameters();
      } else if (op.owned > 1) {
        kind.choice_parameters += op.parameters();
        kind.chosen_parameters += op.parameters() / op.owned;
      } else if (unit.mixes) {
        kind.attention_parameters += op.parameters();
      } else if (unit.on_copies(op)) {
        kind.expert_parameters += unit.experts * op.parameters();
      } else {
        kind.dense_parameters += op.parameters();
      }
    }
  }
  return kind;
}

}  // namespace scalemodel
