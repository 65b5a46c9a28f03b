// Operators that every kind of layer is made of: how many bytes they pass over memory.
#pragma once

#include <cmath>
#include <string_view>

#include "scalemodel/costs/layer_builder.hpp"

namespace scalemodel {

/// Launches of one adapter each way beside its products, its scaling and its sum; counted in
/// NeMo's, not timed.
inline constexpr double kAdapterLaunches = 4;

/// Modules that the framework counts an adapter as.
inline constexpr double kAdapterModules = 1;

/// Collectives of one adapter among tensor ranks, which the CPU calls; the little that they carry
/// is not counted. Beside a matrix whose columns are divided its narrow product is gathered; back,
/// the gradients of both its inputs are summed up. Beside one whose output is a sum the narrow
/// product is summed up and the output gathered; back, gradients of either
/// (NVIDIA-NeMo/Megatron-Bridge, peft/utils.py, ParallelLinearAdapter).
struct AdapterCalls {
  double forward, backward;
};
inline constexpr AdapterCalls kAdapterOfColumns{1, 2}, kAdapterOfSums{2, 2};

/// CPU overhead of a routed layer each way beside its kernel launches, in launches: close to a
/// hundred operations of the framework, each as long as four or five launches. Chosen by a scan (0,
/// 300, 400, 500) on published steps of 1 to 8 sequences per micro-batch on B200.
inline constexpr double kRoutingLaunches = 400;

/// Low-rank adapters beside one frozen k x n matrix: two thin products each way, whose output is
/// scaled (2) and added to the matrix's (3); back, the gradient is scaled (2), and those of the
/// input are added (3). Passes over n values but the last, counted in PEFT's layers
/// (tests/benchmarks/adapter_steps.py). Returns their parameters.
inline double add_adapter(LayerBuilder& builder, const Conditions& conditions,
                          const Cluster& cluster, const GemmTimer& timer, double tokens, double n,
                          double k, double element) {
  if (conditions.lora_rank == 0) return 0;
  const double rank = conditions.lora_rank;
  builder.linear("adapter_down", tokens, rank, k, {false, 1, &timer});
  builder.linear("adapter_up", tokens, n, rank, {false, 1, &timer});
  builder.elementwise("adapter_sum", Bytes{5 * tokens * n * element},
                      Bytes{tokens * (2 * n + 3 * k) * element},
                      cluster.accelerator.elementwise.add_fraction, 2);
  builder.launches(kAdapterLaunches, kAdapterLaunches);
  builder.modules(kAdapterModules);
  return rank * (n + k);
}

/// Norms, as bytes per element of the residual stream. Fused: x in, y out; backward x, dy in, dx
/// out, and x, dy in once more for the gradients of scale and shift, unless the kernel of dx adds
/// up their parts, too (NVIDIA/TransformerEngine, common/normalization/rmsnorm/
/// rmsnorm_bwd_kernels.cuh and layernorm/ln_bwd_kernels.cuh). Unfused: counted from eager
/// kernels at two bytes an element. Forward: square 2, mean 1, scale 2, cast to FP32 3 and back 3,
/// weight 2. Backward: of the weight 2 + 4, of the casts 3 + 3, of the scale 2 + 4, of mean and
/// square 2 + 2, and the sum of both branches 3.
struct NormPasses {
  double forward, backward;
  int forward_kernels, backward_kernels;
};
inline constexpr NormPasses kFusedNorm{2, 5, 1, 2};
inline constexpr NormPasses kJointNorm{2, 3, 1, 2};
inline constexpr NormPasses kUnfusedNorm{13, 25, 6, 12};

inline NormPasses norm_passes(const Conditions& conditions) {
  if (!conditions.fused_norm) return kUnfusedNorm;
  return conditions.stack.joint_norm_gradients ? kJointNorm : kFusedNorm;
}

/// `norms` norms over `stream` bytes each.
inline void add_norm(LayerBuilder& builder, const Conditions& conditions, const Cluster& cluster,
                     std::string_view name, int norms, Bytes stream) {
  const NormPasses passes = norm_passes(conditions);
  builder.elementwise(name, norms * passes.forward * stream, norms * passes.backward * stream,
                      cluster.accelerator.elementwise.norm_fraction, norms * passes.forward_kernels,
                      norms * passes.backward_kernels);
}

/// Norms of queries and of keys over `normed` bytes. Where rotary positions are one kernel, the
/// norm of a head is read in it: so compilers and engines have it, and where Megatron's stacks
/// launch kernels of their own, their constants hold that time (published steps of Qwen3 are
/// predicted 1 % too slow without it). Elsewhere both are norms as those of the residual stream.
inline void add_head_norm(LayerBuilder& builder, const Conditions& conditions,
                          const Cluster& cluster, std::string_view name, Bytes normed) {
  if (conditions.stack.fused_rope) return;
  const NormPasses passes = norm_passes(conditions);
  builder.elementwise(name, passes.forward * normed, passes.backward * normed,
                      cluster.accelerator.elementwise.norm_fraction, 2 * passes.forward_kernels,
                      2 * passes.backward_kernels);
}

/// A norm of heads without a scale: in and out; back, both in and one out.
inline void add_plain_norm(LayerBuilder& builder, const Cluster& cluster, std::string_view name,
                           Bytes normed) {
  builder.elementwise(name, 2 * normed, 3 * normed, cluster.accelerator.elementwise.norm_fraction);
}

/// Mixing of `streams` residual streams around a block, `mixed` bytes of all of them (arXiv
/// 2512.24880, equations 14 to 19), by kernels of a training framework, in passes over them.
/// Forward: their weighted sum is the block's input, 1 + 1/m, and they are mixed and the block's
/// output is added to each, 2 + 1/m; back, 2 + 1/m and 3 + 2/m, and the gradients of what three
/// kernels read are added up, 6. The projection of the weights, of 24 columns in FP32 for four
/// streams, takes as long as 1.7 passes of the others and as 6.6 back, timed on B200 for 13 shapes
/// (NVIDIA/TransformerEngine 2790, Triton kernels; 1.6 to 1.85 and 6.5 to 6.8).
inline void add_stream_mixing(LayerBuilder& builder, const Cluster& cluster, std::string_view name,
                              double streams, Bytes mixed) {
  constexpr double kProjection = 1.7, kProjectionBack = 6.6, kSums = 6;
  const double one = 1 / streams;
  const double forward = kProjection + (1 + one) + (2 + one);
  const double backward = kProjectionBack + (2 + one) + (3 + 2 * one) + kSums;
  builder.elementwise(name, forward * mixed, backward * mixed,
                      cluster.accelerator.elementwise.add_fraction, 4, 7);
}

/// Residual additions: two in, one out; backward, the gradients of both branches likewise.
inline void add_residual(LayerBuilder& builder, const Conditions& conditions,
                         const Cluster& cluster, std::string_view name, int additions,
                         Bytes stream) {
  const double mask = conditions.dropout ? 0.5 : 0;
  builder.elementwise(name, additions * (3 + mask) * stream, additions * (3 + 2 * mask) * stream,
                      cluster.accelerator.elementwise.add_fraction, additions);
}

/// Rotary positions. Eager: times cosine 2, halves swapped and negated 3, times sine 2, added 3;
/// the same back.
inline void add_rope(LayerBuilder& builder, const Conditions& conditions, const Cluster& cluster,
                     Bytes rotated) {
  const bool fused = conditions.stack.fused_rope;
  const double passes = fused ? 2 : 10;
  builder.elementwise("rope", passes * rotated, passes * rotated,
                      cluster.accelerator.elementwise.add_fraction, fused ? 1 : 10);
}

/// Activation functions. Gated, eager: activation 2 and product 3; back, 3 + 3 of the product and 3
/// of the activation.
inline void add_activation(LayerBuilder& builder, const Conditions& conditions,
                           const Cluster& cluster, bool gated, Bytes activated) {
  const bool fused = conditions.stack.fused_activation;
  const double forward = (gated ? 3 : 2) + (fused ? 0 : 2);
  const double backward = gated ? (fused ? 5 : 9) : (fused ? 3 : 5);
  builder.elementwise("activation", forward * activated, backward * activated,
                      cluster.accelerator.elementwise.of_activations(), fused ? 1 : 3);
}

/// Clamps in front of an activation, in passes over what it writes: gate and up 2 each; back, where
/// comparisons are bytes, 4 of the one bound of a gate and 7 of two. A compiled activation reads
/// both as one: joined 4, and their gradients 4. Counted in NVIDIA/Megatron-LM,
/// megatron/core/fusions/fused_bias_geglu.py, and in PyTorch's clamp_backward.
inline void add_clamp(LayerBuilder& builder, const Conditions& conditions, const Cluster& cluster,
                      bool gated, Bytes activated) {
  const int join = gated && conditions.stack.fused_activation ? 1 : 0;
  const double forward = (gated ? 4 : 2) + 4 * join, backward = (gated ? 11 : 7) + 4 * join;
  builder.elementwise("clamp", forward * activated, backward * activated,
                      cluster.accelerator.elementwise.add_fraction, (gated ? 2 : 1) + join,
                      (gated ? 6 : 4) + join);
}

/// Columns of the head on one of `tp` ranks.
inline double head_columns(const Stack& stack, double vocab, double tp) {
  if (stack.vocab_multiple <= 1) return vocab / tp;
  return stack.vocab_multiple * std::ceil(vocab / tp / stack.vocab_multiple);
}

/// Cross-entropy over `logits` of them, of which `copied_bytes` each are gathered together first.
/// Unfused, in bytes: cast to FP32 6, maximum 4, difference 8, exponential 8, sum 4, quotient 8;
/// back, the gradient 8 and its cast 6. With a softmax of its own, as PyTorch's eager loss has it:
/// cast 6, softmax 8; back, zeros for the gradient 4, of the softmax 12, cast 6. Fused: one pass
/// forward and one back.
inline void add_loss(LayerBuilder& builder, const Conditions& conditions, const Cluster& cluster,
                     double logits, double copied_bytes) {
  struct Passes {
    double forward_bytes, backward_bytes;
    int kernels;
  };
  const Passes passes = conditions.stack.fused_loss     ? Passes{2, 4, 2}
                        : conditions.stack.softmax_loss ? Passes{14, 22, 3}
                                                        : Passes{38, 14, 8};
  builder.elementwise("loss", Bytes{logits * (passes.forward_bytes + copied_bytes)},
                      Bytes{logits * passes.backward_bytes},
                      cluster.accelerator.elementwise.add_fraction, passes.kernels);
}

}  // namespace scalemodel
