// The transformer layer, described once: the operators of attention and feed-forward blocks.
// A new kind of attention or of experts is a list of operators here.
#pragma once

#include <string_view>
#include <vector>

#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/model/operators.hpp"

namespace scalemodel {

/// A transformer layer, with what only its parameters tell.
struct LayerShape {
  int hidden = 0;
  AttentionShape attention;   ///< no heads: none
  RecurrentShape recurrence;  ///< a mixer in the place of attention, or beside it
  FeedForwardShape feed_forward;
  int norms = 2;         ///< over the residual stream
  int norm_vectors = 1;  ///< learned vectors of a norm: its scale, and a bias
  bool causal = true;
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false, qk_norm_full = false;  ///< over each head, over all of them
  bool attention_sinks = false;                ///< one learned logit per head
  bool mlp_bias = false, shared_bias = false, expert_bias = false, router_bias = false;
  bool shared_expert_gate = false, clamped_activation = false;
  /// Of a block without experts of its own: how many times its weights it has for tokens to choose
  /// from, and what a router scores for each; on average over layers that differ.
  double feed_forward_parts = 1, feed_forward_scores = 0;
  OutputGate attention_gate = OutputGate::none;
  bool attention_experts = false;  ///< project queries and the output too
  /// Attention leaves its output to the projection of the recurrent mixer beside it.
  bool fused_output = false;
  int norm_rank = 0;        ///< of a gate on what attention and experts read
  int router_rank = 0;      ///< of a router of several matrices
  bool receptance = false;  ///< a square matrix gates the output of a dense block
  /// Share of its parameters that are its own: below 1 where several passes use the same.
  double owned = 1;
  bool scan_norm = false, scan_bias = false, conv_bias = false, scan_full_decay = false;
  int streams = 1;          ///< residual streams that a block mixes
  int stream_rank = 0;      ///< of the matrices that do; 0: in full
  double snapshots = 0;     ///< of the stream that a block mixes in, on average
  int layer_embedding = 0;  ///< values of a token that the layer looks up
  int residual_rank = 0;    ///< of a learned residual
  int source_width = 0;     ///< of another sequence that the layer attends to; 0: none
  /// Share of the block in front of the mixer that is this layer's: as many layers use it in turn;
  /// 0: there is none.
  double shared_owned = 0;
  int shared_rank = 0, shared_attention_rank = 0;  ///< that each use adds
};

/// A layer of a decoder by the letters of its mixer and its feed-forward block (see DecoderShape).
/// `reuses_keys`: those of an earlier layer.
LayerShape layer_shape(const DecoderShape& s, char mixer, char feed_forward, bool reuses_keys);

/// Whether streams are mixed by matrices of m (m + 2) rows over all of them (arXiv 2512.24880),
/// which add a block's output too: a residual addition of its own there is none.
bool mixes_streams(const LayerShape& layer);

/// Adds what a router in front of a block scores, for every token, from `depth` values.
void add_scores(Unit& unit, double experts, double depth, bool biased);

/// Adds the addition of what a block wrote to the residual stream.
void add_residual_sum(Unit& unit, const LayerShape& layer);

/// Adds a projection of a mixer, where low-rank adapters sit by default.
LayerOperator& project(Unit& unit, std::string_view name, double columns, double depth, Cut cut);

/// Adds a projection that every tensor rank has whole.
LayerOperator& add_whole(Unit& unit, std::string_view name, double columns, double depth);

/// A block that reads the residual stream: its norms come first.
Unit begun_block(std::string_view name, const LayerShape& layer, int norms);

/// Sums up parameters and saved values.
void finish_unit(Unit& unit);

Unit attention_unit(const LayerShape& layer);

/// Attention of a layer to the tokens of another sequence, `source_width` wide: text that an image
/// is made after, the output of an encoder. `tokens` of it, `rows` for each of the layer's own;
/// both 0 where their numbers are those of a request.
Unit cross_attention_unit(const LayerShape& layer, double tokens, double rows);

/// A dense block; or the shared experts, if any, and then the routed ones.
std::vector<Unit> feed_forward_units(const LayerShape& layer);

/// All units of a layer, in the order they run.
std::vector<Unit> layer_units(const LayerShape& layer);

/// A layer with its units and what their parameters sum up to.
LayerKind layer_kind(const LayerShape& layer);

}  // namespace scalemodel
