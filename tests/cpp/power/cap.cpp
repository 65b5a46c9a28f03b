#include "scalemodel/power/cap.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::at_most;
using testing::Random;

constexpr ClockPower kClock{0.21, 2.5, 0.5};

StepPhases random_phases(Random& random) {
  const auto part = [&] { return Seconds{random.below(4) == 0 ? 0 : random.between(0, 10)}; };
  return {part(), part(), part(), part()};
}

TEST_CASE("a lower limit never makes a step faster and never raises its power") {
  const PowerPhases power = testing::reference_accelerator().power;
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const StepPhases phases = random_phases(random);
    CappedStep before = step_under_cap(power, kClock, phases, power.limit);
    for (double fraction = 1; fraction > 0.1; fraction -= 0.05) {
      const CappedStep capped = step_under_cap(power, kClock, phases, fraction * power.limit);
      CAPTURE(fraction);
      CHECK(at_most(before.phases.total(), capped.phases.total()));
      CHECK(at_most(capped.power, before.power));
      CHECK(at_most(before.clock_fraction * unit::s, 1 * unit::s));
      before = capped;
    }
  }
}

TEST_CASE("a limit that is met is kept to, and none above what is drawn changes anything") {
  const PowerPhases power = testing::reference_accelerator().power;
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    const StepPhases phases = random_phases(random);
    const Watts cap = random.between(0.2, 1) * power.limit;
    const CappedStep capped = step_under_cap(power, kClock, phases, cap);
    if (capped.met && capped.phases.total() > Seconds{}) CHECK(at_most(capped.power, cap));
    CHECK(step_under_cap(power, kClock, phases, power.compute_fraction * power.limit).phases ==
          phases);
  }
}

TEST_CASE("only kernels that the clock limits take longer") {
  const PowerPhases power = testing::reference_accelerator().power;
  const StepPhases phases{Seconds{4}, Seconds{3}, Seconds{2}, Seconds{1}};
  const CappedStep capped = step_under_cap(power, kClock, phases, 0.6 * power.limit);
  CHECK(capped.clock_fraction < 1);
  CHECK(capped.phases.compute == phases.compute / capped.clock_fraction);
  CHECK(capped.phases.memory_bound == phases.memory_bound);
  CHECK(capped.phases.exposed == phases.exposed);
  CHECK(capped.phases.idle == phases.idle);
  CHECK_FALSE(step_under_cap(power, kClock, phases, 0.1 * power.limit).met);
}

TEST_CASE("the clock under a limit is the one the law of power gives back") {
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    const Watts lowest{random.between(50, 200)}, full{random.between(400, 1000)};
    const Watts cap = lowest + random.between(0.2, 1) * (full - lowest);
    const double clock = clock_under(cap, full, lowest, kClock);
    CHECK(power_at(clock, full, lowest, kClock).base() == testing::Approx(cap.base()));
  }
  // An H100 held at 500 W of its 700 runs GEMMs at 0.835 of their rate.
  CHECK(clock_under(Watts{500}, Watts{700}, Watts{150}, kClock) ==
        testing::Approx(0.835).epsilon(0.002));
}

TEST_CASE("energy per step falls to a point as clocks fall, and computing pays for it in time") {
  const PowerPhases power = testing::reference_accelerator().power;
  const StepPhases computing{Seconds{1}, {}, {}, {}};
  const CappedStep whole = step_under_cap(power, kClock, computing, power.limit);
  const CappedStep lower = step_under_cap(power, kClock, computing, 0.7 * power.limit);
  CHECK(lower.power * lower.phases.total() < whole.power * whole.phases.total());
  const StepPhases waiting{{}, {}, {}, Seconds{1}};
  CHECK(step_under_cap(power, kClock, waiting, 0.3 * power.limit).power == power.idle);
}

}  // namespace
}  // namespace scalemodel
