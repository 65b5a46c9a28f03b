// What one layer group costs one rank under one mesh, filled once per (group, mesh).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scalemodel/base/reason.hpp"
#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/costs/table_cost.hpp"
#include "scalemodel/model/groups.hpp"
#include "scalemodel/strategy/mesh.hpp"

namespace scalemodel {

/// One unit of a group, one micro-batch. Transfers of no time do not take part.
struct UnitCost {
  Seconds forward, backward;             ///< compute
  Transfer gather;                       ///< of sharded parameters
  Transfer dispatch, combine;            ///< of routed tokens, either way alike
  Transfer join_forward, join_backward;  ///< of tensor-parallel sums
  std::array<Transfer, 2> gradients{};   ///< over shards, then over replicas
  bool gathers_again = false;            ///< before the backward pass too
  bool joins_bucket = false;             ///< its replicas' gradients can travel with the group's
  bool reduces_each = false;             ///< gradients over shards: every micro-batch
};

/// Time of all collectives by operation.
using ByCollective = std::array<Seconds, 4>;

inline constexpr std::size_t kMostProducers = 4;

struct GroupCost {
  Reason verdict = Reason::ok;
  std::uint32_t first_unit = 0, units = 0;  ///< of a period, in the units of the tables
  int repeat = 1;
  bool has_tables = false;
  bool backward = false;  ///< something at or before it learns
  bool trained = false;
  int layout = 0;  ///< groups of equal layout hold the same samples on a rank
  TableCost tables;
  std::array<Transfer, kMostProducers> gather_in{};  ///< inputs, from groups of other layouts
  Transfer bucket;        ///< gradients of all units over replicas, at once
  Seconds unit_replicas;  ///< the same, unit by unit
  Transfer gather_out;    ///< gradient of the output, likewise

  // Sums over the repeated units of one micro-batch; backward includes what a step does once.
  Seconds compute_forward, compute_backward;
  Seconds gemm, lookup;  ///< parts of both passes
  ByCollective forward_by{}, backward_by{}, once_by{};
  ByCollective again_by{};  ///< of a forward pass repeated by recomputation
  Flop forward_flop;        ///< of this rank, products and attention

  double parameters = 0;  ///< that this rank keeps
  double updated = 0;     ///< dense ones whose optimizer states it keeps
  double reduced = 0;     ///< dense ones whose gradients it keeps
  Bytes weights, rows, gradients, optimizer;
  Bytes activations, inputs;  ///< kept from the forward pass; with recomputation, inputs only
  Bytes widest;               ///< activations of one unit, whole again while it is recomputed
  Bytes gathered, buffers;
};

/// Everything a cost is asked with.
struct GroupQuestion {
  const ComposedModel* model = nullptr;
  Cluster cluster;  ///< ablated
  Task task;
  Ablation ablation;
  Conditions conditions;
  LayerTimers timers;
  bool forward_only = false;
};

GroupQuestion make_question(const ComposedModel& model, const Cluster& cluster, const Task& task,
                            const Stack& stack, const Ablation& ablation, bool forward_only);

/// Samples of a rank that sees a `mesh` part of the batch, one micro-batch; 0: not whole.
double local_samples(const Task& task, const Mesh& mesh, int micro_batches);

/// Axes over which the samples are shared out, merged, innermost first: negative where ranks hold
/// the same samples.
std::array<int, kMaxAxes> batch_layout(const Mesh& mesh);

/// Costs of group number `group` under `mesh`, its routed experts under `experts`; the units are
/// appended to `units`. The layout number is left to the caller.
GroupCost group_cost(const GroupQuestion& question, std::size_t group, const Mesh& mesh,
                     const Mesh& experts, int micro_batches, std::vector<UnitCost>& units);

}  // namespace scalemodel
