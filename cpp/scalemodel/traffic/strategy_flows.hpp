// The traffic of a strategy between domains: its collectives, rank by rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/strategy/strides.hpp"
#include "scalemodel/traffic/flows.hpp"
#include "scalemodel/traffic/messages.hpp"
#include "scalemodel/traffic/patterns.hpp"

namespace scalemodel {

/// A message of the ranks of one pipeline stage. `calls` of it make a period: a micro-batch, or the
/// step; `periods` make a step.
struct StageMessage {
  Message message;
  Algorithm algorithm = Algorithm::ring;
  int stage = 0;
  double calls = 0;
  double periods = 1;
};

/// Where the ranks of a strategy are, and how messages that leave a domain travel.
struct StrategyLayout {
  Degrees degrees;
  Placement placement{};
  std::int32_t domain = 8;  ///< ranks that share a scale-up domain, counted from rank 0
  bool rails = true;        ///< all-to-alls change the rail inside a domain, not between them
  /// Members of groups whose replicas of dense and expert parameters share them out.
  std::int32_t dense_shard_ranks = 1, expert_shard_ranks = 1;
};

/// Ordered members of every group of `communicator` on a pipeline stage, as ranks of the job. For
/// neighbouring stages: pairs, one of each stage.
std::vector<std::vector<std::int32_t>> communicator_groups(const StrategyLayout& layout,
                                                           Communicator communicator, int stage);

/// Flows of one period with where they belong, by column.
struct StrategyFlows {
  Flows flows;  ///< sources and destinations are ranks; bytes are those of a period
  std::vector<Communicator> communicator;
  std::vector<TrafficPattern> pattern;
  std::vector<std::int32_t> stage;
  std::vector<double> periods;  ///< per step
};

/// Every flow between domains, for the messages that an estimate charges to the fabric. A ring of
/// ranks is one ring of domains per rail, the k-th members of neighbouring domains, which share its
/// bytes evenly; a tree likewise. An all-to-all gives every pair of ranks its part, or, over rails,
/// the k-th members of two domains a part for each of theirs. Messages of a communicator that
/// travel alike on a stage are added up.
StrategyFlows strategy_flows(const StrategyLayout& layout, std::span<const StageMessage> messages);

/// A checkpoint: every rank writes its part, `bytes` by pipeline stage, to one of `hosts` storage
/// hosts, in turn by rank. One group, which ends when all have written. Sources are ranks,
/// destinations numbers of hosts.
struct CheckpointFlows {
  Flows flows;
  std::vector<std::int32_t> stage;  ///< by flow
};
CheckpointFlows checkpoint_flows(const StrategyLayout& layout, std::span<const Bytes> bytes,
                                 std::int32_t hosts);

}  // namespace scalemodel
