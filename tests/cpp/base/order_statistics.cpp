#include "scalemodel/base/order_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "approx.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// Mean and standard deviation of the largest of `draws`, from its density by the trapezoid rule.
struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of_largest(double draws) {
  constexpr double kStep = 1e-3;
  double mass = 0, first = 0, second = 0;
  for (double x = -8; x < 10; x += kStep) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = draws * std::pow(below, draws - 1) * std::exp(-0.5 * x * x) /
                           std::sqrt(2 * std::numbers::pi) * kStep;
    mass += density;
    first += density * x;
    second += density * x * x;
  }
  CHECK(mass == Approx(1).epsilon(1e-6));
  return {first, std::sqrt(second - first * first)};
}

TEST_CASE("the largest of many draws: its mean and how far it strays") {
  double wider = 2;
  for (const double draws : {1.0, 2.0, 3.0, 8.0, 50.0, 512.0, 16384.0, 262144.0}) {
    CAPTURE(draws);
    const Moments exact = moments_of_largest(draws);
    const double within = draws <= 20000 ? 0.003 : 0.006;
    CHECK(std::abs(expected_maximum(draws) - exact.mean) <= within * std::max(1.0, exact.mean));
    CHECK(maximum_deviation(draws) == Approx(exact.deviation).epsilon(0.03));
    CHECK(maximum_deviation(draws) < wider);
    wider = maximum_deviation(draws);
  }
}

}  // namespace
}  // namespace scalemodel
