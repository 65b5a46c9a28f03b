// What fits: weights and the paged cache of keys and values on one rank, in blocks.
#pragma once

#include <tuple>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/layout.hpp"

namespace scalemodel {

/// Lengths of the requests an engine is set up for.
struct RequestLengths {
  double input = 1, output = 1;
};

/// Memory of the fullest rank, and what its cache holds.
struct CacheCapacity {
  Bytes weights;
  Bytes activations;            ///< of the largest step
  Bytes reserve;                ///< context, graphs, workspaces
  Bytes cache;                  ///< blocks
  Bytes block;                  ///< of one block: `block_tokens` tokens in every layer of the rank
  double blocks = 0;            ///< 0: weights and activations leave no room
  double cached_sequences = 0;  ///< requests of the given lengths that an instance's blocks hold
  double step_sequences = 0;    ///< the engine runs no more of them in one step
  double most_sequences = 0;    ///< the smaller of both
  double most_admitted = 0;     ///< run at once while others wait, answers being of any age
  double most_tokens = 0;       ///< of a step

  bool operator==(const CacheCapacity&) const = default;
};

template <>
struct RecordOf<CacheCapacity> {
  static constexpr std::string_view name = "CacheCapacity";
  using T = CacheCapacity;
  static constexpr std::tuple fields{
      field("memory_weights_bytes", &T::weights, "weights of the fullest rank"),
      field("memory_activations_bytes", &T::activations, "of the largest step"),
      field("memory_reserve_bytes", &T::reserve, "context, graphs, workspaces"),
      field("memory_kv_cache_bytes", &T::cache, "blocks of keys and values"),
      field("block_bytes", &T::block, "one block in every layer of the rank"),
      field("blocks", &T::blocks, "blocks of a rank; 0 = nothing fits"),
      field("cached_sequences", &T::cached_sequences, "requests the blocks of an instance hold"),
      field("step_sequences", &T::step_sequences, "the engine's limit for one step"),
      field("most_sequences", &T::most_sequences, "the smaller of both"),
      field("most_admitted", &T::most_admitted, "at once while others wait, answers of any age"),
      field("most_tokens", &T::most_tokens, "tokens of a step")};
};

/// Bytes of a block and how many of them a sequence takes.
class CacheBlocks {
 public:
  CacheBlocks(const Model& model, const Engine& engine, const ServingKernels& kernels,
              const ServingLayout& layout);

  Bytes block() const noexcept { return block_; }
  /// Blocks of one rank for a sequence of `tokens`. Layers with a window, where the engine drops
  /// what is behind it, hold no more than the window and count as their share of a block.
  double of(double tokens) const noexcept;
  /// The same for sequences of `tokens` on average: half of the last block is empty.
  double mean(double tokens) const noexcept;

 private:
  struct Part {
    double share, window;
  };
  Bytes block_;
  double block_tokens_ = 1;
  double ranks_ = 1;  ///< that share a sequence out
  std::vector<Part> parts_;
};

/// Weights of the fullest rank, in the formats of `kernels`: linear layers and experts in theirs,
/// everything else in 16 bits. Norms, routers and projections down to latents are repeated on the
/// tensor ranks, all else is split. The first stage also holds the token table, the last one the
/// head.
Bytes weight_bytes(const Model& model, const ServingKernels& kernels, const ServingLayout& layout);

/// Blocks = floor((share of memory - what else lies there)/block). An engine that tunes its limits
/// admits as many sequences as the cache holds at their full length, at most 4096, and steps of
/// input/output prompt tokens more for each of them (trtllm-bench, 2048 to 32768 tokens). Where
/// prompts alone decide who starts, more run at once: another one starts when its prompt fits
/// beside others that have given any part of their answers.
CacheCapacity cache_capacity(const Model& model, const Cluster& cluster, const Engine& engine,
                             const ServingKernels& kernels, const ServingLayout& layout,
                             const RequestLengths& lengths);

}  // namespace scalemodel
