// A model as layer groups: layers that share shape and sharding, and the order they stand in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "scalemodel/model/operators.hpp"

namespace scalemodel {

inline constexpr std::size_t kMaxLayerKinds = 4;  ///< different layers of one model

struct FeedForwardShape {
  int width = 0;  ///< dense: one gate or up matrix; experts: of one routed expert
  bool gated = false;
  int experts = 0;  ///< 0: dense
  int experts_per_token = 0;
  int shared_width = 0;  ///< all shared experts together
  int latent = 0;        ///< width that routed experts read and write; 0: that of the stream
  int zero_experts = 0;  ///< that pass tokens on as they are, beside `experts`
  int groups = 0;        ///< of experts, of which a token visits `groups_per_token`; 0: any expert
  int groups_per_token = 0;

  bool present() const { return width > 0; }
  bool routed() const { return experts > 0; }
  int matrices() const { return gated ? 3 : 2; }
  /// Values of a token that go to its experts and come back.
  int expert_width(int hidden) const { return latent > 0 ? latent : hidden; }
  bool operator==(const FeedForwardShape&) const = default;
};

/// One kind of transformer layer.
struct LayerKind {
  AttentionShape attention;   ///< no heads: the layer has none
  RecurrentShape recurrence;  ///< of a layer that has one
  FeedForwardShape feed_forward;
  std::vector<Unit> units;
  double owned = 1;  ///< share of its parameters that are its own (see LayerShape)
  // Sums over the operators of the units.
  double attention_parameters = 0;  ///< projections, their biases and norms
  double dense_parameters = 0;      ///< feed-forward outside routed experts: MLP, shared, router
  double norm_parameters = 0;       ///< of the residual stream
  double expert_parameters = 0;     ///< all routed experts
  /// Parts that tokens choose from and that all ranks hold alike: all of them, those of a token.
  double choice_parameters = 0, chosen_parameters = 0;

  double parameters() const {
    return attention_parameters + dense_parameters + norm_parameters + expert_parameters +
           choice_parameters;
  }
  /// Parameters that one token meets.
  double active_parameters() const {
    const double share =
        feed_forward.routed()
            ? static_cast<double>(feed_forward.experts_per_token) / feed_forward.experts
            : 0;
    return parameters() - expert_parameters + share * expert_parameters - choice_parameters +
           chosen_parameters;
  }
};

/// A GEMM of a vision tower outside its layers.
struct VisionProduct {
  std::string_view name;
  double columns = 0, depth = 0;
  double copies = 1;        ///< of this shape, one after the other
  bool of_patches = false;  ///< rows for each patch; otherwise for each token of the decoder
  double rows = 1;          ///< that many
};

/// What makes tokens of the decoder from images, or what its layers attend to from a source: on the
/// stage of the token embedding.
struct VisionTower {
  int layers = 0;                     ///< 0: there is none
  int window = 0, window_layers = 0;  ///< patches that attend to each other in some layers
  int hidden = 0, heads = 0;
  int patch = 0, merge = 1;  ///< pixels along a patch, patches along a token of the decoder
  int image_patches = 0;     ///< of every image; 0: by its size
  LayerKind block;
  std::vector<VisionProduct> products;
  double other_parameters = 0;  ///< outside the layers

  bool present() const { return layers > 0; }
  double parameters() const;
  /// Patches of an image of that many pixels.
  double patches(int height, int width) const;
  double tokens(int height, int width) const { return patches(height, width) / (merge * merge); }
  Flop forward_flop(double patches) const;  ///< of one image
};

/// What is said of a model without anything that makes what its layers attend to.
inline constexpr const char* kNoSource =
    "mixers: layers X attend to a source; the model must have an encoder or a vision tower";

struct Model {
  int hidden = 0, vocab = 0;
  int streams = 1;  ///< residual streams of `hidden` values
  bool tied_embeddings = false;
  std::vector<LayerKind> kinds;
  std::vector<std::uint8_t> layer_kind;  ///< kind of each layer, in order
  double embedding_parameters = 0;       ///< token and position tables, embedding norm
  double head_parameters = 0;            ///< without the final norm; 0 extra when tied
  double final_norm_parameters = 0;
  int mtp_layers = 0;                    ///< each repeats a kind plus head and embedding use
  std::uint8_t mtp_kind = 0;             ///< that kind
  double mtp_projection_parameters = 0;  ///< of one module: concatenated inputs to hidden
  VisionTower vision;
  VisionTower encoder;  ///< of sources that every layer attends to, a patch for each position

  int layers() const { return static_cast<int>(layer_kind.size()); }
  /// Some of the layers have experts.
  bool routed() const {
    return std::ranges::any_of(kinds,
                               [](const LayerKind& kind) { return kind.feed_forward.routed(); });
  }
  /// What encodes before the decoder runs, if anything does.
  const VisionTower& tower() const { return encoder.present() ? encoder : vision; }
  /// Some of its layers attend to a source.
  bool reads_source() const;
  /// What it attends to are images, each a source.
  bool reads_images_apart() const { return encoder.present() && encoder.patch > 1; }
  /// Its tokens see none behind them and it ends in words: what it answers comes token by token.
  bool generates() const;
  /// Published convention: main stack and vision tower, multi-token-prediction modules left out.
  double parameters() const;
  /// Of the decoder.
  double active_parameters() const;
};

}  // namespace scalemodel
