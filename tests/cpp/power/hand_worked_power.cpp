// Watts worked out by hand on round numbers.
#include "scalemodel/power/node.hpp"
#include "scalemodel/power/phases.hpp"
#include "scalemodel/power/serving.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("by hand: power of decoding follows the root of its density") {
  // 1,000 W x (0.2 + 0.3 + 0.4 x sqrt(1/4)); half of the time busy, 0.2 + 0.25.
  ServingPower law;
  law.floor_fraction = 0.2;
  law.busy_fraction = 0.3;
  law.activity_fraction = 0.4;
  CHECK(serving_power(law, Watts{1000}, {1, 0.25}).base() == Approx(700));
  CHECK(serving_power(law, Watts{1000}, {0.5, 0.25}).base() == Approx(450));
}

TEST_CASE("by hand: a step that computes, waits and idles") {
  // 0.6 x 0.9 x 700 + 0.3 x 0.8 x 700 + 0.1 x 100 = 556 W; a node of eight with 1,500 W: 5,948 W.
  const Watts mean = mean_power({Watts{700}, Watts{100}, 0.9, 0.8}, 0.6, 0.3);
  CHECK(mean.base() == Approx(556));
  CHECK(node_power(mean, 8, Watts{1500}).base() == Approx(5948));
}

}  // namespace
}  // namespace scalemodel
