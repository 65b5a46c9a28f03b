#include "scalemodel/model/encoder.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {

namespace {

/// Layers with experts in turn with dense ones count as one kind between both: a token passes as
/// many products in each, and every tensor rank holds its share of all experts (Fedus et al., arXiv
/// 2101.03961: one expert a token, as wide as the dense block).
void set_experts(LayerShape& layer, const DecoderShape& shape) {
  if (shape.encoder_moe_every == 0 || shape.experts == 0) return;
  const double layers = shape.encoder_layers;
  const double routed = std::floor(layers / shape.encoder_moe_every) / layers;
  const double dense = (1 - routed) * shape.ffn, expert = routed * shape.expert_ffn;
  const double width = dense + shape.experts_per_token * expert;
  layer.feed_forward.width = std::max(1, static_cast<int>(std::lround(width)));
  layer.feed_forward_parts =
      std::max(1.0, (dense + shape.experts * expert) / layer.feed_forward.width);
  layer.feed_forward_scores = routed * shape.experts;
}

}  // namespace

VisionTower make_encoder(const DecoderShape& shape) {
  constexpr double kFrames = 3;  // that a convolution reads at once
  LayerShape layer = layer_shape(shape, 'F', 'D', false);
  layer.causal = false;
  layer.source_width = 0;
  layer.norms = std::max(2, shape.norms_per_layer);
  set_experts(layer, shape);
  VisionTower tower;
  tower.layers = shape.encoder_layers;
  tower.hidden = shape.hidden;
  tower.heads = shape.heads;
  tower.patch = 1;
  tower.image_patches = shape.encoder_positions;
  tower.block = layer_kind(layer);
  const double h = shape.hidden, vectors = norm_vectors(shape.norm);
  double& others = tower.other_parameters;
  others = (shape.encoder_positions + shape.encoder_vocab) * h + vectors * h;
  if (shape.encoder_channels > 0) {
    const double stride = shape.encoder_stride, frame = kFrames * shape.encoder_channels;
    tower.products.push_back({"frames", h, frame, stride, true});
    tower.products.push_back({"positions", h, kFrames * h, 1, true});
    others += h * frame + h + kFrames * h * h + h;
  }
  return tower;
}

}  // namespace scalemodel
