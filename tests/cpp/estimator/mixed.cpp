#include "scalemodel/estimator/mixed.hpp"

#include <array>
#include <numeric>

#include "scalemodel/base/error.hpp"
#include "scalemodel/estimator/step_timeline.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::degrees;

constexpr std::array kSplits{MixedSplit::even, MixedSplit::balanced, MixedSplit::searched};

/// The reference cluster with kernels `factor` times as slow.
Cluster slower(int accelerators, double factor) {
  Cluster cluster = testing::reference_cluster(accelerators);
  Accelerator& a = cluster.accelerator;
  for (FlopPerSecond& peak : a.peak) peak = peak / factor;
  a.gemm.reference_peak = a.gemm.reference_peak / factor;
  a.clock = a.clock / factor;
  a.memory_bandwidth = a.memory_bandwidth / factor;
  return cluster;
}

Tables tables_on(const Cluster& cluster, int layers = 13) {
  DecoderShape shape = testing::dense_7b_shape();
  shape.layers = layers;
  return {make_decoder(shape), cluster, testing::training(64, 4096), testing::reference_stack()};
}

/// Every way to give four stages their layers.
template <class Visit>
void for_each_split(int layers, const Visit& visit) {
  for (int a = 1; a <= layers - 3; ++a) {
    for (int b = 1; a + b <= layers - 2; ++b) {
      for (int c = 1; a + b + c <= layers - 1; ++c) visit({a, b, c, layers - a - b - c});
    }
  }
}

TEST_CASE("layers are shared out nearly as well as they can be, and bounds hold for every split") {
  double lost = 0;
  constexpr int kTrials = 12;
  for (int trial = 0; trial < kTrials; ++trial) {
    CAPTURE(trial);
    const int layers = 12 + trial % 4;
    Tables fast = tables_on(testing::reference_cluster(32), layers);
    Tables slow = tables_on(slower(32, 1.2 + 0.3 * (trial % 6)), layers);
    const int share = 1 + trial % 3;
    std::vector<MixedPart> parts{{&fast, share}, {&slow, 4 - share}};
    if (trial % 2 == 1) std::swap(parts[0], parts[1]);
    Strategy strategy = degrees(2, 4);
    if (trial % 4 == 3) strategy.schedule = Schedule::zero_bubble;
    const MixedStep found = mixed_by_stage(parts, strategy, MixedSplit::searched);
    REQUIRE(found.verdict == Reason::ok);
    CHECK(std::accumulate(found.layers.begin(), found.layers.end(), 0) == layers);
    Seconds best = found.step_time;
    for_each_split(layers, [&](const std::vector<int>& split) {
      const MixedStep step = mixed_with_layers(parts, strategy, split);
      CHECK(found.least_time <= step.step_time);
      if (step.verdict == Reason::ok) CHECK(found.may_fit);
      if (step.verdict == Reason::ok) best = min(best, step.step_time);
    });
    CHECK(found.step_time <= 1.02 * best);
    lost += (found.step_time / best - 1) / kTrials;
  }
  CHECK(lost < 0.004);
}

TEST_CASE("equal kinds are one kind, however their layers are shared out") {
  for (const MixedSplit split : kSplits) {
    Tables one = tables_on(testing::reference_cluster(32), 16), two = one;
    Strategy strategy = degrees(2, 4);
    one.tabulate(strategy);
    const Estimate plain = evaluate(one, strategy);
    const MixedStep staged = mixed_by_stage({{&one, 1}, {&two, 3}}, strategy, split);
    const MixedStep shared = mixed_by_replica({{&one, 1}, {&two, 3}}, strategy, split);
    CAPTURE(name_of(split));
    CHECK(staged.step_time <= (1 + 1e-9) * step_timeline(one, strategy, {}, {}).step_time);
    CHECK(shared.step_time / plain.step_time == Approx(1));
    CHECK(shared.energy / plain.energy == Approx(1));
    CHECK(shared.cost / plain.cost == Approx(1));
    CHECK(staged.cost / shared.cost == Approx(staged.step_time / shared.step_time));
    CHECK(shared.power[0] / shared.power[1] == Approx(1));
  }
}

TEST_CASE("layers leave a kind that has no room for them") {
  Tables roomy = tables_on(testing::reference_cluster(32), 32);
  Cluster tight_cluster = testing::reference_cluster(32);
  const Strategy strategy = degrees(1, 4);
  const auto parts_of = [&](Tables& tight) {
    return std::vector<MixedPart>{{&tight, 2}, {&roomy, 2}};
  };
  Tables same = tables_on(tight_cluster, 32);
  const MixedStep free_to = mixed_by_stage(parts_of(same), strategy, MixedSplit::balanced);
  tight_cluster.accelerator.memory_capacity = 0.8 * free_to.memory[0];
  Tables tight = tables_on(tight_cluster, 32);
  CHECK(mixed_by_stage(parts_of(tight), strategy, MixedSplit::balanced).verdict ==
        Reason::out_of_memory);
  const MixedStep moved = mixed_by_stage(parts_of(tight), strategy, MixedSplit::searched);
  CHECK(moved.verdict == Reason::ok);
  CHECK(moved.layers[0] < free_to.layers[0]);
  CHECK(moved.may_fit);
  tight_cluster.accelerator.memory_capacity = Bytes{1e9};
  Tables none = tables_on(tight_cluster, 32);
  const MixedStep never = mixed_by_stage(parts_of(none), strategy, MixedSplit::searched);
  CHECK(never.verdict == Reason::out_of_memory);
  CHECK(never.step_time > Seconds{});
}

TEST_CASE("a faster replica works through more of the batch and waits for nobody longer") {
  Tables fast = tables_on(testing::reference_cluster(32)), slow = tables_on(slower(32, 2));
  const MixedStep even =
      mixed_by_replica({{&fast, 2}, {&slow, 2}}, degrees(2, 4), MixedSplit::even);
  const MixedStep best =
      mixed_by_replica({{&fast, 2}, {&slow, 2}}, degrees(2, 4), MixedSplit::searched);
  CHECK(best.micro_batches[0] > best.micro_batches[1]);
  CHECK(2 * (best.micro_batches[0] + best.micro_batches[1]) >= 64);
  CHECK(best.step_time < even.step_time);
  CHECK(best.energy < even.energy);
  CHECK(best.least_time == best.step_time);
}

TEST_CASE("malformed shares and splits are refused, illegal strategies answered") {
  Tables one = tables_on(testing::reference_cluster(32), 16), two = one;
  const std::vector<MixedPart> parts{{&one, 2}, {&two, 2}};
  const Strategy strategy = degrees(2, 4);
  CHECK_THROWS_AS(mixed_by_stage({{&one, 1}}, strategy, MixedSplit::even), MalformedQuestion);
  CHECK_THROWS_AS(mixed_by_replica({{&one, 4}, {&two, 0}}, strategy, MixedSplit::even),
                  MalformedQuestion);
  for (const std::vector<int>& split :
       {std::vector{4, 4, 4}, std::vector{4, 4, 4, 5}, std::vector{0, 5, 5, 6}}) {
    CHECK_THROWS_AS(mixed_with_layers(parts, strategy, split), MalformedQuestion);
  }
  Strategy chunked = strategy;
  chunked.vpp = 2;
  CHECK_THROWS_AS(mixed_by_stage(parts, chunked, MixedSplit::even), MalformedQuestion);
  for (const MixedSplit split : kSplits) {
    CHECK(is_illegal(mixed_by_stage(parts, degrees(5, 4), split).verdict));
    CHECK(is_illegal(mixed_by_replica(parts, degrees(5, 4), split).verdict));
  }
  CHECK(is_illegal(mixed_with_layers(parts, degrees(5, 4), {4, 4, 4, 4}).verdict));
}

}  // namespace
}  // namespace scalemodel
