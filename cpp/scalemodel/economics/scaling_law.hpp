// How far a model learns with its size and its data, and the best split of a budget of work.
#pragma once

#include <cmath>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Work to train N parameters on D tokens, attention apart: 6 N D.
inline constexpr double kFlopPerParameterToken = 6;

/// loss(N, D) = irreducible + model_scale / N^model_exponent + data_scale / D^data_exponent.
/// Source of the form: Hoffmann et al., arXiv 2203.15556, section 3.3.
struct LossLaw {
  double irreducible = 0;
  double model_scale = 1, model_exponent = 1;
  double data_scale = 1, data_exponent = 1;

  bool operator==(const LossLaw&) const = default;
};

/// A model and the tokens to train it on.
struct ModelAndData {
  double parameters = 0, tokens = 0;

  bool operator==(const ModelAndData&) const = default;
};

inline double loss(const LossLaw& law, const ModelAndData& split) {
  return law.irreducible + law.model_scale * std::pow(split.parameters, -law.model_exponent) +
         law.data_scale * std::pow(split.tokens, -law.data_exponent);
}

/// The split of a budget C = 6 N D of least loss:
///
///     N = (a A / (b B))^(1/(a+b)) (C/6)^(b/(a+b)),  D = C / (6 N)
///
/// with A, a the model's scale and exponent and B, b the data's.
inline ModelAndData least_loss_split(const LossLaw& law, Flop budget) {
  const double sum = law.model_exponent + law.data_exponent;
  const double ratio = law.model_exponent * law.model_scale / (law.data_exponent * law.data_scale);
  const double product = budget.base() / kFlopPerParameterToken;  // N D
  const double parameters = std::pow(ratio, 1 / sum) * std::pow(product, law.data_exponent / sum);
  return {parameters, product / parameters};
}

/// The split of a budget at a given number of tokens per parameter.
inline ModelAndData fixed_ratio_split(double tokens_per_parameter, Flop budget) {
  const double product = budget.base() / kFlopPerParameterToken;
  const double parameters = std::sqrt(product / tokens_per_parameter);
  return {parameters, product / parameters};
}

template <>
struct RecordOf<LossLaw> {
  static constexpr std::string_view name = "LossLaw";
  using T = LossLaw;
  static constexpr FieldTable fields{
      field("irreducible", &T::irreducible, 0, 1e3, "loss of an endless run"),
      field("model_scale", &T::model_scale, 1e-9, 1e9, "of the term of the parameters"),
      field("model_exponent", &T::model_exponent, 1e-3, 10, "of the term of the parameters"),
      field("data_scale", &T::data_scale, 1e-9, 1e9, "of the term of the tokens"),
      field("data_exponent", &T::data_exponent, 1e-3, 10, "of the term of the tokens")};
};

}  // namespace scalemodel
