#include "scalemodel/costs/layer_memory.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/costs/operator_cost.hpp"
#include "scalemodel/ops/attention.hpp"

namespace scalemodel {
namespace {

/// One layer on one rank, for one micro-batch.
struct LocalLayer {
  const Model& model;
  const LayerKind& kind;
  const LayerLayout& layout;
  const LocalSizes& size;
  const Conditions& conditions;

  double tp(const Unit& unit) const { return unit.routed() ? layout.etp : layout.tp; }
  /// Tokens of the rank, or the copies that its experts receive.
  double rows(const Unit& unit) const {
    return unit.routed() ? routed_rows(kind, layout, size, conditions) : size.tokens;
  }
  double stream() const { return size.split_tokens * model.hidden; }
  /// What lies between layers: as many streams as the model mixes.
  double streams() const { return model.streams * stream(); }
};

/// Bytes of each value that GEMMs of a unit keep of what they read: those that read the stream, or
/// those `behind` attention and activations. It is kept for the gradients of their weights, in the
/// format that they multiply; frozen weights have none, and adapters beside them read what was not
/// quantised. Source: NVIDIA/TransformerEngine, pytorch/module/linear.py and layernorm_linear.py:
/// the input is saved where weight.requires_grad.
double kept_input(const LocalLayer& l, const Unit& unit, bool behind) {
  if (!l.conditions.frozen_base) return l.size.linear_input;
  const bool adapted = std::ranges::any_of(unit.operators, [&](const LayerOperator& op) {
    return op.has_weight() && !op.routes && (op.cut == Cut::depth) == behind &&
           has_adapter(op, l.conditions.lora_targets);
  });
  return adapted ? l.size.element : 0;
}

/// Bytes of each value that attention reads or writes and keeps. In FP8 it keeps what it
/// multiplies. Source: NVIDIA/TransformerEngine,
/// pytorch/attention/dot_product_attention/backends.py, FusedAttnFunc: queries, keys, values and
/// output as the backward pass multiplies them.
double attended_bytes(const LocalLayer& l) {
  return l.conditions.stack.fp8_attention ? l.size.linear_input : l.size.element;
}

/// Bytes of each value that experts return and the gradients of the router's weights need: none
/// where these multiply the activation, which is computed again from what it read. Source: Yan et
/// al., arXiv 2603.07685, section 4.1 (memory-efficient permutation).
double unweighted_output(const LocalLayer& l) {
  return l.conditions.stack.weighted_activation ? 0 : l.size.element;
}

/// Bytes of a token that norm and output projection of a state space read, where they are modules
/// of their own. Source: NVIDIA/Megatron-LM, core/ssm/mamba_mixer.py, _ssm_training.
double behind_scan(const LocalLayer& l, const Unit& unit, const LayerOperator& op) {
  const RecurrentShape& shape = op.recurrence;
  if (l.conditions.stack.fused_mixer || shape.kind != Recurrence::mamba2) return 0;
  return shape.sharded(l.tp(unit)).inner() * (l.size.element + kept_input(l, unit, true));
}

/// Bytes that an operator of the residual stream's own block saves for backward.
double saved_by(const LocalLayer& l, const Unit& unit, const LayerOperator& op) {
  const LocalSizes& size = l.size;
  const double e = size.element, input = size.linear_input, tp = l.tp(unit);
  switch (op.kind) {
    case OperatorKind::gemm:
      // Latents are saved before and after their norms; scores of experts are in FP32.
      if (op.routes) return size.split_tokens * op.columns * 4;
      if (op.of_token) return size.split_tokens * std::min(op.columns, op.depth) * input;
      if (op.absorbed && op.attention.reads_latents()) {
        // Inputs of both GEMMs with the latent space; without them attention reads and writes
        // heads.
        const AttentionShape& a = op.attention;
        return size.tokens * (a.heads / tp) *
               ((a.head_dim - a.rope_head_dim) * e + a.v_head_dim * input);
      }
      // Between the two GEMMs of a low-rank output.
      if (op.cut == Cut::depth && op.attention.output_groups > 0) {
        return size.tokens * op.local_depth(tp) * input;
      }
      return op.adapts && op.cut == Cut::none ? size.tokens * op.columns * 2 * e : 0;
    case OperatorKind::attention: {
      const AttentionShape& a = op.attention;
      const AttentionValues each = op.attention_values(tp);
      // An FP32 sum of every head, or the weight of every head of an indexer; ids of selected keys.
      const double sums = op.continues ? 0 : 4 * op.attention_work(tp).heads;
      const double chosen = a.index_heads > 0 ? 4.0 * a.selected : 0;
      // Attention keeps its output for its own backward pass, and the GEMM behind it what it reads:
      // the same tensor, unless one of them has it quantised.
      const double own = attended_bytes(l);
      const double behind = a.reads_latents() ? 0 : kept_input(l, unit, true);
      const double output = own == e && behind == e ? e : own + behind;
      return size.tokens *
             ((each.queries + op.saved_keys(tp)) * own + each.outputs * output + sums + chosen);
    }
    case OperatorKind::scan:
      return size.tokens *
             (op.recurrence.sharded(tp).saved_values() * e + behind_scan(l, unit, op));
    case OperatorKind::activation: {
      const double width = op.local_columns(tp), up = op.gated ? 2 * width : width;
      const bool once = l.conditions.stack.fused_activation || !op.gated;
      const bool twice = op.clamped && !l.conditions.stack.fused_clamp;  // before and behind clamps
      const double read = l.conditions.stack.narrow_activations ? input : e;
      // Apart from the product with the gate, the activation's own output is an operand, too.
      return l.rows(unit) * ((twice ? 2 * up : up) * read + (once ? 0 : width * input) +
                             width * kept_input(l, unit, true));
    }
    case OperatorKind::norm:
      return l.conditions.fused_norm ? 0 : op.copies * l.stream() * 8;  // FP32 copies
    case OperatorKind::head_norm: {  // what it reads; in FP32 where it is no kernel of its own
      const bool wide =
          !op.weightless && !l.conditions.fused_norm && !l.conditions.stack.fused_rope;
      return l.size.tokens * op.local_columns(tp) * (wide ? 8 : l.size.element);
    }
    case OperatorKind::residual:
      return l.conditions.dropout ? l.stream() : 0;  // masks
    case OperatorKind::convolution:
    case OperatorKind::latent_norm:
    case OperatorKind::rotary:
    case OperatorKind::elementwise:
    case OperatorKind::stream_mixing:
    case OperatorKind::loss:
      return 0;
  }
  return 0;
}

/// Bytes a layer saves for its backward pass, nothing recomputed. Source of the
/// terms: Korthikanti et al., arXiv 2205.05198, section 4, extended to gated layers, grouped
/// heads, latent attention and experts.
Bytes saved_everything(const LocalLayer& l) {
  const LocalSizes& size = l.size;
  const double h = l.model.hidden, e = size.element;
  const bool kept_whole = l.layout.sequence_parallel && !l.layout.regather;
  double bytes = 0;
  for (const Unit& unit : l.kind.units) {
    const double kept = kept_input(l, unit, false);
    if (unit.reads_stream) bytes += l.stream() * (l.model.streams * e + kept);  // norm and GEMM
    if (unit.reads_stream && !unit.routed() && kept_whole) {
      bytes += (size.tokens * h - l.stream()) * kept;
    }
    if (unit.routed()) bytes += l.rows(unit) * unit.expert_width * (kept + unweighted_output(l));
    for (const LayerOperator& op : unit.operators) bytes += saved_by(l, unit, op);
  }
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
Bytes cheap_outputs(const LocalLayer& l) {
  double bytes = 0;
  for (const Unit& unit : l.kind.units) {
    if (unit.reads_stream) bytes += l.stream() * kept_input(l, unit, false);
    for (const LayerOperator& op : unit.operators) {
      if (op.kind != OperatorKind::activation) continue;
      bytes += l.rows(unit) * op.local_columns(l.tp(unit)) * kept_input(l, unit, true);
    }
  }
  return Bytes{bytes};
}

/// What PyTorch's selective checkpointing saves: the layer's input, the outputs of every second
/// GEMM (in the order they run, the router before shared experts) and of attention, and the results
/// of tensor-parallel reductions. Source: torchtitan, the policy of its activation checkpointing.
Bytes every_second_gemm(const LocalLayer& l) {
  double saved = 0, attended = 0;  // elements and bytes per token
  bool saves = true;
  const auto count = [&](double columns) {
    if (saves) saved += columns;
    saves = !saves;
  };
  const auto count_gemms = [&](const Unit& unit, bool routers) {
    for (const LayerOperator& op : unit.operators) {
      if (op.kind != OperatorKind::gemm || op.routes != routers) continue;
      if (unit.routed() && !op.routes) continue;
      if (op.parts.empty()) count(op.local_columns(l.layout.tp));
      for (const ColumnPart& part : op.parts) count(op.local_columns(part, l.layout.tp));
    }
  };
  const auto attends = [](const LayerOperator& op) {
    return op.kind == OperatorKind::attention || op.kind == OperatorKind::scan;
  };
  for (const Unit& unit : l.kind.units) {
    if (std::ranges::none_of(unit.operators, attends)) continue;
    count_gemms(unit, false);
    for (const LayerOperator& op : unit.operators) {
      if (!attends(op)) continue;
      const double outputs = op.attention_values(l.layout.tp).outputs;
      // What an indexer writes is computed again; further keys add to the same output.
      if (outputs > 0) {
        attended += outputs * l.size.element + 4 * op.attention_work(l.layout.tp).heads;
      }
      attended += op.recurrence.inner() / l.layout.tp * l.size.element;
    }
  }
  for (const bool routers : {true, false}) {
    for (const Unit& unit : l.kind.units) {
      if (std::ranges::none_of(unit.operators, attends)) count_gemms(unit, routers);
    }
  }
  const double streams = l.layout.tp > 1 ? 3 : 1;  // the input, two reductions
  return Bytes{l.size.tokens * (saved * l.size.element + attended) +
               streams * l.stream() * l.size.element};
}

/// Bytes of one unit that recomputed modules do not save.
double dropped_by(const LocalLayer& l, const Unit& unit, RecomputeModules set) {
  const double tp = l.tp(unit), tokens = l.size.tokens;
  const Module dense = l.kind.feed_forward.routed() ? Module::shared_experts : Module::mlp;
  const bool norms = holds(set, Module::layernorm);
  const double kept = kept_input(l, unit, false);
  double dropped = unit.reads_stream && norms ? l.stream() * kept : 0;
  if (unit.routed() && holds(set, Module::moe)) {
    dropped += l.rows(unit) * unit.expert_width * (kept + unweighted_output(l));
  }
  for (const LayerOperator& op : unit.operators) {
    if (op.kind == OperatorKind::norm) {
      dropped += norms ? saved_by(l, unit, op) : 0;
    } else if (op.kind == OperatorKind::attention) {
      const bool made_again = l.kind.attention.latent() && !op.attention.reads_latents();
      const AttentionValues each = op.attention_values(tp);
      const double heads = made_again                  ? each.queries + op.saved_keys(tp)
                           : op.attention.compressed() ? each.queries
                                                       : 0;
      if (holds(set, Module::mla_up_proj)) dropped += tokens * heads * attended_bytes(l);
      if (holds(set, Module::core_attn)) dropped += tokens * 4 * op.attention_work(tp).heads;
    } else if (unit.routed()) {
      // Of an activation alone, what it writes: what it reads is the output of a GEMM.
      const bool writes = op.kind == OperatorKind::activation && holds(set, Module::moe_act);
      if (holds(set, Module::moe)) {
        dropped += saved_by(l, unit, op);
      } else if (writes) {
        dropped += l.rows(unit) * op.local_columns(tp) * kept_input(l, unit, true);
      }
    } else if (op.kind == OperatorKind::head_norm && op.weightless) {
      if (holds(set, Module::mla_up_proj)) dropped += saved_by(l, unit, op);
    } else if (!unit.mixes && repeats(set, dense)) {
      dropped += saved_by(l, unit, op);
    }
  }
  return dropped;
}

Bytes without_modules(const LocalLayer& l, Bytes everything, Bytes maps) {
  const RecomputeModules set = l.conditions.stack.selective_modules;
  double dropped = 0;
  for (const Unit& unit : l.kind.units) dropped += dropped_by(l, unit, set);
  return everything + (holds(set, Module::core_attn) ? Bytes{} : maps) - Bytes{dropped};
}

Bytes selective_bytes(const LocalLayer& l, Bytes everything, Bytes maps) {
  if (l.conditions.stack.selective_modules != RecomputeModules{}) {
    return without_modules(l, everything, maps);
  }
  switch (l.conditions.stack.selective) {
    case Selective::core_attention:
      return everything;
    case Selective::modules:
      return everything + maps - cheap_outputs(l);
    case Selective::operators:
      return min(every_second_gemm(l), everything);
  }
  return everything;
}

/// The widest values between the GEMMs of a feed-forward block, and their gradients.
double widest_elements(const LocalLayer& l) {
  double widest = 0;
  for (const Unit& unit : l.kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.kind != OperatorKind::activation) continue;
      widest = std::max(widest, l.rows(unit) * op.local_columns(l.tp(unit)) * (op.gated ? 3 : 2));
    }
  }
  return widest;
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
  size.kv_heads = std::ceil(static_cast<double>(kv_heads) / layout.tp);
  const double own_tokens = static_cast<double>(conditions.sequence) / layout.cp;
  for (const Unit& unit : kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.kind != OperatorKind::attention) continue;
      const AttentionValues each = op.attention_values(layout.tp);
      const double share = op.exchanged_share(own_tokens);
      size.k += share * each.keys;
      size.v += share * each.values;
      size.resharded += each.queries + op.saved_keys(layout.tp) + each.outputs;
      size.queries += each.queries;
      size.outputs += each.outputs;
    }
  }
  size.element = operand_bytes(conditions.storage);
  size.linear_input = std::min(size.element, operand_bytes(conditions.precision));
  return size;
}

double routed_rows(const LayerKind& kind, const LayerLayout& layout, const LocalSizes& size,
                   const Conditions& conditions) {
  return size.tokens / layout.tp * layout.etp * kind.feed_forward.experts_per_token *
         conditions.imbalance;
}

/// The ring of PyTorch holds keys and values of all ranks, and gradients in FP32: of queries, of
/// its own keys and values, and of those that arrive.
Bytes ring_buffers(const LayerLayout& layout, const LocalSizes& size, const Stack& stack) {
  if (!stack.repeated_kv || layout.cp == 1 || layout.context != ContextParallel::ring) return {};
  const double exchanged = size.queries + size.outputs;
  const double gathered = layout.cp * size.element * exchanged;
  return Bytes{size.tokens * (gathered + 4 * (size.queries + 2 * exchanged))};
}

LayerBytes layer_bytes(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                       const LocalSizes& size, const Conditions& conditions) {
  const LocalLayer layer{model, kind, layout, size, conditions};
  const Bytes everything = saved_everything(layer);
  const Bytes maps = score_maps(layout, size, conditions);
  const Bytes stream{layer.streams() * size.element};
  LayerBytes bytes;
  bytes.saved[static_cast<std::size_t>(Recompute::none)] = everything + maps;
  bytes.saved[static_cast<std::size_t>(Recompute::full)] = stream;
  bytes.saved[static_cast<std::size_t>(Recompute::selective)] =
      selective_bytes(layer, everything, maps);
  // The feed-forward part and attention are differentiated one after the other.
  const Bytes attention = max(score_maps_in_work(layout, size, conditions),
                              ring_buffers(layout, size, conditions.stack));
  bytes.working = max(Bytes{size.element * widest_elements(layer)}, attention) + 2 * stream;
  return bytes;
}

}  // namespace scalemodel
