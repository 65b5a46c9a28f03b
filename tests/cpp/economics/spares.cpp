#include "scalemodel/economics/spares.hpp"

#include <numeric>

#include "scalemodel/economics/failure_simulation.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::Random;

constexpr double kDaySeconds = 86400;

FailingJob job_of(double nodes, double per_node_day) {
  FailingJob job;
  job.nodes = nodes;
  job.node_rate = Hertz{per_node_day / kDaySeconds};
  job.restart = Seconds{300};
  job.write = Seconds{20};
  return job;
}

struct Simulated {
  double mean, error;  ///< productive share, and the standard error of its mean
};

Simulated simulated(const FailingJob& job, Seconds interval, const SparePool& pool, int runs = 200,
                    double days = 60) {
  const SimulationPlan plan{Seconds{days * kDaySeconds},
                            interval,
                            pool.spares,
                            pool.repair,
                            runs,
                            11,
                            pool.replicas,
                            pool.stall};
  double sum = 0, squares = 0;
  for (const SimulatedRun& run : simulate_runs(job, plan)) {
    const double share = plan.work / run.time;
    sum += share;
    squares += share * share;
    const Seconds parts = run.repeated + run.writing + run.restarting + run.queueing;
    CHECK(run.time.base() == Approx((plan.work + parts).base()).epsilon(1e-9));
  }
  const double mean = sum / runs;
  return {mean, std::sqrt(std::max(0.0, squares / runs - mean * mean) / runs)};
}

TEST_CASE("one job and its spares are Erlang's loss system") {
  // Load of 2 erlang, by hand: B(1) = 2/3, B(2) = 2/5, B(3) = 4/19, B(4) = 2/21.
  const FailingJob job = job_of(100, 0.01);
  const double loss[] = {2.0 / 3, 2.0 / 5, 4.0 / 19, 2.0 / 21};
  for (int spares = 0; spares < 4; ++spares) {
    const SparePool pool{spares, Seconds{2 * kDaySeconds}, 1, {}, 0};
    CHECK(1 - staffed_fraction(job, pool) == Approx(loss[spares]));
    CHECK(shares_under_repair(job, pool).size() == static_cast<std::size_t>(spares) + 2);
    CHECK(ettr_with_spares(job, Seconds{3600}, pool) ==
          Approx(exact_ettr(job, Seconds{3600}) * (1 - loss[spares])));
  }
}

TEST_CASE("replicas of one node without spares fail independently") {
  // Each is a machine of its own: up 1/r_f, down r.
  const FailingJob job = job_of(24, 0.05);
  const SparePool pool{0, Seconds{4 * kDaySeconds}, 24, {}, 0};
  CHECK(staffed_fraction(job, pool) == Approx(1 / (1 + 0.05 * 4)));
  const std::vector<double> shares = shares_under_repair(job, pool);
  CHECK(std::accumulate(shares.begin(), shares.end(), 0.0) == Approx(1));
  CHECK(shares[1] / shares[0] == Approx(24 * 0.05 * 4));
}

TEST_CASE("replacement at once leaves no queue, and free failures no loss") {
  const FailingJob job = job_of(512, 4e-3);
  const Seconds interval{3600};
  CHECK(ettr_with_spares(job, interval, {}) == exact_ettr(job, interval));
  CHECK(staffed_fraction(job, {3, {}, 8, {}, 0}) == 1);
  const FailingJob never = job_of(512, 0);
  CHECK(ettr_with_spares(never, interval, {0, Seconds{kDaySeconds}, 16, Seconds{60}, 0}) ==
        Approx(interval / (interval + never.write)));
}

TEST_CASE("a quorum lengthens every step of several replicas; idle spares are paid for") {
  const FailingJob job = job_of(512, 4e-3);
  const SparePool pool{4, Seconds{kDaySeconds}, 8, Seconds{60}, 0};
  SparePool agreeing = pool;
  agreeing.quorum_fraction = 0.25;
  CHECK(ettr_with_spares(job, Seconds{3600}, agreeing) ==
        Approx(0.8 * ettr_with_spares(job, Seconds{3600}, pool)));
  CHECK(work_per_paid_node(0.9, 90, 10, 1) == Approx(0.81));
  CHECK(work_per_paid_node(0.9, 90, 10, 0) == Approx(0.9));
}

TEST_CASE("more spares, shorter repairs and shorter stalls never hurt") {
  Random random(8);
  for (int i = 0; i < 300; ++i) {
    const FailingJob job = job_of(random.between(16, 4096), random.between(1e-4, 1e-2));
    const int replicas = i % 2 == 0 ? 1 : static_cast<int>(random.between(2, 16));
    const SparePool pool{static_cast<int>(random.between(0, 40)),
                         Seconds{random.between(3600, 5 * kDaySeconds)}, replicas,
                         Seconds{replicas > 1 ? random.between(0, 200) : 0}, 0};
    const Seconds interval{1800};
    const double share = ettr_with_spares(job, interval, pool);
    CHECK(share >= 0);
    CHECK(share <= 1);
    // Below, the last replica is lost too often for the first order in that rate.
    if (share < 0.3) continue;
    SparePool better = pool;
    better.spares += 1;
    CHECK(ettr_with_spares(job, interval, better) >= share - 1e-12);
    better = pool;
    better.repair = 0.5 * pool.repair;
    CHECK(ettr_with_spares(job, interval, better) >= share - 1e-12);
    better = pool;
    better.stall = 0.5 * pool.stall;
    CHECK(ettr_with_spares(job, interval, better) >= share - 1e-12);
  }
}

TEST_CASE("thousands of spares and replicas stay within the range of a number") {
  const FailingJob job = job_of(16384, 0.01);
  const SparePool pool{3000, Seconds{10 * kDaySeconds}, 2048, Seconds{60}, 0};
  const std::vector<double> shares = shares_under_repair(job, pool);
  CHECK(std::accumulate(shares.begin(), shares.end(), 0.0) == Approx(1));
  CHECK(staffed_fraction(job, pool) > 0.99);
}

TEST_CASE("simulated jobs with spares agree with the closed form") {
  const Seconds interval{2700};
  for (const int spares : {0, 2, 5, 9}) {
    const FailingJob job = job_of(512, 8e-3);
    const SparePool pool{spares, Seconds{kDaySeconds}, 1, {}, 0};
    const Simulated found = simulated(job, interval, pool);
    CAPTURE(spares);
    CHECK(std::abs(found.mean - ettr_with_spares(job, interval, pool)) < 4 * found.error + 0.002);
  }
}

TEST_CASE("simulated replicas that drop out agree with the closed form") {
  const Seconds interval{5400};
  for (const int replicas : {2, 8, 64}) {
    for (const int spares : {0, 3}) {
      for (const double stall : {0.0, 90.0, 600.0}) {
        FailingJob job = job_of(512, 8e-3);
        job.restart = Seconds{900};
        job.other_rate = Hertz{1.0 / (2 * kDaySeconds)};
        const SparePool pool{spares, Seconds{kDaySeconds}, replicas, Seconds{stall}, 0};
        const Simulated found = simulated(job, interval, pool);
        CAPTURE(replicas);
        CAPTURE(spares);
        CAPTURE(stall);
        // Two replicas are often both away; what that loses is counted to first order.
        const double bias = replicas == 2 ? 0.01 : 0.002;
        CHECK(std::abs(found.mean - ettr_with_spares(job, interval, pool)) <
              4 * found.error + bias);
      }
    }
  }
}

TEST_CASE("replicas that go on beat a job that stops whole where restarts are long") {
  const FailingJob job = job_of(2048, 3.79e-3);
  const Seconds interval = young_interval(job.write, mean_time_to_failure(job));
  const double whole = ettr_with_spares(job, interval, {16, Seconds{kDaySeconds}, 1, {}, 0});
  const double replicas =
      ettr_with_spares(job, interval, {16, Seconds{kDaySeconds}, 16, Seconds{60}, 0});
  CHECK(replicas > whole);
}

TEST_CASE("shorter stalls give the published effective time at 100,000 accelerators") {
  // arXiv 2602.00277: stalls of 10 minutes leave 44 % of the time, of 3 minutes 80 %. The failure
  // rate is not published; that of the first figure gives the second.
  FailingJob job;
  job.nodes = 12500;
  job.node_rate = Hertz{-std::log(0.44) / (600 * job.nodes)};
  job.restart = Seconds{180};
  const SparePool pool{1000, Seconds{kDaySeconds}, 1000, Seconds{180}, 0};
  CHECK(ettr_with_spares(job, Seconds{1e12}, pool) == Approx(0.80).epsilon(0.03));
}

}  // namespace
}  // namespace scalemodel
