#include "scalemodel/costs/unit_cost.hpp"

#include <algorithm>

#include "scalemodel/costs/layer_operators.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {

GroupShape shape_of(const Placed& p, const Mesh& mesh, Parallelism parallelism) {
  const auto& groups = &mesh == &p.experts  ? p.expert_groups
                       : &mesh == &p.owners ? p.owner_groups
                                            : p.groups;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    if (mesh.axes[i].parallelism == parallelism) return groups[i];
  }
  return GroupShape{};
}

GroupShape tensor_group(const Placed& p, const Mesh& mesh) {
  const bool sequence = mesh.degree(Parallelism::sp) > 1;
  return shape_of(p, mesh, sequence ? Parallelism::sp : Parallelism::tp);
}

Transfer transfer(const Placed& p, Collective op, Bytes size, const GroupShape& shape) {
  return transfer(op, size, shape, p.question.cluster, p.question.ablation);
}

namespace {

/// The part of a unit that one rank computes in one micro-batch.
struct Part {
  bool routed = false;
  double tp = 1, sp = 1;     ///< ranks that share out matrices; what lies between them
  double ep = 1;             ///< ranks that share out experts
  double tokens = 0;         ///< of the rank
  double copies = 1;         ///< experts that see a token, on the busiest rank
  double rows = 0;           ///< tokens times copies
  double local_experts = 1;  ///< of the rank
  double batch = 1;          ///< of them, those that get a row
};

Part part_of(const Placed& p, const Unit& unit, const Mesh& mesh) {
  Part part;
  part.routed = unit.experts > 0;
  part.tp = mesh.tensor_degree();
  part.ep = mesh.degree(Parallelism::ep);
  part.sp = part.routed ? 1 : p.mesh.degree(Parallelism::sp);
  const double samples = part.routed ? p.expert_samples : p.samples;
  part.tokens = samples * (part.routed ? p.tokens : p.own_tokens);
  part.copies = part.routed ? unit.experts_per_token * p.question.conditions.imbalance : 1;
  part.rows = part.tokens * part.copies;
  part.local_experts = part.routed ? std::max(1.0, unit.experts / part.ep) : 1;
  part.batch = part.routed ? std::min(part.local_experts, std::max(1.0, part.rows)) : 1;
  return part;
}

AttentionWork attention_work(const Placed& p, const GroupOperator& op, double tp) {
  AttentionWork work;
  work.batch = p.samples;
  work.keys = p.tokens;
  work.queries = p.own_tokens;
  work.heads = op.attention.heads / tp;
  work.kv_heads = std::max(1.0, op.attention.kv_heads / tp);
  work.head_dim = op.attention.head_dim;
  work.v_head_dim = op.attention.v_head_dim;
  work.window = op.attention.window;
  work.causal = op.causal;
  work.dropout = p.question.conditions.dropout;
  return work;
}

/// Adds a matrix product for `tokens` of them; parameters of its adapters, if it has some.
double add_product(LayerBuilder& builder, const Placed& p, const GroupOperator& op, double tokens,
                   const Part& part, bool on_rows) {
  const GroupQuestion& q = p.question;
  const Conditions& conditions = q.conditions;
  const double columns = op.cut == Cut::columns ? op.columns / part.tp : op.columns;
  const double depth = op.cut == Cut::depth ? op.depth / part.tp : op.depth;
  if (op.weightless) {
    builder.linear(op.name, op.rows, columns, depth,
                   {false, tokens * op.copies, &q.timers.storage});
    return 0;
  }
  const double rows = tokens * op.rows;
  builder.linear(
      op.name, rows / part.batch, columns, depth,
      {p.frozen, part.batch, &q.timers.linear, on_rows, on_rows && conditions.stack.fused_experts});
  const bool adapts = op.adapts || conditions.lora_everywhere;
  if (!adapts || !p.group.trained || on_rows) return 0;
  return add_adapter(builder, conditions, q.timers.storage, rows, columns, depth);
}

/// Adds a kernel that moves values and hardly computes.
void add_elementwise(LayerBuilder& builder, const Placed& p, const GroupOperator& op, double tokens,
                     double tp) {
  const Cluster& cluster = p.question.cluster;
  const Conditions& conditions = p.question.conditions;
  const double cut = op.cut == Cut::none ? 1 : tp;
  const double rows = tokens * op.rows;
  const Bytes stream{rows * op.columns / cut * p.element};
  switch (op.kind) {
    case OperatorKind::product:
    case OperatorKind::attention:
      break;
    case OperatorKind::norm:
      add_norm(builder, conditions, cluster, op.name, 1, stream);
      break;
    case OperatorKind::residual:
      add_residual(builder, conditions, cluster, op.name, 1, stream);
      break;
    case OperatorKind::activation:
      add_activation(builder, conditions, cluster, op.gated, stream);
      break;
    case OperatorKind::rotary:
      add_rope(builder, conditions, cluster, stream);
      break;
    case OperatorKind::moving:
      builder.moving(op.name, op.depth * stream, 1.5 * op.depth * stream,
                     cluster.accelerator.elementwise.add_fraction);
      break;
    case OperatorKind::loss:
      add_loss(builder, conditions, cluster, rows * op.columns / cut, 0);
      break;
  }
}

/// Adds all operators of a unit; parameters of their adapters.
double add_operators(LayerBuilder& builder, const Placed& p, const Unit& unit, const Part& part,
                     UnitSizes& sizes) {
  const GroupQuestion& q = p.question;
  double adapters = 0;
  for (const GroupOperator& op : unit.operators) {
    const bool product = op.kind == OperatorKind::product;
    const bool on_rows = part.routed && (product || op.kind == OperatorKind::activation);
    // Between products a rank has its part of the sequence.
    const bool between = op.cut == Cut::none && !product;
    const double own = on_rows ? part.rows : between ? part.tokens / part.sp : part.tokens;
    if (product) {
      adapters += add_product(builder, p, op, own, part, on_rows);
      sizes.flop += Flop{2 * own * op.rows * op.copies * op.columns * op.depth /
                         (op.cut == Cut::none ? 1 : part.tp)};
    } else if (op.kind == OperatorKind::attention) {
      if (!q.ablation.attention_scores) continue;
      builder.attention(attention_time(attention_work(p, op, part.tp), q.conditions.attention,
                                       q.cluster.accelerator, q.conditions.storage,
                                       q.timers.storage));
    } else if (q.ablation.elementwise) {
      add_elementwise(builder, p, op, own, part.tp);
    }
  }
  if (part.routed && q.ablation.elementwise) {
    // Rows into the order of their experts and back.
    const bool together = q.conditions.stack.grouped_launch;
    const Bytes permuted{4 * part.rows * unit.width_in * p.element};
    builder.moving("permute", permuted, permuted, q.cluster.accelerator.elementwise.add_fraction,
                   together ? 6 : 30);
    if (!together) builder.launches(kRoutingLaunches, kRoutingLaunches);
  }
  return adapters;
}

/// Sums and gathers between the ranks that share out matrices.
void add_tensor_transfers(UnitCost& cost, const Placed& p, const Unit& unit, const Part& part,
                          const Mesh& mesh) {
  if (part.tp <= 1) return;
  const GroupShape group = tensor_group(p, mesh);
  const Bytes in{part.tokens * unit.width_in * p.element};
  const Bytes out{part.tokens * unit.width_out * p.element};
  if (part.sp > 1 && !part.routed) {
    // Sums become scatters, and what follows gathers: Korthikanti et al., arXiv 2205.05198. Inputs
    // are kept shared out and gathered once more for the gradients of weights.
    const auto gather = [&](Transfer& into, Bytes size) {
      const Transfer one = transfer(p, Collective::all_gather, size, group);
      into = {into.time + one.time, into.size + one.size, one.op, one.level};
    };
    if (unit.opens) {
      gather(cost.enter_forward, in);
      if (!p.frozen) gather(cost.enter_backward, in);
      cost.join_backward = transfer(p, Collective::reduce_scatter, in, group);
    }
    if (unit.closes) {
      gather(cost.enter_backward, out);
      cost.join_forward = transfer(p, Collective::reduce_scatter, out, group);
    }
    return;
  }
  if (unit.closes) cost.join_forward = transfer(p, Collective::all_reduce, out, group);
  if (unit.gathers) cost.join_forward = transfer(p, Collective::all_gather, out, group);
  if (unit.opens) cost.join_backward = transfer(p, Collective::all_reduce, in, group);
}

/// Every rank sees the keys and values of the whole sequence: Llama Team, arXiv 2407.21783.
void add_context_transfers(UnitCost& cost, const Placed& p, const Unit& unit, double tp) {
  const GroupShape group = shape_of(p, p.mesh, Parallelism::cp);
  if (group.ranks <= 1) return;
  double width = 0;
  for (const GroupOperator& op : unit.operators) {
    if (op.kind != OperatorKind::attention) continue;
    const AttentionShape& a = op.attention;
    width += std::max(1.0, a.kv_heads / tp) * (a.head_dim + a.v_head_dim);
  }
  if (width <= 0) return;
  const Bytes whole{p.samples * p.tokens * width * p.element};
  cost.context_gather = transfer(p, Collective::all_gather, whole, group);
  cost.context_reduce = transfer(p, Collective::reduce_scatter, whole, group);
}

/// Tokens on their way to their experts and back.
void add_expert_transfers(UnitCost& cost, const Placed& p, const Unit& unit, const Part& part,
                          const Mesh& mesh) {
  if (!part.routed) return;
  if (part.ep > 1) {
    const Bytes sent{part.rows * unit.width_in * p.element};
    const Bytes back{part.rows * unit.width_out * p.element};
    const GroupShape group = shape_of(p, mesh, Parallelism::ep);
    cost.dispatch = transfer(p, Collective::all_to_all, sent, group);
    cost.combine = transfer(p, Collective::all_to_all, back, group);
  }
  const bool tokens_alike = p.mesh.degree(Parallelism::sp) == 1;
  const GroupShape dense = shape_of(p, p.mesh, Parallelism::tp);
  if (!tokens_alike || dense.ranks <= 1) return;
  if (batch_layout(p.mesh) == batch_layout(p.experts)) return;
  // Tokens that tensor ranks hold alike are shared out among the experts and come back to all.
  const double tokens = p.samples * p.own_tokens;
  const Bytes in{tokens * unit.width_in * p.element}, out{tokens * unit.width_out * p.element};
  cost.join_forward = transfer(p, Collective::all_gather, out, dense);
  cost.join_backward = transfer(p, Collective::all_gather, in, dense);
}

/// The axes between whose ranks parameters and their states are shared out or repeated.
struct Owners {
  GroupShape fsdp, zero, ddp;
};

/// Parameters are gathered where they are sharded; gradients are reduced, first over shards.
void add_parameter_transfers(UnitCost& cost, const Placed& p, const UnitSizes& sizes,
                             const Owners& owners) {
  const Conditions& conditions = p.question.conditions;
  const auto& [fsdp, zero, ddp] = owners;
  const bool wide = conditions.gradients_fp32 || conditions.stack.reduces_fp32;
  Bytes gradient{(wide ? 4 : p.element) * sizes.trained};
  if (fsdp.ranks > 1) {
    cost.gather = transfer(p, Collective::all_gather, Bytes{p.element * sizes.held}, fsdp);
    cost.gradients[0] = transfer(p, Collective::reduce_scatter, gradient, fsdp);
    gradient = gradient / static_cast<double>(fsdp.ranks);
  } else if (zero.ranks > 1) {
    cost.gather = transfer(p, Collective::all_gather, Bytes{p.element * sizes.trained}, zero);
    cost.gradients[0] = transfer(p, Collective::reduce_scatter, gradient, zero);
    gradient = gradient / static_cast<double>(zero.ranks);
  }
  if (ddp.ranks > 1) cost.gradients[1] = transfer(p, Collective::all_reduce, gradient, ddp);
  if (fsdp.ranks > 1 && zero.ranks > 1) {
    // Shards whose optimizer states are shared out once more: reduced, updated and gathered, which
    // moves what an all-reduce moves.
    const Transfer again = transfer(p, Collective::all_reduce, gradient, zero);
    Transfer& replicas = cost.gradients[1];
    replicas.level = std::max(replicas.level, again.level);
    replicas.time += again.time;
    replicas.size += again.size;
  }
}

/// Notes which transfers take part, and how often those of parameters do.
void note_parts(UnitCost& cost, const Placed& p, const Unit& unit, const Owners& owners) {
  const auto take_part = [&](const Transfer& moved, Parts part) {
    if (takes_part(moved)) cost.parts |= part;
  };
  const bool sharded = owners.fsdp.ranks > 1;
  const bool bucketed = unit.experts == 0 && (!sharded || owners.zero.ranks <= 1);
  // What an end has gathered it has no use for once more: the backward pass of a head follows its
  // forward pass, and that of an embedding reads no weight.
  const bool twice = has_layers(p.group.kind);
  take_part(cost.gather, !sharded ? kGatherOnce : twice ? kGather : kGatherForward);
  take_part(cost.gradients[0], sharded ? kReduce : kReduceOnce);
  const Parts alone = sharded ? kReplicasEach : kReplicas;
  const Parts together = sharded ? kBucketedEach : kBucketed;
  take_part(cost.gradients[1], bucketed ? together : alone);
  take_part(cost.join_forward, kJoinForward);
  take_part(cost.join_backward, kJoinBackward);
  take_part(cost.context_gather, kContext);
  take_part(cost.enter_forward, kEnterForward);
  take_part(cost.enter_backward, kEnterBackward);
  take_part(cost.dispatch, kDispatch);
  take_part(cost.combine, kCombine);
}

}  // namespace

UnitCost unit_cost(const Placed& p, const Unit& unit, LayerBuilder& builder, UnitSizes& sizes) {
  const Mesh& mesh = unit.experts > 0 ? p.experts : p.mesh;
  const Part part = part_of(p, unit, mesh);
  const LayerBuilder before = builder;
  const double adapters = add_operators(builder, p, unit, part, sizes);
  UnitCost cost;
  cost.forward = builder.forward() - before.forward();
  cost.backward = builder.backward() - before.backward();
  sizes.gemm_forward = builder.linear_forward() - before.linear_forward();
  sizes.gemm_backward = builder.linear_backward() - before.linear_backward();

  sizes.held = unit.parameters_cut * part.local_experts / part.tp + unit.parameters_whole;
  const bool adapted = adapters > 0 || p.question.conditions.frozen_base;
  sizes.trained = adapted ? adapters : p.frozen ? 0 : sizes.held;
  sizes.saved =
      part.tokens * (unit.saved_cut / part.tp * part.copies +
                     unit.saved_whole * part.copies / part.sp + unit.saved_token / part.sp);
  sizes.input = part.tokens * unit.width_in / part.sp;

  const bool end =
      p.group.kind == GroupKind::token_embedding || p.group.kind == GroupKind::patch_embedding;
  if (end && !p.question.ablation.ends) return cost;
  add_tensor_transfers(cost, p, unit, part, mesh);
  add_context_transfers(cost, p, unit, part.tp);
  add_expert_transfers(cost, p, unit, part, mesh);
  const Mesh& holders = part.routed ? p.experts : p.owners;
  const Owners owners{shape_of(p, holders, Parallelism::fsdp),
                      shape_of(p, holders, Parallelism::zero1),
                      shape_of(p, holders, Parallelism::ddp)};
  add_parameter_transfers(cost, p, sizes, owners);
  note_parts(cost, p, unit, owners);
  return cost;
}

}  // namespace scalemodel
