#include "scalemodel/costs/layer_memory.hpp"

#include <algorithm>

#include "scalemodel/ops/attention.hpp"

namespace scalemodel {
namespace {

/// Bytes a layer keeps from its forward to its backward pass, everything stored. Source of the
/// terms: Korthikanti et al., arXiv 2205.05198, section 4, extended to gated layers, grouped
/// heads, latent attention and experts.
Bytes saved_everything(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                       const LocalSizes& size, const Conditions& conditions) {
  const AttentionShape& a = kind.attention;
  const FeedForwardShape& ff = kind.feed_forward;
  const double h = model.hidden, e = size.element, input = size.linear_input;
  const double stream = size.split_tokens * h;
  double bytes = stream * (2 * e + 2 * input);  // inputs of both norms and of both linear blocks
  if (layout.sequence_parallel && !layout.regather) {
    const double dense_blocks = ff.routed() && ff.shared_width == 0 ? 1 : 2;
    bytes += (size.tokens * h - stream) * dense_blocks * input;  // kept whole
  }
  if (!conditions.fused_norm) bytes += kind.norms * stream * 8;  // FP32 copies of eager norms
  if (conditions.dropout) bytes += 2 * stream;                   // masks
  bytes += size.tokens * (size.q + size.k + size.v) * e;
  if (a.latent()) bytes += size.tokens * (a.q_lora_rank + a.kv_lora_rank + a.rope_head_dim) * 2 * e;
  bytes += size.tokens * size.heads * (a.v_head_dim * input + 4);
  const auto mlp = [&](double tokens, double width) {
    const double up = ff.gated ? 2 * width : width;
    const double product = conditions.stack.fused_activation || !ff.gated ? width : 2 * width;
    return tokens * (up * e + product * input);
  };
  if (!ff.routed())
    return Bytes{bytes + mlp(size.tokens, static_cast<double>(ff.width) / layout.tp)};
  if (ff.shared_width > 0) {
    bytes += mlp(size.tokens, static_cast<double>(ff.shared_width) / layout.tp);
  }
  const double rows = routed_rows(kind, layout, size, conditions);
  bytes += mlp(rows, static_cast<double>(ff.width) / layout.etp);
  bytes += rows * h * (input + e);              // permuted inputs, outputs before weighting
  bytes += size.split_tokens * ff.experts * 4;  // router probabilities
  return Bytes{bytes};
}

double score_elements(const LayerLayout& layout, const LocalSizes& size,
                      const Conditions& conditions) {
  return layout.micro_batch * size.heads * (static_cast<double>(conditions.sequence) / layout.cp) *
         conditions.sequence;
}

/// Score maps that attention without flash kernels stores: softmax output, and with dropout the
/// mask and the dropped-out copy.
Bytes score_maps(const LayerLayout& layout, const LocalSizes& size, const Conditions& conditions) {
  if (is_flash(conditions.attention)) return Bytes{};
  double per_element = size.element;
  if (conditions.attention == AttentionKernel::unfused) per_element += size.element;
  if (conditions.dropout) per_element += size.element + 1;
  return Bytes{score_elements(layout, size, conditions) * per_element};
}

/// Peak beside the stored maps while attention without flash kernels is differentiated: gradients
/// of both sides of the softmax; unfused also its FP32 input, output and their gradients.
Bytes score_maps_in_work(const LayerLayout& layout, const LocalSizes& size,
                         const Conditions& conditions) {
  if (is_flash(conditions.attention)) return Bytes{};
  const bool unfused = conditions.attention == AttentionKernel::unfused;
  return Bytes{score_elements(layout, size, conditions) * (2 * size.element + (unfused ? 12 : 0))};
}

/// Stored outputs of norms and activation functions.
Bytes cheap_outputs(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                    const LocalSizes& size, const Conditions& conditions) {
  const FeedForwardShape& ff = kind.feed_forward;
  double elements = 2 * size.split_tokens * model.hidden;
  if (ff.routed()) {
    elements += routed_rows(kind, layout, size, conditions) * ff.width / layout.etp +
                size.tokens * ff.shared_width / layout.tp;
  } else {
    elements += size.tokens * ff.width / layout.tp;
  }
  return Bytes{elements * size.linear_input};
}

/// What PyTorch's selective checkpointing keeps: the layer's input, the outputs of every second
/// matrix product (in the order they run) and of attention, and the results of tensor-parallel
/// reductions. Source: torchtitan, the policy of its activation checkpointing.
Bytes every_second_product(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                           const LocalSizes& size) {
  const AttentionShape& a = kind.attention;
  const FeedForwardShape& ff = kind.feed_forward;
  const double h = model.hidden, tp = layout.tp;
  double kept = 0;  // elements per token
  bool keep = true;
  const auto product = [&](double columns) {
    if (keep) kept += columns;
    keep = !keep;
  };
  if (a.latent()) {
    if (a.q_lora_rank > 0) product(a.q_lora_rank);
    product(size.q);
    product(a.kv_lora_rank + a.rope_head_dim);
    product(size.heads * (a.head_dim - a.rope_head_dim + a.v_head_dim));
  } else {
    product(size.q);
    product(size.k);
    product(size.v);
  }
  product(h);
  if (ff.routed()) product(ff.experts);
  const double width = ff.routed() ? ff.shared_width : ff.width;
  if (width > 0) {
    product(width / tp);
    if (ff.gated) product(width / tp);
    product(h);
  }
  const double attended = size.heads * (a.v_head_dim * size.element + 4);
  const double streams = layout.tp > 1 ? 3 : 1;  // the input, two reductions
  return Bytes{size.tokens * (kept * size.element + attended) +
               streams * size.split_tokens * h * size.element};
}

Bytes selective_bytes(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                      const LocalSizes& size, const Conditions& conditions, Bytes everything,
                      Bytes maps) {
  switch (conditions.stack.selective) {
    case Selective::core_attention:
      return everything;
    case Selective::modules:
      return everything + maps - cheap_outputs(model, kind, layout, size, conditions);
    case Selective::operators:
      return min(every_second_product(model, kind, layout, size), everything);
  }
  return everything;
}

}  // namespace

LocalSizes local_sizes(const LayerKind& kind, const LayerLayout& layout,
                       const Conditions& conditions) {
  LocalSizes size{};
  const AttentionShape& a = kind.attention;
  size.tokens = static_cast<double>(layout.micro_batch) * conditions.sequence / layout.cp;
  size.split_tokens = layout.sequence_parallel ? size.tokens / layout.tp : size.tokens;
  size.heads = static_cast<double>(a.heads) / layout.tp;
  // Fewer key/value heads than tensor ranks: each rank keeps a copy of one.
  const int kv_heads = a.latent() ? a.heads : a.kv_heads;
  size.kv_heads = std::max(1.0, static_cast<double>(kv_heads) / layout.tp);
  size.q = size.heads * a.head_dim;
  size.k = size.kv_heads * a.head_dim;
  size.v = size.kv_heads * a.v_head_dim;
  size.element = operand_bytes(conditions.storage);
  size.linear_input = std::min(size.element, operand_bytes(conditions.precision));
  return size;
}

double routed_rows(const LayerKind& kind, const LayerLayout& layout, const LocalSizes& size,
                   const Conditions& conditions) {
  return size.tokens / layout.tp * layout.etp * kind.feed_forward.experts_per_token *
         conditions.imbalance;
}

LayerBytes layer_bytes(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                       const LocalSizes& size, const Conditions& conditions) {
  const Bytes everything = saved_everything(model, kind, layout, size, conditions);
  const Bytes maps = score_maps(layout, size, conditions);
  const Bytes stream{size.split_tokens * model.hidden * size.element};
  LayerBytes bytes;
  bytes.saved[static_cast<std::size_t>(Recompute::none)] = everything + maps;
  bytes.saved[static_cast<std::size_t>(Recompute::full)] = stream;
  bytes.saved[static_cast<std::size_t>(Recompute::selective)] =
      selective_bytes(model, kind, layout, size, conditions, everything, maps);
  const FeedForwardShape& ff = kind.feed_forward;
  const double widest = ff.routed()
                            ? routed_rows(kind, layout, size, conditions) * ff.width / layout.etp
                            : size.tokens * ff.width / layout.tp;
  // The feed-forward part and attention are differentiated one after the other.
  bytes.working = max(Bytes{size.element * widest * (ff.gated ? 3 : 2)},
                      score_maps_in_work(layout, size, conditions)) +
                  2 * stream;
  return bytes;
}

}  // namespace scalemodel
