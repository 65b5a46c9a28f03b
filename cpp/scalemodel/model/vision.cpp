#include "scalemodel/model/vision.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "scalemodel/base/error.hpp"
#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {
namespace {

void need(bool holds, const char* field, int value, const std::string& legal) {
  if (!holds) {
    throw MalformedQuestion("vision." + std::string(field) + "=" + std::to_string(value) + ": " +
                            legal);
  }
}

LayerShape layer_shape(const VisionShape& shape) {
  LayerShape layer;
  layer.hidden = shape.hidden;
  AttentionShape& a = layer.attention;
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
  a.head_dim = a.v_head_dim = shape.head_dim > 0 ? shape.head_dim : shape.hidden / shape.heads;
  a.rotary = shape.rotary;
  layer.feed_forward = {shape.ffn, shape.gated};
  layer.norms = shape.norms_per_layer;
  layer.norm_vectors = norm_vectors(shape.norm);
  layer.causal = false;
  layer.qkv_bias = shape.qkv_bias;
  layer.out_bias = shape.out_bias;
  layer.mlp_bias = shape.mlp_bias;
  layer.qk_norm = shape.qk_norm;
  return layer;
}

}  // namespace

double VisionTower::patches(int height, int width) const {
  if (image_patches > 0) return image_patches;
  // Images are scaled to whole tokens (transformers, smart_resize of the Qwen2-VL processor).
  const double side = static_cast<double>(patch) * merge;
  const auto along = [&](int pixels) { return std::max(1.0, std::round(pixels / side)) * merge; };
  return along(height) * along(width);
}

double VisionTower::parameters() const { return other_parameters + layers * block.parameters(); }

Flop VisionTower::forward_flop(double patches) const {
  const double weights = block.active_parameters() - block.norm_parameters;
  const auto attention = [&](double length) {
    Flop sum;
    for (const Unit& unit : block.units) {
      for (const LayerOperator& op : unit.operators) sum += op.activation_flop(length);
    }
    return sum;
  };
  Flop flop{layers * 2 * patches * weights};
  flop += (layers - window_layers) * attention(patches);
  if (window_layers > 0) flop += window_layers * (patches / window) * attention(window);
  for (const VisionProduct& product : products) {
    const double rows = product.rows * (product.of_patches ? patches : patches / (merge * merge));
    flop += Flop{2 * rows * product.copies * product.columns * product.depth};
  }
  return flop;
}

VisionTower make_vision_tower(const VisionShape& shape, int hidden) {
  need(shape.layers >= 1, "layers", shape.layers, "must be at least 1");
  need(shape.hidden >= 1, "hidden", shape.hidden, "must be at least 1");
  need(shape.heads >= 1, "heads", shape.heads, "must be at least 1");
  need(shape.head_dim > 0 || shape.hidden >= shape.heads, "heads", shape.heads,
       "must be at most hidden=" + std::to_string(shape.hidden));
  need(shape.kv_heads == 0 || shape.heads % shape.kv_heads == 0, "kv_heads", shape.kv_heads,
       "must divide heads=" + std::to_string(shape.heads));
  need(shape.ffn >= 1, "ffn", shape.ffn, "must be at least 1");
  need(shape.patch >= 1, "patch", shape.patch, "must be at least 1");
  need(shape.full_layers <= shape.layers, "full_layers", shape.full_layers,
       "must not exceed layers=" + std::to_string(shape.layers));
  need(shape.projector_second == 0 || shape.projector_inner > 0, "projector_inner",
       shape.projector_inner, "must be at least 1 with projector_second");
  const int per_token = shape.merge * shape.merge;
  need(shape.image_patches % per_token == 0, "image_patches", shape.image_patches,
       "must be a multiple of merge^2=" + std::to_string(per_token));
  VisionTower tower;
  tower.layers = shape.layers;
  tower.window = shape.window;
  tower.window_layers = shape.window > 0 ? shape.layers - shape.full_layers : 0;
  tower.hidden = shape.hidden;
  tower.heads = shape.heads;
  tower.patch = shape.patch;
  tower.merge = shape.merge;
  tower.image_patches = shape.image_patches;
  tower.block = layer_kind(layer_shape(shape));

  const double h = shape.hidden, vectors = norm_vectors(shape.norm);
  double& others = tower.other_parameters;
  others = shape.positions * h + (shape.patch_bias ? h : 0);
  if (shape.entry_norm) others += vectors * h;
  if (shape.final_norm) others += vectors * h;
  others += shape.projector_norm * h;
  if (shape.layer_scale) others += 2 * h * shape.layers;
  const double pixels = 1.0 * shape.channels * shape.temporal_patch * shape.patch * shape.patch;
  tower.products.push_back({"patch_embedding", h, pixels, 1, true});
  double patch_width = h * shape.feature_layers;
  for (int matrix = 0; shape.patch_projector > 0 && matrix < 2; ++matrix) {
    tower.products.push_back({"projector", 1.0 * shape.patch_projector, patch_width, 1, true});
    if (shape.projector_bias) others += shape.patch_projector;
    patch_width = shape.patch_projector;
  }
  // Every convolution makes one place of four, twice as wide.
  constexpr double kPlaces = 9;
  double places = std::pow(4.0, shape.downsamplings);
  for (int map = 0; map < shape.downsamplings; ++map) {
    places /= 4;
    VisionProduct product{"downsampling", 2 * patch_width, kPlaces * patch_width};
    product.rows = places;
    tower.products.push_back(product);
    others += 2 * patch_width;
    patch_width *= 2;
  }
  const bool laid = !shape.pooled && shape.downsamplings == 0;
  const double merged = laid ? patch_width * per_token : patch_width;
  double depth = merged;
  const std::array<int, 3> widths{shape.projector_inner, shape.projector_second, hidden};
  for (const int& width : widths) {
    if (width == 0) continue;
    const bool closes = &width == &widths.back();
    if (closes && shape.projector_gated > 0) {  // gate and up, then back to the stream
      const double gated = shape.projector_gated;
      tower.products.push_back({"projector", gated, depth, 2.0 * (1.0 + shape.deepstack), false});
      depth = gated;
    }
    tower.products.push_back({"projector", 1.0 * width, depth, 1.0 + shape.deepstack, false});
    if (shape.projector_bias) others += (1.0 + shape.deepstack) * width;
    depth = width;
  }
  // Those of inner layers have a norm of their own, over all patches of a token.
  others += shape.deepstack * vectors * merged;
  for (const VisionProduct& product : tower.products) {
    others += product.copies * product.columns * product.depth;
  }
  return tower;
}

Model with_vision(Model model, const VisionShape& shape) {
  const bool apart = model.reads_source() && !model.encoder.present();
  (apart ? model.encoder : model.vision) = make_vision_tower(shape, model.hidden);
  return model;
}

}  // namespace scalemodel
