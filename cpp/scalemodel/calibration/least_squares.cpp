#include "scalemodel/calibration/least_squares.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

class Problem {
 public:
  Problem(const Residuals& residuals, std::size_t measurements,
          std::span<const FreeConstant> constants, const FitOptions& options)
      : residuals_(residuals),
        measurements_(static_cast<Index>(measurements)),
        constants_(constants),
        options_(options) {}

  Index size() const { return static_cast<Index>(constants_.size()); }

  std::vector<double> values(const VectorXd& z) const {
    std::vector<double> values(constants_.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const FreeConstant& c = constants_[i];
      values[i] = c.low + (c.high - c.low) * z[static_cast<Index>(i)];
    }
    return values;
  }

  VectorXd prior() const {
    VectorXd z(size());
    for (Index i = 0; i < size(); ++i) {
      z[i] = scaled(i, constants_[static_cast<std::size_t>(i)].prior);
    }
    return z;
  }

  VectorXd start() const {
    if (options_.start.empty()) return prior();
    VectorXd z(size());
    for (Index i = 0; i < size(); ++i) {
      z[i] = scaled(i, options_.start[static_cast<std::size_t>(i)]);
    }
    return z;
  }

  VectorXd residuals(const VectorXd& z) const {
    VectorXd r(measurements_);
    poll_point(1 + static_cast<std::int64_t>(r.size()));
    residuals_(values(z), std::span(r.data(), static_cast<std::size_t>(r.size())));
    return r;
  }

  double cost(const VectorXd& z, const VectorXd& r) const {
    const double s = options_.robust_scale;
    const double data = (2 * s * s * ((r.array() / s).square() + 1).sqrt() - 2 * s * s).sum();
    return data + (options_.prior_weight * (z - prior())).squaredNorm();
  }

  /// Forward differences, backwards at the upper bound.
  MatrixXd jacobian(const VectorXd& z, const VectorXd& r) const {
    constexpr double kStep = 1e-3;
    MatrixXd jacobian(measurements_, size());
    for (Index i = 0; i < size(); ++i) {
      const double step = z[i] + kStep <= 1 ? kStep : -kStep;
      VectorXd moved = z;
      moved[i] += step;
      jacobian.col(i) = (residuals(moved) - r) / step;
    }
    return jacobian;
  }

  const FitOptions& options() const { return options_; }

 private:
  double scaled(Index i, double value) const {
    const FreeConstant& c = constants_[static_cast<std::size_t>(i)];
    return (value - c.low) / (c.high - c.low);
  }

  const Residuals& residuals_;
  Index measurements_;
  std::span<const FreeConstant> constants_;
  const FitOptions& options_;
};

/// Weighted normal equations with the prior's rows.
struct Normal {
  MatrixXd matrix;
  VectorXd gradient;
};

Normal normal_equations(const Problem& problem, const VectorXd& z, const VectorXd& r) {
  const MatrixXd jacobian = problem.jacobian(z, r);
  const double s = problem.options().robust_scale;
  const VectorXd weights = ((r.array() / s).square() + 1).rsqrt();
  const double p = problem.options().prior_weight * problem.options().prior_weight;
  Normal normal{MatrixXd(problem.size(), problem.size()), VectorXd(problem.size())};
  const VectorXd pull = z - problem.prior();
  // By dot products: Eigen's blocked GEMM is for larger matrices, and long to compile.
  for (Index i = 0; i < problem.size(); ++i) {
    const VectorXd weighted = weights.cwiseProduct(jacobian.col(i));
    for (Index j = 0; j <= i; ++j) {
      normal.matrix(i, j) = normal.matrix(j, i) = weighted.dot(jacobian.col(j));
    }
    normal.matrix(i, i) += p;
    normal.gradient[i] = weighted.dot(r) + p * pull[i];
  }
  return normal;
}

/// Standard deviation of a residual.
double scatter_of(const VectorXd& z, const VectorXd& r, const FitOptions& options) {
  const double freedom = std::max<double>(1, static_cast<double>(r.size() - z.size()));
  return std::max(std::sqrt(r.squaredNorm() / freedom), options.least_scatter);
}

/// Curvature errors: the scatter over the square root of the normal matrix's inverse.
std::vector<double> curvature_errors(const Problem& problem,
                                     std::span<const FreeConstant> constants, const VectorXd& z,
                                     const VectorXd& r, double scatter) {
  const Eigen::LDLT<MatrixXd> factors(normal_equations(problem, z, r).matrix);
  std::vector<double> errors(constants.size(), 0);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const auto at = static_cast<Index>(i);
    const double range = constants[i].high - constants[i].low;
    const VectorXd column = factors.solve(VectorXd(VectorXd::Unit(problem.size(), at)));
    errors[i] = range * scatter * std::sqrt(std::max(0.0, column[at]));
  }
  return errors;
}

}  // namespace

FitResult fit_bounded(const Residuals& residuals, std::size_t measurements,
                      std::span<const FreeConstant> constants, const FitOptions& options) {
  const Problem problem(residuals, measurements, constants, options);
  VectorXd z = problem.start().cwiseMax(0.0).cwiseMin(1.0);
  VectorXd r = problem.residuals(z);
  double cost = problem.cost(z, r);
  double damping = 1e-2;
  Normal normal = normal_equations(problem, z, r);
  for (int iteration = 0; iteration < options.iterations && damping < 1e8; ++iteration) {
    MatrixXd damped = normal.matrix;
    damped.diagonal() *= 1 + damping;
    damped.diagonal().array() += 1e-12;
    const VectorXd step = damped.ldlt().solve(-normal.gradient);
    const VectorXd trial = (z + step).cwiseMax(0.0).cwiseMin(1.0);
    const VectorXd trial_residuals = problem.residuals(trial);
    const double trial_cost = problem.cost(trial, trial_residuals);
    if (trial_cost < cost) {
      const bool converged = cost - trial_cost < 1e-10 * (1 + cost);
      z = trial;
      r = trial_residuals;
      cost = trial_cost;
      damping /= 4;
      if (converged) break;
      normal = normal_equations(problem, z, r);
    } else {
      damping *= 6;
    }
  }
  const double scatter = scatter_of(z, r, options);
  FitResult result{
      problem.values(z), {}, curvature_errors(problem, constants, z, r, scatter), cost, scatter};
  result.standard_errors = result.curvature_errors;
  for (std::size_t i = 0; i < result.standard_errors.size(); ++i) {
    const double at = z[static_cast<Index>(i)];
    if (at <= 0 || at >= 1) result.standard_errors[i] = 0;
  }
  return result;
}

}  // namespace scalemodel
