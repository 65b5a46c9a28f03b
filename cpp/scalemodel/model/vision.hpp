// Vision towers of models that read images: a transformer over patches, and the projector that
// makes tokens of the decoder from them.
#pragma once

#include <string_view>
#include <tuple>

#include "scalemodel/base/record.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// A vision tower as configurations describe it. Zero or false where a feature is absent.
struct VisionShape {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool gated = false;
  Norm norm = Norm::layernorm;
  int norms_per_layer = 2;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false, rotary = false;
  int channels = 3, patch = 0, temporal_patch = 1;
  bool patch_bias = false;
  int positions = 0;  ///< rows of learned position tables
  bool entry_norm = false, final_norm = false;
  bool layer_scale = false;  ///< a learned scale of every value that a block adds
  int window = 0;            ///< patches that attend to each other
  int full_layers = 0;       ///< layers that ignore the window
  int merge = 1;             ///< patches along one side of a token of the decoder
  bool pooled = false;       ///< they are averaged; otherwise laid side by side
  int image_patches = 0;
  /// Layers whose outputs stand side by side in front of the projector: the last, and inner ones.
  int feature_layers = 1;
  int patch_projector = 0;  ///< width of two matrices that every patch passes before it is merged
  int projector_inner = 0, projector_second = 0;
  bool projector_bias = false;
  int projector_gated = 0;  ///< width of a gated block in the place of its last matrix
  int projector_norm = 0;   ///< learned vectors of the norm in front of it
  int downsamplings = 0;    ///< 3 x 3 convolutions that halve the sides and double the width
  int deepstack = 0;        ///< further projectors, whose tokens are added to those of early layers

  bool operator==(const VisionShape&) const = default;
};

/// Layers, products and parameter counts of a tower whose tokens are `hidden` wide in the decoder.
/// Throws MalformedQuestion for a shape no tower can have, naming the field.
VisionTower make_vision_tower(const VisionShape& shape, int hidden);

/// A decoder with a tower: its tokens are among those of the sequence, or the source that layers
/// attend to.
Model with_vision(Model model, const VisionShape& shape);

template <>
struct RecordOf<VisionShape> {
  static constexpr std::string_view name = "VisionShape";
  using T = VisionShape;
  static constexpr double kMany = 1e7;
  static constexpr FieldTable fields{
      field("layers", &T::layers, 1, 10'000, "transformer layers"),
      field("hidden", &T::hidden, 1, kMany, "width of a patch"),
      field("heads", &T::heads, 1, 1e6, "attention heads"),
      field("kv_heads", &T::kv_heads, 0, 1e6, "heads of keys and values; 0 = heads"),
      field("head_dim", &T::head_dim, 0, 1e6, "size of a head; 0 = hidden / heads"),
      field("ffn", &T::ffn, 1, kMany, "width of one gate or up matrix"),
      field("gated", &T::gated, "three matrices instead of two"),
      field("norm", &T::norm, "norm"),
      field("norms_per_layer", &T::norms_per_layer, 0, 8, "norms of a layer"),
      field("qkv_bias", &T::qkv_bias, "bias on query, key, value"),
      field("out_bias", &T::out_bias, "bias on the attention output"),
      field("mlp_bias", &T::mlp_bias, "bias in the feed-forward layer"),
      field("qk_norm", &T::qk_norm, "norm over each query and key head"),
      field("rotary", &T::rotary, "rotary positions"),
      field("channels", &T::channels, 1, 1e5, "colours of a pixel; values of a frame of sound"),
      field("patch", &T::patch, 1, 10'000, "pixels along one side of a patch"),
      field("temporal_patch", &T::temporal_patch, 1, 1000,
            "frames of a patch; a still image is repeated"),
      field("patch_bias", &T::patch_bias, "bias of the patch embedding"),
      field("positions", &T::positions, 0, 1e8, "rows of learned position tables"),
      field("entry_norm", &T::entry_norm, "norm behind the patch embedding"),
      field("final_norm", &T::final_norm, "norm behind the last layer"),
      field("layer_scale", &T::layer_scale, "a learned scale of what every block adds"),
      field("window", &T::window, 0, 1e8, "patches that attend to each other; 0 = all"),
      field("full_layers", &T::full_layers, 0, 10'000, "layers that ignore the window"),
      field("merge", &T::merge, 1, 1000, "patches along one side of a token of the decoder"),
      field("pooled", &T::pooled, "patches of a token are averaged, not laid side by side"),
      field("image_patches", &T::image_patches, 0, 1e8,
            "patches of every image; 0 = by its size in pixels"),
      field("feature_layers", &T::feature_layers, 1, 1000,
            "layers whose outputs stand side by side in front of the projector"),
      field("patch_projector", &T::patch_projector, 0, kMany,
            "width of two matrices on every patch before patches are merged; 0 = there are none"),
      field("projector_inner", &T::projector_inner, 0, kMany,
            "width behind the projector's first matrix, if it has two; 0 = it has one"),
      field("projector_second", &T::projector_second, 0, kMany,
            "width behind its second matrix, if it has three"),
      field("projector_gated", &T::projector_gated, 0, kMany,
            "width of one gate or up matrix of a block in the place of its last matrix; 0 = none"),
      field("projector_bias", &T::projector_bias, "biases in the projector"),
      field("projector_norm", &T::projector_norm, 0, 2,
            "learned vectors of the norm in front of the projector; 0 = none"),
      field("downsamplings", &T::downsamplings, 0, 8,
            "3 x 3 convolutions that halve the sides of a map and double its width, before the "
            "projector"),
      field("deepstack", &T::deepstack, 0, 1000,
            "further projectors, whose tokens early layers of the decoder add")};
};

}  // namespace scalemodel
