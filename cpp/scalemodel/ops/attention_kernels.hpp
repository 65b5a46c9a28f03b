// Time of named attention kernels as published benchmarks measure them: whole prompts (prefill,
// encoders, passes of a training step) and one query against a cache (decode), both also for
// multi-head latent attention.
#pragma once

#include <tuple>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/attention.hpp"

namespace scalemodel {

/// One call of an attention kernel: its shape and how keys and values are kept.
struct AttentionCall {
  AttentionWork work;  ///< queries: new tokens of a sequence; keys: all it attends to
  Precision math = Precision::bf16;
  Precision cache = Precision::bf16;
  double latent = 0;      ///< width of the cached latent (multi-head latent attention), 0: none
  double rotary = 0;      ///< cached width beside the latent
  bool resident = false;  ///< the same call just ran, so what fits stays in the last-level cache
};

/// Constants of a kernel that works through whole prompts.
struct PrefillKernel {
  Seconds launch;                 ///< fixed time of a call
  Seconds host;                   ///< CPU overhead of a launch; hides behind the kernel
  double flop_factor = 1;         ///< work over that of a forward pass
  double compute_fraction = 0.6;  ///< of the dense 16-bit peak
  double diagonal = 128;          ///< width of the masked blocks a causal map computes in full
  Seconds step;                   ///< shortest time of a tile per 128 keys
  Seconds step_width;             ///< the same, per 128 of head size
  Seconds wave;                   ///< start of a tile on every multiprocessor
  double wave_rounding = 0;       ///< 1: a partial wave costs a whole one; 0: its share
  double io_fraction = 0.9;       ///< of memory bandwidth, queries and output
  double cache_passes = 1;        ///< times new keys and values are read or written
  double latent_passes = 0;       ///< the same, cached latent
  double narrow_penalty = 0;      ///< loss at head sizes below 128
  double wide_penalty = 0;        ///< exponent of the loss above 256
  double mixed_factor = 1;        ///< work where query/key and value heads differ in width
  double unaligned_factor = 1;    ///< work at head sizes that 16 does not divide
  Seconds odd_head;               ///< further launches at head size 192
  double resident_gain = 1;       ///< bandwidth of the last-level cache over that of memory
  double resident_scale = 1;      ///< cache sizes' worth that still count as resident, inverted
  double fp8_math_rate = 1;       ///< rate with 8-bit operands over the 16-bit one
  Seconds fp8_math_launch;        ///< further fixed time, 8-bit operands
  double fp8_cache_rate = 1;      ///< rate with an 8-bit cache only
  Seconds fp8_cache_launch;       ///< further fixed time, 8-bit cache only
  double fp8_passes = 1;          ///< multiple of cache_passes with an 8-bit cache
  bool packs_groups = false;      ///< heads that share keys fill one tile together
  bool skips_window = true;       ///< blocks outside a sliding window cost nothing
  bool pads_width = false;        ///< heads are padded to a power of two
  bool absorbed = false;          ///< latent attention works on the latent itself, as one KV head

  bool operator==(const PrefillKernel&) const = default;
};

/// Constants of a kernel that attends with one query per sequence.
struct DecodeKernel {
  Seconds launch;                   ///< fixed time of a call
  Seconds block;                    ///< shortest time per 128 cached tokens at head size 128
  Seconds wave;                     ///< start of one tile on every multiprocessor
  Seconds split;                    ///< per doubling of the number of parts a sequence is split in
  double waves = 1;                 ///< tiles per multiprocessor that splitting aims at
  double max_splits = 1e6;          ///< splits of a sequence along its keys, at most
  double max_heads = 1e6;           ///< query heads of one tile, at most
  double wave_rounding = 0;         ///< 1: a partial wave costs a whole one; 0: its share
  double tile_rows = 16;            ///< query rows that tensor cores take at a time, full or not
  double tensor_fraction = 0.2;     ///< of a multiprocessor's 16-bit peak, whole tiles counted
  double memory_fraction = 0.9;     ///< of memory bandwidth
  double occupancy_exponent = 0.5;  ///< loss of bandwidth with multiprocessors left idle
  double partial_passes = 0;        ///< FP32 copies of the output moved to combine the parts
  Seconds odd_head;                 ///< further launches at head size 192
  double resident_gain = 1;         ///< as in PrefillKernel
  double resident_scale = 1;        ///< as in PrefillKernel
  double fp8_math = 1;              ///< rate of the GEMMs with an 8-bit cache over the 16-bit one
  Seconds fp8_rows;                 ///< shortest time of 16 query rows and 128 cached tokens at
                                    ///< head size 128, 8-bit cache
  Seconds fp8_launch;               ///< further fixed time, 8-bit cache
  double fp8_block = 1;             ///< multiple of `block`, 8-bit cache
  double fp8_memory = 1;            ///< multiple of memory_fraction, 8-bit cache
  double fp8_passes = 0;            ///< passes over an 8-bit cache to convert it first

  bool operator==(const DecodeKernel&) const = default;
};

/// Time of a whole-prompt call:
///
///     t = launch + (work^3 + (Bq/(io W H))^3 + chain^3)^(1/3)
///         + (cache_passes Bkv + latent_passes Bl)/(W H) + wave tiles/multiprocessors
///     work = flop_factor 2 b h (d + dv) area f/(compute_fraction P),  chain = steps (step + ...)
///     H = 1 + (resident_gain - 1)/(1 + (resident_scale bytes/L2)^6) if resident, else 1
///
/// joined with `host` by the same cubic maximum. Tiles are 128 queries of one head, or of a group
/// of heads. `chain` is the sequential loop of one tile over its keys, which a roofline misses;
/// keys and values count more than once because benchmarks of serving kernels also write them to
/// the cache; f collects head-size losses and partial waves. Form and constants: fitted to kernel
/// timings published by ai-dynamo/aiconfigurator (Apache-2.0) and MooreThreads/SimuMax; errors
/// stand beside the constants in the catalogue. Tile loop: Dao, arXiv 2307.08691, section 3.
Seconds prefill_time(const AttentionCall& call, const PrefillKernel& kernel,
                     const Accelerator& accelerator) noexcept;

/// Time of one query per sequence against its cache:
///
///     t = launch + split log2 s + wave w + ((w blocks/s per)^3 + (B/(e W H min(1,
///     tiles/SM)^om))^3)^(1/3)
///         + (4 partial_passes b h dv + fp8_passes cache)/W
///     s = clip(waves SM/lanes, 1, min(blocks, max_splits)),  tiles = lanes s,  w = max(1,
///     tiles/SM) per = cubic maximum of the GEMMs of a 128-token block and `block`
///
/// GEMMs take whole tiles of `tile_rows` query rows: 64 on Hopper, whose WGMMA has no smaller ones
/// (PTX ISA, wgmma.mma_async), 16 of older instructions.
/// lanes = b h_kv ceil(g/max_heads) tiles before splitting, g query heads per KV head. H as above.
/// Latent attention is one KV head of width 2 latent + rotary. With an 8-bit cache `per` is that of
/// GEMMs in 8 bits, which the tensor cores run fp8_math times as fast, and of what the rest of a
/// multiprocessor does for their rows (P is narrowed, V transposed: deepseek-ai/FlashMLA#82). Form
/// after flash-decoding (Dao et al., 2023); constants as for prefill_time. Precondition of both:
/// counts >= 1.
Seconds decode_time(const AttentionCall& call, const DecodeKernel& kernel,
                    const Accelerator& accelerator) noexcept;

/// The same for many batches and numbers of keys: what these do not change is computed once.
class DecodeCase {
 public:
  DecodeCase() = default;
  DecodeCase(const AttentionCall& call, const DecodeKernel& kernel,
             const Accelerator& accelerator) noexcept;
  /// Of one number of sequences or of several side by side: see decode_case.hpp.
  template <class Number>
  SecondsOf<Number> time(Number batch, double keys) const noexcept;

 private:
  double units_ = 1, aimed_ = 1, max_splits_ = 1;
  double lanes_ = 1;  ///< tiles of a sequence before splitting
  double wave_rounding_ = 0, occupancy_exponent_ = 0, window_ = 0;
  Seconds block_;            ///< shortest, of 128 keys
  Bytes cached_;             ///< of one key
  Bytes in_out_, partials_;  ///< of a sequence
  double converted_ = 0;     ///< passes over the cache
  BytesPerSecond bandwidth_, rate_;
  double resident_gain_ = 1;
  Bytes resident_;  ///< what the last-level cache holds; 0: no call of the same before
  Seconds fixed_, wave_, split_;
};

template <>
struct RecordOf<PrefillKernel> {
  static constexpr std::string_view name = "PrefillKernel";
  using T = PrefillKernel;
  static constexpr FieldTable fields{
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("host_s", &T::host, 0, 1, "CPU overhead of a launch, hidden by the kernel"),
      field("flop_factor", &T::flop_factor, 0.1, 10, "work over that of a forward pass"),
      field("compute_fraction", &T::compute_fraction, 1e-3, 2, "fraction of the 16-bit peak"),
      field("diagonal", &T::diagonal, 0, 1e4, "masked block width computed in full"),
      field("step_s", &T::step, 0, 1, "shortest tile time per 128 keys"),
      field("step_width_s", &T::step_width, 0, 1,
            "shortest tile time per 128 keys and 128 of head"),
      field("wave_s", &T::wave, 0, 1, "start of a tile on every multiprocessor"),
      field("wave_rounding", &T::wave_rounding, 0, 1, "share of a partial wave charged in full"),
      field("io_fraction", &T::io_fraction, 1e-3, 10, "bandwidth fraction, queries and output"),
      field("cache_passes", &T::cache_passes, 0, 100, "passes over new keys and values"),
      field("latent_passes", &T::latent_passes, 0, 100, "passes over the cached latent"),
      field("narrow_penalty", &T::narrow_penalty, 0, 10, "loss at head sizes below 128"),
      field("wide_penalty", &T::wide_penalty, 0, 10, "exponent of the loss above head size 256"),
      field("mixed_factor", &T::mixed_factor, 0.1, 10, "work, unequal query and value heads"),
      field("unaligned_factor", &T::unaligned_factor, 0.1, 20, "work, head size no multiple of 16"),
      field("odd_head_s", &T::odd_head, 0, 1, "further launches at head size 192"),
      field("resident_gain", &T::resident_gain, 1, 100, "cache bandwidth over memory bandwidth"),
      field("resident_scale", &T::resident_scale, 0.01, 100, "cache sizes per resident byte"),
      field("fp8_math_rate", &T::fp8_math_rate, 0.01, 10, "rate, 8-bit operands"),
      field("fp8_math_launch_s", &T::fp8_math_launch, 0, 1, "further fixed time, 8-bit operands"),
      field("fp8_cache_rate", &T::fp8_cache_rate, 0.01, 10, "rate, 8-bit cache only"),
      field("fp8_cache_launch_s", &T::fp8_cache_launch, 0, 1, "further fixed time, 8-bit cache"),
      field("fp8_passes", &T::fp8_passes, 0, 100, "multiple of cache_passes, 8-bit cache"),
      field("packs_groups", &T::packs_groups, "grouped heads share a tile"),
      field("skips_window", &T::skips_window, "work outside a sliding window is skipped"),
      field("pads_width", &T::pads_width, "heads padded to a power of two"),
      field("absorbed", &T::absorbed, "latent attention works on the latent")};
};

template <>
struct RecordOf<DecodeKernel> {
  static constexpr std::string_view name = "DecodeKernel";
  using T = DecodeKernel;
  static constexpr FieldTable fields{
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("block_s", &T::block, 0, 1, "shortest time per 128 cached tokens at head size 128"),
      field("wave_s", &T::wave, 0, 1, "start of a tile on every multiprocessor"),
      field("split_s", &T::split, 0, 1, "per doubling of the parts of a sequence"),
      field("waves", &T::waves, 1e-3, 100, "tiles per multiprocessor aimed at"),
      field("max_splits", &T::max_splits, 1, 1e9, "splits of a sequence along its keys, at most"),
      field("max_heads", &T::max_heads, 1, 1e9, "query heads of one tile, at most"),
      field("wave_rounding", &T::wave_rounding, 0, 1, "share of a partial wave charged in full"),
      field("tile_rows", &T::tile_rows, 1, 1024, "query rows that tensor cores take at a time"),
      field("tensor_fraction", &T::tensor_fraction, 1e-4, 100, "fraction of the 16-bit peak"),
      field("memory_fraction", &T::memory_fraction, 1e-3, 10, "fraction of memory bandwidth"),
      field("occupancy_exponent", &T::occupancy_exponent, 0, 10, "bandwidth loss of idle units"),
      field("partial_passes", &T::partial_passes, 0, 1000, "FP32 output copies moved to combine"),
      field("odd_head_s", &T::odd_head, 0, 1, "further launches at head size 192"),
      field("resident_gain", &T::resident_gain, 1, 100, "cache bandwidth over memory bandwidth"),
      field("resident_scale", &T::resident_scale, 0.01, 100, "cache sizes per resident byte"),
      field("fp8_math", &T::fp8_math, 0.01, 10, "rate of the GEMMs, 8-bit cache"),
      field("fp8_rows_s", &T::fp8_rows, 0, 1,
            "shortest time of 16 query rows and 128 cached tokens at head size 128, 8-bit cache"),
      field("fp8_launch_s", &T::fp8_launch, 0, 1, "further fixed time, 8-bit cache"),
      field("fp8_block", &T::fp8_block, 0.01, 100, "multiple of the block time, 8-bit cache"),
      field("fp8_memory", &T::fp8_memory, 0.01, 10, "multiple of memory_fraction, 8-bit cache"),
      field("fp8_passes", &T::fp8_passes, 0, 100, "passes to convert an 8-bit cache")};
};

}  // namespace scalemodel
