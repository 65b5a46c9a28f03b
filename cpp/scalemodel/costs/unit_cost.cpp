#include "scalemodel/costs/unit_cost.hpp"

#include <algorithm>

#include "scalemodel/costs/operator_cost.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {

GroupShape shape_of(const ShardedGroup& p, const Mesh& mesh, Parallelism parallelism) {
  const auto& groups = &mesh == &p.experts  ? p.expert_groups
                       : &mesh == &p.owners ? p.owner_groups
                                            : p.groups;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    if (mesh.axes[i].parallelism == parallelism) return groups[i];
  }
  return GroupShape{};
}

GroupShape tensor_group(const ShardedGroup& p, const Mesh& mesh) {
  const bool sequence = mesh.degree(Parallelism::sp) > 1;
  return shape_of(p, mesh, sequence ? Parallelism::sp : Parallelism::tp);
}

Transfer transfer(const ShardedGroup& p, Collective op, Bytes size, const GroupShape& shape) {
  return transfer(op, size, shape, p.question.cluster, p.question.ablation);
}

namespace {

/// What one rank computes of a unit in one micro-batch.
struct LocalUnit {
  bool routed = false;
  double tp = 1, sp = 1;     ///< ranks that matrices are sharded over; what lies between them
  double ep = 1;             ///< ranks that experts are sharded over
  double tokens = 0;         ///< of the rank
  double copies = 1;         ///< experts that see a token, on the busiest rank
  double rows = 0;           ///< tokens times copies
  double local_experts = 1;  ///< of the rank
};

LocalUnit local_unit(const ShardedGroup& p, const Unit& unit, const Mesh& mesh) {
  LocalUnit local;
  local.routed = unit.routed();
  local.tp = mesh.tensor_degree();
  local.ep = mesh.degree(Parallelism::ep);
  local.sp = local.routed ? 1 : p.mesh.degree(Parallelism::sp);
  const double samples = local.routed ? p.expert_samples : p.samples;
  local.tokens = samples * (local.routed ? p.tokens : p.own_tokens);
  local.copies = local.routed ? unit.experts_per_token * p.question.conditions.imbalance : 1;
  local.rows = local.tokens * local.copies;
  local.local_experts = local.routed ? std::max(1.0, unit.experts / local.ep) : 1;
  return local;
}

UnitShard unit_shard(const ShardedGroup& p, const LocalUnit& local, const Mesh& mesh) {
  UnitShard shard;
  shard.tp = local.tp;
  shard.tokens = local.tokens;
  shard.split_tokens = local.tokens / local.sp;
  shard.rows = local.rows;
  if (!local.routed) return shard;
  shard.batch = std::min(local.local_experts, std::max(1.0, local.rows));
  shard.ep = static_cast<int>(local.ep);
  shard.ep_between = shape_of(p, mesh, Parallelism::ep).domains > 1;
  return shard;
}

PricingContext pricing_context(const ShardedGroup& p) {
  const GroupQuestion& q = p.question;
  PricingContext context{q.conditions, q.cluster, q.timers, {}, p.frozen, p.group.trained};
  context.attention.batch = p.samples;
  context.attention.keys = p.tokens;
  context.attention.queries = p.own_tokens;
  context.attention_core = q.ablation.attention_scores;
  context.elementwise = q.ablation.elementwise;
  context.quantised = q.forward_only;
  return context;
}

Flop gemm_flop(const Unit& unit, const LocalUnit& local) {
  Flop sum;
  for (const LayerOperator& op : unit.operators) {
    if (op.kind != OperatorKind::gemm) continue;
    const double rows = unit.on_copies(op) ? local.rows : local.tokens;
    sum += Flop{2 * rows * op.rows * op.copies * op.columns * op.depth /
                (op.cut == Cut::none ? 1 : local.tp)};
  }
  return sum;
}

/// Sums and gathers between the ranks that matrices are sharded over.
void add_tensor_transfers(UnitCost& cost, const ShardedGroup& p, const Unit& unit,
                          const LocalUnit& local, const Mesh& mesh) {
  if (local.tp <= 1) return;
  const GroupShape group = tensor_group(p, mesh);
  const Bytes in{local.tokens * (local.routed ? unit.expert_width : unit.width_in) * p.element};
  const Bytes out{local.tokens * (local.routed ? unit.expert_width : unit.width_out) * p.element};
  if (local.sp > 1 && !local.routed) {
    // Sums become scatters, and what follows gathers: Korthikanti et al., arXiv 2205.05198. Inputs
    // are saved sharded and gathered once more for the gradients of weights.
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
void add_context_transfers(UnitCost& cost, const ShardedGroup& p, const Unit& unit, double tp) {
  const GroupShape group = shape_of(p, p.mesh, Parallelism::cp);
  if (group.ranks <= 1) return;
  double width = 0, exchanged = 0;
  for (const LayerOperator& op : unit.operators) {
    if (op.kind == OperatorKind::scan) {
      const RecurrentShape local = op.recurrence.sharded(tp);
      exchanged += local.projected() + local.inner();
    }
    if (op.kind != OperatorKind::attention || op.other_keys > 0)
      continue;  // every rank has the others
    const AttentionValues each = op.attention_values(tp);
    width += op.exchanged_share(p.own_tokens) * (each.keys + each.values);
  }
  if (exchanged > 0) {
    // A scan sees whole sequences: tokens are exchanged for a share of the heads, and back.
    const Bytes sent{p.samples * p.own_tokens * exchanged * p.element};
    cost.context_gather = transfer(p, Collective::all_to_all, sent, group);
    cost.context_reduce = cost.context_gather;
    return;
  }
  if (width <= 0) return;
  const Bytes whole{p.samples * p.tokens * width * p.element};
  cost.context_gather = transfer(p, Collective::all_gather, whole, group);
  cost.context_reduce = transfer(p, Collective::reduce_scatter, whole, group);
}

/// Tokens on their way to their experts and back.
void add_expert_transfers(UnitCost& cost, const ShardedGroup& p, const Unit& unit,
                          const LocalUnit& local, const Mesh& mesh) {
  if (!local.routed) return;
  if (local.ep > 1) {
    const Bytes sent{local.rows * unit.expert_width * p.element};
    const GroupShape group = shape_of(p, mesh, Parallelism::ep);
    cost.dispatch = transfer(p, Collective::all_to_all, sent, group);
    cost.combine = cost.dispatch;
  }
  const bool tokens_alike = p.mesh.degree(Parallelism::sp) == 1;
  const GroupShape dense = shape_of(p, p.mesh, Parallelism::tp);
  if (!tokens_alike || dense.ranks <= 1) return;
  if (batch_layout(p.mesh) == batch_layout(p.experts)) return;
  // Tokens that tensor ranks replicate are partitioned among the experts and come back to all.
  const double tokens = p.samples * p.own_tokens;
  const Bytes in{tokens * unit.width_in * p.element}, out{tokens * unit.width_out * p.element};
  cost.join_forward = transfer(p, Collective::all_gather, out, dense);
  cost.join_backward = transfer(p, Collective::all_gather, in, dense);
}

/// The axes between whose ranks parameters and their states are sharded or replicated.
struct Owners {
  GroupShape fsdp, zero, ddp;
};

/// One of the transfers of a step that sharded optimizer states need, of a unit's share of a
/// bucket: small layers travel together, max(40e6, 1e6 ranks) parameters at a time
/// (NVIDIA/Megatron-LM, megatron/core/distributed/distributed_data_parallel.py: bucket_size).
Transfer bucketed(const ShardedGroup& p, Collective op, Bytes size, double parameters,
                  const GroupShape& group) {
  const double all = p.question.model->parameters() / p.mesh.tensor_degree();
  const double bucket = std::min(all, std::max(40e6, 1e6 * group.ranks));
  const double share = std::min(1.0, parameters / bucket);
  if (!(share > 0)) return transfer(p, op, size, group);
  Transfer whole = transfer(p, op, size / share, group);
  whole.time = share * whole.time;
  whole.size = size;
  return whole;
}

/// Parameters are gathered where they are sharded; gradients are reduced, first over shards.
void add_parameter_transfers(UnitCost& cost, const ShardedGroup& p, const UnitSizes& sizes,
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
    const Bytes gathered{p.element * sizes.trained};
    cost.gather = bucketed(p, Collective::all_gather, gathered, sizes.trained, zero);
    cost.gradients[0] = bucketed(p, Collective::reduce_scatter, gradient, sizes.trained, zero);
    gradient = gradient / static_cast<double>(zero.ranks);
  }
  if (ddp.ranks > 1) cost.gradients[1] = transfer(p, Collective::all_reduce, gradient, ddp);
  if (fsdp.ranks > 1 && zero.ranks > 1) {
    // Shards whose optimizer states are sharded once more: reduced, updated and gathered, which
    // moves what an all-reduce moves.
    const Transfer again = transfer(p, Collective::all_reduce, gradient, zero);
    Transfer& replicas = cost.gradients[1];
    replicas.level = std::max(replicas.level, again.level);
    replicas.time += again.time;
    replicas.size += again.size;
  }
}

/// Notes which transfers take part, and how often those of parameters do.
void note_parts(UnitCost& cost, const ShardedGroup& p, const Unit& unit, const Owners& owners) {
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

UnitCost unit_cost(const ShardedGroup& p, const Unit& unit, LayerBuilder& builder,
                   UnitSizes& sizes) {
  const Mesh& mesh = unit.experts > 0 ? p.experts : p.mesh;
  const LocalUnit local = local_unit(p, unit, mesh);
  const LayerBuilder before = builder;
  const double adapters =
      add_operators(builder, unit, unit_shard(p, local, mesh), pricing_context(p));
  sizes.flop += gemm_flop(unit, local);
  UnitCost cost;
  cost.forward = builder.forward() - before.forward();
  cost.backward = builder.backward() - before.backward();
  sizes.gemm_forward = builder.linear_forward() - before.linear_forward();
  sizes.gemm_backward = builder.linear_backward() - before.linear_backward();

  sizes.held = unit.parameters_cut * local.local_experts / local.tp + unit.parameters_whole;
  const bool adapted = adapters > 0 || p.question.conditions.frozen_base;
  sizes.trained = adapted ? adapters : p.frozen ? 0 : sizes.held;
  sizes.saved = local.tokens *
                ((unit.saved_cut / local.tp + unit.saved_whole / local.sp + unit.saved_repeated) *
                     local.copies +
                 unit.saved_token / local.sp);
  sizes.input = local.tokens * unit.streams * unit.width_in / local.sp;

  const bool end =
      p.group.kind == GroupKind::token_embedding || p.group.kind == GroupKind::patch_embedding;
  if (end && !p.question.ablation.ends) return cost;
  add_tensor_transfers(cost, p, unit, local, mesh);
  add_context_transfers(cost, p, unit, local.tp);
  add_expert_transfers(cost, p, unit, local, mesh);
  const Mesh& holders = local.routed ? p.experts : p.owners;
  const Owners owners{shape_of(p, holders, Parallelism::fsdp),
                      shape_of(p, holders, Parallelism::zero1),
                      shape_of(p, holders, Parallelism::ddp)};
  add_parameter_transfers(cost, p, sizes, owners);
  note_parts(cost, p, unit, owners);
  return cost;
}

}  // namespace scalemodel
