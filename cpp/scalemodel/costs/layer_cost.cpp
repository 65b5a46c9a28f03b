#include "scalemodel/costs/layer_cost.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/costs/layer_builder.hpp"
#include "scalemodel/costs/layer_memory.hpp"
#include "scalemodel/costs/layer_operators.hpp"

namespace scalemodel {
namespace {

void add_norms(LayerBuilder& builder, const Model& model, const LayerKind& kind,
               const LocalSizes& size, const Conditions& conditions, const Cluster& cluster) {
  const Bytes stream{size.split_tokens * model.hidden * size.element};
  add_norm(builder, conditions, cluster, "norms", kind.norms, stream);
  add_residual(builder, conditions, cluster, "residual", 2, stream);
}

/// Projections and attention core. Returns trainable adapter parameters.
double add_attention(LayerBuilder& builder, const Model& model, const LayerKind& kind,
                     const LayerLayout& layout, const LocalSizes& size,
                     const Conditions& conditions, const Cluster& cluster,
                     const LayerTimers& timers) {
  const AttentionShape& a = kind.attention;
  const double n = size.tokens, h = model.hidden;
  const LinearOptions base{conditions.frozen_base, 1, &timers.linear};
  double adapters = 0;
  const auto project = [&](std::string_view name, double columns, double depth) {
    builder.linear(name, n, columns, depth, base);
    adapters += add_adapter(builder, conditions, timers.storage, n, columns, depth);
  };
  if (a.latent()) {
    const double latent = a.kv_lora_rank, rope = a.rope_head_dim;
    if (a.q_lora_rank > 0) {
      project("q_down", a.q_lora_rank, h);
      project("q_up", size.q, a.q_lora_rank);
    } else {
      project("q", size.q, h);
    }
    project("kv_down", latent + rope, h);
    project("kv_up", size.heads * (a.head_dim - rope + a.v_head_dim), latent);
    const Bytes latents{n * (a.q_lora_rank + latent) * size.element};
    builder.moving("latent_norms", 2 * latents, 3 * latents,
                   cluster.accelerator.elementwise.norm_fraction, 2);
  } else {
    project("qkv", size.q + size.k + size.v, h);
  }
  if (a.rotary) {
    add_rope(builder, conditions, cluster, Bytes{n * (size.q + size.k) * size.element});
  }
  AttentionWork work;
  work.batch = layout.micro_batch;
  work.keys = conditions.sequence;
  work.queries = work.keys / layout.cp;
  work.heads = size.heads;
  work.kv_heads = size.kv_heads;
  work.head_dim = a.head_dim;
  work.v_head_dim = a.v_head_dim;
  work.window = a.window;
  work.dropout = conditions.dropout;
  builder.attention(attention_time(work, conditions.attention, cluster.accelerator,
                                   conditions.storage, timers.storage));
  project("attention_out", h, size.heads * a.v_head_dim);
  return adapters;
}

/// A feed-forward block of one rank, whose part of the width it is.
struct Mlp {
  double hidden, tokens, width;
  bool gated;
};

/// Gate and up in one GEMM; parameters of adapters, if any.
double add_mlp(LayerBuilder& builder, const Mlp& mlp, const Conditions& conditions,
               const Cluster& cluster, const LinearOptions& options,
               const GemmTimer& adapter_timer) {
  const auto& [hidden, tokens, width, gated] = mlp;
  const double up = gated ? 2 * width : width;
  const double rows = tokens / options.batch;
  const double element = operand_bytes(conditions.storage);
  if (gated && conditions.stack.split_gate) {
    builder.linear("mlp_gate", rows, width, hidden, options);
    builder.linear("mlp_up", rows, width, hidden, options);
    // The input gradients of both meet.
    builder.moving("gate_sum", Bytes{}, Bytes{3 * tokens * hidden * element},
                   cluster.accelerator.elementwise.add_fraction, 0, 1);
  } else {
    builder.linear("mlp_up", rows, up, hidden, options);
  }
  const Bytes activated{tokens * width * element};
  if (!options.fused) add_activation(builder, conditions, cluster, gated, activated);
  builder.linear("mlp_down", rows, hidden, width, options);
  if (conditions.lora_rank == 0 || !conditions.lora_everywhere) return 0;
  return add_adapter(builder, conditions, adapter_timer, tokens, up, hidden) +
         add_adapter(builder, conditions, adapter_timer, tokens, hidden, width);
}

/// Copies of a token that leave for other ranks: k, or, sent once per rank that holds any of its
/// experts, the expected number of distinct ranks n (1 - (1 - 1/n)^k).
double dispatched_copies(int experts_per_token, int ranks, bool deduplicated) {
  const double n = ranks;
  return deduplicated ? n * (1 - std::pow(1 - 1 / n, experts_per_token)) : experts_per_token;
}

/// Rows brought into the order of their experts and back, `rows` bytes once. One rank, or one copy
/// per rank: read what came in, write the rows, and the reverse. An all-to-all wants the rows in
/// the order of ranks first and of experts afterwards. Narrow products want a multiple of their
/// block of rows per expert: a router that does not see to it leaves copies into padded rows and
/// back.
Bytes permutation_bytes(const LayerKind& kind, const LayerLayout& layout,
                        const Conditions& conditions, Bytes rows) {
  const bool narrow = conditions.precision != conditions.storage;
  const double padding = narrow && conditions.stack.pads_experts ? 4 : 0;
  if (layout.ep == 1) return (4 + padding) * rows;
  const int topk = kind.feed_forward.experts_per_token;
  if (!conditions.stack.deduplicated_dispatch) {
    return ((kind.feed_forward.experts > layout.ep ? 8 : 4) + padding) * rows;
  }
  return (2 + 2 * dispatched_copies(topk, layout.ep, true) / topk + padding) * rows;
}

double add_feed_forward(LayerBuilder& builder, const Model& model, const LayerKind& kind,
                        const LayerLayout& layout, const LocalSizes& size,
                        const Conditions& conditions, const Cluster& cluster,
                        const LayerTimers& timers) {
  const FeedForwardShape& ff = kind.feed_forward;
  const double h = model.hidden;
  const LinearOptions base{conditions.frozen_base, 1, &timers.linear};
  if (!ff.routed()) {
    const Mlp mlp{h, size.tokens, static_cast<double>(ff.width) / layout.tp, ff.gated};
    return add_mlp(builder, mlp, conditions, cluster, base, timers.storage);
  }
  double adapters = 0;
  if (conditions.stack.fp32_router) {
    builder.wide_router(size.split_tokens, ff.experts, h, conditions.frozen_base);
  } else {
    builder.linear("router", size.split_tokens, ff.experts, h,
                   {conditions.frozen_base, 1, &timers.storage});
  }
  if (ff.shared_width > 0) {
    const Mlp shared{h, size.tokens, static_cast<double>(ff.shared_width) / layout.tp, ff.gated};
    adapters += add_mlp(builder, shared, conditions, cluster, base, timers.storage);
  }
  const double rows = routed_rows(kind, layout, size, conditions);
  const double local_experts = std::max(1.0, static_cast<double>(ff.experts) / layout.ep);
  const double busy_experts = std::min(local_experts, std::max(1.0, rows));
  // Scores, top-k, counts, offsets and losses are small kernels around the permutation.
  const Bytes permuted =
      permutation_bytes(kind, layout, conditions, Bytes{rows * h * size.element});
  builder.moving("permute", permuted, permuted, cluster.accelerator.elementwise.add_fraction,
                 conditions.stack.grouped_launch ? 6 : 30);
  if (!conditions.stack.grouped_launch) {
    // Paired micro-batches are scheduled part by part, which is as much work again.
    const bool paired = conditions.stack.overlap_ep_between && layout.ep_group.domains > 1;
    const double launches = (paired ? 2 : 1) * kRoutingLaunches;
    builder.launches(launches, launches);
  }
  const LinearOptions grouped{conditions.frozen_base, busy_experts, &timers.linear, true,
                              conditions.stack.fused_experts};
  const Mlp expert{h, rows, static_cast<double>(ff.width) / layout.etp, ff.gated};
  adapters += add_mlp(builder, expert, conditions, cluster, grouped, timers.storage);
  return adapters;
}

/// Exposed part of communication that may hide under `cover`, and what was hidden.
struct Split {
  Seconds exposed, hidden;
};

Split hide(Seconds communication, Seconds cover, double share = 1) {
  const Seconds hidden = min(share * communication, cover);
  return {communication - hidden, hidden};
}

/// Chunks of a pipelined overlap: the default of Transformer Engine's userbuffers (num_splits).
constexpr double kPipelinedChunks = 4;

/// Tensor-parallel collectives: one all-reduce behind attention and one behind the feed-forward
/// layer, each way; with sequence parallelism an all-gather and a reduce-scatter instead, and in
/// the backward pass the gathered input once more for the weight gradient unless it was kept.
/// Source: Korthikanti et al., arXiv 2205.05198.
void add_tensor_parallel(Phase& forward, Phase& backward, LayerBuilder& builder, const Model& model,
                         const LayerKind& kind, const LayerLayout& layout, const LocalSizes& size,
                         const Conditions& conditions) {
  if (layout.tp == 1) return;
  const FeedForwardShape& ff = kind.feed_forward;
  // Routed experts exchange tokens over their own groups; only dense and shared parts reduce.
  const double blocks = ff.routed() && ff.shared_width == 0 && layout.sequence_parallel ? 1 : 2;
  const Bytes stream{size.tokens * model.hidden * size.element};
  // Every chunk of a pipelined overlap is a collective of its own and pays its latency.
  const bool chunked = layout.overlap_tp == TensorOverlap::pipelined;
  const double chunks = chunked ? kPipelinedChunks : 1;
  // A gate that is a column-parallel product of its own reduces its own input gradient.
  const bool gate = conditions.stack.split_gate && ff.gated && !ff.routed();
  const double extra = gate && !layout.sequence_parallel ? 1 : 0;
  const auto run = [&](Collective op, Bytes bytes, double backward_calls) {
    return chunks * builder.message({Communicator::tp, op, bytes / chunks, layout.tp_group,
                                     chunks * blocks, chunks * (blocks + extra) * backward_calls});
  };
  Seconds each_forward, each_backward;
  if (layout.sequence_parallel) {
    // Inputs may travel quantised; partial sums may not.
    const double narrow = conditions.stack.narrow_gather ? size.linear_input / size.element : 1;
    // Frozen weights have no gradient that would need the input again.
    const double gathers = layout.regather && !conditions.frozen_base ? 2 : 1;
    const Seconds gather = run(Collective::all_gather, narrow * stream, gathers);
    const Seconds scatter = run(Collective::reduce_scatter, stream, 1);
    each_forward = gather + scatter;
    each_backward = gathers * gather + scatter;
  } else {
    each_forward = run(Collective::all_reduce, stream, 1);
    each_backward = each_forward;
  }
  const Seconds total_forward = blocks * each_forward;
  const Seconds total_backward = (blocks + extra) * each_backward;
  builder.communicate("tensor_parallel", total_forward, total_backward, blocks * stream);
  // A ring exchange under its own matrix product moves tp chunks; the first chunk is exposed.
  const bool hidden = layout.overlap_tp != TensorOverlap::off;
  const double reach = hidden ? conditions.stack.overlap_efficiency : 0;
  const double pieces = chunked ? chunks : layout.tp;
  const double pipelined = (pieces - 1) / pieces;
  const Split f =
      hide(total_forward, reach * (builder.linear_forward() + builder.idle_forward()), pipelined);
  Split b = hide(total_backward, reach * (builder.linear_backward() + builder.idle_backward()),
                 pipelined);
  if (!hidden && conditions.stack.async_tp) {
    // The exchange of an input gradient runs beside the weight gradient of the same product; those
    // behind a reduction hide nothing. Query-key-value and up make this share of the products.
    const double share =
        (builder.linear_forward() - builder.last_linear()) / (2 * builder.linear_forward());
    b = hide(total_backward, conditions.stack.overlap_efficiency * share *
                                 (builder.weight_gradient() + builder.idle_backward()));
  }
  forward.tp = f.exposed;
  forward.hidden += f.hidden;
  backward.tp = b.exposed;
  backward.hidden += b.hidden;
}

constexpr double kBlockLaunches = 8;  ///< of one ring block each way; counted, not timed

/// Gathers along the sequence of batch-first tensors arrive rank by rank and are copied into place.
/// Products fused with their collectives write where it belongs.
void add_gather_copies(LayerBuilder& builder, const Model& model, const LayerKind& kind,
                       const LayerLayout& layout, const LocalSizes& size,
                       const Conditions& conditions, const Cluster& cluster) {
  const bool copies = conditions.stack.batch_first && layout.sequence_parallel &&
                      layout.overlap_tp == TensorOverlap::off;
  if (layout.tp == 1 || !copies) return;
  const FeedForwardShape& ff = kind.feed_forward;
  const double blocks = ff.routed() && ff.shared_width == 0 ? 1 : 2;
  const double element = conditions.stack.narrow_gather ? size.linear_input : size.element;
  const Bytes copied{2 * blocks * size.tokens * model.hidden * element};
  builder.moving("gather_copies", copied, (layout.regather ? 2 : 1) * copied,
                 cluster.accelerator.elementwise.add_fraction, 2);
}

/// Context-parallel exchange of keys and values (or of heads, all-to-all).
void add_context_parallel(Phase& forward, Phase& backward, LayerBuilder& builder,
                          const LayerLayout& layout, const LocalSizes& size,
                          const Conditions& conditions) {
  if (layout.cp == 1) return;
  const double cp = layout.cp;
  if (layout.context == ContextParallel::ring) {
    // Each block is an attention of its own, and its result is merged with those before.
    builder.launches(kBlockLaunches * (cp - 1), kBlockLaunches * (cp - 1));
  }
  const Bytes kv{size.tokens * (size.k + size.v) * size.element};
  const auto run = [&](std::optional<Collective> op, Bytes bytes, double forward_calls,
                       double backward_calls) {
    return builder.message(
        {Communicator::cp, op, bytes, layout.cp_group, forward_calls, backward_calls});
  };
  Split f{}, b{};
  Seconds total_forward, total_backward;
  switch (layout.context) {
    case ContextParallel::ring: {
      // cp - 1 neighbour exchanges under the attention of the block at hand; gradients of keys and
      // values travel with them on the way back.
      const Seconds hop = run(std::nullopt, kv, cp - 1, 2 * (cp - 1));
      const double reach = conditions.stack.overlap_efficiency * (cp - 1) / cp;
      total_forward = (cp - 1) * hop;
      total_backward = 2 * total_forward;
      f = hide(total_forward, reach * (builder.attention_forward() + builder.idle_forward()));
      b = hide(total_backward, reach * (builder.attention_backward() + builder.idle_backward()));
      break;
    }
    case ContextParallel::all_to_all: {
      const Bytes sent{size.tokens *
                       (size.q + size.k + size.v + size.heads * size.v / size.kv_heads) *
                       size.element};
      total_forward = run(Collective::all_to_all, sent, 1, 1);
      total_backward = total_forward;
      f = {total_forward, Seconds{}};
      b = f;
      break;
    }
    case ContextParallel::all_gather: {
      total_forward = run(Collective::all_gather, cp * kv, 1, 1);
      total_backward = total_forward + run(Collective::reduce_scatter, cp * kv, 0, 1);
      f = {total_forward, Seconds{}};
      b = {total_backward, Seconds{}};
      break;
    }
  }
  builder.communicate("context_parallel", total_forward, total_backward, kv);
  forward.cp = f.exposed;
  forward.hidden += f.hidden;
  backward.cp = b.exposed;
  backward.hidden += b.hidden;
}

/// Expert-parallel dispatch and combine: all-to-all of the copies of each token, each way; between
/// domains a deduplicating dispatch sends one copy per domain. With tensor-parallel experts the
/// copies are gathered and reduced inside the expert's group too.
void add_expert_parallel(Phase& forward, Phase& backward, LayerBuilder& builder, const Model& model,
                         const LayerKind& kind, const LayerLayout& layout, const LocalSizes& size,
                         const Conditions& conditions) {
  const FeedForwardShape& ff = kind.feed_forward;
  if (!ff.routed() || (layout.ep == 1 && layout.etp == 1)) return;
  const bool spans = layout.ep_group.domains > 1;
  const bool deduplicated =
      spans ? conditions.stack.deduplicated_between : conditions.stack.deduplicated_dispatch;
  const int targets = spans ? layout.ep_group.domains : layout.ep;
  const double sent = dispatched_copies(ff.experts_per_token, targets, deduplicated);
  const Bytes copies{size.tokens / layout.tp * sent * model.hidden * size.element *
                     conditions.imbalance};
  // Dispatch and combine in either pass.
  Seconds one_way =
      builder.message({Communicator::ep, Collective::all_to_all, copies, layout.ep_group, 2, 2});
  Seconds way_back = one_way;
  if (layout.etp > 1) {
    const Bytes gathered = layout.etp * copies;
    const auto inside = [&](Collective op) {
      return builder.message({Communicator::etp, op, gathered, layout.etp_group, 1, 1});
    };
    one_way += inside(Collective::all_gather);
    way_back += inside(Collective::reduce_scatter);
  }
  const Seconds total = one_way + way_back;
  builder.communicate("expert_parallel", total, total, 2 * copies);
  // Hidden under the dense part and the experts of a neighbouring micro-batch; between domains
  // under all of it, which schedules that pair two micro-batches are made for.
  const bool between = spans && conditions.stack.overlap_ep_between;
  const double reach = between                       ? 1
                       : conditions.stack.overlap_ep ? conditions.stack.overlap_efficiency
                                                     : 0;
  const Split f = hide(total, reach * forward.compute);
  const Split b = hide(total, reach * backward.compute);
  forward.ep = f.exposed;
  forward.hidden += f.hidden;
  backward.ep = b.exposed;
  backward.hidden += b.hidden;
}

/// What is run again before the backward pass.
void set_recomputation(LayerCost& cost, const LayerBuilder& builder, const Conditions& conditions) {
  const auto index = [](Recompute mode) { return static_cast<std::size_t>(mode); };
  cost.recompute[index(Recompute::full)] = cost.forward;
  if (conditions.stack.early_stop) {
    // Nothing in the backward pass asks for the output of the last product.
    Phase& full = cost.recompute[index(Recompute::full)];
    full.compute = full.compute - builder.last_linear();
  }
  Phase& selective = cost.recompute[index(Recompute::selective)];
  switch (conditions.stack.selective) {
    case Selective::core_attention:
      selective.compute = builder.attention_recompute();
      break;
    case Selective::modules:
      selective.compute = builder.moving_forward();
      break;
    case Selective::operators:
      selective.compute = builder.moving_forward() + 0.5 * builder.linear_forward();
      break;
  }
}

}  // namespace

Conditions resolve_conditions(const Task& task, const Stack& stack, Precision precision) {
  Conditions conditions;
  conditions.precision = precision;
  conditions.storage = storage_precision(precision);
  conditions.sequence = task.sequence;
  conditions.attention = task.attention == AttentionChoice::stack
                             ? stack.attention
                             : static_cast<AttentionKernel>(static_cast<int>(task.attention) - 1);
  conditions.fused_norm = enabled(task.fused_norm, stack.fused_norm);
  conditions.dropout = enabled(task.dropout, stack.dropout);
  conditions.gradients_fp32 = task.gradient_precision == GradientPrecision::stack
                                  ? stack.gradients_fp32
                                  : task.gradient_precision == GradientPrecision::fp32;
  conditions.frozen_base = task.method == Method::lora;
  conditions.lora_rank = conditions.frozen_base ? task.lora_rank : 0;
  conditions.lora_everywhere = task.lora_targets == LoraTargets::all;
  conditions.imbalance = task.imbalance;
  conditions.stack = stack;
  return conditions;
}

LayerCost layer_cost(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                     const Conditions& conditions, const Cluster& cluster,
                     const LayerTimers& timers, OperatorList* list, MessageList* messages) {
  const LocalSizes size = local_sizes(kind, layout, conditions);
  LayerBuilder builder(conditions, cluster, list, messages);
  double adapters = 0;
  add_norms(builder, model, kind, size, conditions, cluster);
  adapters += add_attention(builder, model, kind, layout, size, conditions, cluster, timers);
  adapters += add_feed_forward(builder, model, kind, layout, size, conditions, cluster, timers);
  add_gather_copies(builder, model, kind, layout, size, conditions, cluster);

  LayerCost cost;
  cost.forward.compute = builder.forward();
  cost.backward.compute = builder.backward();
  cost.weight_gradient = builder.weight_gradient();
  add_tensor_parallel(cost.forward, cost.backward, builder, model, kind, layout, size, conditions);
  add_context_parallel(cost.forward, cost.backward, builder, layout, size, conditions);
  add_expert_parallel(cost.forward, cost.backward, builder, model, kind, layout, size, conditions);

  set_recomputation(cost, builder, conditions);
  const LayerBytes bytes = layer_bytes(model, kind, layout, size, conditions);
  cost.saved = bytes.saved;
  cost.working = bytes.working;
  const FeedForwardShape& ff = kind.feed_forward;

  const double down = kind.attention.latent()
                          ? static_cast<double>(model.hidden) *
                                (kind.attention.q_lora_rank + kind.attention.kv_lora_rank +
                                 kind.attention.rope_head_dim)
                          : 0;
  // Ranks beyond the key/value heads keep a copy of one instead of a part.
  const AttentionShape& heads = kind.attention;
  const double kv_share = static_cast<double>(heads.kv_heads) / layout.tp;
  const double copied = heads.latent() ? 0
                                       : model.hidden * (size.kv_heads - kv_share) *
                                             (heads.head_dim + heads.v_head_dim);
  cost.dense_parameters = (kind.attention_parameters - down + kind.dense_parameters) / layout.tp +
                          down + copied + kind.norm_parameters;
  cost.expert_parameters = kind.expert_parameters / (layout.ep * layout.etp);
  cost.distinct_parameters =
      cost.dense_parameters +
      (ff.routed() ? kind.expert_parameters / (static_cast<double>(ff.experts) * layout.etp) : 0);
  cost.trainable_dense = conditions.frozen_base ? adapters : cost.dense_parameters;
  cost.trainable_expert = conditions.frozen_base ? 0 : cost.expert_parameters;
  return cost;
}

}  // namespace scalemodel
