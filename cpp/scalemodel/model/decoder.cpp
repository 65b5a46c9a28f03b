#include "scalemodel/model/decoder.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/model/encoder.hpp"
#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {
namespace {

[[noreturn]] void malformed(const char* field, int value, const std::string& legal) {
  throw MalformedQuestion(std::string(field) + "=" + std::to_string(value) + ": " + legal);
}

constexpr std::string_view kMixers = "FWISCHRPpZX-", kFeedForwards = "DdE-";

[[noreturn]] void malformed_pattern(const char* field, const std::string& pattern,
                                    const std::string& legal) {
  constexpr std::size_t kShown = 40;
  const std::string shown = pattern.size() > kShown ? pattern.substr(0, kShown) + "..." : pattern;
  throw MalformedQuestion(std::string(field) + "='" + shown + "': " + legal);
}

/// Letters of every layer: those of the pattern, over and over.
void check_pattern(const char* field, const std::string& pattern, std::string_view letters,
                   int layers) {
  if (pattern.size() > static_cast<std::size_t>(layers)) {
    malformed_pattern(field, pattern,
                      std::to_string(pattern.size()) +
                          " letters, must be at most one of layers=" + std::to_string(layers));
  }
  if (pattern.find_first_not_of(letters) != std::string::npos) {
    malformed_pattern(field, pattern, "must be letters of " + std::string(letters));
  }
}

bool has(const std::string& pattern, std::string_view letters) {
  return pattern.find_first_of(letters) != std::string::npos;
}

char letter(const std::string& pattern, int layer) {
  return pattern[static_cast<std::size_t>(layer) % pattern.size()];
}

char mixer_of(const DecoderShape& shape, int layer) {
  if (!shape.mixers.empty()) return letter(shape.mixers, layer);
  const bool full = shape.full_attention_every > 0 && (layer + 1) % shape.full_attention_every == 0;
  return full ? 'F' : 'W';
}

char feed_forward_of(const DecoderShape& shape, int layer) {
  if (!shape.feed_forwards.empty()) return letter(shape.feed_forwards, layer);
  const bool routed =
      shape.experts > 0 && layer >= shape.first_dense_layers && (layer + 1) % shape.moe_every == 0;
  return routed ? 'E' : 'D';
}

/// What the letters of the patterns ask for is described.
void check_patterns(const DecoderShape& shape) {
  check_pattern("mixers", shape.mixers, kMixers, shape.layers);
  check_pattern("feed_forwards", shape.feed_forwards, kFeedForwards, shape.layers);
  const auto need = [](bool asked, const char* field, int value, const char* by) {
    if (asked && value < 1) malformed(field, value, std::string("must be at least 1 for ") + by);
  };
  check_pattern("kv_sources", shape.kv_sources, "OS", shape.layers);
  const bool scans = has(shape.mixers, "RPpZ"), indexes = has(shape.mixers, "ISC");
  if (scans && shape.recurrence == Recurrence::none) {
    throw MalformedQuestion("recurrence=none: must be a kind for mixers R, P, p and Z");
  }
  need(scans, "scan_heads", shape.scan_heads, "mixers R, P, p and Z");
  need(scans, "scan_value_dim", shape.scan_value_dim, "mixers R, P, p and Z");
  need(scans && shape.recurrence != Recurrence::convolution, "scan_key_dim", shape.scan_key_dim,
       "mixers R, P, p and Z");
  if (scans && shape.scan_groups > 0 && shape.scan_heads % shape.scan_groups != 0) {
    malformed("scan_groups", shape.scan_groups,
              "must divide scan_heads=" + std::to_string(shape.scan_heads));
  }
  need(indexes, "index_topk", shape.index_topk, "mixers I, S and C");
  need(indexes, "index_heads", shape.index_heads, "mixers I, S and C");
  need(indexes, "index_dim", shape.index_dim, "mixers I, S and C");
  need(has(shape.mixers, "C"), "near_ratio", shape.near_ratio, "mixers C");
  need(has(shape.mixers, "H"), "far_ratio", shape.far_ratio, "mixers H");
  need(has(shape.mixers, "Z"), "shared_blocks", shape.shared_blocks, "mixers Z");
  need(shape.output_groups > 0, "output_rank", shape.output_rank, "output_groups");
  need(shape.attention_experts, "experts", shape.experts, "attention_experts");
  need(shape.encoder_moe_every > 0, "experts", shape.experts, "encoder_moe_every");
  if (shape.attention_experts && shape.heads % shape.experts_per_token != 0) {
    malformed("heads", shape.heads,
              "must be a multiple of experts_per_token=" + std::to_string(shape.experts_per_token) +
                  " with attention_experts");
  }
  need(has(shape.feed_forwards, "E"), "experts", shape.experts, "feed_forwards E");
  need(has(shape.feed_forwards, "d"), "second_ffn", shape.second_ffn, "feed_forwards d");
  need(shape.attention_gate == OutputGate::latents, "q_lora_rank",
       std::min(shape.q_lora_rank, shape.kv_lora_rank), "attention_gate=latents");
  const long long looped = 1LL * shape.loop_layers * shape.loop_passes;
  if (shape.loop_start + looped > shape.layers) {
    malformed("loop_layers", shape.loop_layers,
              "all passes must be among layers=" + std::to_string(shape.layers));
  }
  const int window_heads = shape.window_heads > 0 ? shape.window_heads : shape.heads;
  const int window_kv = shape.window_kv_heads > 0 ? shape.window_kv_heads : shape.kv_heads;
  if (window_heads % window_kv != 0) {
    malformed("window_kv_heads", window_kv,
              "must divide the heads of window layers, " + std::to_string(window_heads));
  }
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
    if (shape.expert_groups > shape.experts) {
      malformed("expert_groups", shape.expert_groups,
                "must not exceed experts=" + std::to_string(shape.experts));
    }
    const bool grouped = shape.expert_groups > 0;
    if (shape.groups_per_token > shape.expert_groups || (grouped && shape.groups_per_token < 1)) {
      malformed("groups_per_token", shape.groups_per_token,
                grouped ? "must be from 1 to expert_groups=" + std::to_string(shape.expert_groups)
                        : "must be 0 where expert_groups is 0");
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
      shape.feed_forwards.empty()
          ? shape.experts == 0 || shape.first_dense_layers > 0 || shape.moe_every > 1
          : has(shape.feed_forwards, "D");
  if (has_dense_layer && shape.ffn < 1) malformed("ffn", shape.ffn, "must be at least 1");
  check_patterns(shape);
  if (shape.position == Position::learned && shape.positions < 1) {
    malformed("positions", shape.positions, "a learned position table needs at least 1 row");
  }
  if (shape.kv_shared_layers >= shape.layers) {
    malformed("kv_shared_layers", shape.kv_shared_layers,
              "must be below layers=" + std::to_string(shape.layers));
  }
  if (shape.kv_lora_rank > 0 && shape.qk_rope_head_dim >= shape.head_dim) {
    malformed("qk_rope_head_dim", shape.qk_rope_head_dim,
              "must be below head_dim=" + std::to_string(shape.head_dim));
  }
  if (shape.kv_lora_rank > 0 && shape.window_head_dim > 0 &&
      shape.qk_rope_head_dim >= shape.window_head_dim) {
    malformed("qk_rope_head_dim", shape.qk_rope_head_dim,
              "must be below window_head_dim=" + std::to_string(shape.window_head_dim));
  }
}

double norm_width(Norm norm, double width) { return norm_vectors(norm) * width; }

bool is_of(const LayerKind& kind, const LayerShape& layer) {
  return kind.attention == layer.attention && kind.recurrence == layer.recurrence &&
         kind.feed_forward == layer.feed_forward && kind.owned == layer.owned;
}

/// Position of a kind of layer, which is added if there is none like it. Throws where an
/// evaluation has no room for one more.
std::uint8_t kind_of(Model& model, const LayerShape& listed) {
  const auto found =
      std::ranges::find_if(model.kinds, [&](const LayerKind& k) { return is_of(k, listed); });
  const auto at = static_cast<std::uint8_t>(found - model.kinds.begin());
  if (found != model.kinds.end()) return at;
  if (model.kinds.size() == kMaxLayerKinds) {
    throw MalformedQuestion("mixers: layers of more than " + std::to_string(kMaxLayerKinds) +
                            " kinds; must be at most that many different ones");
  }
  model.kinds.push_back(layer_kind(listed));
  return at;
}

bool reuses_keys(const DecoderShape& shape, int layer) {
  if (!shape.kv_sources.empty()) return letter(shape.kv_sources, layer) == 'S';
  return layer >= shape.layers - shape.kv_shared_layers;
}

/// Whether a layer runs in one of several passes.
bool looped(const DecoderShape& shape, int layer) {
  const int end = shape.loop_start + shape.loop_layers * shape.loop_passes;
  return layer >= shape.loop_start && layer < end;
}

/// The block of a multi-token-prediction module: like the last layer; of models whose layers hold a
/// mixer or a feed-forward block alone, attention and experts.
std::uint8_t mtp_kind(Model& model, const DecoderShape& shape) {
  const LayerKind& last = model.kinds[model.layer_kind.back()];
  const bool whole =
      (last.attention.present() || last.recurrence.present()) && last.feed_forward.present();
  if (shape.mtp_layers == 0 || whole) return model.layer_kind.back();
  const char feed_forward = shape.experts > 0 ? 'E' : 'D';
  return kind_of(model, layer_shape(shape, 'F', feed_forward, false));
}

/// Tables beside the token embedding: values of a token that layers look up, with what brings the
/// token's own values to their width, and streams of the stream (Gemma 3n).
double layer_embedding_parameters(const DecoderShape& shape) {
  if (shape.layer_embedding == 0) return 0;
  const double h = shape.hidden, looked_up = 1.0 * shape.layers * shape.layer_embedding;
  const double rows = shape.layer_embedding_rows > 0 ? shape.layer_embedding_rows : shape.vocab;
  return (rows + h) * looked_up + 2.0 * (shape.residual_streams - 1) * h * h;
}

/// Tables beside the token embedding for runs of tokens: as wide as the stream together, each with
/// a projection to its width (meituan-longcat/LongCat-Flash-Lite, its NgramEmbedding).
double ngram_parameters(const DecoderShape& shape) {
  if (shape.ngram_rows == 0) return 0;
  const double h = shape.hidden;
  return (shape.ngram_rows + h) * h;
}

}  // namespace

bool Model::reads_source() const {
  return std::ranges::any_of(kinds, [](const LayerKind& kind) {
    return std::ranges::any_of(kind.units, [](const Unit& unit) {
      return std::ranges::any_of(unit.operators,
                                 [](const LayerOperator& op) { return op.of_source; });
    });
  });
}

bool Model::generates() const {
  if (vocab < 2) return false;
  const auto sees_all = [](const LayerOperator& op) {
    return op.kind == OperatorKind::attention && !op.causal && !op.of_source;
  };
  return std::ranges::none_of(kinds, [&](const LayerKind& kind) {
    return std::ranges::any_of(kind.units, [&](const Unit& unit) {
      return std::ranges::any_of(unit.operators, sees_all);
    });
  });
}

double Model::parameters() const {
  double count = embedding_parameters + head_parameters + final_norm_parameters;
  for (const std::uint8_t kind : layer_kind) count += kinds[kind].parameters();
  if (vision.present()) count += vision.parameters();
  if (encoder.present()) count += encoder.parameters();
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
  model.streams = shape.residual_streams;
  const double h = shape.hidden, vocab = shape.vocab;
  model.embedding_parameters = vocab * h + layer_embedding_parameters(shape);
  model.embedding_parameters += ngram_parameters(shape);
  if (shape.position == Position::learned) model.embedding_parameters += shape.positions * h;
  if (shape.embedding_norm) model.embedding_parameters += norm_width(shape.norm, h);
  model.head_parameters = (shape.tied_embeddings ? 0 : vocab * h) + (shape.head_bias ? vocab : 0);
  if (shape.head_transform) model.head_parameters += h * h + h + norm_width(shape.norm, h);
  model.final_norm_parameters = norm_width(shape.norm, h);
  if (shape.stream_rank > 0) {  // mixes the streams once more behind the last layer
    model.final_norm_parameters = shape.residual_streams * h * (1 + 2.0 * shape.stream_rank);
  }
  model.mtp_layers = shape.mtp_layers;
  model.mtp_projection_parameters = 2 * h * h + 3 * norm_width(shape.norm, h);
  model.layer_kind.reserve(static_cast<std::size_t>(shape.layers));
  for (int layer = 0; layer < shape.layers; ++layer) {
    LayerShape listed = layer_shape(shape, mixer_of(shape, layer), feed_forward_of(shape, layer),
                                    reuses_keys(shape, layer));
    if (looped(shape, layer)) listed.owned = 1.0 / shape.loop_passes;
    model.layer_kind.push_back(kind_of(model, listed));
  }
  model.mtp_kind = mtp_kind(model, shape);
  if (shape.encoder_layers > 0) model.encoder = make_encoder(shape);
  return model;
}

}  // namespace scalemodel
