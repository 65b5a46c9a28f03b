#include "scalemodel/economics/reliability.hpp"

#include "scalemodel/economics/failure_simulation.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::Random;

constexpr double kDay = 86400;

FailingJob job_of(double nodes, double per_node_day, double write) {
  FailingJob job;
  job.nodes = nodes;
  job.node_rate = Hertz{per_node_day / kDay};
  job.restart = Seconds{300};
  job.write = Seconds{write};
  return job;
}

Seconds mean_time(const std::vector<SimulatedRun>& runs) {
  Seconds sum;
  for (const SimulatedRun& run : runs) sum += run.time;
  return sum / static_cast<double>(runs.size());
}

TEST_CASE("published mean times to failure and productive shares are met") {
  CHECK(mean_time_to_failure(job_of(128, 6.5e-3, 1)).base() / 3600 == Approx(28.8).epsilon(0.01));
  CHECK(mean_time_to_failure(job_of(2048, 6.5e-3, 1)).base() / 3600 == Approx(1.80).epsilon(0.01));
  CHECK(mean_time_to_failure(job_of(16384, 6.5e-3, 1)).base() / 3600 ==
        Approx(0.225).epsilon(0.01));
  struct Row {
    double rate;
    double ettr[3];
  };
  const double writes[] = {1, 20, 60};
  for (const Row& row : {Row{6.50e-3, {0.937, 0.880, 0.829}}, Row{3.79e-3, {0.960, 0.916, 0.876}},
                         Row{2.34e-3, {0.973, 0.938, 0.906}}}) {
    for (int i = 0; i < 3; ++i) {
      const FailingJob job = job_of(2048, row.rate, writes[i]);
      const Seconds interval = young_interval(job.write, mean_time_to_failure(job));
      CAPTURE(row.rate);
      CAPTURE(writes[i]);
      CHECK(first_order_ettr(job, interval) == Approx(row.ettr[i]).epsilon(0.001));
      CHECK(exact_ettr(job, interval) == Approx(row.ettr[i]).epsilon(0.005));
    }
  }
}

TEST_CASE("the exact share tends to the first order as failures become rare") {
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    FailingJob job = job_of(random.between(1, 100), random.between(0, 1e-3), random.between(1, 60));
    job.background = Seconds{random.between(0, 100)};
    const Seconds interval{random.between(100, 2000)};
    const double expected = job.rate() * (job.restart + job.background + interval);
    const double exact = exact_ettr(job, interval), first = first_order_ettr(job, interval);
    CHECK(exact == Approx(first).epsilon(expected * expected + 0.06 * expected + 1e-12));
    CHECK(exact > 0);
    CHECK(exact <= 1);
  }
}

TEST_CASE("more failures, slower restarts and slower writes never help") {
  Random random(4);
  for (int i = 0; i < 500; ++i) {
    const FailingJob job =
        job_of(random.between(1, 1e4), random.between(0, 1e-2), random.between(0, 100));
    const Seconds interval{random.between(60, 7200)};
    const double share = exact_ettr(job, interval);
    FailingJob worse = job;
    worse.node_rate = 1.5 * job.node_rate;
    CHECK(exact_ettr(worse, interval) <= share);
    worse = job;
    worse.restart = job.restart + Seconds{60};
    CHECK(exact_ettr(worse, interval) <= share);
    worse = job;
    worse.write = job.write + Seconds{10};
    CHECK(exact_ettr(worse, interval) <= share);
  }
  const FailingJob never = job_of(1000, 0, 10);
  CHECK(exact_ettr(never, Seconds{90}) == Approx(0.9));
  CHECK(first_order_ettr(never, Seconds{90}) == Approx(0.9));
}

TEST_CASE("no interval is much better than those of the rules") {
  for (const double nodes : {64.0, 1024.0, 4096.0}) {
    const FailingJob job = job_of(nodes, 4e-3, 30);
    const Seconds mttf = mean_time_to_failure(job);
    double best = 0;
    for (double s = 30; s < 1e5; s *= 1.02) best = std::max(best, exact_ettr(job, Seconds{s}));
    for (const Seconds interval : {young_interval(job.write, mttf), daly_interval(job.write, mttf),
                                   availability_interval(job.write, mttf, job.restart)}) {
      CHECK(exact_ettr(job, interval) > 0.995 * best);
      CHECK(exact_ettr(job, interval) <= best * (1 + 1e-3));
    }
  }
  CHECK(daly_interval(Seconds{100}, Seconds{150}) == Seconds{150});
}

TEST_CASE("simulated runs agree with the closed form within a percent") {
  for (const double rate : {6.5e-3, 3.79e-3, 2.34e-3}) {
    for (const double write : {1.0, 60.0}) {
      FailingJob job = job_of(2048, rate, write);
      job.background = Seconds{write == 1.0 ? 60.0 : 0.0};
      const Seconds interval =
          max(job.background, young_interval(job.write, mean_time_to_failure(job)));
      const SimulationPlan plan{Seconds{30 * kDay}, interval, 0, {}, 100, 5, 1, {}};
      const double share = plan.work / mean_time(simulate_runs(job, plan));
      CAPTURE(rate);
      CAPTURE(write);
      CHECK(share == Approx(exact_ettr(job, interval)).epsilon(0.01));
      CHECK(share == Approx(first_order_ettr(job, interval)).epsilon(0.015));
    }
  }
}

TEST_CASE("the time of a run is its work and its losses; equal seeds give equal runs") {
  FailingJob job = job_of(512, 2e-2, 30);
  job.other_rate = Hertz{1e-5};
  const SimulationPlan plan{Seconds{5 * kDay}, Seconds{1800}, 2, Seconds{2 * kDay}, 50, 9, 1, {}};
  const std::vector<SimulatedRun> runs = simulate_runs(job, plan);
  for (const SimulatedRun& run : runs) {
    const Seconds sum = plan.work + run.repeated + run.writing + run.restarting + run.queueing;
    CHECK(run.time.base() == Approx(sum.base()).epsilon(1e-9));
    CHECK(run.failures > 0);
  }
  CHECK(runs == simulate_runs(job, plan));
  SimulationPlan other = plan;
  other.seed = 10;
  CHECK_FALSE(runs == simulate_runs(job, other));
}

TEST_CASE("spares shorten the queue; without failures nothing is lost but checkpoints") {
  const FailingJob job = job_of(512, 2e-2, 30);
  Seconds before{1e18};
  for (const int spares : {0, 4, 16, 64}) {
    const SimulationPlan plan{
        Seconds{5 * kDay}, Seconds{1800}, spares, Seconds{kDay}, 200, 9, 1, {}};
    const Seconds mean = mean_time(simulate_runs(job, plan));
    CHECK(mean < before);
    before = mean;
  }
  const SimulationPlan calm{Seconds{1000}, Seconds{100}, 0, {}, 1, 0, 1, {}};
  const SimulatedRun run = simulate_runs(job_of(512, 0, 7), calm).front();
  CHECK(run.time == Seconds{1000 + 9 * 7});
  CHECK(run.failures == 0);
}

TEST_CASE("a run that cannot make progress ends, with infinite time") {
  FailingJob job = job_of(1e6, 10, 10);
  const SimulationPlan plan{Seconds{kDay}, Seconds{3600}, 0, {}, 1, 0, 1, {}};
  CHECK(std::isinf(simulate_runs(job, plan).front().time.base()));
}

}  // namespace
}  // namespace scalemodel
