#include "scalemodel/post_training/answers.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace scalemodel {
namespace {

/// A polynomial by Horner's rule, the highest power first.
template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

// Numerators and denominators of AS 241: around the middle, to e^-25, and beyond.
constexpr std::array kMiddleTop{2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr std::array kMiddleBottom{5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                   3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                   5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                   4.2313330701600911252e+1, 1.0};
constexpr std::array kNearTop{7.74545014278341407640e-4, 2.27238449892691845833e-2,
                              2.41780725177450611770e-1, 1.27045825245236838258e+0,
                              3.64784832476320460504e+0, 5.76949722146069140550e+0,
                              4.63033784615654529590e+0, 1.42343711074968357734e+0};
constexpr std::array kNearBottom{1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                 1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                 2.05319162663775882187e+0, 1.0};
constexpr std::array kFarTop{2.01033439929228813265e-7, 2.71155556874348757815e-5,
                             1.24266094738807843860e-3, 2.65321895265761230930e-2,
                             2.96560571828504891230e-1, 1.78482653991729133580e+0,
                             5.46378491116411436990e+0, 6.65790464350110377720e+0};
constexpr std::array kFarBottom{2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                5.99832206555887937690e-1,  1.0};

double mean_of(const std::vector<double>& factors, double scale, double room) {
  double sum = 0;
  for (const double factor : factors) sum += std::min(scale * factor, room);
  return sum / static_cast<double>(factors.size());
}

/// The scale that gives cut lengths their mean, to the last bit.
double scale_of(const std::vector<double>& factors, const AnswerLengths& lengths) {
  double low = 0, high = 1;
  while (high < lengths.room * 1e6 && mean_of(factors, high, lengths.room) < lengths.mean) {
    high *= 2;
  }
  while (true) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) return high;
    (mean_of(factors, middle, lengths.room) < lengths.mean ? low : high) = middle;
  }
}

}  // namespace

double normal_quantile(double probability) {
  const double centred = probability - 0.5;
  if (std::abs(centred) <= 0.425) {
    const double r = 0.180625 - centred * centred;
    return centred * polynomial(kMiddleTop, r) / polynomial(kMiddleBottom, r);
  }
  const double tail = centred <= 0 ? probability : 1 - probability;
  const double r = std::sqrt(-std::log(tail));
  const double size = r <= 5 ? polynomial(kNearTop, r - 1.6) / polynomial(kNearBottom, r - 1.6)
                             : polynomial(kFarTop, r - 5) / polynomial(kFarBottom, r - 5);
  return centred < 0 ? -size : size;
}

std::vector<double> answer_lengths(const AnswerLengths& lengths, std::size_t count) {
  std::vector<double> tokens(count, lengths.mean);
  if (lengths.spread == 0 || lengths.mean >= lengths.room) return tokens;
  for (std::size_t i = 0; i < count; ++i) {
    const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    tokens[count - 1 - i] = std::exp(lengths.spread * normal_quantile(place));
  }
  const double scale = scale_of(tokens, lengths);
  for (double& each : tokens) each = std::max(1.0, std::min(scale * each, lengths.room));
  return tokens;
}

SequenceLengths sequence_lengths(double prompt_tokens, const std::vector<double>& answers) {
  double sum = 0, squares = 0, tokens = 0;
  for (const double answer : answers) {
    const double length = prompt_tokens + answer;
    tokens += answer;
    sum += length;
    squares += length * length;
  }
  return {prompt_tokens + tokens / static_cast<double>(answers.size()), squares / sum};
}

double expected_longest(const std::vector<double>& lengths, double group) {
  const auto count = static_cast<double>(lengths.size());
  double sum = 0, longer = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const double shorter = std::pow((count - static_cast<double>(i) - 1) / count, group);
    sum += lengths[i] * (longer - shorter);
    longer = shorter;
  }
  return std::min(sum, lengths.front());  // lengths that are all alike sum up to one of them
}

}  // namespace scalemodel
