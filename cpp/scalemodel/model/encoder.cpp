#include "scalemodel/model/encoder.hpp"

#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {

VisionTower make_encoder(const DecoderShape& shape) {
  constexpr double kFrames = 3;  // that a convolution reads at once
  LayerShape layer = layer_shape(shape, 'F', 'D', false);
  layer.causal = false;
  layer.source_width = 0;
  layer.norms = 2;
  VisionTower tower;
  tower.layers = shape.encoder_layers;
  tower.hidden = shape.hidden;
  tower.heads = shape.heads;
  tower.patch = 1;
  tower.image_patches = shape.encoder_positions;
  tower.block = layer_kind(layer);
  const double h = shape.hidden, vectors = norm_vectors(shape.norm);
  double& others = tower.other_parameters;
  others = shape.encoder_positions * h + vectors * h;
  if (shape.encoder_channels > 0) {
    const double stride = shape.encoder_stride, frame = kFrames * shape.encoder_channels;
    tower.products.push_back({"frames", h, frame, stride, true});
    tower.products.push_back({"positions", h, kFrames * h, 1, true});
    others += h * frame + h + kFrames * h * h + h;
  }
  return tower;
}

}  // namespace scalemodel
