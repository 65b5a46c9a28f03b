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

/// Transfers of a unit that take part, as bits: those of no time do not.
using Parts = std::uint16_t;
inline constexpr Parts kGather = 1;  ///< sharded parameters, in both passes of a micro-batch
inline constexpr Parts kGatherForward = 4096;  ///< the same, in the forward pass alone
inline constexpr Parts kGatherOnce = 2;        ///< updated parameters, once a step
inline constexpr Parts kReduce = 4;            ///< gradients over shards, every micro-batch
inline constexpr Parts kReduceOnce = 8;        ///< the same once a step
inline constexpr Parts kJoinForward = 16, kJoinBackward = 32;
inline constexpr Parts kDispatch = 64, kCombine = 128;
inline constexpr Parts kReplicas = 256;  ///< gradients over replicas, unit by unit
inline constexpr Parts kReplicasEach = 8192, kBucketedEach = 16384;  ///< of shards: every time
inline constexpr Parts kBucketed = 512;  ///< those that can travel with the group's
inline constexpr Parts kEnterForward = 1024, kEnterBackward = 2048;
inline constexpr Parts kContext = 32768;  ///< keys and values of a shared-out sequence
inline constexpr Parts kGradients =
    kReduce | kReduceOnce | kReplicas | kReplicasEach | kBucketed | kBucketedEach;

/// One unit of a group, one micro-batch. Transfers of no time do not take part.
struct UnitCost {
  Seconds forward, backward;                ///< compute
  Transfer gather;                          ///< of sharded parameters
  Transfer dispatch, combine;               ///< of routed tokens, either way alike
  Transfer join_forward, join_backward;     ///< of tensor-parallel sums
  Transfer enter_forward, enter_backward;   ///< of inputs and gradients sharded by sequence
  Transfer context_gather, context_reduce;  ///< keys and values; their gradients
  std::array<Transfer, 2> gradients{};      ///< over shards, then over replicas
  Parts parts = 0;
};

/// Time and bytes of all collectives by operation.
using ByCollective = std::array<Seconds, 4>;
using BytesByCollective = std::array<Bytes, 4>;

inline constexpr std::size_t kMaxProducers = 4;

struct GroupCost {
  Reason verdict = Reason::ok;
  std::uint32_t first_unit = 0, units = 0;  ///< of a period, in the units of the tables
  int repeat = 1;
  bool has_tables = false;
  bool backward = false;  ///< something at or before it learns
  bool trained = false;
  bool can_run_again = false;  ///< before its backward pass: groups of layers only
  Parts parts = 0;             ///< of any of its units
  std::uint8_t levels = 0;     ///< of the network that transfers of its units use, as bits
  int layout = 0;              ///< groups of equal layout hold the same samples on a rank
  TableCost tables;
  std::array<Transfer, kMaxProducers> gather_in{};  ///< inputs, from groups of other layouts
  Transfer bucket;           ///< gradients of all units over replicas, at once
  bool bucket_each = false;  ///< every micro-batch
  Seconds unit_replicas;     ///< the same, unit by unit
  Seconds bucket_saving;     ///< in a step, of one bucket against unit by unit
  Transfer gather_out;       ///< gradient of the output, likewise

  // Sums over the repeated units of one micro-batch.
  Seconds compute_forward, compute_backward;
  // The same over the micro-batches of a step.
  Seconds gemm, lookup;     ///< parts of both passes
  ByCollective by{};        ///< without recomputation
  ByCollective again_by{};  ///< of a forward pass repeated by recomputation
  BytesByCollective bytes_by{}, again_bytes_by{};
  Flop forward_flop;  ///< of this rank, GEMMs and attention

  double parameters = 0;  ///< that this rank keeps
  double updated = 0;     ///< dense ones whose optimizer states it keeps
  double reduced = 0;     ///< dense ones whose gradients it keeps
  Bytes weights, rows, gradients, optimizer;
  Bytes activations, inputs;  ///< saved from the forward pass; with recomputation, inputs only
  Bytes widest;               ///< activations of one layer, whole again while it is recomputed
  Bytes gathered, buffers;
  Bytes stays_gathered;  ///< from the forward to the backward pass
  Bytes logits;          ///< with what their loss makes of them
};

/// Everything a cost is asked with.
struct GroupQuestion {
  const ComposedModel* model = nullptr;
  Cluster cluster;  ///< ablated
  Task task;
  Ablation ablation;
  Conditions conditions;
  LayerTimers timers;
  double lookup_fraction = 1;  ///< of memory bandwidth, pooled lookups and updates of tables
  bool forward_only = false;
};

GroupQuestion make_question(const ComposedModel& model, const Cluster& cluster, const Task& task,
                            const Stack& stack, const Ablation& ablation, double lookup_fraction,
                            bool forward_only);

/// Samples of a rank that sees a `mesh` part of the batch, one micro-batch; 0: not whole.
double local_samples(const Task& task, const Mesh& mesh, int micro_batches);

/// Axes over which the samples are partitioned, merged, innermost first: negative where ranks hold
/// the same samples. Parts of sequences count as samples.
std::array<int, kMaxAxes> batch_layout(const Mesh& mesh);

/// Costs of group number `group` under `mesh`, its routed experts under `experts`; the units are
/// appended to `units`. The layout number is left to the caller.
GroupCost group_cost(const GroupQuestion& question, std::size_t group, const Mesh& mesh,
                     const Mesh& experts, int micro_batches, std::vector<UnitCost>& units);

}  // namespace scalemodel
