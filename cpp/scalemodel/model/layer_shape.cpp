// The shape of one layer by the letters of its mixer and feed-forward block.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {
namespace {

/// Attention of a layer by the letter of its mixer.
AttentionShape attention_shape(const DecoderShape& s, char mixer) {
  AttentionShape a{s.heads,
                   s.kv_heads,
                   s.head_dim,
                   s.v_head_dim,
                   s.q_lora_rank,
                   s.kv_lora_rank,
                   s.qk_rope_head_dim,
                   0,
                   s.position == Position::rope};
  a.output_groups = s.output_groups;
  a.output_rank = s.output_rank;
  const bool compressed = s.output_groups > 0;
  a.shared_values = s.shared_values && (compressed || mixer != 'W');
  if (mixer == 'W' || mixer == 'p') {
    a.window = s.window;
    if (s.window_heads > 0) a.heads = s.window_heads;
    if (s.window_kv_heads > 0) a.kv_heads = s.window_kv_heads;
    if (s.window_head_dim > 0) a.head_dim = a.v_head_dim = s.window_head_dim;
    if (s.window_v_head_dim > 0) a.v_head_dim = s.window_v_head_dim;
  }
  if (mixer == 'I' || mixer == 'S' || mixer == 'C') a.selected = s.index_topk;
  if (mixer == 'I' || mixer == 'C') {
    a.index_heads = s.index_heads;
    a.index_dim = s.index_dim;
  }
  if (mixer == 'X') {
    a.of_source = true;
    a.rotary = false;
  }
  if (mixer == 'C' || mixer == 'H') {
    a.window = s.window;
    a.ratio = mixer == 'C' ? s.near_ratio : s.far_ratio;
  }
  return a;
}

RecurrentShape recurrent_shape(const DecoderShape& s) {
  RecurrentShape shape;
  shape.kind = s.recurrence;
  shape.heads = s.scan_heads;
  shape.groups = s.scan_groups > 0 ? s.scan_groups : s.scan_heads;
  shape.key_dim = s.scan_key_dim;
  shape.value_dim = s.scan_value_dim;
  shape.conv_width = s.conv_width;
  shape.chunk = s.scan_chunk;
  shape.rank = s.scan_rank;
  return shape;
}

/// Snapshots that a layer finds, on average over the layers: the token embedding, and one more of
/// every `attention_residuals` layers before it.
double mean_snapshots(const DecoderShape& s) {
  if (s.attention_residuals == 0) return 0;
  double sum = 0;
  for (int layer = 0; layer < s.layers; ++layer) {
    const int further = layer / s.attention_residuals;
    sum += 1 + further;
  }
  return sum / s.layers;
}

/// Layers that use a block of those they share.
double shared_uses(const DecoderShape& s) {
  const auto size = static_cast<int>(s.mixers.size());
  int uses = 0;
  for (int layer = 0; layer < s.layers; ++layer) {
    if (s.mixers[static_cast<std::size_t>(layer % size)] == 'Z') ++uses;
  }
  return std::max(1, uses);
}

/// The experts that a token meets and that compute something: of experts alike, the share of those.
int computing_experts(const DecoderShape& s) {
  const double all = static_cast<double>(s.experts) + s.zero_experts;
  return std::max(1, static_cast<int>(std::lround(1.0 * s.experts_per_token * s.experts / all)));
}

}  // namespace

LayerShape layer_shape(const DecoderShape& s, char mixer, char feed_forward, bool reuses_keys) {
  LayerShape layer;
  layer.hidden = s.hidden;
  if (mixer != '-' && mixer != 'R') {
    layer.attention = attention_shape(s, mixer);
    layer.attention.reuses_keys = reuses_keys;
  }
  if (mixer == 'R' || mixer == 'P' || mixer == 'p' || mixer == 'Z') {
    layer.recurrence = recurrent_shape(s);
  }
  layer.fused_output = s.fused_mixers && (mixer == 'P' || mixer == 'p');
  if (mixer == 'Z') {
    layer.shared_owned = std::min(1.0, 1.0 * s.shared_blocks / shared_uses(s));
    layer.shared_rank = s.shared_rank;
    layer.shared_attention_rank = s.shared_attention_rank;
  }
  layer.causal = !s.bidirectional;
  layer.norms = s.norms_per_layer;
  layer.norm_vectors = norm_vectors(s.norm);
  layer.qkv_bias = s.qkv_bias;
  layer.out_bias = s.out_bias;
  layer.qk_norm = s.qk_norm;
  layer.qk_norm_full = s.qk_norm_full;
  layer.attention_sinks = s.attention_sinks;
  layer.mlp_bias = s.mlp_bias;
  layer.expert_bias = s.expert_bias;
  layer.clamped_activation = s.clamped_activation;
  layer.router_bias = s.router_bias;
  layer.shared_expert_gate = s.shared_expert_gate;
  layer.attention_gate = s.attention_gate;
  layer.norm_rank = s.norm_rank;
  layer.router_rank = s.router_rank;
  layer.receptance = s.ffn_receptance;
  layer.scan_norm = s.scan_norm;
  layer.scan_bias = s.scan_bias;
  layer.conv_bias = s.conv_bias;
  layer.scan_full_decay = s.scan_full_decay;
  layer.streams = s.residual_streams;
  layer.stream_rank = s.stream_rank;
  layer.snapshots = mean_snapshots(s);
  layer.layer_embedding = s.layer_embedding;
  layer.residual_rank = s.residual_rank;
  layer.source_width = s.encoder_layers > 0 || mixer == 'X' ? s.hidden : 0;
  FeedForwardShape& ff = layer.feed_forward;
  ff.gated = s.gated;
  if (feed_forward == '-') return layer;
  const bool routed = feed_forward == 'E';
  const int usual = feed_forward == 'd' ? s.second_ffn : s.ffn;
  const int dense = reuses_keys && s.kv_shared_ffn > 0 ? s.kv_shared_ffn : usual;
  ff.width = routed ? s.expert_ffn : dense;
  if (!routed) return layer;
  ff.experts = s.experts;
  ff.experts_per_token = computing_experts(s);
  ff.shared_width = s.shared_experts * s.shared_ffn;
  ff.latent = s.expert_latent;
  ff.zero_experts = s.zero_experts;
  ff.groups = s.expert_groups;
  ff.groups_per_token = s.groups_per_token;
  layer.attention_experts = s.attention_experts;
  return layer;
}

}  // namespace scalemodel
