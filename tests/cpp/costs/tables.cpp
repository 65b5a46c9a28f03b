#include "scalemodel/costs/tables.hpp"

#include <map>

#include "scalemodel/traffic/strategy_flows.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::degrees;

TEST_CASE("tables hold one cell per set of degrees inside a stage, and fill it once") {
  Tables tables(make_decoder(testing::dense_7b_shape()), testing::reference_cluster(64),
                testing::training(256, 4096), testing::reference_stack());
  CHECK(tables.cells() == 0);
  tables.tabulate(degrees(4));
  CHECK(tables.cells() == 1);
  tables.tabulate(degrees(4));
  CHECK(tables.cells() == 1);
  Strategy other = degrees(4, 4);  // another pipeline, another sharding: the same layers
  other.sharding = Sharding::zero3;
  other.recompute = Recompute::full;
  tables.tabulate(other);
  CHECK(tables.cells() == 1);
  tables.tabulate(degrees(2));
  CHECK(tables.cells() == 2);
  tables.tabulate(degrees(5));  // illegal: nothing to tabulate
  CHECK(tables.cells() == 2);
}

TEST_CASE("what was not tabulated is not found") {
  const Tables tables(make_decoder(testing::dense_7b_shape()), testing::reference_cluster(64),
                      testing::training(256, 4096), testing::reference_stack());
  const Strategy strategy = degrees(4);
  const Degrees d = resolve_degrees(strategy, tables.cluster(), tables.task());
  CHECK(tables.find_cell(strategy, d) == nullptr);
  CHECK(tables.find_stages(strategy, d) == nullptr);
  CHECK(evaluate(tables, strategy).step_time == Seconds{});
}

TEST_CASE("an answer does not depend on what else was tabulated, or in which order") {
  testing::Random random(11);
  std::vector<Strategy> strategies;
  for (int i = 0; i < testing::draws(600); ++i)
    strategies.push_back(testing::random_strategy(random));
  // Groups as large that lie as far apart as their placement says, rarely drawn side by side.
  for (std::uint8_t placement = 0; placement < 24; ++placement) {
    Strategy strategy = degrees(2, 2);
    strategy.cp = 2;
    strategy.placement = static_cast<Placement>(placement);
    strategies.push_back(strategy);
  }
  std::vector<testing::Question> questions = testing::all_questions();
  Cluster hosts = testing::reference_cluster(64);  // pairs below a switch, sockets of four
  hosts.scale_up.levels = {2, 20 * (unit::GB / unit::s), 4, 15 * (unit::GB / unit::s)};
  questions.push_back(
      {"hosts with levels", Tables(make_decoder(testing::dense_7b_shape()), hosts,
                                   testing::training(256, 4096), testing::reference_stack())});
  for (testing::Question& question : questions) {
    CAPTURE(question.name);
    Tables& forwards = question.tables;
    Tables backwards(forwards.model(), forwards.cluster(), forwards.task(), forwards.stack());
    for (const Strategy& strategy : strategies) forwards.tabulate(strategy);
    for (std::size_t i = strategies.size(); i-- > 0;) backwards.tabulate(strategies[i]);
    CHECK(forwards.cells() == backwards.cells());
    CHECK(forwards.cells() > testing::draws(64));
    int different = 0;
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      const Estimate shared = evaluate(forwards, strategies[i]);
      different += shared == evaluate(backwards, strategies[i]) ? 0 : 1;
      if (i % 50 != 0) continue;
      Tables alone(forwards.model(), forwards.cluster(), forwards.task(), forwards.stack());
      alone.tabulate(strategies[i]);
      different += shared == evaluate(alone, strategies[i]) ? 0 : 1;
    }
    CHECK(different == 0);
  }
}

TEST_CASE("data-parallel groups share domains and pods as their ranks do, in every placement") {
  const std::vector<int> few{1, 2, 4}, many{1, 4, 16};
  int apart = 0;  // groups along two axes that another one lies between
  for (std::uint8_t p = 0; p < 24; ++p) {
    for (const int tp : {1, 4}) {
      for (const int cp : few) {
        for (const int pp : few) {
          for (const int dp : many) {
            Cluster cluster = testing::reference_cluster(tp * cp * pp * dp);
            cluster.fabric.pod = 32;
            Strategy strategy = degrees(tp, pp);
            strategy.cp = static_cast<std::uint16_t>(cp);
            strategy.placement = static_cast<Placement>(p);
            strategy.sharding = Sharding::hsdp;
            for (int shard = 1; shard <= cp * dp; shard *= 2) {
              strategy.shard_degree = static_cast<std::uint16_t>(shard);
              const Degrees d = resolve_degrees(strategy, cluster, testing::training(1024, 4096));
              const DataParallelGroups groups = data_parallel_groups(cluster, strategy, d, true);
              StrategyLayout layout;
              layout.degrees = d;
              layout.placement = strategy.placement;
              layout.dense_shard_ranks = shard;
              CAPTURE(name_of(strategy.placement));
              CAPTURE(tp);
              CAPTURE(cp);
              CAPTURE(pp);
              CAPTURE(dp);
              CAPTURE(shard);
              const auto check = [&](Communicator communicator, const GroupShape& shape) {
                for (const auto& members : communicator_groups(layout, communicator, 0)) {
                  std::map<int, int> domains, pods;
                  for (const std::int32_t rank : members) {
                    ++domains[rank / cluster.scale_up.domain];
                    ++pods[rank / cluster.fabric.pod];
                  }
                  REQUIRE(shape.ranks == static_cast<int>(members.size()));
                  REQUIRE(shape.domains == static_cast<int>(domains.size()));
                  REQUIRE(shape.per_domain == domains.begin()->second);
                  REQUIRE((shape.ranks > 1 && shape.leaves_pod) == (pods.size() > 1));
                }
              };
              check(Communicator::dense_shard, groups.dense_shard);
              check(Communicator::dense_replica, groups.dense_replica);
              const Strides strides = axis_strides(strategy.placement, d);
              apart += cp > 1 && dp > 1 && strides.dp != strides.cp * cp &&
                       strides.cp != strides.dp * dp;
            }
          }
        }
      }
    }
  }
  CHECK(apart > 1000);
}

TEST_CASE("model flop: two per active parameter and token, plus causal attention and the head") {
  const DecoderShape shape = testing::dense_7b_shape();
  const Model model = make_decoder(shape);
  for (const int sequence : {512, 4096}) {
    const Tables tables(model, testing::reference_cluster(8), testing::training(8, sequence),
                        testing::reference_stack());
    const double s = sequence;
    const double attention = 32 * 2 * 32 * (128 + 128) * s * s / 2;
    CHECK(tables.flop().attention.base() == Approx(attention));
    const double products = 2 * s * (model.parameters() - 32000.0 * 4096 - 65 * 4096);
    CHECK(tables.flop().forward.base() == Approx(products + attention));
  }
}

TEST_CASE("GEMMs of two activations are model flop that no parameter stands for") {
  Model model = make_decoder(testing::dense_7b_shape());
  const auto flop = [&] {
    return Tables(model, testing::reference_cluster(8), testing::training(8, 1024),
                  testing::reference_stack())
        .flop();
  };
  const ModelFlop before = flop();
  LayerOperator state;
  state.name = "state";
  state.weightless = true;
  state.columns = 128;
  state.depth = 64;
  state.copies = 32;
  for (LayerKind& kind : model.kinds) kind.units.front().operators.push_back(state);
  const double more = 32.0 * 1024 * 2 * 32 * 128 * 64;  // layers, tokens, copies
  CHECK((flop().attention - before.attention).base() == Approx(more));
  CHECK((flop().forward - before.forward).base() == Approx(more));
}

TEST_CASE("the flop of tied tables and of a prediction module") {
  DecoderShape shape = testing::dense_7b_shape();
  const auto flop = [&] {
    return Tables(make_decoder(shape), testing::reference_cluster(8), testing::training(8, 2048),
                  testing::reference_stack())
        .flop()
        .forward;
  };
  const Flop untied = flop();
  shape.tied_embeddings = true;
  CHECK(flop() == untied);
  shape.mtp_layers = 1;
  CHECK(flop() > untied);
}

TEST_CASE("data-parallel groups multiply to the replicas of a parameter") {
  const Cluster cluster = testing::reference_cluster(512);
  const Task task = testing::training(512, 4096);
  for (const int tp : {1, 2, 8}) {
    for (const int pp : {1, 4}) {
      for (const int cp : {1, 2}) {
        for (const int ep : {1, 4, 8}) {
          for (const Sharding sharding : {Sharding::ddp, Sharding::zero3, Sharding::hsdp}) {
            Strategy s = degrees(tp, pp, cp, ep);
            s.sharding = sharding;
            const Degrees d = resolve_degrees(s, cluster, task);
            const DataParallelGroups g = data_parallel_groups(cluster, s, d, true);
            CAPTURE(tp);
            CAPTURE(pp);
            CAPTURE(cp);
            CAPTURE(ep);
            CHECK(g.dense_ranks == d.dp * d.cp);
            CHECK(g.dense_shard.ranks * g.dense_replica.ranks == g.dense_ranks);
            CHECK(g.expert_ranks * d.ep * d.etp == d.inner());
            CHECK(g.expert_shard.ranks * g.expert_replica.ranks == g.expert_ranks);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace scalemodel
