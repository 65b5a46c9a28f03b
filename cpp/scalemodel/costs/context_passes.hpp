// What context ranks do beside attention and its exchange: blocks merged, gradients added up, heads
// and tokens brought into order.
#pragma once

#include "scalemodel/costs/layer_builder.hpp"
#include "scalemodel/costs/layer_memory.hpp"

namespace scalemodel {

/// What context ranks move beside attention and its exchange, in bytes of a token each way.
struct ContextPasses {
  double forward = 0, backward = 0;
  int kernels = 0;
};

/// Ring of PyTorch (torch/distributed/tensor/experimental/_attention.py, 2024 to 2025): blocks are
/// merged, and gradients added up, in FP32 by passes beside the kernel, one each where they are
/// compiled. Values of the output's width o and of keys and values w, e bytes each. Forward, a
/// block is added to the sum (8 + e, the first written 4 + e), keys and values are joined to be
/// sent (2 e w), and the sum is cast (4 + e). Backward likewise the query's gradient, and what came
/// in of keys and values is added to and joined again (8 + e). Of a rank that attends to all
/// blocks.
inline ContextPasses pytorch_ring_passes(const LayerLayout& layout, const LocalSizes& size) {
  const double e = size.element, wide = 4, later = layout.cp - 1;
  const double q = size.queries, o = size.outputs, w = size.queries + size.outputs;
  const double joined = 2 * e * w, added = 2 * wide + e, cast = wide + e;
  return {2 * cast * o + later * (added * o + joined),
          2 * cast * (q + w) + later * (added * (q + w) + joined), 2 * layout.cp};
}

/// Ring of NVIDIA/TransformerEngine (pytorch/attention/dot_product_attention/context_parallel.py,
/// AttnFuncWithCPAndKVP2P), in values of 16 bits. Forward, keys and values are joined to be sent
/// (2), the first block's output is scaled (2) and each later one's added (3). Backward they are
/// copied (2), the query's gradient of the first block is copied (2) and those of later ones are
/// added (3); of keys and values, of which later blocks see half, half is copied (1) or added
/// (1.5) and the last, whole, added (3). Of the last rank, which attends with all of its queries.
inline ContextPasses ring_passes(const LayerLayout& layout, const LocalSizes& size) {
  const double e = size.element, later = layout.cp - 1, w = size.k + size.v;
  const double merged = 2 + 3 * later;
  return {e * (2 * w + merged * size.outputs),
          e * ((2 + 1 + 1.5 * (later - 1) + 3) * w + merged * size.queries), 1};
}

/// Heads and tokens change places: what is sent is brought into the order of ranks, what came into
/// that of chunks, a copy each (AttnFuncWithCPAndQKVOA2A, flash_attn_a2a_communicate).
inline ContextPasses head_exchange_passes(const LocalSizes& size, double element) {
  const double moved = 4 * element * size.resharded;
  return {moved, moved, 4};
}

/// Bytes of a value that context ranks exchange: FP8 attention quantises before it exchanges.
inline double exchanged_bytes(const LocalSizes& size, const Conditions& conditions) {
  return conditions.stack.fp8_attention ? size.linear_input : size.element;
}

/// Adds the passes of a layer's attention. Who gathers keys and values has none of them.
inline void add_context_passes(LayerBuilder& builder, const LayerLayout& layout,
                               const LocalSizes& size, const Conditions& conditions,
                               const Cluster& cluster) {
  ContextPasses passes;
  int more_backward = 0;
  switch (layout.context) {
    case ContextParallel::ring:
      if (conditions.stack.repeated_kv) {
        passes = pytorch_ring_passes(layout, size);
        more_backward = layout.cp;
      } else {
        passes = ring_passes(layout, size);
      }
      break;
    case ContextParallel::all_to_all:
      passes = head_exchange_passes(size, exchanged_bytes(size, conditions));
      break;
    case ContextParallel::all_gather:
      return;
  }
  const double tokens = layout.packs.exchange * size.tokens;
  builder.elementwise("context_passes", Bytes{tokens * passes.forward},
                      Bytes{tokens * passes.backward}, cluster.accelerator.elementwise.add_fraction,
                      passes.kernels, passes.kernels + more_backward);
}

}  // namespace scalemodel
