// Closed form and timeline: two fidelities, one meaning.
#include <algorithm>
#include <cmath>

#include "scalemodel/base/error.hpp"
#include "scalemodel/timeline/events.hpp"
#include "timeline/regular.hpp"

namespace scalemodel {
namespace {

using testing::at_most;
using testing::Question;

template <class Visit>
void for_regular(int count, std::uint64_t seed, Visit&& visit) {
  const auto any = [](const Strategy&, const Estimate&) { return true; };
  testing::for_regular_strategies(count, seed, any, visit);
}

/// Difference of timeline and closed form over random regular strategies that `wanted` selects.
template <class Wanted>
std::vector<double> differences(int count, std::uint64_t seed, Wanted&& wanted) {
  std::vector<double> found;
  testing::for_regular_strategies(
      count, seed, wanted, [&](Question& q, const Strategy& s, const Estimate& e) {
        found.push_back(std::abs(step_timeline(q.tables, s, {}).period / e.step_time - 1));
      });
  return found;
}

std::ptrdiff_t above(const std::vector<double>& values, double bound) {
  return std::ranges::count_if(values, [&](double value) { return value > bound; });
}

/// DualPipe, or DualPipeV.
bool dualpipe(const Strategy& s) { return traits_of(s.schedule).pairs; }

/// Twice as many passes run ahead as in other schedules, so that more of them wait for each other.
bool far_ahead(const Strategy& s) {
  return s.schedule == Schedule::zero_bubble_2p || s.schedule == Schedule::zero_bubble_v;
}

TEST_CASE("on regular strategies the timeline takes as long as the closed form says") {
  for (const std::uint64_t seed : {41, 42, 43, 44}) {
    const std::vector<double> found = differences(
        testing::draws(500), seed,
        [](const Strategy& s, const Estimate&) { return !dualpipe(s) && !far_ahead(s); });
    CHECK(above(found, 0.005) == 0);
  }
}

TEST_CASE("passes far ahead: the closed form stays within a percent of the timeline") {
  const std::vector<double> found = differences(
      testing::draws(200), 47, [](const Strategy& s, const Estimate&) { return far_ahead(s); });
  CHECK(above(found, 0.01) == 0);
  CHECK(above(found, 0.005) <= static_cast<std::ptrdiff_t>(found.size() / 20));
}

TEST_CASE("transfers one after the other: the closed form stays near") {
  std::vector<Question> questions = testing::regular_questions();
  testing::Random random(49);
  int seen = 0;
  while (seen < 100) {
    Question& q =
        questions[static_cast<std::size_t>(random.below(static_cast<int>(questions.size())))];
    Stack stack = q.tables.stack();
    stack.serial_p2p = true;
    Tables tables(q.tables.model(), q.tables.cluster(), q.tables.task(), stack);
    const Strategy s = testing::random_strategy(random);
    tables.tabulate(s);
    const Estimate e = evaluate(tables, s);
    if (!testing::can_run(e) || !testing::is_regular(s, e) || s.pp < 4 || dualpipe(s)) continue;
    ++seen;
    CAPTURE(name_of(s.schedule));
    CHECK(std::abs(step_timeline(tables, s, {}).period / e.step_time - 1) < 0.03);
  }
}

TEST_CASE("DualPipe: what its chunks gather, reduce and send is told to within a few percent") {
  for (const std::uint64_t seed : {47, 48}) {
    const std::vector<double> found =
        differences(200, seed, [](const Strategy& s, const Estimate&) { return dualpipe(s); });
    CHECK(above(found, 0.05) == 0);
    CHECK(above(found, 0.02) <= 2);
    CHECK(above(found, 0.01) <= 6);
    CHECK(above(found, 0.005) <= 20);
  }
}

TEST_CASE("a last, smaller group of interleaved micro-batches leaves slots empty in both") {
  const std::vector<Question> questions = testing::regular_questions();
  const Tables& gpt3 = questions.front().tables;
  for (const int p : {4, 8}) {
    for (const int v : {2, 3}) {
      for (const int m : {p / 2, p - 1, p + 1, 3 * p - 1, 4 * p + p / 2}) {
        Tables tables(gpt3.model(), testing::reference_cluster(8 * p), testing::training(m, 2048),
                      gpt3.stack());
        Strategy s = testing::degrees(8, p);
        s.vpp = static_cast<std::uint8_t>(v);
        const Timeline timeline = step_timeline(tables, s, {});
        CAPTURE(p);
        CAPTURE(v);
        CAPTURE(m);
        CHECK(timeline.step_time / evaluate(tables, s).step_time ==
              testing::Approx(1).epsilon(0.01));
        // No pass waits for ever.
        CHECK(std::ranges::all_of(timeline.passes,
                                  [](const PassEvent& pass) { return pass.end > Seconds{}; }));
      }
    }
  }
}

TEST_CASE("chunks of unequal size: the closed form follows the timeline") {
  std::vector<double> found;
  testing::for_random_estimates(2500, 50, [&](Question& q, const Strategy& s, const Estimate& e) {
    const int m = static_cast<int>(std::lround(e.micro_batches));
    if (s.pp == 1 || s.vpp == 1 || m % s.pp != 0 || s.offload_activations) return;
    if (q.tables.model().layers() % (s.pp * s.vpp) == 0 || m * s.pp > 2048) return;
    found.push_back(std::abs(step_timeline(q.tables, s, {}).period / e.step_time - 1));
  });
  REQUIRE(found.size() > 50);
  CHECK(above(found, 0.1) == 0);
  CHECK(above(found, 0.05) <= static_cast<std::ptrdiff_t>(found.size() / 20));
  CHECK(above(found, 0.02) <= static_cast<std::ptrdiff_t>(found.size() / 4));
}

TEST_CASE("any strategy: never shorter than the kernels of its busiest stage, never endless") {
  testing::for_random_estimates(200, 42, [](Question& q, const Strategy& s, const Estimate& e) {
    if (e.micro_batches * s.pp * s.vpp > 1e4) return;
    const Timeline timeline = step_timeline(q.tables, s, {});
    CAPTURE(q.name);
    CAPTURE(name_of(s.schedule));
    CHECK(at_most(e.compute + e.optimizer + e.overhead, 1.05 * timeline.step_time));
    CHECK(timeline.step_time < 1.5 * e.step_time);
  });
}

TEST_CASE("memory over time peaks where the estimate says, kind by kind") {
  for_regular(300, 43, [](Question& q, const Strategy& s, const Estimate& e) {
    const Timeline timeline = step_timeline(q.tables, s, {});
    MemoryKinds peak;
    Bytes total;
    for (const MemorySample& sample : memory_profile(timeline)) {
      if (sample.rank != e.fullest_stage) continue;
      peak.activations = max(peak.activations, sample.allocated.activations);
      peak.logits = max(peak.logits, sample.allocated.logits);
      peak.temporary = max(peak.temporary, sample.allocated.temporary);
      total = max(total, sample.allocated.total());
      CHECK(sample.allocated.weights == e.memory_weights);
      CHECK(sample.allocated.gradients == e.memory_gradients);
      CHECK(sample.allocated.optimizer == e.memory_optimizer);
      CHECK(sample.allocated.communication == e.memory_communication);
      CHECK(sample.allocated.gathered == e.memory_gathered);
      CHECK(sample.allocated.reserve == e.memory_reserve);
    }
    CAPTURE(q.name);
    CAPTURE(name_of(s.schedule));
    CAPTURE(static_cast<int>(s.pp));
    CAPTURE(static_cast<int>(s.vpp));
    CAPTURE(e.micro_batches);
    CHECK(peak.activations / e.memory_activations == testing::Approx(1).epsilon(1e-9));
    CHECK(testing::about_equal(peak.logits, e.memory_logits));
    // The other chunks of a stage with the head have all of their temporary space to themselves.
    const bool chunks = virtual_stages(s.schedule, s.pp, s.vpp) > 1 || dualpipe(s);
    const Bytes spared = chunks ? e.memory_logits : Bytes{};
    const auto near = [&](Bytes closed, Bytes simulated) {
      return at_most(closed, simulated + spared) && at_most(simulated, closed + spared);
    };
    CHECK(near(e.memory_temporary, peak.temporary));
    CHECK(near(e.memory, total));
  });
}

TEST_CASE("a straggler paces the pipeline: its kernels, not the sum of all delays") {
  for_regular(60, 44, [](Question& q, const Strategy& s, const Estimate&) {
    if (s.pp == 1) return;
    const Seconds plain = step_timeline(q.tables, s, {}).step_time;
    std::vector<double> slow(s.pp, 1.0);
    slow[s.pp / 2u] = 1.5;
    const Seconds one = step_timeline(q.tables, s, {}, slow).step_time;
    const Seconds all = step_timeline(q.tables, s, {}, std::vector<double>(s.pp, 1.5)).step_time;
    CHECK(at_most(plain, one));
    CHECK(at_most(one, all));
    CHECK(at_most(all, 1.5 * plain));
    CHECK(step_timeline(q.tables, s, {}, std::vector<double>(s.pp, 1.0)).step_time == plain);
  });
}

TEST_CASE("without contention nothing gets slower, nor by need, nor sliced, nor compressed") {
  for_regular(100, 45, [](Question& q, const Strategy& s, const Estimate&) {
    const Seconds plain = step_timeline(q.tables, s, {}).step_time;
    TimelineOptions options;
    options.contention = false;
    CHECK(at_most(step_timeline(q.tables, s, options).step_time, plain));
    options = {};
    options.priority = Priority::by_need;
    const Seconds by_need = step_timeline(q.tables, s, options).step_time;
    CHECK(at_most(by_need, plain));
    options.slices = 4;
    // Finer buckets hide more; what hides slows the draining stages.
    CHECK(at_most(step_timeline(q.tables, s, options).step_time, 1.01 * by_need));
  });
}

TEST_CASE("compression shortens traffic and pays for itself only where traffic is exposed") {
  std::vector<testing::Question> questions = testing::regular_questions();
  Strategy s = testing::degrees(1);
  s.sharding = Sharding::ddp;
  s.overlap_grad_reduce = OnOff::off;
  Tables& tables = questions[2].tables;
  TimelineOptions options;
  const Seconds plain = step_timeline(tables, s, options).step_time;
  options.gradient_compression = 0.25;
  const Timeline compressed = step_timeline(tables, s, options);
  CHECK(compressed.step_time < plain);
  CHECK(compressed.costs.resources.front().decode > Seconds{});
  // One rank reduces nothing: what is left is encoding in vain.
  Tables alone(tables.model(), testing::reference_cluster(8), tables.task(), tables.stack());
  Strategy whole = testing::degrees(8);
  whole.sharding = Sharding::ddp;
  const Seconds nothing = step_timeline(alone, whole, {}).step_time;
  CHECK(at_most(nothing, step_timeline(alone, whole, options).step_time));
}

TEST_CASE("questions without a timeline are refused") {
  std::vector<testing::Question> questions = testing::regular_questions();
  Tables& tables = questions[2].tables;
  CHECK_THROWS_AS(step_timeline(tables, testing::degrees(7), {}), MalformedQuestion);
  CHECK_THROWS_AS(step_timeline(tables, testing::degrees(8, 4), {}, {1, 1}), MalformedQuestion);
  CHECK_THROWS_AS(step_timeline(tables, testing::degrees(8, 2), {}, {1, 0}), MalformedQuestion);
  Tables endless(tables.model(), tables.cluster(), testing::training(1 << 20, 4096),
                 tables.stack());
  CHECK_THROWS_AS(step_timeline(endless, testing::degrees(8, 8), {}), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
