#include "scalemodel/estimator/stragglers.hpp"

#include <cmath>

#include "scalemodel/estimator/step_timeline.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::at_most;
using testing::degrees;

TEST_CASE("expected maxima of normal draws: tabulated values, growth like sqrt(2 ln n)") {
  CHECK(expected_maximum(1) == 0);
  // Harter's table of normal order statistics.
  CHECK(expected_maximum(2) == Approx(0.56419).epsilon(0.005));
  CHECK(expected_maximum(5) == Approx(1.16296).epsilon(0.003));
  CHECK(expected_maximum(10) == Approx(1.53875).epsilon(0.003));
  CHECK(expected_maximum(100) == Approx(2.50759).epsilon(0.003));
  CHECK(expected_maximum(400) == Approx(2.96818).epsilon(0.003));
  double before = 0;
  for (double n = 2; n < 1e7; n *= 2) {
    CHECK(expected_maximum(n) > before);
    before = expected_maximum(n);
    CHECK(before < std::sqrt(2 * std::log(n)));
  }
}

TEST_CASE("drawn factors have the expected largest and do not depend on the platform") {
  Degrees d;
  d.tp = 8;
  d.pp = 4;
  d.dp = 16;
  constexpr double kSpread = 0.02;
  double most = 0;
  constexpr int kDraws = 400;
  for (int seed = 0; seed < kDraws; ++seed) {
    const std::vector<double> factors =
        draw_slowdown(kSpread, d, false, static_cast<std::uint64_t>(seed));
    REQUIRE(factors.size() == 4);
    most += *std::ranges::max_element(factors) / kDraws;
  }
  CHECK((most - 1) / expected_straggling(kSpread, d, false).anywhere == Approx(1).epsilon(0.03));
  CHECK(draw_slowdown(0, d, false, 1) == std::vector<double>(4, 1.0));
  CHECK(draw_slowdown(kSpread, d, false, 7) == draw_slowdown(kSpread, d, false, 7));
}

Tables spread_tables(double spread) {
  DecoderShape shape = testing::gpt3_shape();
  shape.vocab = 64;
  Stack stack = testing::plain_sum_stack();
  stack.kernel_spread = spread;
  return {make_decoder(shape), testing::reference_cluster(256), testing::training(128, 2048),
          stack};
}

TEST_CASE("closed form through the expected maximum, timeline through drawn ranks: they agree") {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero3}) {
    for (const int pp : {1, 4, 8}) {
      Tables tables = spread_tables(0.03);
      Strategy s = degrees(8, pp);
      s.sharding = sharding;
      tables.tabulate(s);
      const Estimate e = evaluate(tables, s);
      Seconds mean;
      constexpr int kDraws = 40;
      for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
        mean += step_timeline(tables, s, {}, draw_slowdown(tables, s, seed)).step_time / kDraws;
      }
      Tables none = spread_tables(0);
      none.tabulate(s);
      CAPTURE(pp);
      CAPTURE(name_of(sharding));
      const Seconds plain = evaluate(none, s).step_time;
      CHECK(e.step_time > plain);
      CHECK((mean - plain) / (e.step_time - plain) == Approx(1).epsilon(0.12));
      CHECK(mean / e.step_time == Approx(1).epsilon(0.01));
    }
  }
}

TEST_CASE("more spread and more ranks never shorten the weak-scaled step") {
  Seconds narrow;
  for (const double spread : {0.0, 0.01, 0.05}) {
    Seconds before;
    for (const int accelerators : {8, 64, 512}) {
      Stack stack = testing::plain_sum_stack();
      stack.kernel_spread = spread;
      Strategy s = degrees(8);
      s.sharding = Sharding::ddp;
      const Seconds compute =
          testing::estimate(testing::dense_7b_shape(), testing::reference_cluster(accelerators),
                            testing::training(accelerators, 2048), s, stack)
              .compute;
      CHECK(at_most(before, compute));
      before = compute;
    }
    CHECK(at_most(narrow, before));
    narrow = before;
  }
}

}  // namespace
}  // namespace scalemodel
