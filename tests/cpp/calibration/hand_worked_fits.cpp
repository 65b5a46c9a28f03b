// A fit small enough to do by hand.
#include "scalemodel/calibration/least_squares.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("by hand: the mean of three measurements and its error") {
  // 1, 2 and 3: mean 2, residuals 1, 0, -1, scatter sqrt(2/(3 - 1)) = 1, error 1/sqrt(3).
  const Residuals residuals = [](std::span<const double> constants, std::span<double> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = constants[0] - static_cast<double>(i + 1);
    }
  };
  const std::vector<FreeConstant> constants{{.low = 0, .high = 5, .prior = 4}};
  FitOptions options;
  options.robust_scale = 1e4;
  const FitResult fit = fit_bounded(residuals, 3, constants, options);
  CHECK(fit.values[0] == Approx(2).epsilon(1e-5));
  CHECK(fit.scatter == Approx(1).epsilon(1e-5));
  CHECK(fit.standard_errors[0] == Approx(1 / std::sqrt(3)).epsilon(1e-5));
}

}  // namespace
}  // namespace scalemodel
