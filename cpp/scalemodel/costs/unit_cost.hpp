// What one unit of a layer group costs one rank: compute, transfers and what it saves for backward.
#pragma once

#include <array>

#include "scalemodel/costs/group_cost.hpp"
#include "scalemodel/costs/layer_builder.hpp"

namespace scalemodel {

/// One group sharded over one mesh: what its units have in common.
struct ShardedGroup {
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

/// Ranks along one axis of `mesh`, which is one of the three of `p`.
GroupShape shape_of(const ShardedGroup& p, const Mesh& mesh, Parallelism parallelism);

/// Ranks that matrices are sharded over.
GroupShape tensor_group(const ShardedGroup& p, const Mesh& mesh);

/// A collective on the cluster of the question, as far as its ablation leaves it.
Transfer transfer(const ShardedGroup& p, Collective op, Bytes size, const GroupShape& shape);

/// Groups of layers, as opposed to embeddings, heads and tables.
constexpr bool has_layers(GroupKind kind) {
  return kind == GroupKind::transformer || kind == GroupKind::convolution ||
         kind == GroupKind::mlp || kind == GroupKind::interaction;
}

/// What a unit holds and computes on one rank, one micro-batch.
struct UnitSizes {
  double held = 0;     ///< parameters of this rank when gathered
  double trained = 0;  ///< of them, those that learn
  double saved = 0;    ///< values saved for the backward pass
  double input = 0;    ///< values of the unit's input
  Seconds gemm_forward, gemm_backward;
  Flop flop;
};

/// `builder` holds the units of the same layer before this one: the CPU launches kernels a
/// layer ahead of the accelerator, and what a unit adds to the layer's time is the unit's.
UnitCost unit_cost(const ShardedGroup& p, const Unit& unit, LayerBuilder& builder,
                   UnitSizes& sizes);

}  // namespace scalemodel
