#include "scalemodel/power/phases.hpp"

#include <cmath>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::at_most;

TEST_CASE("mean power lies between idle and the limit, whatever the shares") {
  const PowerPhases phases = testing::reference_accelerator().power;
  for (double compute = 0; compute <= 1; compute += 0.1) {
    for (double waiting = 0; waiting <= 1 - compute; waiting += 0.1) {
      CAPTURE(compute);
      CAPTURE(waiting);
      const Watts power = mean_power(phases, compute, waiting);
      CHECK(at_most(phases.idle, power));
      CHECK(at_most(power, phases.limit));
    }
  }
}

TEST_CASE("power at the corners is that of the phase") {
  const PowerPhases phases = testing::reference_accelerator().power;
  CHECK(mean_power(phases, 0, 0) == phases.idle);
  CHECK(mean_power(phases, 1, 0) == phases.compute_fraction * phases.limit);
  CHECK(mean_power(phases, 0, 1) == phases.exposed_fraction * phases.limit);
}

TEST_CASE("shares that round to more than a whole step leave nothing to idle") {
  PowerPhases phases = testing::reference_accelerator().power;
  phases.limit = Watts{};
  CHECK(mean_power(phases, 0.7, std::nextafter(0.3, 1.0)) == Watts{});
}

TEST_CASE("computing draws more than waiting, waiting more than idling") {
  const PowerPhases phases = testing::reference_accelerator().power;
  CHECK(mean_power(phases, 0.6, 0.2) > mean_power(phases, 0.5, 0.3));
  CHECK(mean_power(phases, 0.5, 0.3) > mean_power(phases, 0.5, 0.2));
}

}  // namespace
}  // namespace scalemodel
