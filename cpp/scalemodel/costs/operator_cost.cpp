#include "scalemodel/costs/operator_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "scalemodel/costs/layer_operators.hpp"

namespace scalemodel {
namespace {

/// One unit while it is priced.
struct Pricing {
  LayerBuilder& builder;
  const Unit& unit;
  const UnitShard& shard;
  const PricingContext& context;

  const Conditions& conditions() const { return context.conditions; }
  double element() const { return operand_bytes(context.conditions.storage); }
  double add_fraction() const { return context.cluster.accelerator.elementwise.add_fraction; }
};

/// Gate and up as GEMMs of their own: the input gradients of both meet.
void add_split_gate(const Pricing& p, const LayerOperator& op, double rows,
                    const LinearOptions& options) {
  constexpr std::array<std::string_view, 2> kNames{"mlp_gate", "mlp_up"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    p.builder.linear(kNames[i], rows, op.local_columns(op.parts[i], p.shard.tp), op.depth, options);
  }
  p.builder.elementwise("gate_sum", Bytes{},
                        Bytes{3 * rows * options.batch * op.depth * p.element()}, p.add_fraction(),
                        0, 1);
}

/// Biases behind the experts that their router's probabilities weight, expert by expert, in FP32:
/// bytes a value. Forward: product 4, sum 2 + 4 + 4, joined 8, cast 6. Back: cast 6 and 6, halves
/// joined 4, gradients of bias 12 and probability 12. Counted in Megatron-Core's _apply_bias
/// (NVIDIA/Megatron-LM, megatron/core/transformer/moe/experts.py).
constexpr double kBiasForwardBytes = 28, kBiasBackwardBytes = 40;
constexpr int kBiasForwardKernels = 2, kBiasBackwardKernels = 5;  ///< of each expert

void add_expert_bias(const Pricing& p, const LayerOperator& op, double values) {
  if (op.bias <= 0 || op.cut != Cut::depth || p.conditions().stack.fused_expert_bias) return;
  const int experts = static_cast<int>(p.shard.batch);
  const int forward = kBiasForwardKernels * experts, backward = kBiasBackwardKernels * experts;
  p.builder.elementwise("expert_bias", Bytes{kBiasForwardBytes * values},
                        Bytes{kBiasBackwardBytes * values}, p.add_fraction(), forward + 2,
                        backward + 2);
  p.builder.launch_with_experts(forward, backward);
}

/// The gradient of a bias is the sum of its layer's over all tokens, a kernel of its own that reads
/// them once: autograd reduces what it broadcast (PyTorch, torch/csrc/autograd/engine.cpp,
/// validate_outputs), behind a fused activation or residual sum as behind a linear layer. Not told
/// apart: Transformer Engine sums that of queries, keys and values inside of a GEMM.
void add_bias_gradient(const Pricing& p, const LayerOperator& op, double values) {
  if (!op.biased() || p.context.frozen) return;
  p.builder.elementwise("bias_gradient", Bytes{}, Bytes{values * p.element()}, p.add_fraction(), 0,
                        1);
}

/// The libraries of CPUs add a product to what is there, so that the bias fills the output first
/// (PyTorch, aten/src/ATen/native/LinearAlgebra.cpp, addmm_impl_cpu_); GPUs add it as they store.
void add_bias(const Pricing& p, const LayerOperator& op, double values) {
  if (!op.biased() || !p.conditions().stack.host_computes) return;
  p.builder.elementwise("bias", Bytes{values * p.element()}, Bytes{}, p.add_fraction(), 1, 0);
}

/// Columns of one rank, those a stack pads a vocabulary with included.
double computed_columns(const Pricing& p, const LayerOperator& op) {
  return op.vocabulary ? head_columns(p.conditions().stack, op.columns, p.shard.tp)
                       : op.local_columns(p.shard.tp);
}

/// Adds a GEMM with `rows` of the rank; parameters of its adapters, if it has some.
double add_gemm(const Pricing& p, const LayerOperator& op, double rows) {
  const Conditions& conditions = p.conditions();
  const UnitShard& shard = p.shard;
  const double columns = computed_columns(p, op), depth = op.local_depth(shard.tp);
  if (op.weightless) {
    p.builder.linear(
        op.name, op.rows, columns, depth,
        {false, rows / op.rows * op.copies, &p.context.timers.storage, false, false, true});
    return 0;
  }
  if (op.routes) {
    if (conditions.stack.fp32_router) {
      p.builder.wide_router(rows, columns, depth, p.context.frozen, p.context.timers.storage);
    } else {
      p.builder.linear(op.name, rows, columns, depth,
                       {p.context.frozen, 1, &p.context.timers.storage});
    }
    return 0;
  }
  const bool grouped = p.unit.on_copies(op);
  // A ring exchange feeds what is cut by columns, forward, and what is cut by depth, back; it
  // empties the latter forward. Gathers and reductions of the other gradients run beside whole
  // GEMMs. Source: NVIDIA/TransformerEngine, pytorch/module/base.py, initialize_ub.
  const bool exchanged_in_pieces = !p.unit.routed() && op.cut != Cut::none;
  const double pieces = exchanged_in_pieces ? p.context.pieces : 1;
  const double batch = shard.batch * std::max(1.0, op.owned);  // of parts that tokens choose from
  const LinearOptions options{
      p.context.frozen,
      batch,
      op.wide ? &p.context.timers.storage : &p.context.timers.linear,
      grouped,
      p.context.quantised || (grouped && conditions.stack.fused_experts),
      false,
      op.taps,
      grouped && op.bias > 0 ? conditions.stack.biased_gradient_slowdown : 1,
      pieces,
      op.cut == Cut::depth ? pieces : 1};
  if (op.is_gate_and_up() && conditions.stack.split_gate) {
    add_split_gate(p, op, rows / batch, options);
  } else {
    p.builder.linear(op.name, rows / batch, columns, depth, options);
  }
  if (grouped) add_expert_bias(p, op, rows * columns);
  if (!grouped) {
    add_bias(p, op, rows * columns);
    add_bias_gradient(p, op, rows * columns);
  }
  if (!p.context.adapts || !has_adapter(op, conditions.lora_targets)) return 0;
  double adapters = 0;
  const bool exchanged = conditions.lora_rank > 0 && shard.tp > 1 && !grouped;
  const AdapterCalls calls = op.cut == Cut::depth ? kAdapterOfSums : kAdapterOfColumns;
  const auto add = [&](double width) {
    adapters += add_adapter(p.builder, conditions, p.context.cluster, p.context.timers.storage,
                            rows, width, depth, p.element());
    if (exchanged) p.builder.collectives(calls.forward, calls.backward);
  };
  // Where gate and up are layers of their own, so are queries, keys and values.
  if (op.parts.empty() || !conditions.stack.split_gate) {
    add(columns);
  } else {
    for (const auto& part : op.parts) {
      if (const double width = op.local_columns(part, shard.tp); width > 0) add(width);
    }
  }
  return adapters;
}

/// Adds a kernel that moves values and hardly computes.
void add_elementwise(const Pricing& p, const LayerOperator& op, double rows) {
  const Cluster& cluster = p.context.cluster;
  const Conditions& conditions = p.conditions();
  LayerBuilder& builder = p.builder;
  const double columns = computed_columns(p, op);
  const Bytes stream{rows * columns * p.element()};
  switch (op.kind) {
    case OperatorKind::gemm:
    case OperatorKind::attention:
    case OperatorKind::scan:
      break;
    case OperatorKind::convolution:  // reads and writes its channels; backward both gradients too
      builder.elementwise(op.name, 2 * stream, 5 * stream, p.add_fraction());
      break;
    case OperatorKind::norm:
      // Norms of one block are kernels of their own over the same stream.
      add_norm(builder, conditions, cluster, op.name, static_cast<int>(op.copies), stream);
      break;
    case OperatorKind::latent_norm:
      builder.elementwise(op.name, 2 * stream, 3 * stream,
                          cluster.accelerator.elementwise.norm_fraction, 2);
      break;
    case OperatorKind::head_norm:
      if (op.weightless) {
        add_plain_norm(builder, cluster, op.name, stream);
      } else {
        add_head_norm(builder, conditions, cluster, op.name, stream);
      }
      break;
    case OperatorKind::residual:
      add_residual(builder, conditions, cluster, op.name, 1, stream);
      break;
    case OperatorKind::activation:
      if (p.unit.on_copies(op) && conditions.stack.fused_experts) break;
      if (op.clamped && !conditions.stack.fused_clamp) {
        add_clamp(builder, conditions, cluster, op.gated, stream);
      }
      add_activation(builder, conditions, cluster, op.gated, stream);
      break;
    case OperatorKind::rotary:
      add_rope(builder, conditions, cluster, stream);
      break;
    case OperatorKind::elementwise:
      builder.elementwise(op.name, op.depth * stream, 1.5 * op.depth * stream, p.add_fraction());
      break;
    case OperatorKind::stream_mixing:
      add_stream_mixing(builder, cluster, op.name, op.copies, stream);
      break;
    case OperatorKind::loss:
      add_loss(builder, conditions, cluster, rows * columns, 0);
      break;
  }
}

void add_attention(const Pricing& p, const LayerOperator& op) {
  AttentionWork work = op.attention_work(p.shard.tp);
  work.batch = p.context.attention.batch;
  work.queries = p.context.attention.queries;
  work.keys = op.other_keys > 0 ? op.other_keys : p.context.attention.keys;
  work.dropout = p.conditions().dropout;
  work.narrow =
      p.conditions().stack.fp8_attention && p.conditions().precision != p.conditions().storage;
  p.builder.attention(op.name,
                      attention_time(work, p.conditions().attention, p.context.cluster.accelerator,
                                     p.conditions().storage, p.context.timers.storage));
}

/// Operations of a gated delta rule without a kernel of its own: the triangle of a chunk is
/// inverted row by row, then chunk follows chunk. Counted in torch_chunk_gated_delta_rule
/// (huggingface/transformers, models/qwen3_next/modeling_qwen3_next.py), which Megatron-Core calls
/// in deterministic mode (megatron/core/ssm/gated_delta_net.py).
constexpr double kRowOperations = 16, kChunkOperations = 34;
constexpr double kBackwardOperations = 1.5;  ///< products have two gradients, slices and sums one

void add_deterministic_scan(const Pricing& p, const RecurrentShape& shape, double tokens) {
  const double chunk = shape.chunk;
  const double operations =
      kRowOperations * (chunk - 1) + kChunkOperations * std::ceil(tokens / chunk);
  p.builder.operations(operations, kBackwardOperations * operations);
}

/// A rank scans whole sequences, of its share of the heads where context ranks split them.
void add_scan(const Pricing& p, const LayerOperator& op) {
  const AttentionWork& whole = p.context.attention;
  const double context = whole.keys / whole.queries;
  const ScanWork work{op.recurrence.sharded(p.shard.tp * context), whole.batch, whole.keys};
  p.builder.scan(scan_time(work, p.context.cluster.accelerator, p.element()));
  const bool delta =
      work.shape.kind == Recurrence::gated_delta || work.shape.kind == Recurrence::jet;
  if (delta && p.conditions().stack.deterministic) {
    add_deterministic_scan(p, work.shape, work.tokens);
  }
}

/// Rows brought into the order of their experts and back, `rows` bytes once. One rank, or one copy
/// per rank: read what came in, write the rows, and the reverse. An all-to-all wants the rows in
/// the order of ranks first and of experts afterwards. Narrow GEMMs want a multiple of their block
/// of rows per expert: a router that does not see to it leaves copies into padded rows and back.
Bytes permutation_bytes(const Pricing& p, Bytes rows) {
  const Conditions& conditions = p.conditions();
  const bool narrow = conditions.precision != conditions.storage;
  const double padding = narrow && conditions.stack.pads_experts ? 4 : 0;
  const int ep = p.shard.ep;
  if (ep == 1) return (4 + padding) * rows;
  if (!conditions.stack.deduplicated_dispatch) {
    return ((p.unit.experts > ep ? 8 : 4) + padding) * rows;
  }
  const int topk = p.unit.experts_per_token;
  return (2 + 2 * dispatched_copies(topk, ep, true) / topk + padding) * rows;
}

/// Scores, top-k, counts, offsets and losses are small kernels around the permutation.
void add_permutation(const Pricing& p) {
  const Stack& stack = p.conditions().stack;
  const Bytes permuted =
      permutation_bytes(p, Bytes{p.shard.rows * p.unit.expert_width * p.element()});
  p.builder.elementwise("permute", permuted, permuted, p.add_fraction(),
                        stack.grouped_launch ? 6 : 30);
  // A CPU that computes is measured with plain layers: no framework's routing is around theirs.
  if (stack.grouped_launch || stack.host_computes) return;
  // Paired micro-batches are scheduled part by part, which is as much work again.
  const bool paired = stack.overlap_ep_between && p.shard.ep_between;
  const double launches = (paired ? 2 : 1) * kRoutingLaunches;
  p.builder.launches(launches, launches);
}

/// Whether a norm is part of the one linear layer that reads what it writes, as Transformer Engine
/// has it. Latents and experts have several readers (NVIDIA/Megatron-LM, core/models/gpt/
/// gpt_layer_specs.py: input_layernorm and pre_mlp_layernorm are modules of their own there alone).
bool is_fused_norm(const Pricing& p, const LayerOperator& op) {
  if (op.kind != OperatorKind::norm) return false;
  return p.unit.mixes ? !p.context.latent : !p.context.routed_layer;
}

/// The module that recomputation counts an operator to. Latents and what reads the stream directly
/// are kept by all of them; of latent attention, all GEMMs that make heads are up-projections, of
/// compressed attention that of the queries.
std::optional<Module> module_of(const Pricing& p, const LayerOperator& op) {
  const Unit& unit = p.unit;
  if (op.kind == OperatorKind::attention) return Module::core_attn;
  if (op.kind == OperatorKind::norm) return Module::layernorm;
  if (op.kind == OperatorKind::residual || op.kind == OperatorKind::scan) return std::nullopt;
  if (unit.routed()) {
    return op.kind == OperatorKind::activation ? Module::moe_act : Module::moe;
  }
  if (unit.mixes) {
    const bool makes_heads = op.kind == OperatorKind::rotary ||
                             op.kind == OperatorKind::head_norm ||
                             (op.kind == OperatorKind::gemm && op.cut == Cut::columns &&
                              !op.shares_input && !op.reads_attention);
    return p.context.latent && makes_heads ? std::optional(Module::mla_up_proj) : std::nullopt;
  }
  return p.context.routed_layer ? Module::shared_experts : Module::mlp;
}

/// CPU overhead of a linear layer of Transformer Engine each way where nothing but its call counts,
/// in operations of the framework: 311 us there and back on GB200 (NVIDIA/TransformerEngine 3523),
/// where one of them takes 18 us.
constexpr double kLinearOperations = 8.4;

/// Whether graphs hold what the CPU launches of a unit.
bool is_graphed(const Unit& unit, const PricingContext& context) {
  const Stack& stack = context.conditions.stack;
  if (!stack.cuda_graphs) return false;
  const bool scans = std::ranges::any_of(
      unit.operators, [](const LayerOperator& op) { return op.kind == OperatorKind::scan; });
  if (scans) return stack.graphed_scans;
  return !unit.mixes && context.routed_layer ? stack.graphed_routing : stack.graphed_attention;
}

/// What a framework has a module for: the activations and sums between are operations of a block.
bool is_module(const LayerOperator& op) {
  switch (op.kind) {
    case OperatorKind::gemm:
      return !op.weightless;
    case OperatorKind::attention:
    case OperatorKind::scan:
    case OperatorKind::norm:
    case OperatorKind::latent_norm:
    case OperatorKind::head_norm:
    case OperatorKind::stream_mixing:
      return true;
    case OperatorKind::convolution:
    case OperatorKind::residual:
    case OperatorKind::activation:
    case OperatorKind::rotary:
    case OperatorKind::elementwise:
    case OperatorKind::loss:
      return false;
  }
  return false;
}

}  // namespace

bool has_adapter(const LayerOperator& op, LoraTargets targets) {
  switch (targets) {
    case LoraTargets::qkv:
      return op.adapts && op.cut != Cut::depth;
    case LoraTargets::attention:
      return op.adapts;
    case LoraTargets::all:
      return true;
  }
  return false;
}

double dispatched_copies(int experts_per_token, double ranks, bool deduplicated) {
  const double n = ranks;
  return deduplicated ? n * (1 - std::pow(1 - 1 / n, experts_per_token)) : experts_per_token;
}

double add_operators(LayerBuilder& builder, const Unit& unit, const UnitShard& shard,
                     const PricingContext& context) {
  const Pricing pricing{builder, unit, shard, context};
  const LayerBuilder::Queue before = builder.queue();
  double adapters = 0;
  for (const LayerOperator& op : unit.operators) {
    builder.enter(module_of(pricing, op), !is_fused_norm(pricing, op));
    if (is_module(op)) builder.modules(1);
    if (context.conditions.stack.sequential_experts && unit.on_copies(op) && is_module(op)) {
      builder.operations(kLinearOperations * shard.batch, kLinearOperations * shard.batch);
    }
    if (op.kind == OperatorKind::attention) {
      if (context.attention_core) add_attention(pricing, op);
      continue;
    }
    if (op.kind == OperatorKind::scan) {
      if (context.attention_core) add_scan(pricing, op);
      continue;
    }
    const bool gemm = op.kind == OperatorKind::gemm;
    // The router and what lies between blocks see the rank's shard of the sequence; latents are
    // made of the whole of it.
    const bool between = op.cut == Cut::none &&
                         (gemm ? op.routes || op.of_token : op.kind != OperatorKind::latent_norm);
    const double rows = op.rows * (unit.on_copies(op) ? shard.rows
                                   : between          ? shard.split_tokens
                                                      : shard.tokens);
    if (gemm) {
      adapters += add_gemm(pricing, op, rows);
    } else if (context.elementwise) {
      add_elementwise(pricing, op, rows);
    }
  }
  if (unit.routed() && context.elementwise) {
    builder.enter(Module::moe);
    add_permutation(pricing);
  }
  builder.enter(std::nullopt);
  if (is_graphed(unit, context)) builder.graph_since(before);
  return adapters;
}

}  // namespace scalemodel
