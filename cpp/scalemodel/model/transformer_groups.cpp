#include <algorithm>
#include <utility>

#include "scalemodel/model/group_units.hpp"

namespace scalemodel {
namespace {

using building::count_saved;
using building::need;
using building::passing;
using building::product;

Unit attention_unit(const TransformerShape& s) {
  Unit unit;
  unit.name = "attention";
  unit.width_in = unit.width_out = s.hidden;
  const int kv = s.kv_heads > 0 ? s.kv_heads : s.heads;
  const int dim = s.head_dim > 0 ? s.head_dim : s.hidden / s.heads;
  const int v_dim = s.v_head_dim > 0 ? s.v_head_dim : dim;
  const bool latent = s.kv_lora_rank > 0;
  const int key_heads = latent ? s.heads : kv;
  const double q = static_cast<double>(s.heads) * dim, k = static_cast<double>(key_heads) * dim;
  const double v = static_cast<double>(key_heads) * v_dim;
  const double h = s.hidden;
  const double norm_width = s.bias ? 2 * h : h;
  if (s.norms && s.norms_per_layer > 0) {
    unit.operators.push_back(passing(OperatorKind::norm, "norm", h));
    unit.parameters_whole += 0.5 * s.norms_per_layer * norm_width;
  }
  const auto project = [&](std::string_view name, double columns, double depth, Cut cut) {
    GroupOperator op = product(name, columns, depth, cut);
    op.adapts = true;
    unit.operators.push_back(op);
    (cut == Cut::none ? unit.parameters_whole : unit.parameters_cut) += columns * depth;
  };
  if (latent) {
    // Every tensor rank has whole latents, and its heads of what is made of them.
    const double low = s.kv_lora_rank, rope = s.rope_head_dim, q_low = s.q_lora_rank;
    if (q_low > 0) {
      project("q_down", q_low, h, Cut::none);
      project("q_up", q, q_low, Cut::columns);
    } else {
      project("q", q, h, Cut::columns);
    }
    project("kv_down", low + rope, h, Cut::none);
    unit.operators.back().keeps_input = false;
    project("kv_up", s.heads * (dim - rope + v_dim), low, Cut::columns);
    unit.operators.push_back(passing(OperatorKind::norm, "latent_norms", q_low + low));
    unit.parameters_whole += q_low + low;
  } else {
    project("qkv", q + k + v, h, Cut::columns);
  }
  if (s.rotary)
    unit.operators.push_back(passing(OperatorKind::rotary, "rope", q + k, Cut::columns));
  GroupOperator core = passing(OperatorKind::attention, "attention", 0, Cut::columns);
  core.attention.heads = s.heads;
  core.attention.kv_heads = key_heads;
  core.attention.head_dim = dim;
  core.attention.v_head_dim = v_dim;
  core.attention.window = s.window;
  core.causal = s.causal;
  unit.operators.push_back(core);
  project("attention_out", h, static_cast<double>(s.heads) * v_dim, Cut::depth);
  unit.operators.back().keeps_input = false;  // attention keeps its output
  unit.operators.push_back(passing(OperatorKind::residual, "residual", h));
  unit.parameters_cut += s.bias && !latent ? q + k + v : 0;
  unit.parameters_whole += s.bias ? h : 0;
  unit.head_limit = s.heads;
  count_saved(unit);
  return unit;
}

/// `routed`: the experts of a layer; otherwise one dense block of `width`.
Unit feed_forward_unit(const TransformerShape& s, int width, bool routed, bool with_norm) {
  Unit unit;
  unit.name = routed ? "experts" : "feed_forward";
  unit.starts = false;
  unit.width_in = unit.width_out = s.hidden;
  const double h = s.hidden, w = width, up = s.gated ? 2 * w : w;
  const double norm_width = s.bias ? 2 * h : h;
  if (with_norm && s.norms && s.norms_per_layer > 0) {
    unit.operators.push_back(passing(OperatorKind::norm, "norm", h));
    unit.parameters_whole += 0.5 * s.norms_per_layer * norm_width;
  }
  if (routed) {
    unit.experts = s.experts;
    unit.experts_per_token = s.experts_per_token;
    unit.parameters_whole += h * s.experts;
  }
  unit.operators.push_back(product("mlp_up", up, h, Cut::columns));
  GroupOperator activation = passing(OperatorKind::activation, "activation", w, Cut::columns);
  activation.gated = s.gated;
  unit.operators.push_back(activation);
  unit.operators.push_back(product("mlp_down", h, w, Cut::depth));
  unit.operators.push_back(passing(OperatorKind::residual, "residual", h));
  unit.parameters_cut = h * up + h * w + (s.bias && !routed ? up : 0);
  unit.parameters_whole += s.bias && !routed ? h : 0;
  unit.cut_limit = width;
  count_saved(unit);
  if (routed) {
    // Rows in the order of their experts and what comes back; probabilities of the router in FP32;
    // of the token itself, the norm's input and output.
    unit.saved_whole = 2 * h;
    unit.saved_token = 2.0 * s.experts + (with_norm ? 2 * h : 0);
  }
  return unit;
}

Unit modulation_unit(const TransformerShape& s) {
  Unit unit;
  unit.name = "modulation";
  unit.width_in = unit.width_out = s.hidden;
  unit.opens = unit.closes = false;
  const double h = s.hidden;
  GroupOperator condition = product("modulation", 6 * h, s.modulation, Cut::none, 1 / s.tokens);
  unit.operators.push_back(condition);
  GroupOperator apply = passing(OperatorKind::moving, "scale_shift_gate", h);
  apply.depth =
      6;  // two scalings and two gates, in and out of one kernel each, less the fused ones
  unit.operators.push_back(apply);
  unit.parameters_whole = 6 * h * s.modulation + 6 * h;
  count_saved(unit);
  return unit;
}

}  // namespace

LayerGroup transformer(std::string name, const TransformerShape& shape) {
  need(shape.layers >= 1, name, "layers", shape.layers, "at least 1");
  need(shape.hidden >= 1, name, "hidden", shape.hidden, "at least 1");
  need(shape.heads >= 1, name, "heads", shape.heads, "at least 1");
  need(shape.head_dim > 0 || shape.hidden >= shape.heads, name, "heads", shape.heads,
       "at most hidden");
  const int kv = shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
  need(shape.heads % kv == 0, name, "kv_heads", kv, "a divisor of heads");
  if (shape.kv_lora_rank > 0) {
    const int dim = shape.head_dim > 0 ? shape.head_dim : shape.hidden / shape.heads;
    need(shape.rope_head_dim >= 0 && shape.rope_head_dim < dim, name, "rope_head_dim",
         shape.rope_head_dim, "below head_dim");
  } else {
    need(shape.q_lora_rank == 0, name, "q_lora_rank", shape.q_lora_rank, "0 without kv_lora_rank");
  }
  need(shape.ffn >= 1, name, "ffn", shape.ffn, "at least 1");
  if (shape.experts > 0) {
    need(shape.experts_per_token >= 1 && shape.experts_per_token <= shape.experts, name,
         "experts_per_token", shape.experts_per_token, "from 1 to the number of experts");
  }
  if (shape.modulation > 0) {
    need(shape.tokens > 0, name, "tokens", shape.tokens, "given where norms are adaptive");
  }
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::transformer;
  group.tokens = shape.tokens;
  group.repeat = shape.layers;
  if (shape.modulation > 0) group.units.push_back(modulation_unit(shape));
  group.units.push_back(attention_unit(shape));
  group.units.back().starts = shape.modulation == 0;
  const bool routed = shape.experts > 0;
  const bool shared = routed && shape.shared_ffn > 0;
  if (shared) group.units.push_back(feed_forward_unit(shape, shape.shared_ffn, false, true));
  group.units.push_back(feed_forward_unit(shape, shape.ffn, routed, !shared));
  return group;
}

namespace {

/// Layers of an order that repeat: so many kinds, so many times.
struct Run {
  std::size_t period = 1, repeats = 1;

  [[nodiscard]] std::size_t layers() const { return period * repeats; }
};

/// The longest run that begins at a layer. Kinds may alternate, so a period may hold several.
Run run_at(const std::vector<std::uint8_t>& order, std::size_t at) {
  constexpr std::size_t kLongestPeriod = 8;
  const auto layer = [&](std::size_t index) {
    return order.begin() + static_cast<std::ptrdiff_t>(index);
  };
  Run longest;
  for (std::size_t p = 1; p <= kLongestPeriod && at + p <= order.size(); ++p) {
    Run run{p, 1};
    while (at + run.layers() + p <= order.size() &&
           std::equal(layer(at), layer(at + p), layer(at + run.layers()))) {
      ++run.repeats;
    }
    if (run.layers() > longest.layers()) longest = run;
  }
  return longest;
}

TransformerShape shape_of(const LayerKind& kind, int hidden) {
  const AttentionShape& a = kind.attention;
  const FeedForwardShape& ff = kind.feed_forward;
  TransformerShape s;
  s.hidden = hidden;
  s.heads = a.heads;
  s.kv_heads = a.kv_heads;
  s.head_dim = a.head_dim;
  s.v_head_dim = a.v_head_dim;
  s.q_lora_rank = a.q_lora_rank;
  s.kv_lora_rank = a.kv_lora_rank;
  s.rope_head_dim = a.rope_head_dim;
  s.ffn = ff.width;
  s.gated = ff.gated;
  s.rotary = a.rotary;
  s.window = a.window;
  s.norms_per_layer = kind.norms;
  s.experts = ff.experts;
  s.experts_per_token = ff.experts_per_token;
  s.shared_ffn = ff.shared_width;
  return s;
}

/// Units of a layer, with the parameters that the card counts: they hold biases and norms that the
/// shapes alone do not tell.
void add_layer(LayerGroup& group, const LayerKind& kind, int hidden) {
  const TransformerShape s = shape_of(kind, hidden);
  const AttentionShape& a = kind.attention;
  const FeedForwardShape& ff = kind.feed_forward;
  Unit attention = attention_unit(s);
  const double down =
      a.latent() ? hidden * (1.0 * a.q_lora_rank + a.kv_lora_rank + a.rope_head_dim) : 0;
  attention.parameters_cut = kind.attention_parameters - down;
  attention.parameters_whole = 0.5 * kind.norm_parameters + down;
  group.units.push_back(std::move(attention));
  const double router = static_cast<double>(hidden) * ff.experts;
  const bool shares = ff.routed() && ff.shared_width > 0;
  if (shares) {
    Unit shared = feed_forward_unit(s, ff.shared_width, false, true);
    shared.parameters_cut = kind.dense_parameters - router;
    shared.parameters_whole = 0.5 * kind.norm_parameters;
    group.units.push_back(std::move(shared));
  }
  Unit block = feed_forward_unit(s, ff.width, ff.routed(), !shares);
  block.parameters_cut = ff.routed() ? kind.expert_parameters / ff.experts : kind.dense_parameters;
  block.parameters_whole = (ff.routed() ? router : 0) + (shares ? 0 : 0.5 * kind.norm_parameters);
  group.units.push_back(std::move(block));
}

}  // namespace

std::vector<LayerGroup> decoder_groups(const DecoderShape& card) {
  const Model model = make_decoder(card);
  std::vector<LayerGroup> groups;
  LayerGroup words = token_embedding("token_embedding", model.vocab, model.hidden,
                                     card.position == Position::learned ? card.positions : 0, 0);
  words.units[0].parameters_cut = model.embedding_parameters;
  groups.push_back(std::move(words));
  std::size_t at = 0;
  while (at < model.layer_kind.size()) {
    const Run run = run_at(model.layer_kind, at);
    LayerGroup group;
    group.kind = GroupKind::transformer;
    group.name = "transformer";
    if (groups.size() > 1) group.name.append("_").append(std::to_string(groups.size()));
    group.tokens = 0;
    group.repeat = static_cast<int>(run.repeats);
    for (std::size_t i = at; i < at + run.period; ++i) {
      add_layer(group, model.kinds[model.layer_kind[i]], model.hidden);
    }
    groups.push_back(std::move(group));
    at += run.layers();
  }
  HeadShape last;
  last.hidden = model.hidden;
  last.outputs = model.vocab;
  last.tied = card.tied_embeddings;
  last.tokens = 0;
  LayerGroup end = head("head", last);
  end.units[0].parameters_cut = model.head_parameters;
  end.units[0].parameters_whole = model.final_norm_parameters;
  groups.push_back(std::move(end));
  for (std::size_t i = 1; i < groups.size(); ++i) groups[i].waits_for = {static_cast<int>(i) - 1};
  return groups;
}

}  // namespace scalemodel
