// Better hardware never hurts, strategy by strategy.
#include <string>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::at_most;
using testing::Question;

void faster_compute(Cluster& c) {
  for (FlopPerSecond& peak : c.accelerator.peak) peak = 1.5 * peak;
  c.accelerator.gemm.reference_peak = 1.5 * c.accelerator.gemm.reference_peak;
}
void faster_memory(Cluster& c) {
  c.accelerator.memory_bandwidth = 1.5 * c.accelerator.memory_bandwidth;
}
void faster_scale_up(Cluster& c) { c.scale_up.bandwidth = 1.5 * c.scale_up.bandwidth; }
void faster_fabric(Cluster& c) { c.fabric.bandwidth = 1.5 * c.fabric.bandwidth; }
void shorter_latency(Cluster& c) {
  c.fabric.latency_factor *= 0.5;
  c.fabric.p2p_latency = 0.5 * c.fabric.p2p_latency;
  c.scale_up.p2p_latency = 0.5 * c.scale_up.p2p_latency;
}
void faster_host(Cluster& c) { c.accelerator.host_bandwidth = 1.5 * c.accelerator.host_bandwidth; }
void bigger_pod(Cluster& c) { c.fabric.pod = 0; }
void all_faster(Cluster& c) {
  faster_compute(c);
  faster_memory(c);
  faster_scale_up(c);
  faster_fabric(c);
  faster_host(c);
}

struct Change {
  std::string name;
  void (*apply)(Cluster&);
};
const Change kChanges[] = {
    {"compute", faster_compute}, {"memory", faster_memory},    {"scale-up", faster_scale_up},
    {"fabric", faster_fabric},   {"latency", shorter_latency}, {"host", faster_host},
    {"pod", bigger_pod},         {"all", all_faster},
};

TEST_CASE("a faster part never makes a step slower, nor changes its memory") {
  std::vector<Question> base = testing::all_questions();
  for (const Change& change : kChanges) {
    CAPTURE(change.name);
    std::vector<Question> better;
    for (const Question& question : base) {
      const Tables& t = question.tables;
      Cluster cluster = t.cluster();
      change.apply(cluster);
      better.push_back({question.name, Tables(t.model(), cluster, t.task(), t.stack())});
    }
    testing::Random random(51);
    int compared = 0;
    while (compared < 1500) {
      const auto i = static_cast<std::size_t>(random.below(static_cast<int>(base.size())));
      const Strategy s = testing::random_strategy(random);
      base[i].tables.tabulate(s);
      const Estimate slow = evaluate(base[i].tables, s);
      if (!testing::can_run(slow)) continue;
      better[i].tables.tabulate(s);
      const Estimate quick = evaluate(better[i].tables, s);
      ++compared;
      CAPTURE(base[i].name);
      CAPTURE(s.tp);
      CAPTURE(s.pp);
      CAPTURE(s.cp);
      CAPTURE(s.ep);
      CAPTURE(name_of(s.schedule));
      CAPTURE(name_of(s.sharding));
      CAPTURE(name_of(s.recompute));
      CAPTURE(slow.step_time.base());
      CAPTURE(quick.step_time.base());
      // Further groups of ZB-V are told from two steps, each to 2e-4 of it, and are many: one
      // strategy in a thousand moves the wrong way, by 1.7e-3 at most of 30,000 drawn.
      const double rounding = s.schedule == Schedule::zero_bubble_v ? 1 + 2e-3 : 1;
      CHECK(at_most(quick.step_time, rounding * slow.step_time));
      CHECK(quick.memory == slow.memory);
    }
  }
}

TEST_CASE("more capacity never turns a fit into a misfit, and changes no time") {
  std::vector<Question> small = testing::all_questions(), large;
  for (const Question& question : small) {
    const Tables& t = question.tables;
    Cluster cluster = t.cluster();
    cluster.accelerator.memory_capacity = 2 * cluster.accelerator.memory_capacity;
    large.push_back({question.name, Tables(t.model(), cluster, t.task(), t.stack())});
  }
  testing::Random random(52);
  for (int i = 0; i < 2000; ++i) {
    const Strategy s = testing::random_strategy(random);
    for (std::size_t q = 0; q < small.size(); ++q) {
      small[q].tables.tabulate(s);
      large[q].tables.tabulate(s);
      const Estimate tight = evaluate(small[q].tables, s), roomy = evaluate(large[q].tables, s);
      if (tight.verdict == Reason::ok) CHECK(roomy.verdict == Reason::ok);
      CHECK(roomy.step_time == tight.step_time);
      CHECK(roomy.memory == tight.memory);
    }
  }
}

TEST_CASE("infinite bandwidth everywhere leaves compute; infinite compute leaves the rest") {
  Cluster wired = testing::without_latency(testing::reference_cluster(64));
  wired.scale_up.bandwidth = 1e9 * wired.scale_up.bandwidth;
  wired.fabric.bandwidth = 1e9 * wired.fabric.bandwidth;
  const Task task = testing::training(256, 4096);
  Strategy s = testing::degrees(8, 2);
  const Estimate quiet = testing::estimate(testing::grouped_70b_shape(), wired, task, s);
  CHECK(at_most(testing::exposed(quiet), 1e-6 * quiet.step_time));

  Cluster instant = testing::reference_cluster(64);
  for (FlopPerSecond& peak : instant.accelerator.peak) peak = 1e6 * peak;
  instant.accelerator.gemm.reference_peak = 1e6 * instant.accelerator.gemm.reference_peak;
  instant.accelerator.gemm.tiled = false;
  const Estimate bound = testing::estimate(testing::grouped_70b_shape(), instant, task, s);
  const Estimate usual =
      testing::estimate(testing::grouped_70b_shape(), testing::reference_cluster(64), task, s);
  CHECK(bound.compute > Seconds{});
  CHECK(bound.compute < 0.5 * usual.compute);
  CHECK(testing::about_equal(bound.exposed_tp, usual.exposed_tp));
}

TEST_CASE("no step is shorter than its compute, nor longer than everything exposed") {
  testing::for_random_estimates(3000, 53, [](const Question&, const Strategy&, const Estimate& e) {
    CHECK(at_most(e.compute, e.step_time));
    const Seconds everything =
        e.compute + testing::exposed(e) + e.hidden + e.bubble + e.optimizer + e.overhead;
    CHECK(at_most(e.step_time, everything));
  });
}

}  // namespace
}  // namespace scalemodel
