// What a lost node takes along: replicas of the training state, and the nodes they lie on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// Data-parallel ranks of one replica: the fewest neighbours that together hold the whole state
/// (parameters, optimizer states, all experts), so that the others go on without them. ZeRO shards
/// states over all data-parallel ranks and leaves one replica; HSDP has one per shard group.
/// Source: fault tolerance over the replicated dimension, pytorch/torchft README; arXiv 2602.00277.
int replica_data_ranks(const Strategy& strategy, const Degrees& degrees);

/// Replicas of a legal strategy, and the nodes that its ranks fill in the order of the mesh.
class ReplicaLayout {
 public:
  ReplicaLayout(const Strategy& strategy, const Cluster& cluster, const Degrees& degrees);

  int replicas() const { return replicas_; }
  int nodes() const { return nodes_; }
  /// Replicas with a rank on one of `nodes`, in ascending order.
  std::vector<std::int32_t> on(std::span<const std::int32_t> nodes) const;
  /// `count` nodes that together hold ranks of as many replicas as that number of nodes can: what
  /// is lost at worst. Precondition: count from 0 to nodes().
  std::vector<std::int32_t> apart(int count) const;
  /// Sets of replicas of which no node holds ranks of two: what fails one by one. A node of several
  /// small replicas takes all of them along.
  int units() const;

 private:
  std::vector<std::int32_t> on_node(int node) const;

  int replicas_, nodes_, ranks_, per_node_, data_stride_, data_ranks_, replica_ranks_;
};

}  // namespace scalemodel
