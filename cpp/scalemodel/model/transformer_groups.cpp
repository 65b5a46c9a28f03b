#include <algorithm>
#include <utility>

#include "scalemodel/model/group_units.hpp"
#include "scalemodel/model/groups.hpp"
#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {
namespace {

using building::gemm;
using building::need;
using building::passing;

LayerShape layer_shape(const TransformerShape& s) {
  LayerShape layer;
  layer.hidden = s.hidden;
  AttentionShape& a = layer.attention;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads > 0 ? s.kv_heads : s.heads;
  a.head_dim = s.head_dim > 0 ? s.head_dim : s.hidden / s.heads;
  a.v_head_dim = s.v_head_dim > 0 ? s.v_head_dim : a.head_dim;
  a.q_lora_rank = s.q_lora_rank;
  a.kv_lora_rank = s.kv_lora_rank;
  a.rope_head_dim = s.rope_head_dim;
  a.window = s.window;
  a.rotary = s.rotary;
  layer.feed_forward = {s.ffn, s.gated, s.experts, s.experts_per_token,
                        s.experts > 0 ? s.shared_ffn : 0};
  layer.norms = s.norms ? s.norms_per_layer : 0;
  layer.norm_vectors = s.bias ? 2 : 1;
  layer.causal = s.causal;
  layer.qkv_bias = layer.out_bias = layer.mlp_bias = layer.shared_bias = s.bias;
  return layer;
}

Unit modulation_unit(const TransformerShape& s) {
  Unit unit;
  unit.name = "modulation";
  unit.width_in = unit.width_out = s.hidden;
  unit.opens = unit.closes = false;
  const double h = s.hidden, vectors = s.modulation_vectors;
  LayerOperator condition = gemm("modulation", vectors * h, s.modulation, Cut::none, 1 / s.tokens);
  unit.operators.push_back(condition);
  LayerOperator apply = passing(OperatorKind::elementwise, "scale_shift_gate", h);
  // Six: two scalings and two gates, in and out of one kernel each, less the fused ones.
  apply.depth = vectors / s.modalities;
  unit.operators.push_back(apply);
  unit.operators.front().bias = vectors * h;
  count_parameters(unit);
  count_saved(unit);
  return unit;
}

/// In the place of the scores: both sides pass their activation, keys and values are read once more
/// for their sum, queries for the outputs. The products, 4 d for every value, hide beside that.
void make_linear(Unit& unit, double queries, double keys) {
  const auto core =
      std::ranges::find(unit.operators, OperatorKind::attention, &LayerOperator::kind);
  LayerOperator sums =
      passing(OperatorKind::elementwise, "linear_attention", queries + 2 * keys, Cut::columns);
  sums.depth = (4 * queries + 4 * keys) / sums.columns;
  *core = std::move(sums);
}

/// What diffusion transformers do around attention: norms of queries and keys, and copies that lay
/// side by side the queries, keys and values of all modalities, or what attention and feed-forward
/// block give (black-forest-labs/flux, modules/layers.py: DoubleStreamBlock, SingleStreamBlock).
void add_around_attention(Unit& unit, const TransformerShape& s) {
  const AttentionShape a = layer_shape(s).attention;
  const double q = 1.0 * a.heads * a.head_dim, kv = 1.0 * a.kv_heads * a.head_dim;
  const auto core =
      std::ranges::find(unit.operators, OperatorKind::attention, &LayerOperator::kind);
  std::vector<LayerOperator> around;
  if (s.qk_norm) around.push_back(passing(OperatorKind::norm, "qk_norm", q + kv, Cut::columns));
  const double copied = s.modalities > 1 ? q + 2 * kv : s.parallel ? q + s.ffn : 0;
  if (copied > 0) {
    around.push_back(passing(OperatorKind::elementwise, "concat", copied, Cut::columns));
    around.back().depth = 2;
  }
  unit.operators.insert(core, around.begin(), around.end());
  if (s.linear) make_linear(unit, q, kv);
  finish_unit(unit);
}

/// A convolution of the map, channel by channel, between the products of a feed-forward block (Xie
/// et al., SANA, arXiv 2410.10629, section 2.2): weights beside those of the products.
void add_depthwise(Unit& unit, const TransformerShape& s) {
  const auto activation =
      std::ranges::find(unit.operators, OperatorKind::activation, &LayerOperator::kind);
  const double channels = (s.gated ? 2.0 : 1.0) * s.ffn;
  LayerOperator op = passing(OperatorKind::convolution, "depthwise", channels, Cut::columns);
  op.bias = channels * (1.0 * s.depthwise * s.depthwise + 1);
  unit.operators.insert(activation, std::move(op));
  finish_unit(unit);
}

/// Attention of a layer to text that an image is made after.
Unit text_unit(const TransformerShape& s) {
  LayerShape layer = layer_shape(s);
  layer.source_width = s.context_width;
  Unit unit = cross_attention_unit(layer, s.context_tokens, s.context_tokens / s.tokens);
  unit.mixes = false;
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
    need(shape.modulation_vectors >= 1, name, "modulation_vectors", shape.modulation_vectors,
         "at least 1");
  }
  need(shape.depthwise >= 0, name, "depthwise", shape.depthwise, "at least 0");
  need(shape.modalities >= 1, name, "modalities", shape.modalities, "at least 1");
  if (shape.context_tokens > 0) {
    need(shape.tokens > 0, name, "tokens", shape.tokens, "given beside context_tokens");
    need(shape.context_width >= 1, name, "context_width", shape.context_width, "at least 1");
  }
  LayerGroup group;
  group.name = std::move(name);
  group.kind = GroupKind::transformer;
  group.tokens = shape.tokens;
  group.repeat = shape.layers;
  if (shape.modulation > 0) group.units.push_back(modulation_unit(shape));
  std::vector<Unit> layer = layer_units(layer_shape(shape));
  if (shape.qk_norm || shape.modalities > 1 || shape.parallel || shape.linear) {
    add_around_attention(layer.front(), shape);
  }
  if (shape.depthwise > 0 && shape.experts == 0) add_depthwise(layer.back(), shape);
  for (Unit& unit : layer) {
    // A token meets the weights of its own kind: as many products, more parameters.
    unit.parameters_cut *= shape.modalities;
    unit.parameters_whole *= shape.modalities;
  }
  if (shape.context_tokens > 0) layer.insert(layer.begin() + 1, text_unit(shape));
  for (Unit& unit : layer) group.units.push_back(std::move(unit));
  if (shape.modulation > 0) group.units[1].starts = false;
  return group;
}

namespace {

/// Layers of an order that repeat: kinds of a period, and periods.
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
      const auto& units = model.kinds[model.layer_kind[i]].units;
      group.units.insert(group.units.end(), units.begin(), units.end());
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
