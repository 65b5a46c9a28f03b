// What kernels of sparse attention and what stands around mixers work on, from the sizes that
// tables of measurements give. Of scans see ops/scan.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/ops/work_kernel.hpp"

namespace scalemodel {

/// Sequences of a kernel's call: new tokens of each, and keys that its last token attends to.
struct CallSizes {
  double batch = 1, tokens = 1, keys = 1;

  double queries() const { return batch * tokens; }
  /// Keys of a mean query: causal.
  double mean_keys() const { return keys - tokens + tokens / 2; }
};

/// A short convolution over `channels`. Kernels compute tiles of 512 tokens (TensorRT-LLM; others
/// lose nothing on short sequences, which their constants say). `updates`: of running sequences,
/// which keep `width` - 1 tokens of every channel.
inline KernelWork convolution_work(const CallSizes& call, double channels, double width,
                                   bool updates) noexcept {
  constexpr double kTile = 512;
  const double window = updates ? 4 * call.batch * channels * (width - 1) : 0;
  return {0, 4 * call.queries() * channels + window, updates ? call.tokens : call.batch,
          call.batch * channels * std::ceil(call.tokens / kTile)};
}

/// Attention of a vision tower: whole squares of 128 x 128, heads padded to 64, 96 or 128.
inline KernelWork encoder_work(const CallSizes& call, double heads, double head_dim) noexcept {
  constexpr double kTile = 128;
  const double padded = head_dim <= 64 ? 64 : head_dim <= 96 ? 96 : 128 * std::ceil(head_dim / 128);
  const double tiles = std::ceil(call.tokens / kTile), rows = tiles * kTile;
  return {4 * call.batch * heads * rows * rows * padded, 8 * call.queries() * heads * head_dim,
          tiles, call.batch * heads * tiles};
}

/// Mixing of `streams` residual streams on both sides of a layer's two blocks.
inline KernelWork stream_mixing_work(double tokens, double hidden, double streams) noexcept {
  const double wide = hidden * streams;
  return {2 * tokens * wide * streams * (streams + 2), 6 * tokens * wide, 1, tokens};
}

/// Experts with the exchange of their tokens in one kernel, on the busiest rank of `ranks`:
/// weights of the experts that get a token, in 4 bits with a scale of 16, and rows that leave in 8
/// bits and come back in 16. `imbalance`: its rows over the mean.
inline KernelWork fused_experts_work(double tokens_of_rank, double hidden, double width,
                                     double experts_per_token, double experts, double ranks,
                                     double imbalance) noexcept {
  constexpr double kWeight = 0.53, kMoved = 3;
  const double pairs = tokens_of_rank * experts_per_token * imbalance, local = experts / ranks;
  const double active =
      local * (1 - std::exp(-tokens_of_rank * ranks * experts_per_token / experts));
  return {6 * pairs * hidden * width,
          active * 3 * hidden * width * kWeight + pairs * hidden * kMoved, 1, pairs * hidden};
}

/// An attention module that attends to few keys, on one rank.
struct SparseShape {
  double hidden = 0, heads = 0;
  double projected = 0;      ///< weights of its projections, the indexer's apart
  double indexer = 0;        ///< weights of the indexer; 0: it has none
  double index_width = 0;    ///< heads times width of the indexer
  double key_width = 0;      ///< of a score and its weighted value
  double cached_values = 0;  ///< of one key
  double selected = 0;       ///< keys of a query; 0: all
  double window = 0;         ///< further keys, the nearest
  double ratio = 1;          ///< tokens that share one key
  double head_tile = 1;      ///< heads that the core multiplies together, used or not
  double weight_bytes = 2, cache_bytes = 2;

  /// Keys that a query of `call` attends to on average, of those that share a key.
  double attended(const CallSizes& call) const {
    const double all = call.mean_keys() / ratio;
    const double far = selected > 0 ? std::min(all, selected) : all;
    return far + std::min(call.mean_keys(), window);
  }
};

/// The whole module: projections, indexer, attention to the chosen keys. Pieces are scores of the
/// indexer, in thousands; steps are queries, each of which takes as long whatever it attends to
/// where a kernel goes through its longest list of keys. All heads of a query read the keys that it
/// chose, so that a tile of the core holds heads, and has as many rows whatever their number.
inline KernelWork sparse_module_work(const SparseShape& s, const CallSizes& call) noexcept {
  constexpr double kThousand = 1e-3;
  const double tokens = call.queries(), keys = s.attended(call);
  const double read = call.tokens == 1 ? keys : call.keys / s.ratio;
  const bool indexes = s.indexer > 0;
  const double rows = std::ceil(s.heads / s.head_tile) * s.head_tile;
  return {tokens * 2 * (s.projected + s.indexer),
          s.weight_bytes * (s.projected + s.indexer) + 4 * tokens * s.hidden +
              call.batch * s.cache_bytes * read * s.cached_values,
          tokens, indexes ? kThousand * tokens * call.mean_keys() / s.ratio : 0,
          tokens * 2 * rows * s.key_width * keys};
}

/// The same module where one program walks all keys of a prompt for its indexer: keys follow one
/// another, however many queries and sequences there are. SGLang's prefill kernel of MiniMax-M3 on
/// GB200 takes 12 to 15 ns a key from 32 thousand keys to a million, for 1 to 64 sequences.
inline KernelWork chained_module_work(const SparseShape& s, const CallSizes& call) noexcept {
  KernelWork work = sparse_module_work(s, call);
  work.steps = call.keys;
  return work;
}

/// The same module of running sequences where an index is walked block by block, and its scores are
/// products of matrices only where a rank has several heads of keys: they take no longer than their
/// keys are read then. TensorRT-LLM's kernel of MiniMax-M3 on Blackwell takes 0.43 ns a key of a
/// batch with one head of keys and 0.04 ns with four, 256 bytes each; one sequence of 131,072 keys
/// takes 0.4 ms longer than a short one, however many there are.
inline KernelWork blocked_module_work(const SparseShape& s, const CallSizes& call) noexcept {
  constexpr double kBlock = 128;
  KernelWork work = sparse_module_work(s, call);
  const double key_heads = s.cached_values / s.key_width;
  work.steps += call.keys / kBlock;
  if (key_heads > 1) {
    work.pieces = 0;
    work.bytes += call.queries() * call.keys * s.cache_bytes * s.index_width / key_heads;
  }
  return work;
}

/// The same module where an engine has no kernel that leaves keys out: scores of every query with
/// every key, later ones too, are written for each head of keys. Of prompts where a rank has
/// several of these, scores are laid out head by head first, which takes as long again:
/// MiniMax-M3's on H100 and L40S take as long for 1 to 16 heads of queries, which share one head of
/// keys, four times that for two of keys and eight to ten times for four. Of running sequences what
/// is further taken grows with the square of all rows of keys of the batch, whether these are of
/// many sequences or of few long ones: 512 of 8,192 keys and 256 of 16,384 take 0.57 s both, 64 of
/// 8,192 a 29th of it.
inline KernelWork eager_module_work(const SparseShape& s, const CallSizes& call) noexcept {
  constexpr double kThousand = 1e-3;
  const double tokens = call.queries(), weights = s.projected + s.indexer;
  const double key_heads = s.cached_values / s.key_width;
  const double rows = tokens * call.keys * key_heads;
  const bool decodes = call.tokens == 1;
  const double passes = key_heads > 1 && !decodes ? 2 : 1;
  return {tokens * 2 * weights,
          s.weight_bytes * weights + 4 * tokens * s.hidden +
              call.batch * s.cache_bytes * call.keys * s.cached_values,
          tokens, kThousand * rows * passes, decodes ? rows * rows : 0};
}

/// Its parts: attention to the chosen keys, scores of the indexer, the choice of the highest.
inline KernelWork sparse_core_work(const SparseShape& s, const CallSizes& call) noexcept {
  const double tokens = call.queries(), keys = s.attended(call);
  return {tokens * 2 * s.heads * s.key_width * keys,
          2 * tokens * s.heads * s.key_width + s.cache_bytes * tokens * keys * s.cached_values, 1,
          tokens};
}

inline KernelWork index_scores_work(const SparseShape& s, const CallSizes& call) noexcept {
  // Scores are in FP32; an index key is 128 values in FP8 and their FP32 scale (DeepSeek-V3.2,
  // arXiv 2512.02556; every indexer of the catalogue is as wide).
  constexpr double kScore = 4, kKey = 128 + 4;
  const double tokens = call.queries(), keys = call.mean_keys() / s.ratio;
  return {tokens * 2 * s.index_width * keys,
          kScore * tokens * keys + kKey * call.batch * call.keys / s.ratio, 1, tokens};
}

inline KernelWork choice_work(const SparseShape& s, const CallSizes& call) noexcept {
  constexpr double kScore = 4;
  const double tokens = call.queries(), keys = call.mean_keys() / s.ratio;
  return {0, kScore * tokens * keys, keys, tokens};
}

}  // namespace scalemodel
