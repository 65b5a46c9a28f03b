#include "scalemodel/economics/recovery.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::Random;

// Two hours of repair; half an hour of work is lost with the state, a restart takes ten minutes.
const Recovery kWait{0, {}, Seconds{1800}, Seconds{600}};
const Recovery kSpares{1, Seconds{600}, Seconds{1800}, {}};
const Recovery kReplicas{0.75, Seconds{60}, Seconds{20}, Seconds{60}};

TEST_CASE("ways are made of restarts, reloads, stalls and steps") {
  FailingJob job;
  job.restart = Seconds{300};
  job.write = Seconds{20};
  const Seconds lost{1800}, reload{40}, whole{30};
  CHECK(waiting(job, lost, reload) == Recovery{0, {}, lost, Seconds{340}});
  CHECK(restarting(job, 0.8, lost, reload, whole) ==
        Recovery{0.8, Seconds{340}, lost, Seconds{350}});
  CHECK(without_replicas(0.75, Seconds{60}, Seconds{20}) ==
        Recovery{0.75, Seconds{60}, Seconds{20}, Seconds{20}});
  // A quarter of the work of 280 s, and one step.
  CHECK(replicas_on_spares(job, 0.25, Seconds{60}, Seconds{20}, reload) ==
        Recovery{1, Seconds{60}, Seconds{20 + 70}, {}});
  job.background = Seconds{50};
  CHECK(mean_repeated(job, Seconds{600}) == Seconds{350});
}

constexpr Seconds kRepair{7200};

TEST_CASE("work done after a loss, by hand") {
  CHECK(work_done(kWait, kRepair, kRepair) == Seconds{-1800});
  CHECK(work_done(kWait, kRepair, Seconds{10000}) == Seconds{10000 - 7800 - 1800});
  CHECK(work_done(kSpares, kRepair, kRepair) == Seconds{7200 - 600 - 1800});
  CHECK(work_done(kReplicas, kRepair, kRepair).base() == Approx(0.75 * 7140 - 20));
  CHECK(work_done(kReplicas, kRepair, Seconds{10000}).base() ==
        Approx(0.75 * 7140 - 20 + (10000 - 7260)));
  CHECK(reload_time(Bytes{1e12}, 10, BytesPerSecond{1e9}, {}) == Seconds{100});
  CHECK(reload_time(Bytes{1e12}, 10, BytesPerSecond{1e9}, BytesPerSecond{5e9}) == Seconds{200});
}

TEST_CASE("a return that does not pay by then is left out") {
  const Recovery slow{0.99, {}, {}, Seconds{1e5}};
  const Seconds late{20000};
  CHECK(work_done(slow, kRepair, late).base() == Approx(0.99 * late.base()));
}

TEST_CASE("work never shrinks with time, nor grows with losses") {
  Random random(6);
  for (int i = 0; i < 500; ++i) {
    const Recovery way{random.between(0, 1), Seconds{random.between(0, 3000)},
                       Seconds{random.between(0, 3000)}, Seconds{random.between(0, 3000)}};
    Recovery worse = way;
    worse.begins += Seconds{100};
    Seconds before{-1e9};
    for (double t = 0; t < 2e4; t += 250) {
      const Seconds done = work_done(way, kRepair, Seconds{t});
      CHECK(done >= before);
      CHECK(work_done(worse, kRepair, Seconds{t}) <= done + Seconds{1e-9});
      before = done;
    }
  }
}

TEST_CASE("ways tie in the end at the repair time that they break even at") {
  Random random(7);
  for (int i = 0; i < 500; ++i) {
    const Recovery way{random.between(0.1, 1), Seconds{random.between(0, 3000)},
                       Seconds{random.between(0, 3000)}, Seconds{random.between(0, 3000)}};
    const Seconds repair = break_even_repair(way, kWait);
    if (repair <= way.begins) continue;
    const Seconds late{1e9};
    CHECK(work_done(way, repair, late).base() ==
          Approx(work_done(kWait, repair, late).base()).epsilon(1e-12));
    CHECK(work_done(way, 1.1 * repair, late) > work_done(kWait, 1.1 * repair, late));
  }
  CHECK(break_even_repair(kReplicas, kWait) == Seconds{});
  CHECK(break_even_repair(kWait, kSpares) == Seconds{kInfinity});
}

TEST_CASE("one way overtakes another where their work is equal") {
  // Replicas at 3/4 of the rate lead until the spares have made up for their restart.
  const Seconds at = overtakes_at(kSpares, kReplicas, Seconds{1e6}, Seconds{1e5});
  CHECK(at.base() == Approx((2400 - 0.75 * 60 - 20) / 0.25));
  CHECK(work_done(kSpares, Seconds{1e6}, at).base() ==
        Approx(work_done(kReplicas, Seconds{1e6}, at).base()));
  CHECK(overtakes_at(kReplicas, kSpares, Seconds{1e6}, Seconds{1e5}) == Seconds{});
  CHECK(overtakes_at(kWait, kSpares, kRepair, Seconds{1e6}) == Seconds{kInfinity});
  CHECK(overtakes_at(kSpares, kReplicas, Seconds{1e6}, Seconds{5000}) == Seconds{kInfinity});
}

}  // namespace
}  // namespace scalemodel
