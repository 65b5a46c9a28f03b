#include "scalemodel/costs/layer_cost.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/costs/context_passes.hpp"
#include "scalemodel/costs/host_calls.hpp"
#include "scalemodel/costs/layer_builder.hpp"
#include "scalemodel/costs/layer_memory.hpp"
#include "scalemodel/costs/matrix_updates.hpp"
#include "scalemodel/costs/operator_cost.hpp"

namespace scalemodel {
namespace {

UnitShard unit_shard(const LayerKind& kind, const Unit& unit, const LayerLayout& layout,
                     const LocalSizes& size, const Conditions& conditions) {
  UnitShard shard;
  shard.tp = unit.routed() ? layout.etp : layout.tp;
  shard.tokens = shard.rows = size.tokens;
  shard.split_tokens = size.split_tokens;
  if (!unit.routed()) return shard;
  shard.rows = routed_rows(kind, layout, size, conditions);
  const double local_experts = std::max(1.0, static_cast<double>(unit.experts) / layout.ep);
  shard.batch = std::min(local_experts, std::max(1.0, shard.rows));
  shard.ep = layout.ep;
  shard.ep_between = layout.ep_group.domains > 1;
  return shard;
}

/// Exposed part of communication that may hide under `overlappable`, and what was hidden.
struct Split {
  Seconds exposed, hidden;
};

Split hide(Seconds communication, Seconds overlappable, double share = 1) {
  const Seconds hidden = min(share * communication, overlappable);
  return {communication - hidden, hidden};
}

/// Whether tensor ranks reduce partial sums of a block. Where the sequence is sharded, routed
/// experts exchange tokens over their own groups, and only dense and shared blocks reduce.
bool reduces(const Unit& unit, bool sequence_sharded) {
  return unit.reads_stream && unit.closes && !(unit.routed() && sequence_sharded);
}

double reduced_blocks(const LayerKind& kind, bool sequence_sharded) {
  return static_cast<double>(std::ranges::count_if(
      kind.units, [&](const Unit& unit) { return reduces(unit, sequence_sharded); }));
}

/// Whether recomputation that stops early leaves out a reduction: that of the last block, which
/// follows the last GEMM, and whose sum nothing in the backward pass asks for.
bool stops_before_reduction(const LayerKind& kind, const LayerLayout& layout,
                            const Conditions& conditions) {
  const Unit* last = nullptr;
  for (const Unit& unit : kind.units) {
    if (unit.reads_stream) last = &unit;
  }
  return conditions.stack.early_stop && last != nullptr && reduces(*last, layout.sequence_parallel);
}

/// Chunks of a pipelined overlap: the default of Transformer Engine's userbuffers (num_splits).
constexpr double kPipelinedChunks = 4;

/// Tensor-parallel collectives: one all-reduce behind attention and one behind the feed-forward
/// layer, each way; with sequence parallelism an all-gather and a reduce-scatter instead, and in
/// the backward pass the gathered input once more for the weight gradient unless it was saved.
/// Source: Korthikanti et al., arXiv 2205.05198. Returns what full recomputation leaves out of the
/// forward exchange.
Split add_tensor_parallel(Phase& forward, Phase& backward, LayerBuilder& builder,
                          const Model& model, const LayerKind& kind, const LayerLayout& layout,
                          const LocalSizes& size, const Conditions& conditions) {
  if (layout.tp == 1) return {};
  const FeedForwardShape& ff = kind.feed_forward;
  const double blocks = reduced_blocks(kind, layout.sequence_parallel);
  const Bytes stream{size.tokens * model.hidden * size.element};
  // Every chunk of a pipelined overlap is a collective of its own and pays its latency.
  const bool chunked = layout.overlap_tp == TensorOverlap::pipelined;
  const double chunks = chunked ? kPipelinedChunks : 1;
  // A gate that is a column-parallel GEMM of its own reduces its own input gradient.
  const bool gate = conditions.stack.split_gate && ff.gated && !ff.routed();
  const double extra = gate && !layout.sequence_parallel ? 1 : 0;
  const double unrepeated = stops_before_reduction(kind, layout, conditions) ? 1 : 0;
  const auto run = [&](Collective op, Bytes bytes, double backward_calls, double left_out) {
    return chunks *
           builder.message({Communicator::tp, op, bytes / chunks, layout.tp_group, chunks * blocks,
                            chunks * (blocks + extra) * backward_calls, chunks * left_out});
  };
  Seconds each_forward, each_backward, reduction;
  if (layout.sequence_parallel) {
    // Inputs may travel quantised; partial sums may not.
    const double narrow = conditions.stack.narrow_gather ? size.linear_input / size.element : 1;
    // Frozen weights have no gradient that would need the input again.
    const double gathers = layout.regather && !conditions.frozen_base ? 2 : 1;
    const Seconds gather = run(Collective::all_gather, narrow * stream, gathers, 0);
    reduction = run(Collective::reduce_scatter, stream, 1, unrepeated);
    each_forward = gather + reduction;
    each_backward = gathers * gather + reduction;
  } else {
    reduction = run(Collective::all_reduce, stream, 1, unrepeated);
    each_forward = each_backward = reduction;
  }
  const Seconds total_forward = blocks * each_forward;
  const Seconds total_backward = (blocks + extra) * each_backward;
  builder.communicate("tensor_parallel", total_forward, total_backward, blocks * stream);
  // A ring exchange under its own GEMM moves tp chunks; the first chunk is exposed.
  const bool hidden = layout.overlap_tp != TensorOverlap::off;
  const double overlap_efficiency = hidden ? conditions.stack.overlap_efficiency : 0;
  const double pieces = chunked ? chunks : layout.tp;
  const double pipelined = (pieces - 1) / pieces;
  const Split f =
      hide(total_forward, overlap_efficiency * (builder.linear_forward() + builder.idle_forward()),
           pipelined);
  Split b =
      hide(total_backward,
           overlap_efficiency * (builder.linear_backward() + builder.idle_backward()), pipelined);
  if (!hidden && conditions.stack.async_tp) {
    // The exchange of an input gradient runs beside the weight gradient of the same GEMM; those
    // behind a reduction hide nothing. Query-key-value and up make this share of the GEMMs.
    const double share =
        (builder.linear_forward() - builder.last_linear()) / (2 * builder.linear_forward());
    b = hide(total_backward, conditions.stack.overlap_efficiency * share *
                                 (builder.weight_gradient() + builder.idle_backward()));
  }
  forward.tp = f.exposed;
  forward.hidden += f.hidden;
  backward.tp = b.exposed;
  backward.hidden += b.hidden;
  // As much of it is hidden as of the others.
  const double share = total_forward > Seconds{} ? unrepeated * reduction / total_forward : 0;
  return {share * f.exposed, share * f.hidden};
}

/// Gathers along the sequence of batch-first tensors arrive rank by rank and are copied into place.
/// Products fused with their collectives write where it belongs.
void add_gather_copies(LayerBuilder& builder, const Model& model, const LayerKind& kind,
                       const LayerLayout& layout, const LocalSizes& size,
                       const Conditions& conditions, const Cluster& cluster) {
  const bool copies = conditions.stack.batch_first && layout.sequence_parallel &&
                      layout.overlap_tp == TensorOverlap::off;
  if (layout.tp == 1 || !copies) return;
  const double blocks = reduced_blocks(kind, true);
  const double element = conditions.stack.narrow_gather ? size.linear_input : size.element;
  const Bytes copied{2 * blocks * size.tokens * model.hidden * element};
  builder.elementwise("gather_copies", copied, (layout.regather ? 2 : 1) * copied,
                      cluster.accelerator.elementwise.add_fraction, 2);
}

/// A scan sees whole sequences: what it reads is exchanged for a share of the heads before it, and
/// what it writes behind it, each way (Megatron-LM, context parallelism of Mamba layers).
void add_scan_exchange(Phase& forward, Phase& backward, LayerBuilder& builder,
                       const RecurrentShape& recurrence, const LayerLayout& layout,
                       const LocalSizes& size) {
  const RecurrentShape local = recurrence.sharded(layout.tp);
  const Bytes sent{size.tokens * (local.projected() + local.inner()) * size.element};
  const Seconds time =
      builder.message({Communicator::cp, Collective::all_to_all, sent, layout.cp_group, 1, 1});
  builder.communicate("scan_exchange", time, time, sent);
  forward.cp += time;
  backward.cp += time;
}

/// Context-parallel exchange of keys and values (or of heads, all-to-all).
void add_context_parallel(Phase& forward, Phase& backward, LayerBuilder& builder,
                          const LayerLayout& layout, const LocalSizes& size,
                          const Conditions& conditions) {
  const double cp = layout.cp;
  const double exchanged = layout.packs.exchange * size.tokens;
  const bool repeated = conditions.stack.repeated_kv && layout.context == ContextParallel::ring;
  const double widths = repeated ? size.queries + size.outputs : size.k + size.v;
  const Bytes kv{exchanged * widths * size.element};
  const auto run = [&](std::optional<Collective> op, Bytes bytes, double forward_calls,
                       double backward_calls) {
    return builder.message(
        {Communicator::cp, op, bytes, layout.cp_group, forward_calls, backward_calls});
  };
  Split f{}, b{};
  Seconds total_forward, total_backward;
  switch (layout.context) {
    case ContextParallel::ring: {
      if (repeated) {
        // Gathered at once while the resident block is attended to, in either pass; gradients go
        // round after each block in FP32, the last with nothing left to hide it.
        const Seconds gather = run(Collective::all_gather, cp * kv, 1, 1);
        const Seconds hop = run(std::nullopt, 4 / size.element * kv, 0, cp);
        const double one = conditions.stack.overlap_efficiency / cp;
        total_forward = gather;
        total_backward = gather + cp * hop;
        const Seconds ahead = builder.attention_forward() + builder.idle_forward();
        const Seconds behind = builder.attention_backward() + builder.idle_backward();
        f = hide(gather, one * ahead);
        const Split again = hide(gather, one * behind);
        const Split hops = hide(cp * hop, (cp - 1) * one * behind, (cp - 1) / cp);
        b = {again.exposed + hops.exposed, again.hidden + hops.hidden};
        break;
      }
      // cp - 1 neighbour exchanges under the attention of the resident block; gradients of keys and
      // values travel with them on the way back.
      const Seconds hop = run(std::nullopt, kv, cp - 1, 2 * (cp - 1));
      const double overlap_efficiency = conditions.stack.overlap_efficiency * (cp - 1) / cp;
      total_forward = (cp - 1) * hop;
      total_backward = 2 * total_forward;
      f = hide(total_forward,
               overlap_efficiency * (builder.attention_forward() + builder.idle_forward()));
      b = hide(total_backward,
               overlap_efficiency * (builder.attention_backward() + builder.idle_backward()));
      break;
    }
    case ContextParallel::all_to_all: {
      const Bytes sent{exchanged * size.resharded * exchanged_bytes(size, conditions)};
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
  forward.cp += f.exposed;
  forward.hidden += f.hidden;
  backward.cp += b.exposed;
  backward.hidden += b.hidden;
}

double ways_to_choose(int some, int all) {
  double ways = some > all ? 0 : 1;
  for (int i = 0; i < some; ++i) ways *= static_cast<double>(all - i) / (i + 1);
  return ways;
}

/// Copies of a token that leave for `places`, over which the groups of experts are laid out evenly.
/// Where a place holds w of G groups, of which a token visits g, x of these are there with the
/// hypergeometric probability, and none of its k experts is with (1 - x/g)^k. Groups that span
/// several places leave it g/G of them. Source: DeepSeek-AI, arXiv 2412.19437, section 2.1.2
/// (node-limited routing).
double sent_copies(const FeedForwardShape& ff, int places, bool deduplicated) {
  const int groups = ff.groups, visited = ff.groups_per_token, k = ff.experts_per_token;
  if (!deduplicated || groups == 0) return dispatched_copies(k, places, deduplicated);
  if (places >= groups) {
    return dispatched_copies(k, std::max(1.0, 1.0 * places * visited / groups), true);
  }
  const int here = groups / places;
  double untouched = 0;
  for (int x = 0; x <= std::min(here, visited); ++x) {
    const double chosen = ways_to_choose(x, here) * ways_to_choose(visited - x, groups - here);
    untouched += chosen / ways_to_choose(visited, groups) * std::pow(1 - 1.0 * x / visited, k);
  }
  return places * (1 - untouched);
}

/// An FP32 scale for every 128 values of a byte, as DeepEP sends them (DeepSeek-AI, arXiv
/// 2412.19437, section 3.3.3).
constexpr double kBlockScales = 4.0 / 128;

/// Expert-parallel dispatch and combine: all-to-all of the copies of each token, each way; between
/// domains a deduplicating dispatch sends one copy per domain. With tensor-parallel experts the
/// copies are gathered and reduced inside the expert's group too.
void add_expert_parallel(LayerCost& cost, LayerBuilder& builder, const Model& model,
                         const LayerKind& kind, const LayerLayout& layout, const LocalSizes& size,
                         const Conditions& conditions) {
  const FeedForwardShape& ff = kind.feed_forward;
  if (!ff.routed() || (layout.ep == 1 && layout.etp == 1)) return;
  const bool spans = layout.ep_group.domains > 1;
  const bool deduplicated =
      spans ? conditions.stack.deduplicated_between : conditions.stack.deduplicated_dispatch;
  const int places = spans ? layout.ep_group.domains : layout.ep;
  const double sent = sent_copies(ff, places, deduplicated);
  const Bytes copies{size.tokens / layout.tp * sent * ff.expert_width(model.hidden) * size.element *
                     conditions.imbalance};
  // Dispatch and combine in either pass. Of each, gradients of combined tokens travel as tokens do.
  const auto travel = [&](Bytes bytes, double times) {
    return builder.message(
        {Communicator::ep, Collective::all_to_all, bytes, layout.ep_group, times, times});
  };
  const bool narrow = conditions.stack.narrow_dispatch && size.linear_input < size.element;
  const double narrowed = (1 + kBlockScales) * size.linear_input / size.element;
  Seconds one_way = travel(narrow ? narrowed * copies : copies, narrow ? 1 : 2);
  Seconds way_back = narrow ? travel(copies, 1) : one_way;
  if (layout.etp > 1) {
    const Bytes gathered = layout.etp * copies;
    const auto inside = [&](Collective op) {
      return builder.message({Communicator::etp, op, gathered, layout.etp_group, 1, 1});
    };
    one_way += inside(Collective::all_gather);
    way_back += inside(Collective::reduce_scatter);
  }
  const Seconds total = one_way + way_back;
  builder.communicate("expert_parallel", total, total, (narrow ? 1 + narrowed : 2) * copies);
  // Hidden under the dense part and the experts of a neighbouring micro-batch; between domains
  // under all of it, which schedules that pair two micro-batches are made for.
  const bool between = spans && conditions.stack.overlap_ep_between;
  const double overlap_efficiency = between ? 1
                                    : conditions.stack.overlap_ep
                                        ? conditions.stack.overlap_efficiency
                                        : 0;
  const Split f = hide(total, overlap_efficiency * cost.forward.compute);
  const Split b = hide(total, overlap_efficiency * cost.backward.compute);
  cost.forward.ep = f.exposed;
  cost.forward.hidden += f.hidden;
  cost.paired_forward = f.hidden;
  cost.backward.ep = b.exposed;
  cost.backward.hidden += b.hidden;
  cost.paired_backward = b.hidden;
}

/// A pass whose expert exchange runs by itself.
Phase unpaired(Phase pass, Seconds paired) {
  pass.ep += paired;
  pass.hidden = pass.hidden - paired;
  return pass;
}

/// Modules that run again. A feed-forward block reduces, and gathers, once more among tensor ranks,
/// as one of the `blocks` of its layer; experts exchange their tokens once more, and alone.
Phase repeated_modules(const LayerCost& cost, const LayerBuilder& builder,
                       const Conditions& conditions, double blocks) {
  const RecomputeModules set = conditions.stack.selective_modules;
  Phase again;
  for (std::size_t i = 0; i < kModuleNames.size(); ++i) {
    const auto module = static_cast<Module>(i);
    if (repeats(set, module)) again.compute += builder.repeated(module);
  }
  if (holds(set, Module::mlp) && blocks > 0) again.tp += cost.forward.tp / blocks;
  if (holds(set, Module::moe)) again.ep += cost.forward.ep + cost.paired_forward;
  return again;
}

/// What is run again before the backward pass; `unrepeated` is what that leaves out of the exchange
/// of tensor ranks.
void set_recomputation(LayerCost& cost, const LayerBuilder& builder, const Conditions& conditions,
                       const Split& unrepeated, double blocks) {
  const auto index = [](Recompute mode) { return static_cast<std::size_t>(mode); };
  cost.recompute[index(Recompute::full)] = unpaired(cost.forward, cost.paired_forward);
  cost.recompute[index(Recompute::full)].compute += builder.forward_again() - builder.forward();
  if (conditions.stack.early_stop) {
    // Nothing in the backward pass asks for the output of the last GEMM, nor for its sum over
    // tensor ranks: PyTorch stops where the last input is saved, XLA strips what nothing reads.
    Phase& full = cost.recompute[index(Recompute::full)];
    full.compute = full.compute - builder.last_linear();
    full.tp = full.tp - unrepeated.exposed;
    full.hidden = full.hidden - unrepeated.hidden;
  }
  Phase& selective = cost.recompute[index(Recompute::selective)];
  if (conditions.stack.selective_modules != RecomputeModules{}) {
    selective = repeated_modules(cost, builder, conditions, blocks);
    return;
  }
  switch (conditions.stack.selective) {
    case Selective::core_attention:
      selective.compute = builder.attention_recompute();
      break;
    case Selective::modules:
      selective.compute = builder.elementwise_forward();
      break;
    case Selective::operators:
      selective.compute = builder.elementwise_forward() + 0.5 * builder.linear_forward();
      break;
  }
}

}  // namespace

Conditions resolve_conditions(const Task& task, const Stack& stack, Precision precision) {
  Conditions conditions;
  conditions.precision = precision;
  conditions.storage = storage_precision(precision);
  conditions.sequence = task.sequence;
  conditions.attention = task.attention.value_or(stack.attention);
  conditions.fused_norm = enabled(task.fused_norm, stack.fused_norm);
  conditions.dropout = enabled(task.dropout, stack.dropout);
  const auto of_stack = stack.gradients_fp32 ? GradientPrecision::fp32 : GradientPrecision::bf16;
  conditions.gradients_fp32 = task.gradient_precision.value_or(of_stack) == GradientPrecision::fp32;
  conditions.frozen_base = task.method == Method::lora;
  conditions.lora_rank = conditions.frozen_base ? task.lora_rank : 0;
  conditions.lora_targets = task.lora_targets;
  // Adapters are too narrow to be worth it: Adam updates them.
  if (updates_matrices(task.optimizer) && !conditions.frozen_base) {
    conditions.matrix_optimizer = task.optimizer;
  }
  conditions.imbalance = task.imbalance;
  conditions.images = task.images;
  conditions.frozen_vision = task.frozen_vision || conditions.frozen_base;
  conditions.stack = stack;
  // A shard of the sequence knows the scales of its rows, but not of its columns.
  if (stack.row_scales) conditions.stack.narrow_gather = false;
  return conditions;
}

LayerCost layer_cost(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                     const Conditions& conditions, const Cluster& cluster,
                     const LayerTimers& timers, OperatorList* list, MessageList* messages) {
  const LocalSizes size = local_sizes(kind, layout, conditions);
  LayerBuilder builder(conditions, cluster, list, messages);
  PricingContext context{conditions, cluster, timers, {}, conditions.frozen_base};
  context.attention.batch = layout.micro_batch;
  context.attention.keys = conditions.sequence;
  if (layout.packs.attended > 0) {
    // Documents of a pack attend to themselves alone: as equal ones of the same attention.
    context.attention.keys = layout.packs.attended;
    const double documents = layout.packs.fill * conditions.sequence / layout.packs.attended;
    context.attention.batch *= documents * layout.packs.context / layout.cp;
  }
  context.attention.queries =
      context.attention.keys / (layout.packs.attended > 0 ? layout.packs.context : layout.cp);
  const bool rings = layout.overlap_tp == TensorOverlap::ring && layout.sequence_parallel;
  if (rings) context.pieces = layout.tp;
  context.routed_layer = kind.feed_forward.routed();
  context.latent = kind.attention.latent() || kind.attention.compressed();
  double adapters = 0;
  for (const Unit& unit : kind.units) {
    adapters +=
        add_operators(builder, unit, unit_shard(kind, unit, layout, size, conditions), context);
  }
  add_gather_copies(builder, model, kind, layout, size, conditions, cluster);
  if (layout.cp > 1 && kind.attention.present()) {
    add_context_passes(builder, layout, size, conditions, cluster);
  }
  add_host_calls(builder, kind, layout, conditions, reduced_blocks(kind, layout.sequence_parallel));

  LayerCost cost;
  cost.forward.compute = builder.forward();
  cost.backward.compute = builder.backward();
  cost.weight_gradient = builder.weight_gradient();
  cost.attention_forward = builder.attention_forward();
  cost.attention_backward = builder.attention_backward();
  const Split unrepeated = add_tensor_parallel(cost.forward, cost.backward, builder, model, kind,
                                               layout, size, conditions);
  if (layout.cp > 1 && kind.recurrence.present()) {
    add_scan_exchange(cost.forward, cost.backward, builder, kind.recurrence, layout, size);
  }
  if (layout.cp > 1 && kind.attention.present()) {
    add_context_parallel(cost.forward, cost.backward, builder, layout, size, conditions);
  }
  add_expert_parallel(cost, builder, model, kind, layout, size, conditions);

  const bool dense = !kind.feed_forward.routed();
  set_recomputation(cost, builder, conditions, unrepeated,
                    dense ? reduced_blocks(kind, layout.sequence_parallel) : 0);
  const LayerBytes bytes = layer_bytes(model, kind, layout, size, conditions);
  cost.saved = bytes.saved;
  cost.working = bytes.working;
  for (const Unit& unit : kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (unit.on_copies(op)) {
        const double expert = op.local_parameters(layout.etp);
        cost.expert_parameters += unit.experts / static_cast<double>(layout.ep) * expert;
        cost.distinct_parameters += expert;
      } else {
        cost.dense_parameters += op.local_parameters(layout.tp);
      }
    }
  }
  cost.distinct_parameters += cost.dense_parameters;
  cost.trainable_dense = conditions.frozen_base ? adapters : cost.dense_parameters;
  cost.trainable_expert = conditions.frozen_base ? 0 : cost.expert_parameters;
  if (conditions.matrix_optimizer) {
    add_matrix_updates(cost, kind, layout, conditions, cluster, timers);
  }
  return cost;
}

}  // namespace scalemodel
