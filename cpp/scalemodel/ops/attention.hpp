// Time of the attention core (scores, softmax, weighted values) of a training pass.
#pragma once

#include <array>
#include <cstdint>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/gemm.hpp"

namespace scalemodel {

/// Which kernel computes attention. `unfused`: GEMMs and separate softmax kernels;
/// `fused_softmax`: Megatron's fused scale-mask-softmax; `flash1..3`: FlashAttention generations,
/// 3 standing for the best native kernel of the accelerator (FlashAttention-3, cuDNN);
/// `flash_triton`: the Triton kernel of FlashAttention-1's time.
enum class AttentionKernel : std::uint8_t {
  unfused,
  fused_softmax,
  flash1,
  flash2,
  flash3,
  flash_triton
};

template <>
struct EnumNames<AttentionKernel> {
  static constexpr std::string_view what = "attention kernel";
  static constexpr std::array<std::string_view, 6> names{
      "unfused", "fused_softmax", "flash1", "flash2", "flash3", "flash_triton"};
};

constexpr bool is_flash(AttentionKernel kernel) {
  return kernel != AttentionKernel::unfused && kernel != AttentionKernel::fused_softmax;
}

struct AttentionWork {
  double batch = 1;
  double queries = 0;  ///< of this rank
  double keys = 0;     ///< of the whole sequence
  double heads = 0, kv_heads = 0;
  double head_dim = 0, v_head_dim = 0;
  double window = 0;  ///< 0: full
  double ratio = 1;   ///< tokens that share one compressed key
  bool causal = true;
  bool dropout = false;
  bool narrow = false;  ///< queries, keys, values and probabilities are multiplied in FP8
};

/// Query-key pairs a head computes, on average over the ranks of a sequence split in `keys /
/// queries` balanced parts. Causal: s (s + t)/2, the diagonal blocks of `tile` t being computed
/// whole; a sliding window w < s: s w - w^2/2 + s t/2. Of `ratio` tokens one is a key: that much
/// less.
double attention_area(const AttentionWork& work, double tile = 128) noexcept;

/// Flop of the forward pass, 2 b h (d + dv) area without the diagonal blocks: what model flop
/// counts.
Flop attention_model_flop(const AttentionWork& work) noexcept;

struct AttentionTime {
  Seconds forward, backward;
  Seconds recompute;  ///< of the part that selective recomputation repeats
};

/// Flash kernels: t = launch + max(2 b h (d+dv) area/(e P), bytes/(e_add W)); the backward pass has
/// 2.5 times the flop at its own e. Head sizes below 128 lose (1 + x 128/d)/(1 + x): products
/// shrink with d, exponentials do not. x = .33, flash3's forward pass has its own; the first
/// kernels lose nothing. Above 128 (d/128)^.5. Unfused: two batched GEMMs over the full square,
/// then passes over the scores.
AttentionTime attention_time(const AttentionWork& work, AttentionKernel kernel,
                             const Accelerator& accelerator, Precision precision,
                             const GemmTimer& gemm) noexcept;

}  // namespace scalemodel
