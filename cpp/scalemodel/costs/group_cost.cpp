#include "scalemodel/costs/group_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "scalemodel/costs/layer_operators.hpp"
#include "scalemodel/costs/update.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

bool shares_samples(Parallelism p) {
  return p != Parallelism::tp && p != Parallelism::sp && p != Parallelism::none;
}

/// Ranks between which the samples of a layer group are shared out whole.
int sample_ranks(const Mesh& mesh) {
  int ranks = 1;
  for (const MeshAxis& axis : mesh.axes) {
    const bool whole = axis.parallelism != Parallelism::cp;
    if (whole && shares_samples(axis.parallelism)) ranks *= axis.degree;
  }
  return ranks;
}

/// One group under one mesh: what its units have in common.
struct Placed {
  const GroupQuestion& question;
  const LayerGroup& group;
  const Mesh& mesh;
  const Mesh& experts;
  const Mesh& owners;  ///< `mesh` as parameters see it
  std::array<GroupShape, kMaxAxes> groups, expert_groups, owner_groups;
  double samples = 0;         ///< of a rank
  double expert_samples = 0;  ///< where the expert mesh keeps them
  double tokens = 1;          ///< per sample
  double own_tokens = 1;      ///< of them, those of a rank
  bool frozen = false;        ///< weights get no gradient
  double element = 2;
};

GroupShape shape_of(const Placed& p, const Mesh& mesh, Parallelism parallelism) {
  const auto& groups = &mesh == &p.experts  ? p.expert_groups
                       : &mesh == &p.owners ? p.owner_groups
                                            : p.groups;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    if (mesh.axes[i].parallelism == parallelism) return groups[i];
  }
  return GroupShape{};
}

bool has_layers(GroupKind kind) {
  return kind == GroupKind::transformer || kind == GroupKind::mlp || kind == GroupKind::interaction;
}

/// Ranks that share out matrices.
GroupShape tensor_group(const Placed& p, const Mesh& mesh) {
  const bool sequence = mesh.degree(Parallelism::sp) > 1;
  return shape_of(p, mesh, sequence ? Parallelism::sp : Parallelism::tp);
}

Transfer move(const Placed& p, Collective op, Bytes size, const GroupShape& shape) {
  return transfer(op, size, shape, p.question.cluster, p.question.ablation);
}

/// Adds one operator for `tokens` of them; `batch` experts side by side.
double add_operator(LayerBuilder& builder, const Placed& p, const GroupOperator& op, double tokens,
                    double tp, double batch, bool routed) {
  const GroupQuestion& q = p.question;
  const Cluster& cluster = q.cluster;
  const Conditions& conditions = q.conditions;
  const double cut = op.cut == Cut::none ? 1 : tp;
  const double rows = tokens * op.rows;
  const Bytes stream{rows * op.columns / cut * p.element};
  const bool elementwise = q.ablation.elementwise;
  double adapters = 0;
  switch (op.kind) {
    case OperatorKind::product: {
      const double columns = op.cut == Cut::columns ? op.columns / tp : op.columns;
      const double depth = op.cut == Cut::depth ? op.depth / tp : op.depth;
      if (op.weightless) {
        builder.linear(op.name, op.rows, columns, depth,
                       {false, tokens * op.copies, &q.timers.storage});
        break;
      }
      builder.linear(
          op.name, rows / batch, columns, depth,
          {p.frozen, batch, &q.timers.linear, routed, routed && conditions.stack.fused_experts});
      const bool adapts = op.adapts || conditions.lora_everywhere;
      if (adapts && p.group.trained && !routed) {
        adapters += add_adapter(builder, conditions, q.timers.storage, rows, columns, depth);
      }
      break;
    }
    case OperatorKind::attention: {
      if (!q.ablation.attention_scores) break;
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
      work.dropout = conditions.dropout;
      builder.attention(attention_time(work, conditions.attention, cluster.accelerator,
                                       conditions.storage, q.timers.storage));
      break;
    }
    case OperatorKind::norm:
      if (elementwise) add_norm(builder, conditions, cluster, op.name, 1, stream);
      break;
    case OperatorKind::residual:
      if (elementwise) add_residual(builder, conditions, cluster, op.name, 1, stream);
      break;
    case OperatorKind::activation:
      if (elementwise) add_activation(builder, conditions, cluster, op.gated, stream);
      break;
    case OperatorKind::rotary:
      if (elementwise) add_rope(builder, conditions, cluster, stream);
      break;
    case OperatorKind::moving:
      if (elementwise) {
        builder.moving(op.name, op.depth * stream, 1.5 * op.depth * stream,
                       cluster.accelerator.elementwise.add_fraction);
      }
      break;
    case OperatorKind::loss:
      if (elementwise) add_loss(builder, conditions, cluster, rows * op.columns / cut, 0);
      break;
  }
  return adapters;
}

struct UnitSizes {
  double held = 0;     ///< parameters of this rank when gathered
  double trained = 0;  ///< of them, those that learn
  double saved = 0;    ///< values kept for the backward pass
  double input = 0;    ///< values of the unit's input
  Seconds gemm_forward, gemm_backward;
  Flop flop;
};

/// `builder` holds the units of the same layer before this one: the host runs ahead of the
/// accelerator by a layer, and what a unit adds to the layer's time is the unit's.
UnitCost unit_cost(const Placed& p, const Unit& unit, LayerBuilder& builder, UnitSizes& sizes) {
  const GroupQuestion& q = p.question;
  const Conditions& conditions = q.conditions;
  const bool routed = unit.experts > 0;
  const Mesh& mesh = routed ? p.experts : p.mesh;
  const double tp = mesh.tensor_degree(), ep = mesh.degree(Parallelism::ep);
  const double sp = routed ? 1 : p.mesh.degree(Parallelism::sp);
  const double samples = routed ? p.expert_samples : p.samples;
  const double tokens = samples * (routed ? p.tokens : p.own_tokens);
  const double copies = routed ? unit.experts_per_token * conditions.imbalance : 1;
  const double local_experts = routed ? std::max(1.0, unit.experts / ep) : 1;
  const double rows = tokens * copies;
  const double batch = routed ? std::min(local_experts, std::max(1.0, rows)) : 1;

  const LayerBuilder before = builder;
  double adapters = 0;
  for (const GroupOperator& op : unit.operators) {
    const bool on_rows =
        routed && (op.kind == OperatorKind::product || op.kind == OperatorKind::activation);
    // Between products a rank has its part of the sequence.
    const bool between = op.cut == Cut::none && op.kind != OperatorKind::product;
    const double own = on_rows ? rows : between ? tokens / sp : tokens;
    adapters += add_operator(builder, p, op, own, tp, batch, on_rows);
    if (op.kind == OperatorKind::product) {
      sizes.flop += Flop{2 * (on_rows ? rows : tokens) * op.rows * op.copies * op.columns *
                         op.depth / (op.cut == Cut::none ? 1 : tp)};
    }
  }
  if (routed && q.ablation.elementwise) {
    // Rows into the order of their experts and back.
    const bool together = conditions.stack.grouped_launch;
    const Bytes permuted{4 * rows * unit.width_in * p.element};
    builder.moving("permute", permuted, permuted, q.cluster.accelerator.elementwise.add_fraction,
                   together ? 6 : 30);
    if (!together) builder.launches(kRoutingLaunches, kRoutingLaunches);
  }
  UnitCost cost;
  cost.forward = builder.forward() - before.forward();
  cost.backward = builder.backward() - before.backward();
  sizes.gemm_forward = builder.linear_forward() - before.linear_forward();
  sizes.gemm_backward = builder.linear_backward() - before.linear_backward();

  const double held = unit.parameters_cut * local_experts / tp + unit.parameters_whole;
  sizes.held = held;
  sizes.trained = adapters > 0 || conditions.frozen_base ? adapters : p.frozen ? 0 : held;
  sizes.saved = tokens * (unit.saved_cut / tp * copies + unit.saved_whole * copies / sp +
                          unit.saved_token / sp);
  sizes.input = tokens * unit.width_in / sp;

  const bool ends =
      p.group.kind == GroupKind::token_embedding || p.group.kind == GroupKind::patch_embedding;
  if (ends && !q.ablation.ends) return cost;

  // Tensor-parallel sums and gathers.
  const GroupShape tp_group = tensor_group(p, mesh);
  const Bytes in{tokens * unit.width_in * p.element}, out{tokens * unit.width_out * p.element};
  if (tp > 1 && sp > 1 && !routed) {
    // Sums become scatters, and what follows gathers: Korthikanti et al., arXiv 2205.05198. Inputs
    // are kept shared out and gathered once more for the gradients of weights.
    const auto gather = [&](Transfer& into, Bytes size) {
      const Transfer one = move(p, Collective::all_gather, size, tp_group);
      into = {into.time + one.time, into.size + one.size, one.op, one.level};
    };
    if (unit.opens) {
      gather(cost.enter_forward, in);
      if (!p.frozen) gather(cost.enter_backward, in);
      cost.join_backward = move(p, Collective::reduce_scatter, in, tp_group);
    }
    if (unit.closes) {
      gather(cost.enter_backward, out);
      cost.join_forward = move(p, Collective::reduce_scatter, out, tp_group);
    }
  } else if (tp > 1) {
    if (unit.closes) cost.join_forward = move(p, Collective::all_reduce, out, tp_group);
    if (unit.gathers) cost.join_forward = move(p, Collective::all_gather, out, tp_group);
    if (unit.opens) cost.join_backward = move(p, Collective::all_reduce, in, tp_group);
  }
  const GroupShape cp_group = shape_of(p, p.mesh, Parallelism::cp);
  if (cp_group.ranks > 1) {
    // Every rank sees the keys and values of the whole sequence: Llama Team, arXiv 2407.21783.
    double width = 0;
    for (const GroupOperator& op : unit.operators) {
      if (op.kind != OperatorKind::attention) continue;
      const AttentionShape& a = op.attention;
      width += std::max(1.0, a.kv_heads / tp) * (a.head_dim + a.v_head_dim);
    }
    const Bytes whole{p.samples * p.tokens * width * p.element};
    if (width > 0) {
      cost.context_gather = move(p, Collective::all_gather, whole, cp_group);
      cost.context_reduce = move(p, Collective::reduce_scatter, whole, cp_group);
    }
  }
  if (routed && ep > 1) {
    const Bytes sent{rows * unit.width_in * p.element};
    const Bytes back{rows * unit.width_out * p.element};
    const GroupShape ep_group = shape_of(p, mesh, Parallelism::ep);
    cost.dispatch = move(p, Collective::all_to_all, sent, ep_group);
    cost.combine = move(p, Collective::all_to_all, back, ep_group);
  }
  const bool tokens_alike = p.mesh.degree(Parallelism::sp) == 1;
  if (routed && tokens_alike && batch_layout(p.mesh) != batch_layout(p.experts)) {
    // Tokens that tensor ranks hold alike are shared out among the experts and come back to all.
    const double dense_tokens = p.samples * p.own_tokens;
    const GroupShape dense_tp = shape_of(p, p.mesh, Parallelism::tp);
    if (dense_tp.ranks > 1) {
      cost.join_forward = move(p, Collective::all_gather,
                               Bytes{dense_tokens * unit.width_out * p.element}, dense_tp);
      cost.join_backward = move(p, Collective::all_gather,
                                Bytes{dense_tokens * unit.width_in * p.element}, dense_tp);
    }
  }

  // Parameters: gathered where they are sharded; gradients reduced, first over shards.
  const bool wide = conditions.gradients_fp32 || conditions.stack.reduces_fp32;
  const double gradient_bytes = wide ? 4 : p.element;
  Bytes gradient{gradient_bytes * sizes.trained};
  const Mesh& owners = routed ? p.experts : p.owners;
  const GroupShape fsdp = shape_of(p, owners, Parallelism::fsdp);
  const GroupShape zero = shape_of(p, owners, Parallelism::zero1);
  const GroupShape ddp = shape_of(p, owners, Parallelism::ddp);
  if (fsdp.ranks > 1) {
    cost.gather = move(p, Collective::all_gather, Bytes{p.element * held}, fsdp);
    cost.gradients[0] = move(p, Collective::reduce_scatter, gradient, fsdp);
    gradient = gradient / static_cast<double>(fsdp.ranks);
  } else if (zero.ranks > 1) {
    cost.gather = move(p, Collective::all_gather, Bytes{p.element * sizes.trained}, zero);
    cost.gradients[0] = move(p, Collective::reduce_scatter, gradient, zero);
    gradient = gradient / static_cast<double>(zero.ranks);
  }
  if (ddp.ranks > 1) cost.gradients[1] = move(p, Collective::all_reduce, gradient, ddp);
  if (fsdp.ranks > 1 && zero.ranks > 1) {
    // Shards whose optimizer states are shared out once more: reduced, updated and gathered, which
    // moves what an all-reduce moves.
    const Transfer again = move(p, Collective::all_reduce, gradient, zero);
    Transfer& replicas = cost.gradients[1];
    replicas.level = std::max(replicas.level, again.level);
    replicas.time += again.time;
    replicas.size += again.size;
  }
  const auto take_part = [&](const Transfer& moved, Parts part) {
    if (takes_part(moved)) cost.parts |= part;
  };
  const bool bucketed = unit.experts == 0 && (fsdp.ranks <= 1 || zero.ranks <= 1);
  // What an end has gathered it has no use for once more: the backward pass of a head follows its
  // forward pass, and that of an embedding reads no weight.
  const bool twice = has_layers(p.group.kind);
  take_part(cost.gather, fsdp.ranks <= 1 ? kGatherOnce : twice ? kGather : kGatherForward);
  take_part(cost.gradients[0], fsdp.ranks > 1 ? kReduce : kReduceOnce);
  const Parts alone = fsdp.ranks > 1 ? kReplicasEach : kReplicas;
  const Parts together = fsdp.ranks > 1 ? kBucketedEach : kBucketed;
  take_part(cost.gradients[1], bucketed ? together : alone);
  take_part(cost.join_forward, kJoinForward);
  take_part(cost.join_backward, kJoinBackward);
  take_part(cost.context_gather, kContext);
  take_part(cost.enter_forward, kEnterForward);
  take_part(cost.enter_backward, kEnterBackward);
  take_part(cost.dispatch, kDispatch);
  take_part(cost.combine, kCombine);
  return cost;
}

Reason violation(const Placed& p) {
  const int accelerators = p.question.cluster.accelerators;
  if (p.mesh.ranks() != accelerators) return Reason::mesh;
  const bool both = p.mesh.degree(Parallelism::tp) > 1 && p.mesh.degree(Parallelism::sp) > 1;
  if (both) return Reason::mesh;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    // Ranks that share out a sequence sit inside those that share out or repeat parameters.
    if (p.mesh.axes[i].parallelism != Parallelism::cp || p.mesh.axes[i].degree == 1) continue;
    const auto next = i + 1 < kMaxAxes ? p.mesh.axes[i + 1].parallelism : Parallelism::none;
    const bool owns = next == Parallelism::fsdp || next == Parallelism::zero1;
    if (!owns && next != Parallelism::ddp) return Reason::mesh;
  }
  const bool routed = p.group.expert_slot >= 0;
  if (routed && p.experts.ranks() != accelerators) return Reason::mesh;
  if (p.samples <= 0) return Reason::batch;
  for (const Unit& unit : p.group.units) {
    const Mesh& mesh = unit.experts > 0 ? p.experts : p.mesh;
    const int tp = mesh.tensor_degree();
    if (unit.head_limit > 0 && unit.head_limit % tp != 0) return Reason::tp_heads;
    const Reason width = unit.experts > 0 ? Reason::etp_ffn : Reason::tp_ffn;
    if (unit.cut_limit > 0 && unit.cut_limit % tp != 0) return width;
    const int ep = mesh.degree(Parallelism::ep);
    if (unit.experts > 0 && unit.experts % ep != 0) return Reason::ep_experts;
  }
  const auto precision = p.question.conditions.precision;
  if (p.question.cluster.accelerator.peak_of(precision) <= FlopPerSecond{}) {
    return Reason::precision;
  }
  return Reason::ok;
}

/// Collectives of one micro-batch, and those that a step does once.
struct CollectiveSums {
  struct Sums {
    ByCollective time{};
    BytesByCollective bytes{};
  };
  Sums forward, backward, once, again;
};

void add(CollectiveSums::Sums& sums, const Transfer& moved, double times = 1) {
  sums.time[static_cast<std::size_t>(moved.op)] += times * moved.time;
  if (takes_part(moved)) sums.bytes[static_cast<std::size_t>(moved.op)] += times * moved.size;
}

/// Activations that arrive from, and gradients that leave for, groups that hold other samples:
/// a part of them is at hand, the ranks that share samples gather the whole.
void add_reshards(GroupCost& cost, const Placed& p) {
  const GroupQuestion& q = p.question;
  if (!q.ablation.reshard) return;
  const GroupShape tp = tensor_group(p, p.mesh);
  if (tp.ranks <= 1) return;
  std::size_t at = 0;
  for (const int before : p.group.waits_for) {
    if (at == kMostProducers) break;
    const LayerGroup& producer = q.model->groups[static_cast<std::size_t>(before)];
    const double tokens = producer.tokens > 0 ? producer.tokens : q.task.sequence;
    cost.gather_in[at++] = move(
        p, Collective::all_gather,
        Bytes{p.samples * tokens * p.own_tokens / p.tokens * producer.width_out() * p.element}, tp);
  }
  cost.gather_out = move(p, Collective::all_gather,
                         Bytes{p.samples * p.own_tokens * p.group.width_out() * p.element}, tp);
}

void add_table_costs(GroupCost& cost, const Placed& p, CollectiveSums& sums) {
  const GroupQuestion& q = p.question;
  cost.has_tables = true;
  cost.tables = table_cost(p.group.tables, p.mesh, p.samples, cost.trained, q.cluster, q.ablation,
                           q.look_up_fraction);
  const TableCost& t = cost.tables;
  cost.compute_forward = t.look_up;
  cost.lookup = t.look_up;
  for (const Transfer& moved : t.forward) add(sums.forward, moved);
  for (const Transfer& moved : t.indices) add(sums.forward, moved);
  if (cost.trained) {
    cost.compute_backward = t.update;
    cost.lookup += t.update;
    for (const Transfer& moved : t.backward) add(sums.backward, moved);
    for (const Transfer& moved : t.gradients) add(sums.backward, moved);
  }
  cost.parameters = t.parameters;
  const double kept = !cost.trained && p.group.frozen_bytes > 0
                          ? p.group.frozen_bytes / p.group.tables.value_bytes
                          : 1;
  cost.rows = kept * t.tables;
  cost.optimizer = t.states;
  cost.buffers = t.buffers;
}

/// Logits of a rank and what their loss makes of them: fused, their gradient beside them; unfused,
/// copies in FP32.
Bytes logit_bytes(const Placed& p, const Unit& unit) {
  const Stack& stack = p.question.conditions.stack;
  const double tp = p.mesh.tensor_degree();
  Bytes sum;
  for (const GroupOperator& op : unit.operators) {
    if (op.kind != OperatorKind::loss) continue;
    const double held = stack.whole_logits ? op.columns : op.columns / tp;
    const Bytes each = stack.fused_loss ? Bytes{2 * p.element}
                       : tp == 1        ? stack.loss_per_logit
                                        : stack.split_loss_per_logit;
    sum += p.samples * p.own_tokens * op.rows * held * each;
  }
  return sum;
}

void add_unit_costs(GroupCost& cost, const Placed& p, std::vector<UnitCost>& units,
                    CollectiveSums& sums) {
  const GroupQuestion& q = p.question;
  const Conditions& conditions = q.conditions;
  cost.first_unit = static_cast<std::uint32_t>(units.size());
  cost.units = static_cast<std::uint32_t>(p.group.units.size());
  const double n = p.group.repeat;
  const double gradient_bytes = conditions.gradients_fp32 ? 4 : p.element;
  const double states = state_bytes(q.task);
  const double stored = p.frozen && p.group.frozen_bytes > 0 ? p.group.frozen_bytes : p.element;
  Bytes bucket, layer;
  std::optional<LayerBuilder> builder;
  for (const Unit& unit : p.group.units) {
    if (unit.starts || !builder) builder.emplace(conditions, q.cluster, nullptr, nullptr);
    UnitSizes sizes;
    UnitCost u = unit_cost(p, unit, *builder, sizes);
    if (!cost.backward) u.backward = Seconds{};
    if (!cost.trained) u.parts &= static_cast<Parts>(~kGradients);
    cost.parts |= u.parts;
    for (const Transfer* moved : {&u.context_gather, &u.context_reduce, &u.gather, &u.dispatch,
                                  &u.combine, &u.join_forward, &u.join_backward, &u.enter_forward,
                                  &u.enter_backward, u.gradients.data(), u.gradients.data() + 1}) {
      cost.levels |= level_bit(*moved);
    }
    const Mesh& mesh = unit.experts > 0 ? p.experts : p.owners;
    const double shards = mesh.degree(Parallelism::fsdp);
    const double owners = shards * mesh.degree(Parallelism::zero1);
    cost.compute_forward += n * u.forward;
    cost.compute_backward += n * u.backward;
    cost.gemm += n * sizes.gemm_forward;
    if (cost.backward) cost.gemm += n * sizes.gemm_backward;
    cost.forward_flop += n * sizes.flop;
    for (const Transfer* moved :
         {&u.context_gather, &u.enter_forward, &u.dispatch, &u.combine, &u.join_forward}) {
      add(sums.forward, *moved, n);
      if (cost.can_run_again) add(sums.again, *moved, n);
    }
    add((u.parts & kGatherOnce) != 0 ? sums.once : sums.forward, u.gather, n);
    if (cost.backward) {
      add(sums.backward, u.context_gather, n);
      add(sums.backward, u.context_reduce, n);
      add(sums.backward, u.enter_backward, n);
      add(sums.backward, u.join_backward, n);
      add(sums.backward, u.dispatch, n);
      add(sums.backward, u.combine, n);
      if ((u.parts & kGather) != 0) add(sums.backward, u.gather, n);
    }
    if (cost.trained) {
      add((u.parts & kReduce) != 0 ? sums.backward : sums.once, u.gradients[0], n);
      const bool each = (u.parts & (kReplicasEach | kBucketedEach)) != 0;
      add(each ? sums.backward : sums.once, u.gradients[1], n);
      if ((u.parts & (kBucketed | kBucketedEach)) != 0) {
        cost.unit_replicas += n * u.gradients[1].time;
        bucket += n * u.gradients[1].size;
      }
      cost.updated += n * sizes.trained / owners;
      cost.reduced += n * sizes.trained / shards;
    }
    cost.parameters += n * sizes.held / shards;
    cost.weights += Bytes{n * sizes.held / shards * stored};
    if (cost.backward) {
      const Bytes saved{sizes.saved * p.element};
      cost.activations += n * saved;
      if (unit.starts) {
        cost.inputs += Bytes{n * sizes.input * p.element};
        layer = Bytes{};
      }
      layer += saved;
      cost.widest = max(cost.widest, layer);
    } else {
      // Forward only: a unit's input and output, one at a time.
      cost.widest = max(cost.widest, Bytes{2 * sizes.input * p.element});
    }
    if ((u.parts & kGatherForward) != 0 && cost.backward) {
      // Gathered once for both passes.
      cost.stays_gathered += Bytes{n * sizes.held * p.element};
    } else if (shards > 1) {
      cost.gathered =
          max(cost.gathered, Bytes{sizes.held * (2 * p.element) + sizes.trained * gradient_bytes});
    }
    if (cost.backward) cost.logits += n * logit_bytes(p, unit);
    units.push_back(u);
  }
  const GroupShape ddp = shape_of(p, p.owners, Parallelism::ddp);
  if (bucket > Bytes{}) cost.bucket = move(p, Collective::all_reduce, bucket, ddp);
  cost.bucket_each = (cost.parts & kBucketedEach) != 0;
  cost.gradients = Bytes{gradient_bytes * cost.reduced};
  cost.optimizer = Bytes{states * cost.updated};
}

/// Whether parameters of a group learn: adapters live in the products of transformer layers, and
/// everything is frozen beside them.
bool learns(const GroupQuestion& q, const LayerGroup& group) {
  const bool adapted = q.conditions.frozen_base;
  return !q.forward_only && group.trained && (!adapted || group.kind == GroupKind::transformer);
}

/// The same of a group or one that it waits for, directly or not.
bool learns_at_or_before(const GroupQuestion& q, std::size_t group) {
  const LayerGroup& at = q.model->groups[group];
  return learns(q, at) || std::ranges::any_of(at.waits_for, [&](int before) {
           return learns_at_or_before(q, static_cast<std::size_t>(before));
         });
}

}  // namespace

GroupQuestion make_question(const ComposedModel& model, const Cluster& cluster, const Task& task,
                            const Stack& stack, const Ablation& ablation, double look_up_fraction,
                            bool forward_only) {
  GroupQuestion q;
  q.model = &model;
  q.cluster = ablated(cluster, ablation);
  q.task = task;
  q.ablation = ablation;
  q.look_up_fraction = look_up_fraction;
  q.forward_only = forward_only;
  Stack changed = stack;
  if (ablation.gemm_fraction > 0) changed.gemm_efficiency = 1;
  if (ablation.memory_fraction > 0) changed.memory_efficiency = 1;
  if (!ablation.elementwise) changed.fused_accumulation = true;
  if (!ablation.contention) changed.contention = 0;
  if (!ablation.host) changed.host_launch = changed.step_overhead = Seconds{};
  q.conditions = resolve_conditions(task, changed, task.precision);
  q.timers = {GemmTimer(q.cluster.accelerator, q.conditions.precision),
              GemmTimer(q.cluster.accelerator, q.conditions.storage)};
  return q;
}

double local_samples(const Task& task, const Mesh& mesh, int micro_batches) {
  const int parts = sample_ranks(mesh) * micro_batches;
  if (task.batch_is_limit) return std::floor(static_cast<double>(task.global_batch) / parts);
  return task.global_batch % parts == 0 ? static_cast<double>(task.global_batch) / parts : 0;
}

std::array<int, kMaxAxes> batch_layout(const Mesh& mesh) {
  std::array<int, kMaxAxes> layout{};
  std::size_t at = 0;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.degree == 1) continue;
    const int sign = shares_samples(axis.parallelism) ? 1 : -1;
    if (at > 0 && layout[at - 1] * sign > 0) {
      layout[at - 1] *= axis.degree;
    } else {
      layout[at++] = sign * axis.degree;
    }
  }
  return layout;
}

GroupCost group_cost(const GroupQuestion& question, std::size_t group, const Mesh& mesh,
                     const Mesh& experts, int micro_batches, std::vector<UnitCost>& units) {
  const LayerGroup& g = question.model->groups[group];
  const Mesh owners = mesh.of_parameters();
  Placed p{question,
           g,
           mesh,
           experts,
           owners,
           axis_groups(mesh, question.cluster),
           axis_groups(experts, question.cluster),
           axis_groups(owners, question.cluster)};
  p.samples = local_samples(question.task, mesh, micro_batches);
  // Tensor ranks that hold the same tokens share them out among experts: parts of a sample too.
  p.expert_samples = p.samples * sample_ranks(mesh) / sample_ranks(experts);
  p.tokens = g.tokens > 0 ? g.tokens : question.task.sequence;
  p.own_tokens = p.tokens / mesh.degree(Parallelism::cp);
  p.element = operand_bytes(question.conditions.storage);
  const bool trained = learns(question, g);
  p.frozen = !trained || question.conditions.frozen_base;
  GroupCost cost;
  cost.repeat = g.repeat;
  cost.verdict = violation(p);
  if (cost.verdict != Reason::ok) return cost;
  cost.trained = trained;
  cost.backward = learns_at_or_before(question, group);
  cost.can_run_again = cost.backward && has_layers(g.kind);
  if (g.kind == GroupKind::head && !question.ablation.heads) {
    // Left out whole: no units, no parameters.
    return cost;
  }
  CollectiveSums sums;
  if (g.kind == GroupKind::embedding_tables) {
    add_table_costs(cost, p, sums);
  } else {
    add_unit_costs(cost, p, units, sums);
    add_reshards(cost, p);
  }
  const double m = micro_batches;
  cost.bucket_saving = (cost.bucket_each ? m : 1) * (cost.unit_replicas - cost.bucket.time);
  cost.gemm = m * cost.gemm;
  cost.lookup = m * cost.lookup;
  cost.tables.looked_up = m * cost.tables.looked_up;
  cost.forward_flop = m * cost.forward_flop;
  for (std::size_t i = 0; i < cost.by.size(); ++i) {
    cost.by[i] = m * (sums.forward.time[i] + sums.backward.time[i]) + sums.once.time[i];
    cost.again_by[i] = m * sums.again.time[i];
    cost.bytes_by[i] = m * (sums.forward.bytes[i] + sums.backward.bytes[i]) + sums.once.bytes[i];
    cost.again_bytes_by[i] = m * sums.again.bytes[i];
  }
  return cost;
}

}  // namespace scalemodel
