// What a layer is made of: operators, and the units that are gathered, reduced and recomputed
// together. Training of decoders, layer groups and serving price these lists; parameters, FLOPs and
// saved values are sums over them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/scan.hpp"

namespace scalemodel {

struct AttentionShape {
  int heads = 0, kv_heads = 0;
  int head_dim = 0, v_head_dim = 0;
  int q_lora_rank = 0, kv_lora_rank = 0, rope_head_dim = 0;
  int window = 0;
  bool rotary = false;
  int selected = 0;  ///< keys of a query that an indexer chooses; 0: all
  int ratio = 1;     ///< tokens that share one compressed key
  /// Low-rank queries, compressed attention: a low-rank output in groups of heads.
  int output_groups = 0, output_rank = 0;
  bool shared_values = false;  ///< keys serve as values
  bool reuses_keys = false;    ///< keys and values are those of an earlier layer
  bool of_source = false;      ///< and there are no others than those of a source
  /// The indexer of a layer that has one of its own.
  int index_heads = 0, index_dim = 0;

  bool present() const { return heads > 0; }
  bool latent() const { return kv_lora_rank > 0; }
  /// Keys of a window and such as stand for many tokens (DeepSeek-V4).
  bool compressed() const { return output_groups > 0; }
  /// Keys that are chosen one by one are read as latents, by all heads.
  bool reads_latents() const { return latent() && selected > 0; }
  /// Tokens of a sequence that are attended to, or cached, where only some software knows windows;
  /// 0: all of them.
  int window_where(bool known) const { return known ? window : 0; }
  /// Tokens that a query attends to at most: those that are selected, or those of the window.
  double attended_where(bool known) const {
    return selected > 0 ? 1.0 * selected * ratio : window_where(known);
  }
  /// Values of one token that the KV cache of one of `tp` ranks keeps.
  double cached_values(double tp) const;
  bool operator==(const AttentionShape&) const = default;
};

enum class OperatorKind : std::uint8_t {
  gemm,           ///< matrix multiplication, with a weight unless it is `weightless`
  attention,      ///< scores, softmax and weighted values
  convolution,    ///< short and causal, over `columns` channels, `depth` tokens wide
  scan,           ///< the state of a recurrent mixer, from chunk to chunk
  norm,           ///< over `columns` values; `copies` of them in a block
  latent_norm,    ///< both norms of latent attention, over `columns` values in all
  head_norm,      ///< norms of queries and keys, over `columns` values in all
  residual,       ///< addition of a branch of `columns` values
  activation,     ///< over `columns` values; gated ones read twice as many
  rotary,         ///< position rotation of `columns` values
  elementwise,    ///< `columns` values read and written `depth` times in all, each way
  stream_mixing,  ///< of `copies` residual streams, `columns` values of them all
  loss            ///< over `columns` logits
};

template <>
struct EnumNames<OperatorKind> {
  static constexpr std::string_view what = "kind of operator";
  static constexpr std::array<std::string_view, 13> names{
      "gemm",        "attention",     "convolution", "scan",       "norm",
      "latent_norm", "head_norm",     "residual",    "activation", "rotary",
      "elementwise", "stream_mixing", "loss"};
};

/// How tensor-parallel ranks shard an operator: every rank does all of it, a part of the columns,
/// or a part of the depth (partial sums).
enum class Cut : std::uint8_t { none, columns, depth };

/// One of the matrices that lie side by side in a GEMM: queries, keys and values, gate and up.
struct ColumnPart {
  double columns = 0;
  int kv_heads =
      0;  ///< keys or values: tensor ranks beyond their number hold a copy of a head each
};

/// Values of one token that attention of one rank works on. Of `ratio` tokens one has keys and
/// values; where keys serve as values there are no others.
struct AttentionValues {
  double queries = 0, keys = 0, values = 0, outputs = 0;
};

/// One kernel of a layer for one token.
struct LayerOperator {
  OperatorKind kind = OperatorKind::gemm;
  std::string_view name;
  double columns = 0, depth = 0;
  Cut cut = Cut::none;
  double rows = 1;    ///< per token of the group; a class head has 1/tokens
  double copies = 1;  ///< independent GEMMs of this shape; norms of a block; residual streams
  /// Of a convolution as a GEMM: places of its kernel. The depth holds the channels that often, the
  /// input once.
  double taps = 1;
  bool gated = false;    ///< activation: of a gate and an up projection
  bool clamped = false;  ///< activation: of values that are clamped first
  bool adapts = false;   ///< attention projections: low-rank adapters sit here by default
  /// GEMM of two activations: two GEMMs back, none for weights. Norm of heads without a scale: a
  /// kernel of its own.
  bool weightless = false;
  bool wide = false;      ///< GEMM in the storage precision, whatever that of the others is
  bool routes = false;    ///< scores of the experts: of the token itself, in the storage precision
  bool of_token = false;  ///< in a block of experts: of the token itself, not of its copies
  /// Reads what the first GEMM of its unit reads: an engine multiplies both at once.
  bool shares_input = false;
  bool reads_attention = false;  ///< the output of attention, which attention itself saves
  /// Engines multiply it into queries and attention outputs, head by head, instead of keys and
  /// values: the KV cache stores latents.
  bool absorbed = false;
  std::vector<ColumnPart> parts;  ///< empty: one matrix
  double bias = 0;                ///< parameters beside the weight
  /// Share of its parameters that are its own: below 1 where layers use the same ones in turn,
  /// above it where tokens choose among that many parts.
  double owned = 1;
  bool vocabulary = false;  ///< columns are words, which a stack may pad
  AttentionShape attention;
  /// Attention to further keys, in the softmax of the attention before it: the same queries, one
  /// output.
  bool continues = false;
  /// Of attention to another sequence: its keys, `rows` for each token of the group; 0: its own.
  double other_keys = 0;
  /// Of the tokens of another sequence, once for all that attend to them.
  bool of_source = false;
  /// Ranks that share a sequence exchange no keys but those of the window before their own tokens.
  bool halo = false;
  bool causal = true;
  RecurrentShape recurrence;  ///< of a scan

  /// A gate beside the projection up, which stacks compute in one GEMM or in two.
  bool is_gate_and_up() const { return kind == OperatorKind::gemm && parts.size() == 2; }
  bool has_weight() const { return kind == OperatorKind::gemm && !weightless; }
  double weights() const { return has_weight() ? columns * depth : 0; }
  double parameters() const { return owned * (weights() + bias); }
  /// Whether its output has a bias; what stands beside the weight may be scales of norms alone.
  bool biased() const { return has_weight() && bias >= columns; }
  /// The input of a GEMM is saved for its weight gradient, unless another operator saves it.
  bool keeps_input() const { return !shares_input && !reads_attention; }
  /// Columns of one part on one of `tp` ranks.
  double local_columns(const ColumnPart& part, double tp) const;
  /// Columns on one of `tp` ranks.
  double local_columns(double tp) const;
  double local_depth(double tp) const { return cut == Cut::depth ? depth / tp : depth; }
  /// Parameters on one of `tp` ranks.
  double local_parameters(double tp) const;
  /// Of attention: what the kernel of one of `tp` ranks works on, without its sequences and
  /// lengths.
  AttentionWork attention_work(double tp) const;
  /// Of attention: values of a token on one of `tp` ranks.
  AttentionValues attention_values(double tp) const;
  /// Of attention: keys and values of a token that it saves itself, not an earlier layer.
  double saved_keys(double tp) const;
  /// Of attention: the share of its keys and values that ranks with `own_tokens` of a sequence each
  /// exchange.
  double exchanged_share(double own_tokens) const;
  /// Flop of the forward pass over a sequence of `tokens` that no parameter stands for: of
  /// attention, and of GEMMs of two activations.
  Flop activation_flop(double tokens) const;
};

/// What is gathered, reduced and recomputed together: an attention block, a feed-forward block, a
/// layer of an MLP. Counts are of one token, parameters of the whole.
struct Unit {
  std::string_view name;
  std::vector<LayerOperator> operators;
  double parameters_cut = 0;        ///< sharded over tensor-parallel ranks; of each expert
  double parameters_whole = 0;      ///< on every one of them: norms, biases of sums
  int width_in = 0, width_out = 0;  ///< values of a token, of each of `streams` residual streams
  int streams = 1;
  int expert_width = 0;  ///< of them, those that routed experts read and write
  bool starts = true;    ///< a layer: its input is what full recomputation saves
  bool opens = true;     ///< tensor ranks read the whole input: its gradient is a sum over them
  bool closes = true;    ///< tensor ranks hold partial sums of the output
  bool gathers = false;  ///< tensor ranks hold columns of an output that must be whole
  bool mixes = false;    ///< tokens with each other: attention, a recurrent mixer
  /// The block of the residual stream is this unit's; false: it runs beside the unit before it.
  bool reads_stream = true;
  /// Values saved for the backward pass, of each copy: sharded over tensor-parallel ranks; whole,
  /// of the rank's shard of the sequence; whole, of all tokens.
  double saved_cut = 0, saved_whole = 0, saved_repeated = 0;
  double saved_token = 0;  ///< the same of a token, however many experts it meets
  int experts = 0, experts_per_token = 0;
  int cut_limit = 0;   ///< tensor parallelism divides this width; 0: anything
  int head_limit = 0;  ///< and this number of heads

  bool routed() const { return experts > 0; }
  /// Operators of the copies of a token that its experts receive: their GEMMs and activations.
  bool on_copies(const LayerOperator& op) const {
    const bool computes = op.kind == OperatorKind::gemm || op.kind == OperatorKind::activation;
    return routed() && computes && !op.routes && !op.of_token;
  }
};

/// Parameters and saved values of a unit, as sums over its operators.
void count_parameters(Unit& unit);
/// Values saved for the backward pass: inputs of GEMMs, norms, activations and attention.
void count_saved(Unit& unit);

}  // namespace scalemodel
