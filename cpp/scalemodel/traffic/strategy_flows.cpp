#include "scalemodel/traffic/strategy_flows.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

using Ranks = std::vector<std::int32_t>;

/// The ranks of one pipeline stage in the order of the placement without the pipeline axis.
class StageMesh {
 public:
  StageMesh(const StrategyLayout& layout, int stage)
      : degrees_(layout.degrees),
        stage_(stage),
        inside_(axis_strides(layout.placement, layout.degrees).pp) {
    Degrees flat = degrees_;
    flat.pp = 1;
    strides_ = axis_strides(layout.placement, flat);
  }

  int size() const { return degrees_.inner(); }
  const Strides& strides() const { return strides_; }
  int tp(int local) const { return local / strides_.tp % degrees_.tp; }
  int cp(int local) const { return local / strides_.cp % degrees_.cp; }
  int dp(int local) const { return local / strides_.dp % degrees_.dp; }
  std::int32_t rank(int local) const { return rank(local, stage_); }
  /// The same rank of the next stage or, `back`, of the one before.
  std::int32_t beside(int local, bool back) const {
    return rank(local, (stage_ + (back ? degrees_.pp - 1 : 1)) % degrees_.pp);
  }

 private:
  std::int32_t rank(int local, int stage) const {
    return local % inside_ + inside_ * (stage + degrees_.pp * (local / inside_));
  }

  Degrees degrees_;
  int stage_;
  int inside_;  ///< ranks of the axes inside the pipeline axis
  Strides strides_;
};

/// Group of a rank in a communicator, and its position in the group.
struct Membership {
  int group, position;
};

/// Membership of replica number `replica` where consecutive replicas form shard groups of `shard`
/// ranks. Parameters of different `kind`, of `kinds`, have different replicas.
Membership shard_membership(int replica, int shard, int kind, int kinds) {
  return {kind + kinds * (replica / shard), replica % shard};
}
Membership replica_membership(int replica, int shard, int kind, int kinds) {
  return {kind + kinds * (replica % shard), replica / shard};
}

/// Ranks in the same place of the parts of `node` ranks that a shard group consists of.
Membership rail_membership(int replica, int shard, int node, int kind, int kinds) {
  return {kind + kinds * (replica / shard * node + replica % node), replica % shard / node};
}

Membership membership_of(const StrategyLayout& layout, const StageMesh& mesh,
                         Communicator communicator, int local) {
  const Degrees& d = layout.degrees;
  const int experts = d.ep * d.etp;
  const bool context_first = context_inside_data(mesh.strides(), d);
  const int dense_replica = context_first ? mesh.cp(local) + d.cp * mesh.dp(local)
                                          : mesh.dp(local) + d.dp * mesh.cp(local);
  const int expert_replica = local / experts;
  switch (communicator) {
    case Communicator::tp:
      return {mesh.cp(local) + d.cp * mesh.dp(local), mesh.tp(local)};
    case Communicator::cp:
      return {mesh.tp(local) + d.tp * mesh.dp(local), mesh.cp(local)};
    case Communicator::ep:
      return {local % d.etp + d.etp * expert_replica, local / d.etp % d.ep};
    case Communicator::etp:
      return {local / d.etp, local % d.etp};
    case Communicator::pp:
      return {local, 0};
    case Communicator::dense_shard:
      return shard_membership(dense_replica, layout.dense_shard_ranks, mesh.tp(local), d.tp);
    case Communicator::dense_replica:
      return replica_membership(dense_replica, layout.dense_shard_ranks, mesh.tp(local), d.tp);
    case Communicator::expert_shard:
      return shard_membership(expert_replica, layout.expert_shard_ranks, local % experts, experts);
    case Communicator::expert_replica:
      return replica_membership(expert_replica, layout.expert_shard_ranks, local % experts,
                                experts);
    case Communicator::dense_secondary:
      return shard_membership(dense_replica, layout.dense_secondary_ranks, mesh.tp(local), d.tp);
    case Communicator::expert_secondary:
      return shard_membership(expert_replica, layout.expert_secondary_ranks, local % experts,
                              experts);
    case Communicator::dense_node:
      return shard_membership(dense_replica, layout.dense_node_ranks, mesh.tp(local), d.tp);
    case Communicator::expert_node:
      return shard_membership(expert_replica, layout.expert_node_ranks, local % experts, experts);
    case Communicator::dense_rail:
      return rail_membership(dense_replica, layout.dense_shard_ranks, layout.dense_node_ranks,
                             mesh.tp(local), d.tp);
    case Communicator::expert_rail:
      return rail_membership(expert_replica, layout.expert_shard_ranks, layout.expert_node_ranks,
                             local % experts, experts);
  }
  return {};
}

TrafficPattern pattern_of(const StageMessage& message) {
  if (!message.message.op) return TrafficPattern::chain;
  if (*message.message.op == Collective::all_to_all) return TrafficPattern::all_to_all;
  if (message.algorithm == Algorithm::sharp) return TrafficPattern::in_network;
  const bool tree =
      message.algorithm == Algorithm::tree || message.algorithm == Algorithm::nvls_tree;
  return tree ? TrafficPattern::double_binary_tree : TrafficPattern::ring;
}

/// Bytes of one call by pattern: from a domain to the next one of a ring, from a rank to every
/// other one of an all-to-all, the buffer of a tree or of the network, the size of a transfer.
Bytes pattern_bytes(const StageMessage& message, TrafficPattern pattern) {
  const Message& m = message.message;
  switch (pattern) {
    case TrafficPattern::ring:
      return m.op ? domain_bytes(*m.op, message.algorithm, m.size, m.group) : m.size;
    case TrafficPattern::all_to_all:
      return m.size / static_cast<double>(m.group.ranks);
    case TrafficPattern::double_binary_tree:
    case TrafficPattern::in_network:
    case TrafficPattern::chain:
      return m.size;
  }
  return {};
}

/// Members of a group by domain, in the order of the members.
std::vector<Ranks> by_domain(const Ranks& members, std::int32_t domain) {
  std::vector<Ranks> domains;
  std::map<std::int32_t, std::size_t> known;
  for (const std::int32_t rank : members) {
    const auto [at, is_new] = known.try_emplace(rank / domain, domains.size());
    if (is_new) domains.emplace_back();
    domains[at->second].push_back(rank);
  }
  return domains;
}

/// Rail k has the k-th member of every domain; as many rails as the smallest domain has members.
std::vector<Ranks> rails_of(const std::vector<Ranks>& domains) {
  const auto smaller = [](const Ranks& a, const Ranks& b) { return a.size() < b.size(); };
  std::vector<Ranks> rails(std::ranges::min(domains, smaller).size());
  for (const Ranks& domain : domains) {
    for (std::size_t k = 0; k < rails.size(); ++k) rails[k].push_back(domain[k]);
  }
  return rails;
}

bool equal_sizes(const std::vector<Ranks>& domains) {
  return std::ranges::all_of(
      domains, [&](const Ranks& domain) { return domain.size() == domains.front().size(); });
}

void add_exchange(Flows& flows, const std::vector<Ranks>& domains, Bytes part, bool rails) {
  if (rails && equal_sizes(domains)) {
    const Bytes per_domain = static_cast<double>(domains.front().size()) * part;
    for (const Ranks& rail : rails_of(domains)) add_all_to_all(flows, rail, per_domain);
    return;
  }
  ++flows.groups;
  for (const Ranks& from : domains) {
    for (const Ranks& to : domains) {
      if (&from == &to) continue;
      for (const std::int32_t source : from) {
        poll_point(1 + static_cast<std::int64_t>(to.size()) / 8);
        for (const std::int32_t destination : to) flows.add(source, destination, part);
      }
    }
  }
}

/// Adds flows between consecutive ranks in different domains, and from the last rank to the first.
void add_neighbours(Flows& flows, const Ranks& members, std::int32_t domain, Bytes size) {
  ++flows.groups;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::int32_t from = members[i], to = members[(i + 1) % members.size()];
    if (from / domain != to / domain) flows.add(from, to, size);
  }
}

void add_group(Flows& flows, const StrategyLayout& layout, TrafficPattern pattern,
               const Ranks& members, Bytes size) {
  poll_point(1 + static_cast<std::int64_t>(members.size()));
  const std::vector<Ranks> domains = by_domain(members, layout.domain);
  if (domains.size() < 2) return;
  switch (pattern) {
    case TrafficPattern::ring:
    case TrafficPattern::in_network:
    case TrafficPattern::double_binary_tree: {
      const std::vector<Ranks> rails = rails_of(domains);
      const Bytes part = size / static_cast<double>(rails.size());
      for (const Ranks& rail : rails) {
        // The bytes of a ring are those of an edge here, not of a buffer.
        if (pattern == TrafficPattern::ring) {
          add_ring(flows, rail, part);
        } else {
          add_pattern(flows, pattern, rail, part);
        }
      }
      return;
    }
    case TrafficPattern::all_to_all:
      add_exchange(flows, domains, size, layout.rails);
      return;
    case TrafficPattern::chain:
      // Two consecutive stages exchange activations in one direction, gradients in the other.
      add_neighbours(flows, members, layout.domain, size);
      return;
  }
}

}  // namespace

std::vector<std::vector<std::int32_t>> communicator_groups(const StrategyLayout& layout,
                                                           Communicator communicator, int stage,
                                                           bool back) {
  const StageMesh mesh(layout, stage);
  std::vector<Ranks> groups;
  for (int local = 0; local < mesh.size(); ++local) {
    poll_point();
    const Membership member = membership_of(layout, mesh, communicator, local);
    const auto group = static_cast<std::size_t>(member.group);
    const auto position = static_cast<std::size_t>(member.position);
    if (group >= groups.size()) groups.resize(group + 1);
    if (position >= groups[group].size()) groups[group].resize(position + 1);
    groups[group][position] = mesh.rank(local);
    if (communicator == Communicator::pp) groups[group].push_back(mesh.beside(local, back));
  }
  return groups;
}

StrategyFlows strategy_flows(const StrategyLayout& layout, std::span<const StageMessage> messages) {
  std::map<std::tuple<int, Communicator, TrafficPattern, double, bool>, Bytes> sums;
  for (const StageMessage& message : messages) {
    if (message.message.group.domains <= 1) continue;
    const TrafficPattern pattern = pattern_of(message);
    sums[{message.stage, message.message.communicator, pattern, message.periods, message.back}] +=
        message.calls * pattern_bytes(message, pattern);
  }
  StrategyFlows all;
  open_job(all.flows);
  for (const auto& [key, size] : sums) {
    const auto& [stage, communicator, pattern, periods, back] = key;
    for (const Ranks& members : communicator_groups(layout, communicator, stage, back)) {
      add_group(all.flows, layout, pattern, members, size);
    }
    all.communicator.resize(all.flows.size(), communicator);
    all.pattern.resize(all.flows.size(), pattern);
    all.stage.resize(all.flows.size(), stage);
    all.periods.resize(all.flows.size(), periods);
  }
  return all;
}

CheckpointFlows checkpoint_flows(const StrategyLayout& layout, std::span<const Bytes> bytes,
                                 std::int32_t hosts) {
  CheckpointFlows all;
  open_job(all.flows);
  ++all.flows.groups;
  for (std::int32_t stage = 0; stage < static_cast<std::int32_t>(bytes.size()); ++stage) {
    const StageMesh mesh(layout, stage);
    for (int local = 0; local < mesh.size(); ++local) {
      const std::int32_t rank = mesh.rank(local);
      all.flows.add(rank, rank % hosts, bytes[stage]);
      all.stage.push_back(stage);
    }
  }
  return all;
}

}  // namespace scalemodel
