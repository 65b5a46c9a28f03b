#include "scalemodel/traffic/strategy_flows.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "approx.hpp"

namespace scalemodel {
namespace {

constexpr Communicator kAll[]{Communicator::tp,
                              Communicator::cp,
                              Communicator::ep,
                              Communicator::etp,
                              Communicator::dense_shard,
                              Communicator::dense_replica,
                              Communicator::expert_shard,
                              Communicator::expert_replica,
                              Communicator::dense_secondary,
                              Communicator::dense_node,
                              Communicator::expert_secondary,
                              Communicator::expert_node,
                              Communicator::dense_rail,
                              Communicator::expert_rail};

StrategyLayout layout_of(Placement placement) {
  StrategyLayout layout;
  layout.degrees.tp = 4;
  layout.degrees.cp = 2;
  layout.degrees.dp = 4;
  layout.degrees.pp = 2;
  layout.degrees.ep = 4;
  layout.degrees.etp = 2;
  layout.degrees.shard = 4;
  layout.placement = placement;
  layout.dense_shard_ranks = 4;
  layout.expert_shard_ranks = 2;
  layout.dense_secondary_ranks = layout.dense_node_ranks = 2;
  layout.expert_secondary_ranks = layout.expert_node_ranks = 1;
  return layout;
}

int members_of(const StrategyLayout& layout, Communicator communicator) {
  const Degrees& d = layout.degrees;
  switch (communicator) {
    case Communicator::tp:
      return d.tp;
    case Communicator::cp:
      return d.cp;
    case Communicator::ep:
      return d.ep;
    case Communicator::etp:
      return d.etp;
    case Communicator::pp:
      return 2;
    case Communicator::dense_shard:
      return layout.dense_shard_ranks;
    case Communicator::dense_replica:
      return d.dp * d.cp / layout.dense_shard_ranks;
    case Communicator::expert_shard:
      return layout.expert_shard_ranks;
    case Communicator::expert_replica:
      return d.inner() / (d.ep * d.etp) / layout.expert_shard_ranks;
    case Communicator::dense_secondary:
      return layout.dense_secondary_ranks;
    case Communicator::expert_secondary:
      return layout.expert_secondary_ranks;
    case Communicator::dense_node:
      return layout.dense_node_ranks;
    case Communicator::expert_node:
      return layout.expert_node_ranks;
    case Communicator::dense_rail:
      return layout.dense_shard_ranks / layout.dense_node_ranks;
    case Communicator::expert_rail:
      return layout.expert_shard_ranks / layout.expert_node_ranks;
  }
  return 0;
}

StageMessage message_of(Communicator communicator, std::optional<Collective> op, Bytes size,
                        int ranks, int domains, Algorithm algorithm = Algorithm::ring) {
  StageMessage message;
  message.message = {communicator, op, size, {}, 1, 1};
  message.message.group = {.ranks = ranks, .per_domain = ranks / domains, .domains = domains};
  message.algorithm = algorithm;
  message.calls = 1;
  return message;
}

double total(const Flows& flows) {
  double sum = 0;
  for (const double bytes : flows.bytes) sum += bytes;
  return sum;
}

TEST_CASE("the groups of a communicator hold every rank of a stage once") {
  for (int p = 0; p < 24; ++p) {
    const StrategyLayout layout = layout_of(static_cast<Placement>(p));
    std::set<std::int32_t> job;
    for (int stage = 0; stage < layout.degrees.pp; ++stage) {
      std::set<std::int32_t> of_stage;
      for (const Communicator communicator : kAll) {
        CAPTURE(p);
        CAPTURE(name_of(communicator));
        std::set<std::int32_t> found;
        for (const auto& members : communicator_groups(layout, communicator, stage)) {
          CHECK(members.size() == static_cast<std::size_t>(members_of(layout, communicator)));
          found.insert(members.begin(), members.end());
        }
        CHECK(found.size() == static_cast<std::size_t>(layout.degrees.inner()));
        if (of_stage.empty()) of_stage = found;
        CHECK(found == of_stage);
      }
      job.insert(of_stage.begin(), of_stage.end());
    }
    CHECK(job.size() == static_cast<std::size_t>(2 * layout.degrees.inner()));
    CHECK(*job.rbegin() == 2 * layout.degrees.inner() - 1);
  }
}

TEST_CASE("ranks of an axis lie as far apart as the mesh says") {
  for (int p = 0; p < 24; ++p) {
    const StrategyLayout layout = layout_of(static_cast<Placement>(p));
    const Strides strides = axis_strides(layout.placement, layout.degrees);
    const auto stride_of = [&](Communicator communicator) {
      const auto members = communicator_groups(layout, communicator, 0).front();
      return members[1] - members[0];
    };
    CAPTURE(p);
    CHECK(stride_of(Communicator::tp) == strides.tp);
    CHECK(stride_of(Communicator::cp) == strides.cp);
    CHECK(stride_of(Communicator::pp) == strides.pp);
  }
}

TEST_CASE("every rank writes its part of a checkpoint, evenly over the hosts") {
  for (int p = 0; p < 4; ++p) {
    const StrategyLayout layout = layout_of(static_cast<Placement>(p));
    const std::vector<Bytes> bytes{1 * unit::GB, 3 * unit::GB};
    const CheckpointFlows all = checkpoint_flows(layout, bytes, 3);
    const int ranks = layout.degrees.inner();
    CHECK(all.flows.groups == 1);
    CHECK(all.flows.size() == static_cast<std::size_t>(2 * ranks));
    std::set<std::int32_t> writers(all.flows.source.begin(), all.flows.source.end());
    CHECK(writers.size() == all.flows.size());
    double sum = 0;
    std::vector<int> taken(3, 0);
    for (std::size_t f = 0; f < all.flows.size(); ++f) {
      CHECK(all.flows.bytes[f] == bytes[all.stage[f]].base());
      sum += all.flows.bytes[f];
      ++taken[all.flows.destination[f]];
    }
    CHECK(sum == testing::Approx(ranks * 4e9));
    CHECK(std::ranges::max(taken) - std::ranges::min(taken) <= 1);
  }
}

TEST_CASE("a ring runs on as many rails as a domain has members") {
  StrategyLayout layout;
  layout.degrees.tp = 16;
  const auto message = message_of(Communicator::tp, Collective::all_reduce, 16 * unit::GB, 16, 2);
  const StrategyFlows all = strategy_flows(layout, std::vector{message});
  // 2 (n - 1)/n of the buffer leave each of two domains, an eighth of it on each rail.
  CHECK(all.flows.size() == 16);
  CHECK(all.flows.groups == 8);
  for (std::size_t f = 0; f < all.flows.size(); ++f) {
    CHECK(all.flows.bytes[f] == testing::Approx(2 * 15e9 / 8));
    CHECK(all.flows.source[f] % 8 == all.flows.destination[f] % 8);
  }
}

TEST_CASE("a tree carries a buffer up and down every edge, half of it in each tree") {
  StrategyLayout layout;
  layout.degrees.dp = 32;
  layout.dense_shard_ranks = 1;
  const auto message = message_of(Communicator::dense_replica, Collective::all_reduce, 8 * unit::GB,
                                  32, 4, Algorithm::tree);
  const StrategyFlows all = strategy_flows(layout, std::vector{message});
  CHECK(total(all.flows) == testing::Approx(2 * 3 * 8e9));
  CHECK(all.pattern.front() == TrafficPattern::double_binary_tree);
}

TEST_CASE("the buffer of an in-network reduction leaves every domain once") {
  StrategyLayout layout;
  layout.degrees.tp = 32;
  const auto message =
      message_of(Communicator::tp, Collective::all_reduce, 8 * unit::GB, 32, 4, Algorithm::sharp);
  const StrategyFlows all = strategy_flows(layout, std::vector{message});
  CHECK(total(all.flows) == testing::Approx(4 * 8e9));
  CHECK(all.pattern.front() == TrafficPattern::in_network);
}

TEST_CASE("an all-to-all over rails carries the bytes of a direct one in fewer flows") {
  StrategyLayout layout;
  layout.degrees.dp = 32;
  layout.degrees.ep = 32;
  const auto message =
      message_of(Communicator::ep, Collective::all_to_all, 32 * unit::GB, 32, 4, Algorithm::direct);
  const StrategyFlows aligned = strategy_flows(layout, std::vector{message});
  layout.rails = false;
  const StrategyFlows direct = strategy_flows(layout, std::vector{message});
  CHECK(aligned.flows.size() == 8 * 4 * 3);
  CHECK(direct.flows.size() == 32 * 24);
  CHECK(total(aligned.flows) == testing::Approx(32 * 24e9));
  CHECK(total(direct.flows) == testing::Approx(total(aligned.flows)));
}

TEST_CASE("neighbouring stages send to each other, the last one to the first in rounds") {
  StrategyLayout layout;
  layout.degrees.tp = 8;
  layout.degrees.pp = 4;
  std::vector<StageMessage> messages;
  for (int stage = 0; stage < 4; ++stage) {
    messages.push_back(message_of(Communicator::pp, std::nullopt, 1 * unit::MB, 2, 2));
    messages.back().stage = stage;
    messages.back().calls = stage < 3 ? 2 : 1;
    messages.back().periods = 16;
  }
  const StrategyFlows all = strategy_flows(layout, messages);
  CHECK(all.flows.size() == 4 * 8 * 2);
  CHECK(total(all.flows) == testing::Approx(8 * 2 * 7e6));
  CHECK(std::ranges::all_of(all.periods, [](double periods) { return periods == 16; }));
  std::map<std::int32_t, std::int32_t> last;
  for (std::size_t f = 0; f < all.flows.size(); ++f) {
    if (all.stage[f] == 3) last[all.flows.source[f]] = all.flows.destination[f];
  }
  CHECK(last.at(24) == 0);
  CHECK(last.at(0) == 24);
}

TEST_CASE("what goes back through a pipeline goes to the stage before") {
  StrategyLayout layout;
  layout.degrees.dp = 8;
  layout.degrees.pp = 4;
  StageMessage message = message_of(Communicator::pp, std::nullopt, 1 * unit::MB, 2, 2);
  message.stage = 2;
  message.back = true;
  const StrategyFlows all = strategy_flows(layout, std::vector{message});
  CHECK(all.flows.size() == 8 * 2);
  for (std::size_t f = 0; f < all.flows.size(); ++f) {
    const std::int32_t lower = std::min(all.flows.source[f], all.flows.destination[f]);
    CHECK(lower / 8 == 1);
    CHECK(std::max(all.flows.source[f], all.flows.destination[f]) == lower + 8);
  }
}

TEST_CASE("messages within a domain have no flows") {
  StrategyLayout layout;
  layout.degrees.tp = 8;
  layout.degrees.dp = 2;
  const auto message = message_of(Communicator::tp, Collective::all_reduce, 1 * unit::GB, 8, 1);
  CHECK(strategy_flows(layout, std::vector{message}).flows.size() == 0);
}

TEST_CASE("domains of different sizes share their smallest number of rails") {
  StrategyLayout layout;
  layout.degrees.tp = 12;
  const auto message = message_of(Communicator::tp, Collective::all_gather, 12 * unit::GB, 12, 2);
  const StrategyFlows all = strategy_flows(layout, std::vector{message});
  CHECK(all.flows.size() == 4 * 2);
  CHECK(total(all.flows) == testing::Approx(2 * 11e9));
}

}  // namespace
}  // namespace scalemodel
