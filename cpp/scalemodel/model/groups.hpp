// A model as an ordered list of layer groups: recommendation models, vision and diffusion
// transformers, decoders and mixtures of them are built from the same few operators.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

enum class GroupKind : std::uint8_t {
  embedding_tables,
  token_embedding,
  patch_embedding,
  mlp,
  interaction,
  transformer,
  convolution,
  head
};

template <>
struct EnumNames<GroupKind> {
  static constexpr std::string_view what = "kind of layer group";
  static constexpr std::array<std::string_view, 8> names{
      "embedding_tables", "token_embedding", "patch_embedding", "mlp",
      "interaction",      "transformer",     "convolution",     "head"};
};

/// Tables of one shape.
struct TableClass {
  double count = 1, rows = 0, pooling = 1;
};

enum class SparseOptimizer : std::uint8_t { rowwise_adagrad, sgd, adagrad, adam };

template <>
struct EnumNames<SparseOptimizer> {
  static constexpr std::string_view what = "sparse optimizer";
  static constexpr std::array<std::string_view, 4> names{"rowwise_adagrad", "sgd", "adagrad",
                                                         "adam"};
};

/// Bytes of optimizer state of one row of `dim` values.
constexpr double row_state_bytes(SparseOptimizer optimizer, double dim) {
  switch (optimizer) {
    case SparseOptimizer::rowwise_adagrad:
      return 4;
    case SparseOptimizer::sgd:
      return 0;
    case SparseOptimizer::adagrad:
      return 4 * dim;
    case SparseOptimizer::adam:
      return 8 * dim;
  }
  return 0;
}

/// Embedding tables whose rows are pooled sample by sample.
struct TableSet {
  std::vector<TableClass> classes;
  int dim = 0;
  double value_bytes = 4;
  double output_bytes = 4;  ///< of a pooled value as it travels; its gradient likewise
  SparseOptimizer optimizer = SparseOptimizer::rowwise_adagrad;

  double tables() const;
  double parameters() const;
  /// Rows looked up for one sample, over all tables.
  double lookups() const;
};

/// Layers that share shape and sharding: a period of units, repeated.
struct LayerGroup {
  std::string name;
  GroupKind kind = GroupKind::mlp;
  double tokens = 1;  ///< per sample; 0: the sequence of the task
  int repeat = 1;
  std::vector<Unit> units;
  TableSet tables;
  std::vector<int> waits_for;  ///< groups whose output it reads
  int slot = 0;                ///< of the strategy
  int expert_slot = -1;        ///< of its routed experts
  bool trained = true;
  double frozen_bytes = 0;  ///< of a frozen weight; 0: as stored when trained

  double parameters() const;
  double active_parameters() const;
  /// GEMMs and attention of one sample, forward; causal attention counted once.
  Flop forward_flop(double sequence) const;
  int width_out() const;
};

/// A slot of a strategy: layers that are sharded alike.
struct Slot {
  std::string name;
  GroupKind kind = GroupKind::mlp;
  bool experts = false;
};

inline constexpr std::size_t kMaxSlots = 12;
inline constexpr std::size_t kMaxGroups = 16;
inline constexpr std::size_t kMaxUnits = 64;  ///< of a period

struct ComposedModel {
  std::vector<LayerGroup> groups;
  std::vector<Slot> slots;
  double tokens_per_sample = 1;  ///< of the widest group; 0: the sequence of the task

  double parameters() const;
  double active_parameters() const;
};

/// Puts groups together: slots by group name (several groups may share one), experts beside them.
/// `names` of the slots; throws MalformedQuestion for a model that cannot be scheduled.
ComposedModel compose(std::vector<LayerGroup> groups, const std::vector<std::string>& slots);

// ------------------------------------------------------------------------------------ builders
LayerGroup embedding_tables(std::string name, TableSet tables);

/// Layers widths[0] x widths[1], widths[1] x widths[2]..., tensor-parallel in pairs: columns, then
/// depth. `experts` of each layer after the first `dense_layers`.
struct MlpShape {
  std::vector<int> widths;
  int repeat = 1;
  bool bias = false;
  int experts = 0, experts_per_token = 0;
};
LayerGroup mlp(std::string name, const MlpShape& shape);

enum class Interaction : std::uint8_t { dot, cross, concat };

template <>
struct EnumNames<Interaction> {
  static constexpr std::string_view what = "interaction";
  static constexpr std::array<std::string_view, 3> names{"dot", "cross", "concat"};
};

/// How features meet: `dot`, all pairs of `features` vectors of `dim`; `cross`, layers of DCN-v2
/// x' = x0 (U V x + b) + x on the concatenation with a low rank; `concat`, side by side.
struct InteractionShape {
  Interaction kind = Interaction::dot;
  int features = 0, dim = 0;
  int layers = 1, rank = 0;  ///< of cross; rank 0: full
};
LayerGroup interaction(std::string name, const InteractionShape& shape);

/// A stack of transformer layers; also the blocks of vision and diffusion transformers.
struct TransformerShape {
  int layers = 1, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int v_head_dim = 0;  ///< 0: head_dim
  /// Latent attention: ranks of queries (0: full) and of keys with values (0: none), rotary part of
  /// `head_dim`.
  int q_lora_rank = 0, kv_lora_rank = 0, rope_head_dim = 0;
  int ffn = 0;
  bool gated = false, causal = true, rotary = false, bias = false;
  bool norms = true;
  int norms_per_layer = 2;
  int experts = 0, experts_per_token = 0, shared_ffn = 0;
  int modulation = 0;  ///< width of the condition of adaptive norms, once per sample; 0: none
  int modulation_vectors = 6;  ///< that a layer makes of the condition, over its modalities
  /// Text and image tokens attend to each other; each kind has weights of its own.
  int modalities = 1;
  bool qk_norm = false;   ///< of queries and keys, head by head
  bool parallel = false;  ///< attention and feed-forward side by side, their outputs in one product
  /// Linear attention: keys and values are summed up to a square of the head size, which queries
  /// read (Katharopoulos et al., arXiv 2006.16236).
  bool linear = false;
  int depthwise = 0;  ///< width of a convolution, channel by channel, in the feed-forward block
  /// Attention to another sequence after the layer's own: its tokens, and their width; 0: none.
  double context_tokens = 0;
  int context_width = 0;
  int window = 0;
  double tokens = 0;  ///< per sample; 0: the sequence of the task
};
LayerGroup transformer(std::string name, const TransformerShape& shape);

/// Layers of a convolutional network over one map: a level of a U-Net, its way down and its way up.
struct ConvolutionShape {
  /// Residual blocks, channels in and out: norm, 3 x 3 convolution, norm, 3 x 3 convolution, and a
  /// 1 x 1 convolution beside them where the channels change.
  std::vector<std::array<int, 2>> blocks;
  /// Convolutions alone: channels in and out, and the width of the kernel.
  std::vector<std::array<int, 3>> convolutions;
  int condition = 0;  ///< width of what every block adds once per sample; 0: nothing
  double tokens = 0;  ///< places of the map, of every frame
  int frames = 1;     ///< of a video that kernels reach over, but those beside a block
};
LayerGroup convolution(std::string name, const ConvolutionShape& shape);

LayerGroup token_embedding(std::string name, int vocab, int hidden, int positions, double tokens);
/// Patches of `patch_values` values to `hidden`, with learned positions.
LayerGroup patch_embedding(std::string name, int patch_values, int hidden, double tokens);
/// Classes or vocabulary on `rows` of the group's tokens, with final norm and loss.
struct HeadShape {
  int hidden = 0, outputs = 0;
  bool tied = false, loss = true, every_token = true, norm = true, bias = false;
  double tokens = 1;
};
LayerGroup head(std::string name, const HeadShape& shape);

/// A layer of any kind, as a recording of its operators gives it.
struct RecordedUnit {
  std::vector<LayerOperator> operators;
  double parameters = 0, biases = 0;  ///< of its GEMMs; of everything else
};

/// Recorded layers, `repeat` times. Every GEMM with weights is cut by columns over the
/// tensor-parallel ranks, which gather what it made: of an unknown module no pairs are known.
LayerGroup recorded(std::string name, const std::vector<RecordedUnit>& units, int repeat,
                    double tokens);

/// The groups of a decoder: token embedding, one group per run of equal layers, head.
std::vector<LayerGroup> decoder_groups(const DecoderShape& card);

}  // namespace scalemodel
