#include "scalemodel/ops/attention.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

struct FlashRate {
  double forward, backward;
};

/// FlashAttention-1 runs at about half the rate of its successor: Dao, arXiv 2307.08691.
constexpr double kFlash1OverFlash2 = 0.6;

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
  }
  return {};
}

/// Loss of rate at head sizes other than 128.
double head_dim_penalty(double head_dim) {
  if (head_dim >= 128) return std::sqrt(head_dim / 128);
  return (1 + 0.33 * 128 / head_dim) / 1.33;
}

double area(const AttentionWork& work, double diagonal) {
  const double parts = work.keys / work.queries;
  const double s = work.keys;
  if (!work.causal) return work.queries * s;
  if (work.window > 0 && work.window < s) {
    return (s * work.window - work.window * work.window / 2 + s * diagonal / 2) / parts;
  }
  return s * (s + diagonal) / 2 / parts;
}

/// Kernels over the scores, in elements read or written per score element.
struct ScorePasses {
  double forward, backward;
};

ScorePasses score_passes(AttentionKernel kernel, bool dropout) {
  // Fused: read and write once, each way. Separate kernels: scale, mask, softmax in FP32, cast.
  const ScorePasses softmax =
      kernel == AttentionKernel::unfused ? ScorePasses{10, 8} : ScorePasses{2, 3};
  const double mask = dropout ? 2.5 : 0;
  return {softmax.forward + mask, softmax.backward + mask};
}

}  // namespace

double attention_area(const AttentionWork& work) noexcept { return area(work, 128); }

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
    const Flop flop{2 * work.batch * work.heads * width * attention_area(work)};
    const FlopPerSecond peak = accelerator.peak_of(precision) / head_dim_penalty(work.head_dim);
    const Bytes in_out{element * work.batch * width *
                       (work.queries * work.heads + work.keys * work.kv_heads)};
    const Seconds memory = memory_time(in_out, accelerator.elementwise.add_fraction, accelerator);
    const Seconds launch = accelerator.attention.launch;
    time.forward = launch + max(flop / (rate.forward * peak), memory);
    time.backward = 2 * launch + max(2.5 * flop / (rate.backward * peak), 2.5 * memory);
    time.recompute = time.forward;
    return time;
  }
  const double maps = work.batch * work.heads;
  const Seconds scores = gemm.time({work.queries, work.keys, work.head_dim, maps, element});
  const Seconds values = gemm.time({work.queries, work.v_head_dim, work.keys, maps, element});
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
