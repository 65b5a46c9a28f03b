#include "scalemodel/fleet/autoscaler.hpp"

#include "support.hpp"

namespace scalemodel::testing {

TEST_CASE("an autoscaler wants the signal over its target, down only after its window") {
  Autoscaler settings;
  settings.target = 10;
  settings.min_replicas = 2;
  settings.down_window = Seconds{60};
  ScaleRule rule(settings);
  CHECK(rule.desired(Seconds{0}, 2, 0) == 2);
  CHECK(rule.desired(Seconds{15}, 2, 95) == 10);
  CHECK(rule.desired(Seconds{30}, 10, 105) == 10);  // within 10 %
  CHECK(rule.desired(Seconds{45}, 10, 31) == 10);   // Ten were wanted a moment ago.
  CHECK(rule.desired(Seconds{60}, 10, 52) == 10);
  CHECK(rule.desired(Seconds{75}, 10, 31) == 10);
  CHECK(rule.desired(Seconds{91}, 10, 31) == 6);  // The most of the last minute: 5.2 replicas.
  CHECK(rule.desired(Seconds{200}, 6, 0) == 2);
  CHECK(rule.desired(Seconds{215}, 2, 1000) == 100);
}

}  // namespace scalemodel::testing
