#include "scalemodel/power/serving.hpp"

#include "scalemodel/power/node.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::at_most;

constexpr ServingPower kServing{0.44, 0.2, 0.3, Seconds{8e-3}, Seconds{3e-5}, Seconds{1e-3}};

DecodeLoad dense_load(double sequences) {
  DecodeLoad load;
  load.parameters = load.active_parameters = 8e9;
  load.cache = 1000 * cache_per_token(8e9);
  load.sequences = sequences;
  load.peak = FlopPerSecond{990e12};
  load.bandwidth = BytesPerSecond{3.35e12};
  return load;
}

TEST_CASE("power lies between the floor and the limit and grows with density") {
  const Watts limit{700};
  Watts before;
  for (double density = 0; density <= 1; density += 0.05) {
    const Watts power = serving_power(kServing, limit, {1, density});
    CHECK(at_most(kServing.floor_fraction * limit, power));
    CHECK(at_most(power, limit));
    CHECK(at_most(before, power));
    CHECK(serving_power(kServing, limit, {0, density}) == kServing.floor_fraction * limit);
    before = power;
  }
  const ServingPower hot{0.5, 0.5, 0.5, {}, {}, {}};
  CHECK(serving_power(hot, limit, {1, 1}) == limit);
}

TEST_CASE("more sequences make steps denser, until arithmetic takes as long as the weights") {
  double before = 0;
  for (const double sequences : {1.0, 8.0, 64.0, 256.0, 1024.0}) {
    const double density = decode_activity(dense_load(sequences), kServing).density_fraction;
    CHECK(density >= before);
    CHECK(density <= 1);
    before = density;
  }
  CHECK(before == 1);
}

TEST_CASE("a slower host leaves the accelerator idle, never busier") {
  double before = 1;
  for (const double host : {0.0, 1e-3, 1e-2, 1e-1}) {
    ServingPower serving = kServing;
    serving.host_step = Seconds{host};
    const double busy = decode_activity(dense_load(8), serving).busy_fraction;
    CHECK(busy <= before);
    CHECK(busy > 0);
    before = busy;
  }
  CHECK(before < 0.1);
}

TEST_CASE("a step reads what one token reads at least and all weights at most") {
  for (const double sequences : {1.0, 2.0, 100.0, 1e6}) {
    const double read = weights_read(100, 10, sequences);
    CHECK(read >= 0.1);
    CHECK(read <= 1);
    CHECK(weights_read(100, 100, sequences) == 1);
  }
  CHECK(weights_read(100, 10, 1) == Approx(0.1));
}

TEST_CASE("a node draws what its parts draw, and a run the mean of its times") {
  CHECK(node_power(Watts{637}, 8, Watts{1750}) == Watts{6846});
  CHECK(mean_over_run(Watts{6000}, Seconds{3}, Watts{2000}, Seconds{1}) == Watts{5000});
  CHECK(mean_over_run(Watts{6000}, Seconds{3}, Watts{2000}, Seconds{0}) == Watts{6000});
}

}  // namespace
}  // namespace scalemodel
