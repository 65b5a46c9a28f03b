#include "scalemodel/calibration/fit_record.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/calibration/least_squares.hpp"

namespace scalemodel {
namespace {

constexpr double kLargestError = 0.25;
constexpr double kMinScatter = 0.02, kMaxScatter = 0.1;
constexpr double kPriorWeight = 0.01;
constexpr int kStarts = 5;

double soft_l1(double r, double s) { return 2 * s * s * (std::sqrt(1 + (r / s) * (r / s)) - 1); }

/// The fields that still move, and how their logarithms become the values of all fields.
class Search {
 public:
  Search(const TimesOf& times_of, std::span<const TimedSample> samples,
         std::span<const FreeField> fields, std::span<const double> priors)
      : times_of_(times_of), samples_(samples), fields_(fields), priors_(priors) {
    for (std::size_t i = 0; i < fields.size(); ++i) moving_.push_back(i);
  }

  bool anything_moves() const { return !moving_.empty(); }
  const std::vector<std::size_t>& moving() const { return moving_; }
  void freeze(std::size_t position) {
    moving_.erase(moving_.begin() + static_cast<std::ptrdiff_t>(position));
  }

  std::vector<double> values(std::span<const double> logarithms) const {
    std::vector<double> values(priors_.begin(), priors_.end());
    for (std::size_t i = 0; i < moving_.size(); ++i) values[moving_[i]] = std::exp(logarithms[i]);
    return values;
  }

  std::vector<double> times(std::span<const double> logarithms) const {
    poll_point(1 + static_cast<std::int64_t>(samples_.size()));
    std::vector<double> times_s(samples_.size());
    times_of_(values(logarithms), times_s);
    return times_s;
  }

  /// Fit to all samples but those of fold `left_out` (-1: none), from one start.
  FitResult fit(int left_out, std::vector<double> start) const {
    std::vector<FreeConstant> constants;
    constants.reserve(moving_.size());
    for (const std::size_t i : moving_) constants.push_back(constant(i));
    const Residuals residuals = [&](std::span<const double> logarithms, std::span<double> out) {
      write_residuals(left_out, logarithms, out);
    };
    FitOptions options;
    options.prior_weight = kPriorWeight;
    options.least_scatter = kMinScatter;
    options.start = std::move(start);
    return fit_bounded(residuals, samples_.size(), constants, options);
  }

  /// How far the logarithms are seen, with scatter as good samples have it: the curvature's error,
  /// or how far one of them alone may move before the fit is worse by one standard error's worth.
  /// Forms with branches have plateaus that a curvature at their edge knows nothing of.
  std::vector<double> errors(const FitResult& fit) const {
    const double scatter = seen_scatter(fit);
    const double worse = cost(fit.values) + scatter * scatter;
    std::vector<double> errors;
    for (std::size_t i = 0; i < moving_.size(); ++i) {
      const FreeConstant range = constant(moving_[i]);
      double error = fit.curvature_errors[i] * scatter / fit.scatter;
      for (const double side : {-1.0, 1.0}) {
        std::vector<double> moved = fit.values;
        double step = std::max(error, 0.01);
        for (; step <= 1; step *= 1.25) {
          moved[i] = fit.values[i] + side * step;
          if (moved[i] < range.low || moved[i] > range.high || cost(moved) >= worse) break;
        }
        if (moved[i] >= range.low && moved[i] <= range.high) error = std::max(error, step / 1.25);
      }
      errors.push_back(error);
    }
    return errors;
  }

  static double seen_scatter(const FitResult& fit) { return std::min(fit.scatter, kMaxScatter); }

  /// The better fit of two starts: the priors, and a fit from which one field was frozen.
  FitResult refit(const FitResult& before) const {
    FitResult best = fit(-1, {});
    FitResult trial = fit(-1, before.values);
    return trial.cost < best.cost ? trial : best;
  }

  /// The best fit of several starts: the priors, then points spread over the ranges.
  FitResult best() const {
    FitResult best = fit(-1, {});
    for (int s = 1; s < kStarts; ++s) {
      std::vector<double> start;
      for (std::size_t i = 0; i < moving_.size(); ++i) {
        // Steps by irrational numbers cover a box evenly without a table of points.
        const double turn = s * std::sqrt(2.0 + 3.0 * static_cast<double>(i));
        const FreeConstant c = constant(moving_[i]);
        start.push_back(c.low + (c.high - c.low) * (0.1 + 0.8 * (turn - std::floor(turn))));
      }
      const FitResult trial = fit(-1, std::move(start));
      if (trial.cost < best.cost) best = trial;
    }
    return best;
  }

 private:
  void write_residuals(int left_out, std::span<const double> logarithms,
                       std::span<double> out) const {
    const std::vector<double> times_s = times(logarithms);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const TimedSample& sample = samples_[i];
      const double weight = sample.fold == left_out ? 0 : sample.weight;
      const double ratio = std::max(times_s[i], 1e-12) / sample.time.base();
      out[i] = std::sqrt(weight) * std::log(ratio);
    }
  }

  /// What a fit minimises, less the pull of the priors.
  double cost(std::span<const double> logarithms) const {
    std::vector<double> residuals(samples_.size());
    write_residuals(-1, logarithms, residuals);
    double sum = 0;
    for (const double r : residuals) sum += soft_l1(r, FitOptions{}.robust_scale);
    return sum;
  }

  FreeConstant constant(std::size_t i) const {
    const FreeField& field = fields_[i];
    const double prior = std::clamp(priors_[i], field.low, field.high);
    return {.low = std::log(field.low), .high = std::log(field.high), .prior = std::log(prior)};
  }

  const TimesOf& times_of_;
  std::span<const TimedSample> samples_;
  std::span<const FreeField> fields_;
  std::span<const double> priors_;
  std::vector<std::size_t> moving_;
};

std::vector<double> held_out(const Search& search, std::span<const TimedSample> samples,
                             const FitResult& whole) {
  int folds = 0;
  for (const TimedSample& sample : samples) folds = std::max(folds, sample.fold + 1);
  if (folds < 2) return {};
  if (!search.anything_moves()) return search.times({});
  std::vector<double> times_s(samples.size());
  for (int fold = 0; fold < folds; ++fold) {
    const std::vector<double> without = search.times(search.fit(fold, whole.values).values);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i].fold == fold) times_s[i] = without[i];
    }
  }
  return times_s;
}

}  // namespace

TimesFit fit_times(const TimesOf& times_of, std::span<const TimedSample> samples,
                   std::span<const FreeField> fields, std::span<const double> priors) {
  Search search(times_of, samples, fields, priors);
  FitResult fit;
  std::vector<double> errors;
  if (search.anything_moves()) fit = search.best();
  while (search.anything_moves()) {
    errors = search.errors(fit);
    const auto worst = std::ranges::max_element(errors);
    if (*worst <= kLargestError) break;
    const auto position = worst - errors.begin();
    search.freeze(static_cast<std::size_t>(position));
    fit.values.erase(fit.values.begin() + position);
    if (search.anything_moves()) fit = search.refit(fit);
  }
  if (!search.anything_moves()) fit = {};
  TimesFit result;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    result.fields.push_back({fields[i].name, priors[i], priors[i], 0, true, false});
  }
  const std::vector<double> values = search.values(fit.values);
  for (std::size_t i = 0; i < search.moving().size(); ++i) {
    FittedField& field = result.fields[search.moving()[i]];
    field.value = values[search.moving()[i]];
    field.relative_error = errors[i] * fit.scatter / Search::seen_scatter(fit);
    field.frozen = false;
    field.at_bound = fit.standard_errors[i] == 0;
  }
  result.predicted_s = search.times(fit.values);
  result.held_out_s = held_out(search, samples, fit);
  return result;
}

}  // namespace scalemodel
