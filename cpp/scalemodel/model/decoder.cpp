#include "scalemodel/model/decoder.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {
namespace {

[[noreturn]] void malformed(const char* field, int value, const std::string& legal) {
  throw MalformedQuestion(std::string(field) + "=" + std::to_string(value) + ": " + legal);
}

DecoderShape with_defaults(DecoderShape shape) {
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  if (shape.head_dim == 0 && shape.heads > 0) shape.head_dim = shape.hidden / shape.heads;
  if (shape.v_head_dim == 0) shape.v_head_dim = shape.head_dim;
  if (shape.expert_ffn == 0) shape.expert_ffn = shape.ffn;
  if (shape.shared_ffn == 0) shape.shared_ffn = shape.expert_ffn;
  return shape;
}

void check(const DecoderShape& shape) {
  if (shape.head_dim < 1) malformed("head_dim", shape.head_dim, "must be at least 1");
  if (shape.kv_heads > shape.heads || shape.heads % shape.kv_heads != 0) {
    malformed("kv_heads", shape.kv_heads, "must divide heads=" + std::to_string(shape.heads));
  }
  if (shape.experts > 0) {
    if (shape.experts_per_token < 1 || shape.experts_per_token > shape.experts) {
      malformed("experts_per_token", shape.experts_per_token,
                "must be from 1 to experts=" + std::to_string(shape.experts));
    }
    if (static_cast<double>(shape.shared_experts) * shape.shared_ffn > 1e9) {
      malformed("shared_experts", shape.shared_experts, "shared experts wider than 1e9 in all");
    }
    if (shape.expert_ffn < 1) malformed("expert_ffn", shape.expert_ffn, "must be at least 1");
    if (shape.first_dense_layers > shape.layers) {
      malformed("first_dense_layers", shape.first_dense_layers,
                "must not exceed layers=" + std::to_string(shape.layers));
    }
  }
  const bool has_dense_layer =
      shape.experts == 0 || shape.first_dense_layers > 0 || shape.moe_every > 1;
  if (has_dense_layer && shape.ffn < 1) malformed("ffn", shape.ffn, "must be at least 1");
  if (shape.position == Position::learned && shape.positions < 1) {
    malformed("positions", shape.positions, "a learned position table needs at least 1 row");
  }
  if (shape.kv_lora_rank > 0 && shape.qk_rope_head_dim >= shape.head_dim) {
    malformed("qk_rope_head_dim", shape.qk_rope_head_dim,
              "must be below head_dim=" + std::to_string(shape.head_dim));
  }
}

double norm_width(Norm norm, double width) { return norm_vectors(norm) * width; }

LayerKind make_kind(const LayerShape& layer) {
  LayerKind kind;
  kind.attention = layer.attention;
  kind.feed_forward = layer.feed_forward;
  kind.units = layer_units(layer);
  for (const Unit& unit : kind.units) {
    const bool attends = &unit == &kind.units.front();
    for (const LayerOperator& op : unit.operators) {
      if (op.kind == OperatorKind::norm) {
        kind.norm_parameters += op.parameters();
      } else if (attends) {
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

bool is_of(const LayerKind& kind, const LayerShape& layer) {
  return kind.attention == layer.attention && kind.feed_forward == layer.feed_forward;
}

}  // namespace

double Model::parameters() const {
  double count = embedding_parameters + head_parameters + final_norm_parameters;
  for (const std::uint8_t kind : layer_kind) count += kinds[kind].parameters();
  return count;
}

double Model::active_parameters() const {
  double count = embedding_parameters + head_parameters + final_norm_parameters;
  for (const std::uint8_t kind : layer_kind) count += kinds[kind].active_parameters();
  return count;
}

Model make_decoder(const DecoderShape& card) {
  const DecoderShape shape = with_defaults(card);
  check(shape);
  Model model;
  model.hidden = shape.hidden;
  model.vocab = shape.vocab;
  model.tied_embeddings = shape.tied_embeddings;
  const double h = shape.hidden, vocab = shape.vocab;
  model.embedding_parameters = vocab * h;
  if (shape.position == Position::learned) model.embedding_parameters += shape.positions * h;
  if (shape.embedding_norm) model.embedding_parameters += norm_width(shape.norm, h);
  model.head_parameters = (shape.tied_embeddings ? 0 : vocab * h) + (shape.head_bias ? vocab : 0);
  model.final_norm_parameters = norm_width(shape.norm, h);
  model.mtp_layers = shape.mtp_layers;
  model.mtp_projection_parameters = 2 * h * h + 3 * norm_width(shape.norm, h);
  model.layer_kind.reserve(static_cast<std::size_t>(shape.layers));
  for (int layer = 0; layer < shape.layers; ++layer) {
    const bool routed = shape.experts > 0 && layer >= shape.first_dense_layers &&
                        (layer + 1) % shape.moe_every == 0;
    const bool full =
        shape.full_attention_every > 0 && (layer + 1) % shape.full_attention_every == 0;
    const LayerShape listed = layer_shape(shape, routed, full);
    const auto found =
        std::ranges::find_if(model.kinds, [&](const LayerKind& k) { return is_of(k, listed); });
    model.layer_kind.push_back(static_cast<std::uint8_t>(found - model.kinds.begin()));
    if (found == model.kinds.end()) model.kinds.push_back(make_kind(listed));
  }
  return model;
}

}  // namespace scalemodel
