// Transformer decoders (dense and mixture-of-experts) described by a flat shape.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

enum class Position : std::uint8_t { rope, learned, alibi, none };

template <>
struct EnumNames<Position> {
  static constexpr std::string_view what = "position encoding";
  static constexpr std::array<std::string_view, 4> names{"rope", "learned", "alibi", "none"};
};

enum class Norm : std::uint8_t { rmsnorm, layernorm, layernorm_nobias, nonparametric };

template <>
struct EnumNames<Norm> {
  static constexpr std::string_view what = "norm";
  static constexpr std::array<std::string_view, 4> names{"rmsnorm", "layernorm", "layernorm_nobias",
                                                         "nonparametric"};
};

/// What the output of attention is multiplied by: nothing, one number per head, one per value, one
/// per value that comes with the queries of latent attention.
enum class OutputGate : std::uint8_t { none, heads, values, latents };

template <>
struct EnumNames<OutputGate> {
  static constexpr std::string_view what = "output gate";
  static constexpr std::array<std::string_view, 4> names{"none", "heads", "values", "latents"};
};

/// Learned vectors of a norm: its scale, and a bias.
constexpr int norm_vectors(Norm norm) {
  switch (norm) {
    case Norm::rmsnorm:
    case Norm::layernorm_nobias:
      return 1;
    case Norm::layernorm:
      return 2;
    case Norm::nonparametric:
      return 0;
  }
  return 0;
}

/// A decoder as model cards describe it. Zero or false where a feature is absent.
struct DecoderShape {
  int layers = 0, hidden = 0, vocab = 0;
  /// One letter per layer, repeated to the number of layers. Mixers: F full attention, W with its
  /// window, I over keys that an indexer of the layer selects, S over those of the layer before, C
  /// over selected and H over all compressed keys beside the window, R recurrent, P attention and
  /// recurrent side by side, p the same with its window, Z recurrent behind a block that layers
  /// share, X attention to a source alone, - none. Feed-forward blocks: D dense, d dense of the
  /// other width, E experts, - none. Empty: by `window` and `full_attention_every`, by
  /// `first_dense_layers` and `moe_every`.
  std::string mixers, feed_forwards;
  Position position = Position::rope;
  int positions = 0;  ///< rows of a learned position table
  bool tied_embeddings = false;
  int heads = 0, kv_heads = 0;
  int head_dim = 0, v_head_dim = 0;
  int q_lora_rank = 0, kv_lora_rank = 0, qk_rope_head_dim = 0;  ///< multi-head latent attention
  bool qkv_bias = false, out_bias = false, mlp_bias = false, head_bias = false;
  bool qk_norm = false, qk_norm_full = false, attention_sinks = false;
  int window = 0;                ///< sliding window, tokens
  int full_attention_every = 0;  ///< every n-th layer ignores the window
  /// Heads of layers with a window, where they differ; 0: as in the others.
  int window_heads = 0, window_kv_heads = 0, window_head_dim = 0, window_v_head_dim = 0;
  OutputGate attention_gate = OutputGate::none;
  /// Layers with experts choose projections of queries and of the output for every token too, from
  /// as many and as many of them; `heads` are those of a token.
  bool attention_experts = false;
  bool shared_values = false;  ///< without a window keys serve as values
  int index_heads = 0, index_dim = 0, index_topk = 0;
  int near_ratio = 0, far_ratio = 0;       ///< tokens of a compressed key: of layers C and H
  int output_groups = 0, output_rank = 0;  ///< low-rank output of compressed attention
  Recurrence recurrence = Recurrence::none;
  int scan_heads = 0, scan_groups = 0, scan_key_dim = 0, scan_value_dim = 0;
  int scan_chunk = 0, scan_rank = 0, conv_width = 0;
  bool scan_norm = false, scan_bias = false, conv_bias = false, scan_full_decay = false;
  int ffn = 0;         ///< width of one gate or up matrix
  int second_ffn = 0;  ///< of layers d
  bool gated = false;
  Norm norm = Norm::rmsnorm;
  int norms_per_layer = 2;
  bool parallel_block = false, embedding_norm = false;
  int experts = 0, experts_per_token = 0, shared_experts = 0;
  int expert_ffn = 0, shared_ffn = 0;
  bool router_bias = false, expert_bias = false, shared_expert_gate = false;
  bool clamped_activation = false;
  int expert_latent = 0, zero_experts = 0;
  int expert_groups = 0, groups_per_token = 0;
  int first_dense_layers = 0, moe_every = 1;
  int mtp_layers = 0;  ///< multi-token-prediction modules beside the main stack
  int residual_streams = 1;
  int stream_rank = 0;          ///< of the matrices that mix them; 0: in full
  int attention_residuals = 0;  ///< layers between snapshots of the stream that later ones read
  int layer_embedding = 0, layer_embedding_rows = 0;
  int ngram_rows = 0;  ///< of each of the tables that runs of tokens are looked up in
  int kv_shared_layers = 0, residual_rank = 0;
  /// One letter per layer: O with keys and values of its own, S with those of an earlier one.
  /// Empty: by `kv_shared_layers`.
  std::string kv_sources;
  int kv_shared_ffn = 0;  ///< dense width of the layers that use keys of earlier ones; 0: `ffn`
  /// Blocks of attention and feed-forward that layers Z use in turn, over the stream and the token
  /// embedding side by side, and the ranks of what every use adds to their projections.
  int shared_blocks = 0, shared_rank = 0, shared_attention_rank = 0;
  /// Layers from `loop_start` on that run `loop_passes` times with the same weights, and leave keys
  /// and values in each. `layers` and the patterns count what runs.
  int loop_start = 0, loop_layers = 0, loop_passes = 1;
  bool fused_mixers = false;    ///< layers P and p project both mixers back in one matrix
  int norm_rank = 0;            ///< of a gate on what attention and experts read
  int router_rank = 0;          ///< width of a router that is a block of its own; 0: one matrix
  bool ffn_receptance = false;  ///< a square matrix gates the output of a dense block (RWKV)
  bool bidirectional = false;   ///< tokens attend to those behind them too
  bool head_transform = false;  ///< a square matrix and a norm in front of the LM head
  /// An encoder, as wide as the decoder and with as many heads, whose output every layer attends to
  /// as well. It reads source tokens, or frames of `encoder_channels` values.
  int encoder_layers = 0;
  int encoder_positions = 0;  ///< of every source, with a table for them; 0: its own length
  int encoder_channels = 0, encoder_stride = 1;
  int encoder_vocab = 0;  ///< rows of a token embedding of its own; 0: that of the decoder
  /// Every n-th of its layers has the experts that those of the decoder have; 0: none has.
  int encoder_moe_every = 0;

  bool operator==(const DecoderShape&) const = default;
};

/// Layer groups, layer order and parameter counts of a decoder.
/// Throws MalformedQuestion for a shape no decoder can have, naming the field.
Model make_decoder(const DecoderShape& card);

template <>
struct RecordOf<DecoderShape> {
  static constexpr std::string_view name = "DecoderShape";
  using T = DecoderShape;
  static constexpr double kMany = 1e7;
  static constexpr FieldTable fields{
      field("layers", &T::layers, 1, 10'000, "transformer layers"),
      field("hidden", &T::hidden, 1, kMany, "width of the residual stream"),
      field("vocab", &T::vocab, 1, 1e8, "rows of the token embedding"),
      field("position", &T::position, "position encoding"),
      field("positions", &T::positions, 0, 1e8, "rows of a learned position table"),
      field("tied_embeddings", &T::tied_embeddings, "LM head shares the token embedding"),
      field("heads", &T::heads, 1, 1e6, "query heads"),
      field("kv_heads", &T::kv_heads, 0, 1e6, "key and value heads; 0 = heads"),
      field("head_dim", &T::head_dim, 0, 1e6, "query and key size; 0 = hidden / heads"),
      field("v_head_dim", &T::v_head_dim, 0, 1e6, "value size; 0 = head_dim"),
      field("q_lora_rank", &T::q_lora_rank, 0, 1e6, "latent query rank; 0 = full rank"),
      field("kv_lora_rank", &T::kv_lora_rank, 0, 1e6, "latent key-value rank; 0 = no latent"),
      field("qk_rope_head_dim", &T::qk_rope_head_dim, 0, 1e6, "rotary part of a latent head"),
      field("qkv_bias", &T::qkv_bias, "bias on query, key, value"),
      field("out_bias", &T::out_bias, "bias on the attention output"),
      field("mlp_bias", &T::mlp_bias, "bias in the dense feed-forward layer"),
      field("head_bias", &T::head_bias, "bias on the language-model head"),
      field("qk_norm", &T::qk_norm, "norm over each query and key head"),
      field("qk_norm_full", &T::qk_norm_full, "norm over whole query and key"),
      field("attention_sinks", &T::attention_sinks, "one learned logit per head"),
      field("window", &T::window, 0, 1e8, "sliding window, tokens; 0 = none"),
      field("full_attention_every", &T::full_attention_every, 0, 10'000,
            "every n-th layer ignores the window"),
      field(
          "mixers", &T::mixers,
          "mixer of every layer, a letter each: F full attention, W window, "
          "I selected keys, S selection of the layer before, C and H compressed keys, R recurrent, "
          "P attention beside recurrent, p the same with its window, "
          "Z recurrent behind a shared block, "
          "X attention to a source alone, - none"),
      field(
          "feed_forwards", &T::feed_forwards,
          "feed-forward block of every layer, a letter each: D dense, d dense of the other width, "
          "E experts, - none"),
      field("window_heads", &T::window_heads, 0, 1e6, "query heads of window layers; 0 = heads"),
      field("window_kv_heads", &T::window_kv_heads, 0, 1e6,
            "key and value heads of window layers; 0 = kv_heads"),
      field("window_head_dim", &T::window_head_dim, 0, 1e6,
            "query and key size of window layers; 0 = head_dim"),
      field("window_v_head_dim", &T::window_v_head_dim, 0, 1e6,
            "value size of window layers; 0 = v_head_dim"),
      field("attention_gate", &T::attention_gate, "gate on the output of attention"),
      field("attention_experts", &T::attention_experts,
            "experts project queries and the output of attention too"),
      field("shared_values", &T::shared_values, "keys serve as values in layers without a window"),
      field("index_heads", &T::index_heads, 0, 1e6, "heads of the indexer that selects keys"),
      field("index_dim", &T::index_dim, 0, 1e6, "size of an indexer's head"),
      field("index_topk", &T::index_topk, 0, 1e8, "keys of a query that are selected"),
      field("near_ratio", &T::near_ratio, 0, 1e6, "tokens of a compressed key, layers C"),
      field("far_ratio", &T::far_ratio, 0, 1e6, "tokens of a compressed key, layers H"),
      field("output_groups", &T::output_groups, 0, 1e6, "groups of a low-rank attention output"),
      field("output_rank", &T::output_rank, 0, 1e6, "rank of a group's attention output"),
      field("recurrence", &T::recurrence, "kind of the recurrent mixer"),
      field("scan_heads", &T::scan_heads, 0, 1e7, "heads of the recurrent mixer"),
      field("scan_groups", &T::scan_groups, 0, 1e7,
            "heads of its keys and queries; 0 = scan_heads"),
      field("scan_key_dim", &T::scan_key_dim, 0, 1e6, "size of its key or state"),
      field("scan_value_dim", &T::scan_value_dim, 0, 1e6, "values of its head"),
      field("scan_chunk", &T::scan_chunk, 0, 1e6, "tokens of a chunk; 0 = one by one"),
      field("scan_rank", &T::scan_rank, 0, 1e6, "rank of its gates or time steps; 0 = full"),
      field("conv_width", &T::conv_width, 0, 1000, "tokens of its short convolution"),
      field("scan_norm", &T::scan_norm, "norm inside the recurrent mixer"),
      field("scan_bias", &T::scan_bias, "biases of its projections"),
      field("conv_bias", &T::conv_bias, "bias of its convolution"),
      field("scan_full_decay", &T::scan_full_decay, "full-rank decay of channels"),
      field("ffn", &T::ffn, 0, kMany, "width of one gate or up matrix"),
      field("second_ffn", &T::second_ffn, 0, kMany, "width of one gate or up matrix of layers d"),
      field("gated", &T::gated, "three matrices instead of two"),
      field("norm", &T::norm, "norm"),
      field("norms_per_layer", &T::norms_per_layer, 0, 8, "norms of a layer"),
      field("parallel_block", &T::parallel_block, "attention and MLP read the same norm"),
      field("embedding_norm", &T::embedding_norm, "norm after the token embedding"),
      field("experts", &T::experts, 0, 1e5, "routed experts; 0 = dense"),
      field("experts_per_token", &T::experts_per_token, 0, 1e5, "routed experts of a token"),
      field("shared_experts", &T::shared_experts, 0, 1e4, "experts every token visits"),
      field("expert_ffn", &T::expert_ffn, 0, kMany, "width of a routed expert; 0 = ffn"),
      field("shared_ffn", &T::shared_ffn, 0, kMany, "width of a shared expert; 0 = expert_ffn"),
      field("router_bias", &T::router_bias, "one number per expert"),
      field("expert_bias", &T::expert_bias, "biases inside experts"),
      field("clamped_activation", &T::clamped_activation,
            "what a feed-forward activation reads is clamped first"),
      field("shared_expert_gate", &T::shared_expert_gate, "gate on the shared expert"),
      field("expert_latent", &T::expert_latent, 0, kMany,
            "width that routed experts read and write; 0 = hidden"),
      field("zero_experts", &T::zero_experts, 0, 1e5,
            "experts that pass tokens on, among those a router chooses from"),
      field("expert_groups", &T::expert_groups, 0, 1e5,
            "groups that routed experts are divided into; 0 = none"),
      field("groups_per_token", &T::groups_per_token, 0, 1e5,
            "groups in which all experts of a token lie"),
      field("first_dense_layers", &T::first_dense_layers, 0, 10'000, "leading dense layers"),
      field("moe_every", &T::moe_every, 1, 10'000, "every n-th layer has experts"),
      field("mtp_layers", &T::mtp_layers, 0, 100, "multi-token-prediction modules"),
      field("residual_streams", &T::residual_streams, 1, 64, "residual streams that blocks mix"),
      field("stream_rank", &T::stream_rank, 0, 1e6,
            "rank of what mixes residual streams; 0 = full"),
      field("attention_residuals", &T::attention_residuals, 0, 10'000,
            "layers between snapshots of the stream that later layers mix in; 0 = none"),
      field("layer_embedding", &T::layer_embedding, 0, 1e6,
            "values of a token that every layer looks up; 0 = none"),
      field("layer_embedding_rows", &T::layer_embedding_rows, 0, 1e8, "rows of that table"),
      field("ngram_rows", &T::ngram_rows, 0, 1e9,
            "rows of each of the tables that runs of tokens are looked up in; 0 = there are none"),
      field("kv_shared_layers", &T::kv_shared_layers, 0, 10'000,
            "last layers that use keys and values of earlier ones"),
      field("kv_sources", &T::kv_sources,
            "a letter per layer: O its own keys and values, S those of an earlier layer"),
      field("residual_rank", &T::residual_rank, 0, 1e6, "rank of a learned residual; 0 = none"),
      field("kv_shared_ffn", &T::kv_shared_ffn, 0, kMany,
            "dense width of the layers that use keys of earlier ones; 0 = ffn"),
      field("shared_blocks", &T::shared_blocks, 0, 1000,
            "blocks of attention and feed-forward that layers Z use in turn"),
      field("shared_rank", &T::shared_rank, 0, 1e6,
            "rank that every use adds to their feed-forward; 0 = nothing"),
      field("shared_attention_rank", &T::shared_attention_rank, 0, 1e6,
            "rank that every use adds to their queries, keys and values; 0 = nothing"),
      field("loop_start", &T::loop_start, 0, 10'000, "first of the layers that run several times"),
      field("loop_layers", &T::loop_layers, 0, 10'000,
            "layers that run several times with the same weights; 0 = none"),
      field("loop_passes", &T::loop_passes, 1, 1000, "times that they run"),
      field("fused_mixers", &T::fused_mixers,
            "attention and a recurrent mixer beside it share the matrix behind them"),
      field("norm_rank", &T::norm_rank, 0, 1e6,
            "rank of a gate on what attention and experts read; 0 = none"),
      field("router_rank", &T::router_rank, 0, 1e6,
            "width of a router of several matrices; 0 = one matrix"),
      field("ffn_receptance", &T::ffn_receptance,
            "a square matrix gates the output of a dense block"),
      field("bidirectional", &T::bidirectional, "tokens attend to those behind them too"),
      field("head_transform", &T::head_transform,
            "a square matrix and a norm in front of the LM head"),
      field("encoder_layers", &T::encoder_layers, 0, 10'000,
            "layers of an encoder that every layer attends to; 0 = none"),
      field("encoder_positions", &T::encoder_positions, 0, 1e8,
            "positions of every source; 0 = its own length"),
      field("encoder_channels", &T::encoder_channels, 0, 1e6,
            "values of a frame that an encoder reads; 0 = source tokens"),
      field("encoder_stride", &T::encoder_stride, 1, 1000, "frames of an encoder's position"),
      field("encoder_vocab", &T::encoder_vocab, 0, 1e8,
            "rows of a token embedding of the encoder's own; 0 = the decoder's"),
      field("encoder_moe_every", &T::encoder_moe_every, 0, 10'000,
            "every n-th layer of an encoder has experts, as those of the decoder; 0 = none")};
};

}  // namespace scalemodel
