#include "scalemodel/costs/group_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "scalemodel/costs/layer_operators.hpp"
#include "scalemodel/costs/unit_cost.hpp"
#include "scalemodel/costs/update.hpp"

namespace scalemodel {
namespace {

bool shares_samples(Parallelism p) {
  return p != Parallelism::tp && p != Parallelism::sp && p != Parallelism::none;
}

/// Ranks over which the samples of a layer group are partitioned whole.
int sample_ranks(const Mesh& mesh) {
  int ranks = 1;
  for (const MeshAxis& axis : mesh.axes) {
    const bool whole = axis.parallelism != Parallelism::cp;
    if (whole && shares_samples(axis.parallelism)) ranks *= axis.degree;
  }
  return ranks;
}

Reason violation(const ShardedGroup& p) {
  const int accelerators = p.question.cluster.accelerators;
  if (p.mesh.ranks() != accelerators) return Reason::mesh;
  const bool both = p.mesh.degree(Parallelism::tp) > 1 && p.mesh.degree(Parallelism::sp) > 1;
  if (both) return Reason::mesh;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    // Ranks that shard a sequence sit inside those that shard or replicate parameters.
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
/// each rank has a part of them, the ranks that share samples gather the whole.
void add_reshards(GroupCost& cost, const ShardedGroup& p) {
  const GroupQuestion& q = p.question;
  if (!q.ablation.reshard) return;
  const GroupShape tp = tensor_group(p, p.mesh);
  if (tp.ranks <= 1) return;
  std::size_t at = 0;
  for (const int before : p.group.waits_for) {
    if (at == kMaxProducers) break;
    const LayerGroup& producer = q.model->groups[static_cast<std::size_t>(before)];
    const double tokens = producer.tokens > 0 ? producer.tokens : q.task.sequence;
    cost.gather_in[at++] = transfer(
        p, Collective::all_gather,
        Bytes{p.samples * tokens * p.own_tokens / p.tokens * producer.width_out() * p.element}, tp);
  }
  cost.gather_out = transfer(p, Collective::all_gather,
                             Bytes{p.samples * p.own_tokens * p.group.width_out() * p.element}, tp);
}

void add_table_costs(GroupCost& cost, const ShardedGroup& p, CollectiveSums& sums) {
  const GroupQuestion& q = p.question;
  cost.has_tables = true;
  cost.tables = table_cost(p.group.tables, p.mesh, p.samples, cost.trained, q.cluster, q.ablation,
                           q.lookup_fraction);
  const TableCost& t = cost.tables;
  cost.compute_forward = t.lookup;
  cost.lookup = t.lookup;
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
Bytes logit_bytes(const ShardedGroup& p, const Unit& unit) {
  const Stack& stack = p.question.conditions.stack;
  const double tp = p.mesh.tensor_degree();
  Bytes sum;
  for (const LayerOperator& op : unit.operators) {
    if (op.kind != OperatorKind::loss) continue;
    const double columns = op.vocabulary ? head_columns(stack, op.columns, tp) : op.columns / tp;
    const double held = stack.whole_logits ? tp * columns : columns;
    const Bytes each = stack.fused_loss ? Bytes{2 * p.element}
                       : tp == 1        ? stack.loss_per_logit
                                        : stack.split_loss_per_logit;
    sum += p.samples * p.own_tokens * op.rows * held * each;
  }
  return sum;
}

/// Of a gradient as it is kept over the micro-batches.
double accumulated_bytes(const ShardedGroup& p) {
  return p.question.conditions.gradients_fp32 ? 4 : p.element;
}

/// Collectives of `n` such units.
void add_transfers(CollectiveSums& sums, const GroupCost& cost, const UnitCost& u, double n) {
  for (const Transfer* moved :
       {&u.context_gather, &u.enter_forward, &u.dispatch, &u.combine, &u.join_forward}) {
    add(sums.forward, *moved, n);
    if (cost.can_run_again) add(sums.again, *moved, n);
  }
  add((u.parts & kGatherOnce) != 0 ? sums.once : sums.forward, u.gather, n);
  if (cost.backward) {
    for (const Transfer* moved : {&u.context_gather, &u.context_reduce, &u.enter_backward,
                                  &u.join_backward, &u.dispatch, &u.combine}) {
      add(sums.backward, *moved, n);
    }
    if ((u.parts & kGather) != 0) add(sums.backward, u.gather, n);
  }
  if (cost.trained) {
    add((u.parts & kReduce) != 0 ? sums.backward : sums.once, u.gradients[0], n);
    const bool each = (u.parts & (kReplicasEach | kBucketedEach)) != 0;
    add(each ? sums.backward : sums.once, u.gradients[1], n);
  }
}

/// What the repeated unit saves for backward; `layer` holds the activations of the layer so far.
void add_memory(GroupCost& cost, const ShardedGroup& p, const Unit& unit, const UnitSizes& sizes,
                Parts parts, Bytes& layer) {
  const double n = p.group.repeat;
  const double shards = (unit.experts > 0 ? p.experts : p.owners).degree(Parallelism::fsdp);
  const double stored = p.frozen && p.group.frozen_bytes > 0 ? p.group.frozen_bytes : p.element;
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
    cost.logits += n * logit_bytes(p, unit);
  } else {
    // Forward only: a unit's input and output, one at a time.
    cost.widest = max(cost.widest, Bytes{2 * sizes.input * p.element});
  }
  if ((parts & kGatherForward) != 0 && cost.backward) {
    // Gathered once for both passes.
    cost.stays_gathered += Bytes{n * sizes.held * p.element};
  } else if (shards > 1) {
    cost.gathered = max(cost.gathered,
                        Bytes{sizes.held * (2 * p.element) + sizes.trained * accumulated_bytes(p)});
  }
}

void add_unit_costs(GroupCost& cost, const ShardedGroup& p, std::vector<UnitCost>& units,
                    CollectiveSums& sums) {
  const GroupQuestion& q = p.question;
  cost.first_unit = static_cast<std::uint32_t>(units.size());
  cost.units = static_cast<std::uint32_t>(p.group.units.size());
  const double n = p.group.repeat;
  Bytes bucket, layer;
  std::optional<LayerBuilder> builder;
  for (const Unit& unit : p.group.units) {
    if (unit.starts || !builder) builder.emplace(q.conditions, q.cluster, nullptr, nullptr);
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
    cost.compute_forward += n * u.forward;
    cost.compute_backward += n * u.backward;
    cost.gemm += n * sizes.gemm_forward;
    if (cost.backward) cost.gemm += n * sizes.gemm_backward;
    cost.forward_flop += n * sizes.flop;
    add_transfers(sums, cost, u, n);
    if (cost.trained) {
      const Mesh& mesh = unit.experts > 0 ? p.experts : p.owners;
      const double shards = mesh.degree(Parallelism::fsdp);
      const double owners = shards * mesh.degree(Parallelism::zero1);
      if ((u.parts & (kBucketed | kBucketedEach)) != 0) {
        cost.unit_replicas += n * u.gradients[1].time;
        bucket += n * u.gradients[1].size;
      }
      cost.updated += n * sizes.trained / owners;
      cost.reduced += n * sizes.trained / shards;
    }
    add_memory(cost, p, unit, sizes, u.parts, layer);
    units.push_back(u);
  }
  const GroupShape ddp = shape_of(p, p.owners, Parallelism::ddp);
  if (bucket > Bytes{}) cost.bucket = transfer(p, Collective::all_reduce, bucket, ddp);
  cost.bucket_each = (cost.parts & kBucketedEach) != 0;
  cost.gradients = Bytes{accumulated_bytes(p) * cost.reduced};
  cost.optimizer = Bytes{state_bytes(q.task, operand_bytes(q.conditions.storage)) * cost.updated};
}

/// Whether parameters of a group learn: adapters live in the GEMMs of transformer layers, and
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
                            const Stack& stack, const Ablation& ablation, double lookup_fraction,
                            bool forward_only) {
  GroupQuestion q;
  q.model = &model;
  q.cluster = ablated(cluster, ablation);
  q.task = task;
  q.ablation = ablation;
  q.lookup_fraction = lookup_fraction;
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
  ShardedGroup p{question,
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
