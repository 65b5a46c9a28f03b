#include "scalemodel/ops/attention.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

struct FlashRate {
  double forward, backward;
};

/// FlashAttention-1 over its successor, A100, causal, sequences of 2k to 16k: 0.47 at head size 128
/// and nearly the same absolute rate at 64 (Dao, arXiv 2307.08691, figures 4 and 5).
constexpr double kFlash1OverFlash2 = 0.47;
/// The Triton kernel of 2022-23 likewise: its successor is 1.3 to 2.5 times as fast (same source).
constexpr double kTritonOverFlash2 = 0.58;

/// FP8 over 16-bit products in the kernels of `flash3`: forward 1.2 over .74 PFLOP/s at best (Shah
/// et al., arXiv 2407.08608, abstract). Of the backward pass nothing is published: half of that
/// gain is assumed, its gradients being cast between the products.
constexpr double kNarrowForward = 1.6, kNarrowBackward = 1.3;

/// The first kernels lose nothing on small heads: they are not limited by their GEMMs.
bool even_over_head_sizes(AttentionKernel kernel) {
  return kernel == AttentionKernel::flash1 || kernel == AttentionKernel::flash_triton;
}

FlashRate flash_rate(AttentionKernel kernel, const AttentionKernels& rates) {
  switch (kernel) {
    case AttentionKernel::unfused:
    case AttentionKernel::fused_softmax:
    case AttentionKernel::flash2:
      return {rates.flash2_forward, rates.flash2_backward};
    case AttentionKernel::flash1:
      return {kFlash1OverFlash2 * rates.flash2_forward, kFlash1OverFlash2 * rates.flash2_backward};
    case AttentionKernel::flash3:
      return {rates.flash3_forward, rates.flash3_backward};
    case AttentionKernel::flash_triton:
      return {kTritonOverFlash2 * rates.flash2_forward, kTritonOverFlash2 * rates.flash2_backward};
  }
  return {};
}

/// What a kernel does beside its products at head size 128, over the time of these.
constexpr double kBesideProducts = 0.33;

/// Loss of rate at head sizes other than 128, of a kernel that spends `beside` as above.
double head_dim_penalty(double head_dim, double beside) {
  if (head_dim >= 128) return std::sqrt(head_dim / 128);
  return (1 + beside * 128 / head_dim) / (1 + beside);
}

double area(const AttentionWork& work, double diagonal) {
  const double parts = work.keys / work.queries * work.ratio;
  const double s = work.keys;
  if (!work.causal) return work.queries * s / work.ratio;
  if (work.window > 0 && work.window < s) {
    return (s * work.window - work.window * work.window / 2 + s * diagonal / 2) / parts;
  }
  return s * (s + diagonal) / 2 / parts;
}

/// Strided batches of GEMMs need rows of whole 16 bytes to reach the tensor cores; others run on
/// the ordinary ones, at this share of their peak (A100, cuBLAS 11: head sizes 108 and 150 took 43
/// and 47 ms a layer in published runs of 2022, 10 TFLOP/s).
constexpr double kAlignedBytes = 16, kUnalignedFraction = 0.52;

/// Kernels over the scores, in elements read or written per score element.
struct ScorePasses {
  double forward, backward;
};

ScorePasses score_passes(AttentionKernel kernel, bool dropout) {
  // Fused: read and write once, each way. Separate kernels: cast to FP32 3, mask filled in 4,
  // softmax 4, cast back 3; the same back with two operands of the softmax 3 + 6 + 4 + 3.
  const ScorePasses softmax =
      kernel == AttentionKernel::unfused ? ScorePasses{14, 16} : ScorePasses{2, 3};
  const double mask = dropout ? 2.5 : 0;
  return {softmax.forward + mask, softmax.backward + mask};
}

}  // namespace

double attention_area(const AttentionWork& work, double tile) noexcept { return area(work, tile); }

Flop attention_model_flop(const AttentionWork& work) noexcept {
  return Flop{2 * work.batch * work.heads * (work.head_dim + work.v_head_dim) * area(work, 0)};
}

AttentionTime attention_time(const AttentionWork& work, AttentionKernel kernel,
                             const Accelerator& accelerator, Precision precision,
                             const GemmTimer& gemm) noexcept {
  const double element = operand_bytes(precision);
  const double width = work.head_dim + work.v_head_dim;
  AttentionTime time;
  if (is_flash(kernel)) {
    const FlashRate rate = flash_rate(kernel, accelerator.attention);
    const Flop flop{2 * work.batch * work.heads * width *
                    attention_area(work, accelerator.attention.tile)};
    const bool even = even_over_head_sizes(kernel) && work.head_dim < 128;
    const auto peak = [&](double beside) {
      return accelerator.peak_of(precision) / (even ? 1 : head_dim_penalty(work.head_dim, beside));
    };
    const double beside =
        kernel == AttentionKernel::flash3 ? accelerator.attention.flash3_narrow : kBesideProducts;
    const Bytes in_out{element * work.batch * width *
                       (work.queries * work.heads + work.keys / work.ratio * work.kv_heads)};
    const Seconds memory = memory_time(in_out, accelerator.elementwise.add_fraction, accelerator);
    const Seconds launch = accelerator.attention.launch;
    const bool narrow = work.narrow && kernel == AttentionKernel::flash3;
    const double forward = (narrow ? kNarrowForward : 1) * rate.forward;
    const double backward = (narrow ? kNarrowBackward : 1) * rate.backward;
    time.forward = launch + max(flop / (forward * peak(beside)), memory);
    time.backward = 2 * launch + max(2.5 * flop / (backward * peak(kBesideProducts)), 2.5 * memory);
    time.recompute = time.forward;
    return time;
  }
  const double maps = work.batch * work.heads;
  const auto timed = [&](const GemmShape& shape, double width_of_head) {
    const Seconds aligned = gemm.time(shape);
    if (std::fmod(width_of_head * element, kAlignedBytes) == 0) return aligned;
    const FlopPerSecond plain = kUnalignedFraction * accelerator.peak_of(Precision::fp32);
    return plain > FlopPerSecond{} ? max(aligned, shape.flop() / plain) : aligned;
  };
  const Seconds scores =
      timed({work.queries, work.keys, work.head_dim, maps, element}, work.head_dim);
  const Seconds values =
      timed({work.queries, work.v_head_dim, work.keys, maps, element}, work.v_head_dim);
  const ScorePasses passes = score_passes(kernel, work.dropout);
  const Bytes map_bytes{element * maps * work.queries * work.keys};
  const double rate = accelerator.elementwise.softmax_fraction;
  time.forward = scores + values + memory_time(passes.forward * map_bytes, rate, accelerator);
  time.backward =
      2 * (scores + values) + memory_time(passes.backward * map_bytes, rate, accelerator);
  time.recompute = time.forward;
  return time;
}

}  // namespace scalemodel
