#include "scalemodel/calibration/fit_record.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/calibration/least_squares.hpp"

namespace scalemodel {
namespace {

constexpr double kLargestError = 0.25;
constexpr double kLeastScatter = 0.02, kMostScatter = 0.1;
constexpr double kPriorWeight = 0.01;
constexpr int kStarts = 5;

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
    std::vector<double> times_s(samples_.size());
    times_of_(values(logarithms), times_s);
    return times_s;
  }

  /// Fit to all samples but those of fold `left_out` (-1: none), from one start.
  FitResult fit(int left_out, std::vector<double> start) const {
    std::vector<FreeConstant> constants;
    for (const std::size_t i : moving_) constants.push_back(constant(i));
    const Residuals residuals = [&](std::span<const double> logarithms, std::span<double> out) {
      const std::vector<double> times_s = times(logarithms);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const TimedSample& sample = samples_[i];
        const double weight = sample.fold == left_out ? 0 : sample.weight;
        const double ratio = std::max(times_s[i], 1e-12) / sample.time.base();
        out[i] = std::sqrt(weight) * std::log(ratio);
      }
    };
    FitOptions options;
    options.prior_weight = kPriorWeight;
    options.least_scatter = kLeastScatter;
    options.start = std::move(start);
    return fit_bounded(residuals, samples_.size(), constants, options);
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
  while (search.anything_moves()) {
    fit = search.best();
    const auto worst = std::max_element(fit.curvature_errors.begin(), fit.curvature_errors.end());
    if (*worst * std::min(1.0, kMostScatter / fit.scatter) <= kLargestError) break;
    search.freeze(static_cast<std::size_t>(worst - fit.curvature_errors.begin()));
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
    field.relative_error = fit.curvature_errors[i];
    field.frozen = false;
    field.at_bound = fit.standard_errors[i] == 0;
  }
  result.predicted_s = search.times(fit.values);
  result.held_out_s = held_out(search, samples, fit);
  return result;
}

}  // namespace scalemodel
