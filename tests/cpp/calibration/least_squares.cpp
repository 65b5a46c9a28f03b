#include "scalemodel/calibration/least_squares.hpp"

#include <cmath>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// Measurements of y = a exp(-b x) at forty points, with residuals to a model of the same form.
struct Decay {
  std::vector<double> measured;

  static double at(std::size_t i, double a, double b) {
    return a * std::exp(-b * 0.1 * static_cast<double>(i));
  }
  Decay(double a, double b) {
    for (std::size_t i = 0; i < 40; ++i) measured.push_back(at(i, a, b));
  }
  Residuals residuals() const {
    return [this](std::span<const double> constants, std::span<double> out) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = at(i, constants[0], constants[1]) - measured[i];
      }
    };
  }
};

const std::vector<FreeConstant> kWide{{.low = 0, .high = 10, .prior = 5},
                                      {.low = 0, .high = 4, .prior = 2}};

FitResult fit(const Decay& decay, const std::vector<FreeConstant>& constants = kWide,
              const FitOptions& options = {}) {
  return fit_bounded(decay.residuals(), decay.measured.size(), constants, options);
}

TEST_CASE("a fit finds planted constants") {
  for (const double a : {0.5, 3.0, 9.0}) {
    for (const double b : {0.1, 1.0, 3.5}) {
      CAPTURE(a);
      CAPTURE(b);
      const FitResult result = fit(Decay(a, b));
      REQUIRE(result.values.size() == 2);
      CHECK(result.values[0] == Approx(a).epsilon(1e-3));
      CHECK(result.values[1] == Approx(b).epsilon(1e-3));
      CHECK(result.cost < 1e-6);
    }
  }
}

TEST_CASE("a few wild measurements do not carry a fit away") {
  Decay decay(3, 1);
  decay.measured[5] += 20;
  decay.measured[30] -= 20;
  const FitResult result = fit(decay);
  CHECK(result.values[0] == Approx(3).epsilon(0.03));
  CHECK(result.values[1] == Approx(1).epsilon(0.03));
}

TEST_CASE("constants stay in their ranges, and one at a bound has no error") {
  const std::vector<FreeConstant> narrow{{.low = 0, .high = 2, .prior = 1},
                                         {.low = 0, .high = 4, .prior = 2}};
  const FitResult result = fit(Decay(3, 1), narrow);
  CHECK(result.values[0] == 2);
  CHECK(result.standard_errors[0] == 0);
  CHECK(result.values[1] >= 0);
  CHECK(result.values[1] <= 4);
  CHECK(result.standard_errors[1] >= 0);
}

TEST_CASE("the curvature still says how sharply a constant at a bound is seen") {
  const std::vector<FreeConstant> narrow{{.low = 0, .high = 2, .prior = 1},
                                         {.low = 0, .high = 4, .prior = 2}};
  const FitResult result = fit(Decay(3, 1), narrow);
  CHECK(result.curvature_errors[0] > 0);
  CHECK(result.curvature_errors[1] == result.standard_errors[1]);
  CHECK(result.scatter > 0);
}

TEST_CASE("no instrument is exact: the least scatter keeps errors from vanishing") {
  FitOptions options;
  double before = fit(Decay(3, 1), kWide, options).standard_errors[0];
  for (const double least : {0.01, 0.1, 1.0}) {
    options.least_scatter = least;
    const FitResult result = fit(Decay(3, 1), kWide, options);
    CHECK(result.scatter == Approx(least));
    CHECK(result.standard_errors[0] > before);
    before = result.standard_errors[0];
  }
}

TEST_CASE("a search begins where it is told, and a basin of its own keeps it") {
  const Residuals two_valleys = [](std::span<const double> constants, std::span<double> out) {
    for (double& residual : out) residual = std::pow(constants[0], 2) - 1;
  };
  const std::vector<FreeConstant> one{{.low = -3, .high = 3, .prior = 2}};
  CHECK(fit_bounded(two_valleys, 5, one, {}).values[0] == Approx(1).epsilon(1e-3));
  FitOptions options;
  options.start = {-2};
  CHECK(fit_bounded(two_valleys, 5, one, options).values[0] == Approx(-1).epsilon(1e-3));
}

TEST_CASE("a constant the measurements cannot see stays where its prior has it") {
  const Residuals first_only = [](std::span<const double> constants, std::span<double> out) {
    for (double& residual : out) residual = constants[0] - 0.25;
  };
  const std::vector<FreeConstant> constants{{.low = 0, .high = 1, .prior = 0.5},
                                            {.low = -1, .high = 3, .prior = 0.8}};
  FitOptions options;
  options.prior_weight = 0.01;
  const FitResult result = fit_bounded(first_only, 10, constants, options);
  CHECK(result.values[0] == Approx(0.25).epsilon(1e-2));
  CHECK(result.values[1] == Approx(0.8));
}

TEST_CASE("a heavier prior pulls harder") {
  const Decay decay(3, 1);
  double before = 0;
  for (const double weight : {0.1, 1.0, 10.0, 1000.0}) {
    FitOptions options;
    options.prior_weight = weight;
    const double away = fit(decay, kWide, options).values[0] - 3;
    CHECK(away >= before - 1e-9);
    before = away;
  }
  CHECK(before == Approx(2).epsilon(0.01));  // all the way to the prior
}

TEST_CASE("a fit never ends worse than it starts, and one that starts right stays") {
  const Decay decay(5, 2);
  const FitResult result = fit(decay);
  CHECK(result.values[0] == Approx(5));
  CHECK(result.values[1] == Approx(2));
  CHECK(result.cost <= 1e-12);
  FitOptions none;
  none.iterations = 0;
  CHECK(fit(Decay(3, 1), kWide, none).cost >= fit(Decay(3, 1)).cost);
}

TEST_CASE("errors shrink with the number of measurements and vanish without scatter") {
  CHECK(fit(Decay(3, 1)).standard_errors[0] < 1e-3);
  const auto error_of = [](std::size_t count) {
    const Residuals noisy = [](std::span<const double> constants, std::span<double> out) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = constants[0] - (0.5 + (i % 2 == 0 ? 0.01 : -0.01));
      }
    };
    const std::vector<FreeConstant> one{{.low = 0, .high = 1, .prior = 0.4}};
    return fit_bounded(noisy, count, one, {}).standard_errors[0];
  };
  CHECK(error_of(10) > error_of(100));
  CHECK(error_of(100) == Approx(error_of(400) * 2).epsilon(0.05));
}

}  // namespace
}  // namespace scalemodel
