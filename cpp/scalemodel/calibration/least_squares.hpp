// Bounded robust least squares: few constants, many measurements.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace scalemodel {

/// One constant to fit, with the range physics allows and where a fit without data would stay.
struct FreeConstant {
  double low = 0, high = 1, prior = 0.5;
};

struct FitOptions {
  double robust_scale = 0.05;  ///< residuals beyond it count linearly (soft L1)
  double prior_weight = 0;     ///< pull towards the prior, per range of a constant
  double least_scatter = 0;    ///< of a measurement, in standard errors: no instrument is exact
  int iterations = 60;
  std::vector<double> start;  ///< where the search begins; the priors when empty
};

struct FitResult {
  std::vector<double> values;
  std::vector<double> standard_errors;   ///< from the curvature; 0 for a constant at a bound
  std::vector<double> curvature_errors;  ///< the same, whatever the bounds
  double cost = 0;
  double scatter = 0;  ///< standard deviation of a residual, as the errors take it
};

/// Writes the residual of every measurement for given constants.
using Residuals = std::function<void(std::span<const double> constants, std::span<double> out)>;

/// Minimises sum 2 s^2 (sqrt(1 + (r/s)^2) - 1) + sum (prior_weight (z - z0))^2 over the box, z
/// being a constant scaled to its range: Levenberg-Marquardt with reweighted residuals (Triggs et
/// al., Bundle adjustment, 2000), finite-difference Jacobian, steps clipped to the box.
FitResult fit_bounded(const Residuals& residuals, std::size_t measurements,
                      std::span<const FreeConstant> constants, const FitOptions& options);

}  // namespace scalemodel
