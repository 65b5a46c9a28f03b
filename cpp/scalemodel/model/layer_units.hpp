// The transformer layer, described once: the operators of attention and feed-forward blocks.
// A new kind of attention or of experts is a list of operators here.
#pragma once

#include <vector>

#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/model/operators.hpp"

namespace scalemodel {

/// A transformer layer, with what only its parameters tell.
struct LayerShape {
  int hidden = 0;
  AttentionShape attention;
  FeedForwardShape feed_forward;
  int norms = 2;         ///< over the residual stream
  int norm_vectors = 1;  ///< learned vectors of a norm: its scale, and a bias
  bool causal = true;
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false, qk_norm_full = false;  ///< over each head, over all of them
  bool attention_sinks = false;                ///< one learned logit per head
  bool mlp_bias = false, shared_bias = false, expert_bias = false, router_bias = false;
  bool shared_expert_gate = false;
};

/// A layer of a decoder: with routed experts or dense, with its sliding window or without.
LayerShape layer_shape(const DecoderShape& card, bool routed, bool full_attention);

Unit attention_unit(const LayerShape& layer);

/// A dense block; or the shared experts, if any, and then the routed ones.
std::vector<Unit> feed_forward_units(const LayerShape& layer);

/// All units of a layer, in the order they run.
std::vector<Unit> layer_units(const LayerShape& layer);

}  // namespace scalemodel
