#include "scalemodel/strategy/replicas.hpp"

#include <algorithm>
#include <numeric>

#include "scalemodel/strategy/strides.hpp"

namespace scalemodel {

int replica_data_ranks(const Strategy& strategy, const Degrees& d) {
  // Ranks of a shard group follow the inner of the two axes first.
  const bool context_first = context_inside_data(axis_strides(strategy.placement, d), d);
  const int of_shards = context_first ? (d.shard + d.cp - 1) / d.cp : std::min(d.shard, d.dp);
  const int of_experts = (d.ep * d.etp + d.tp * d.cp - 1) / (d.tp * d.cp);
  const int both = std::lcm(of_shards, of_experts);
  return both <= d.dp && d.dp % both == 0 ? both : d.dp;
}

ReplicaLayout::ReplicaLayout(const Strategy& strategy, const Cluster& cluster, const Degrees& d)
    : ranks_(cluster.accelerators),
      per_node_(cluster.node_accelerators),
      data_stride_(axis_strides(strategy.placement, d).dp),
      data_ranks_(d.dp),
      replica_ranks_(replica_data_ranks(strategy, d)) {
  replicas_ = data_ranks_ / replica_ranks_;
  nodes_ = (ranks_ + per_node_ - 1) / per_node_;
}

std::vector<std::int32_t> ReplicaLayout::on_node(int node) const {
  std::vector<std::int32_t> found;
  const int last = std::min(ranks_, (node + 1) * per_node_);
  for (int rank = node * per_node_; rank < last; ++rank) {
    found.push_back(rank / data_stride_ % data_ranks_ / replica_ranks_);
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<std::int32_t> ReplicaLayout::on(std::span<const std::int32_t> nodes) const {
  std::vector<char> hit(static_cast<std::size_t>(replicas_));
  for (const std::int32_t node : nodes) {
    for (const std::int32_t replica : on_node(node)) hit[static_cast<std::size_t>(replica)] = 1;
  }
  std::vector<std::int32_t> found;
  for (std::int32_t replica = 0; replica < replicas_; ++replica) {
    if (hit[static_cast<std::size_t>(replica)] != 0) found.push_back(replica);
  }
  return found;
}

std::vector<std::int32_t> ReplicaLayout::apart(int count) const {
  std::vector<char> hit(static_cast<std::size_t>(replicas_));
  std::vector<char> taken(static_cast<std::size_t>(nodes_));
  std::vector<std::int32_t> chosen;
  const auto fresh = [&](const std::vector<std::int32_t>& replicas) {
    return std::ranges::count_if(replicas, [&](std::int32_t replica) {
      return hit[static_cast<std::size_t>(replica)] == 0;
    });
  };
  // Nodes of replicas that are all whole yet, then those of any whole one, then the others.
  enum : std::uint8_t { all_whole, some_whole, any };
  for (const auto pass : {all_whole, some_whole, any}) {
    for (std::int32_t node = 0; node < nodes_; ++node) {
      if (static_cast<int>(chosen.size()) == count) return chosen;
      if (taken[static_cast<std::size_t>(node)] != 0) continue;
      const std::vector<std::int32_t> replicas = on_node(node);
      const auto whole = fresh(replicas);
      if (pass == all_whole && whole < std::ssize(replicas)) continue;
      if (pass == some_whole && whole == 0) continue;
      taken[static_cast<std::size_t>(node)] = 1;
      chosen.push_back(node);
      for (const std::int32_t replica : replicas) hit[static_cast<std::size_t>(replica)] = 1;
    }
  }
  return chosen;
}

int ReplicaLayout::units() const {
  std::vector<std::int32_t> root(static_cast<std::size_t>(replicas_));
  std::iota(root.begin(), root.end(), 0);
  const auto root_of = [&](std::int32_t replica) {
    while (root[static_cast<std::size_t>(replica)] != replica) {
      replica = root[static_cast<std::size_t>(replica)];
    }
    return replica;
  };
  int sets = replicas_;
  for (int node = 0; node < nodes_; ++node) {
    const std::vector<std::int32_t> together = on_node(node);
    for (const std::int32_t replica : together) {
      const std::int32_t first = root_of(together.front()), other = root_of(replica);
      if (first == other) continue;
      root[static_cast<std::size_t>(std::max(first, other))] = std::min(first, other);
      --sets;
    }
  }
  return sets;
}

}  // namespace scalemodel
