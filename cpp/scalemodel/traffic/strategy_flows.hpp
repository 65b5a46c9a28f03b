// Flows of a strategy between scale-up domains: its collectives rank by rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/strategy/strides.hpp"
#include "scalemodel/traffic/flows.hpp"
#include "scalemodel/traffic/messages.hpp"
#include "scalemodel/traffic/patterns.hpp"

namespace scalemodel {

/// A message of the ranks of one pipeline stage.
struct StageMessage {
  Message message;
  Algorithm algorithm = Algorithm::ring;
  int stage = 0;
  double calls = 0;    ///< calls in a period, which is a micro-batch or the step
  double periods = 1;  ///< periods in a step
  bool back = false;   ///< a transfer goes to the stage before, not to the next one
};

/// Placement of the ranks of a strategy, and the routes of messages between domains.
struct StrategyLayout {
  Degrees degrees;
  Placement placement{};
  std::int32_t domain = 8;  ///< ranks that share a scale-up domain, counted from rank 0
  bool rails = true;        ///< whether all-to-alls change the rail inside a domain
  /// Ranks of a shard group of dense and of expert parameters.
  std::int32_t dense_shard_ranks = 1, expert_shard_ranks = 1;
  /// Of them, ranks of a group that shares a second copy, and of a part inside a domain.
  std::int32_t dense_secondary_ranks = 1, expert_secondary_ranks = 1;
  std::int32_t dense_node_ranks = 1, expert_node_ranks = 1;
};

/// Ordered members of every group of `communicator` on a pipeline stage, as ranks of the job. A
/// group of the pipeline axis is a pair of ranks on consecutive stages: the next one's stands
/// second, with `back` that of the stage before.
std::vector<std::vector<std::int32_t>> communicator_groups(const StrategyLayout& layout,
                                                           Communicator communicator, int stage,
                                                           bool back = false);

/// Flows of one period with their communicator, pattern and stage, by column.
struct StrategyFlows {
  Flows flows;  ///< sources and destinations are ranks; bytes are those of a period
  std::vector<Communicator> communicator;
  std::vector<TrafficPattern> pattern;
  std::vector<std::int32_t> stage;
  std::vector<double> periods;  ///< per step
};

/// The flows between domains of the messages that an estimate charges to the fabric. A ring of
/// ranks is one ring of domains per rail: rail k has the k-th member of every domain, and the rails
/// carry equal parts of its bytes; a tree is split in the same way. An all-to-all is one flow per
/// pair of ranks or, over rails, one flow per rail and ordered pair of domains, from the k-th
/// member of one domain to all members of the other. Messages of one communicator, pattern and
/// period on a stage are merged.
StrategyFlows strategy_flows(const StrategyLayout& layout, std::span<const StageMessage> messages);

/// A checkpoint: rank r writes its part, `bytes` by pipeline stage, to storage host r modulo
/// `hosts`. All writes are one group. Sources are ranks, destinations numbers of hosts.
struct CheckpointFlows {
  Flows flows;
  std::vector<std::int32_t> stage;  ///< by flow
};
CheckpointFlows checkpoint_flows(const StrategyLayout& layout, std::span<const Bytes> bytes,
                                 std::int32_t hosts);

}  // namespace scalemodel
