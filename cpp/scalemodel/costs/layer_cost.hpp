// What one layer, the embedding and the head cost one rank for one micro-batch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/ops/gemm.hpp"
#include "scalemodel/strategy/packing.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/task.hpp"
#include "scalemodel/traffic/messages.hpp"

namespace scalemodel {

/// Seconds of one pass by cause. Communication is what is left exposed beside the compute of the
/// same layer; `hidden` is what ran underneath it.
struct Phase {
  Seconds compute, tp, cp, ep, hidden;

  constexpr Seconds total() const { return compute + tp + cp + ep; }
  friend constexpr Phase operator+(const Phase& a, const Phase& b) {
    return {a.compute + b.compute, a.tp + b.tp, a.cp + b.cp, a.ep + b.ep, a.hidden + b.hidden};
  }
  friend constexpr Phase operator*(double n, const Phase& a) {
    return {n * a.compute, n * a.tp, n * a.cp, n * a.ep, n * a.hidden};
  }
};

/// Bytes of one micro-batch by recomputation mode (index: Recompute).
using BytesByRecompute = std::array<Bytes, 3>;

/// Matrices of one rank that an optimizer updates as wholes: Muon, Shampoo or SOAP.
struct MatrixUpdates {
  double matrices = 0;  ///< that an owner takes alone; blocks of Shampoo
  Seconds time;         ///< of a step, all of them one after the other
  Bytes factors;        ///< Kronecker factors with their inverse roots or eigenbases

  constexpr MatrixUpdates& operator+=(const MatrixUpdates& other) {
    matrices += other.matrices;
    time += other.time;
    factors += other.factors;
    return *this;
  }
  friend constexpr MatrixUpdates operator*(double n, const MatrixUpdates& a) {
    return {n * a.matrices, n * a.time, n * a.factors};
  }
};

/// One layer of one kind on one rank, one micro-batch.
struct LayerCost {
  Phase forward, backward;  ///< backward: input and weight gradients
  /// Of `hidden`, expert exchange under another micro-batch, in either pass.
  Seconds paired_forward, paired_backward;
  Seconds weight_gradient;  ///< the part of backward.compute a zero-bubble schedule defers
  Seconds attention_forward, attention_backward;  ///< its part of compute
  std::array<Phase, 3> recompute{};               ///< extra forward work before the backward pass
  BytesByRecompute saved{};                       ///< saved for backward
  Bytes working;                                  ///< temporary peak beside what is saved
  double dense_parameters = 0;                    ///< of this rank, sharded by tp
  double expert_parameters = 0;                   ///< of this rank, sharded by ep and etp
  double trainable_dense = 0, trainable_expert = 0;
  double distinct_parameters = 0;  ///< of this rank, experts of one shape counted once
  MatrixUpdates dense_updates, expert_updates;
};

/// The degrees that shape a layer, resolved (no zeros), and the groups they communicate in.
struct LayerLayout {
  int tp = 1, cp = 1, ep = 1, etp = 1;
  int micro_batch = 1;
  bool sequence_parallel = false;
  bool regather = true;
  TensorOverlap overlap_tp = TensorOverlap::off;
  ContextParallel context = ContextParallel::ring;
  GroupShape tp_group, cp_group, ep_group, etp_group;
  PackShape packs;  ///< attended = 0: every sequence is one document
};

/// The question with every "left to the stack" answered.
struct Conditions {
  Precision precision = Precision::bf16;  ///< of linear layers
  Precision storage = Precision::bf16;    ///< of everything beside them
  int sequence = 1;
  AttentionKernel attention = AttentionKernel::flash2;
  bool fused_norm = true, dropout = false;
  bool gradients_fp32 = true;
  bool frozen_base = false;  ///< adapters: base weights get no gradient
  int lora_rank = 0;
  LoraTargets lora_targets = LoraTargets::attention;
  /// Muon, Shampoo or SOAP, where it updates matrices as wholes.
  std::optional<Optimizer> matrix_optimizer;
  double imbalance = 1;
  double images = 0, patches = 0;  ///< of a sequence, of an image
  bool frozen_vision = false;
  Stack stack;
};

/// Passes of a vision tower over its images, in flop of the forward one.
inline double tower_passes(const Conditions& conditions) {
  return conditions.frozen_vision ? 1 : 3;
}

/// `precision` takes the place of the task's.
Conditions resolve_conditions(const Task& task, const Stack& stack, Precision precision);

/// One kernel or collective of a layer, for explanations.
struct OperatorCost {
  std::string_view name;
  double m = 0, n = 0, k = 0, batch = 0;  ///< of GEMMs, else 0
  Seconds forward, backward;
  Bytes bytes;  ///< moved by memory-bound kernels or collectives
};
using OperatorList = std::vector<OperatorCost>;

/// Timers of a (cluster, task): what does not change from layout to layout.
struct LayerTimers {
  GemmTimer linear;   ///< in the task's precision
  GemmTimer storage;  ///< in the storage precision: head, attention GEMMs, router
};

/// Tabulates one layer kind. `list`, when given, receives every operator, `messages` everything
/// that leaves the rank.
LayerCost layer_cost(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                     const Conditions& conditions, const Cluster& cluster,
                     const LayerTimers& timers, OperatorList* list = nullptr,
                     MessageList* messages = nullptr);

}  // namespace scalemodel
