// What fits: weights and the paged KV cache on one rank, in blocks.
#pragma once

#include <tuple>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/serving/drafts.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/expert_pool.hpp"
#include "scalemodel/serving/layout.hpp"

namespace scalemodel {

/// Lengths of the requests an engine is set up for.
struct RequestLengths {
  double input = 1, output = 1;
  double image_patches = 0;  ///< of an image of the prompts, or of a source; 0: there are none
};

/// Memory of the fullest rank, and what its KV cache holds.
struct CacheCapacity {
  Bytes weights;
  Bytes activations;            ///< activations of the largest step
  Bytes reserve;                ///< driver context, CUDA graphs, workspaces
  Bytes cache;                  ///< KV cache, in whole blocks
  Bytes block;                  ///< of one block: `block_tokens` tokens in every layer of the rank
  double blocks = 0;            ///< 0: weights and activations leave no room
  double cached_sequences = 0;  ///< requests of the given lengths that an instance's blocks hold
  double step_sequences = 0;    ///< the engine's limit of sequences in one step
  double max_running_sequences = 0;  ///< at their full length: the smaller of both
  double max_admitted = 0;           ///< at once while others wait, part of their output done
  double max_batched_tokens = 0;     ///< the engine's limit of tokens in one step
  Bytes expert_weights;              ///< of the fullest accelerator of an expert pool
  Bytes expert_activations;          ///< of the same, in the largest step

  bool operator==(const CacheCapacity&) const = default;
};

template <>
struct RecordOf<CacheCapacity> {
  static constexpr std::string_view name = "CacheCapacity";
  using T = CacheCapacity;
  static constexpr FieldTable fields{
      field("memory_weights_bytes", &T::weights, "weights of the fullest rank"),
      field("memory_activations_bytes", &T::activations, "activations of the largest step"),
      field("memory_reserve_bytes", &T::reserve, "driver context, CUDA graphs, workspaces"),
      field("memory_kv_cache_bytes", &T::cache, "KV cache, in whole blocks"),
      field("block_bytes", &T::block, "one KV cache block in every layer of the rank"),
      field("blocks", &T::blocks, "KV cache blocks of a rank; 0 = nothing fits"),
      field("cached_sequences", &T::cached_sequences,
            "requests that the KV cache of an instance holds"),
      field("step_sequences", &T::step_sequences, "the engine's limit of sequences in one step"),
      field("max_running_sequences", &T::max_running_sequences,
            "sequences that run at once at their full length: the smaller of both"),
      field("max_admitted", &T::max_admitted,
            "sequences that run at once while others wait, part of their output done"),
      field("max_batched_tokens", &T::max_batched_tokens,
            "the engine's limit of tokens in one step"),
      field("memory_expert_weights_bytes", &T::expert_weights,
            "weights of the fullest accelerator of an expert pool"),
      field("memory_expert_activations_bytes", &T::expert_activations,
            "activations of an accelerator of an expert pool in the largest step")};
};

/// Bytes of a block and how many of them a sequence takes.
class CacheBlocks {
 public:
  /// What drafts keeps keys and values of its own for every token, in the blocks of the rest. Those
  /// of a source of `source_tokens` are as many however long the sequence is, in whole blocks.
  CacheBlocks(const Model& model, const Engine& engine, const ServingKernels& kernels,
              const ServingLayout& layout, const Draft& draft = {}, double source_tokens = 0);

  Bytes block() const noexcept { return block_; }
  /// Keys and values of one token in all layers of the model and its draft, once: what a copy of
  /// them elsewhere takes, however many ranks hold it here.
  Bytes token() const noexcept { return token_; }
  /// Blocks of one rank for a sequence of `tokens`. Layers with a window, where the engine drops
  /// what is behind it, hold no more than the window and count as their share of a block; states of
  /// recurrent mixers, one size however long the sequence, as blocks that hold as many bytes.
  double of(double tokens) const noexcept;
  /// The same for sequences of `tokens` on average: half of the last block is empty.
  double mean(double tokens) const noexcept;

 private:
  /// Layers of one window.
  struct LayerShare {
    double share, window;
  };
  double state_ = 0;  ///< blocks that hold the states of one sequence
  Bytes block_, token_;
  double block_tokens_ = 1;
  double ranks_ = 1;  ///< over which a sequence is sharded
  std::vector<LayerShare> layer_shares_;
};

/// Weights of the fullest rank, in the formats of `kernels`: linear layers and experts in theirs,
/// everything else in 16 bits. Experts of a pool of their own are none of them. Norms, routers and
/// projections down to latents are repeated on the tensor ranks, all else is split. The first stage
/// also holds the token embedding, the last one the LM head.
Bytes weight_bytes(const Model& model, const ServingKernels& kernels, const ServingLayout& layout);

/// Parameters of what an expert pool computes, over all layers: routed experts with `redundant`
/// copies of some in each, those of them that a token chooses, and shared ones; with those of a
/// layer that drafts.
struct PoolParameters {
  double routed = 0, chosen = 0, shared = 0;
};
PoolParameters pool_parameters(const Model& model, double redundant, bool draft_layer = false);

/// Weights on one accelerator of an expert pool: its part of the routed experts and all shared
/// ones, which compute a part of the tokens each.
Bytes expert_weight_bytes(const Model& model, const ServingKernels& kernels,
                          const ServingLayout& layout, bool draft_layer = false);

/// Memory of the fullest rank of an instance that encodes images and nothing else: the tower, a
/// batch of images in it and what becomes of them.
Bytes encoder_instance_bytes(const Model& model, const Engine& engine, const ServingLayout& layout,
                             double image_patches, double images);

/// Weights of what drafts, on the fullest rank: a model, or one more layer with the projection of
/// its two inputs (hidden state and next token: 2h x h), which shares token embedding and LM head
/// with the served model.
Bytes draft_weight_bytes(const Model& model, const ServingKernels& kernels,
                         const ServingLayout& layout, const Draft& draft);

/// Blocks = floor((share of memory - what else lies there)/block). An engine that tunes its limits
/// admits as many sequences as the cache holds at their full length, at most 4096, and steps of
/// input/output prompt tokens more for each of them (trtllm-bench, 2048 to 32768 tokens). The tool
/// counts the memory of all ranks and knows nothing of data-parallel attention, each rank of which
/// then has these limits (tensorrt_llm/bench/build/tuning.py, calc_engine_setting). Where
/// prompts alone decide which request starts, more run at once: another one starts when its prompt
/// fits beside others that have generated any part of their output. Where the experts do not fit on
/// a pool of their own there are no blocks; `pool` as for StepTimes.
CacheCapacity cache_capacity(const Model& model, const Cluster& cluster, const Engine& engine,
                             const ServingKernels& kernels, const ServingLayout& layout,
                             const RequestLengths& lengths, const Draft& draft = {},
                             const ExpertPool* pool = nullptr);

}  // namespace scalemodel
