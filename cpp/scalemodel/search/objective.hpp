// What a search ranks by and what it insists on.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "scalemodel/estimator/derived.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// A number of an estimate of type E: one of its fields, or one derived from them.
template <class E>
struct ColumnOf {
  std::string_view name;
  double (*value)(const E&);
  bool maximised = false;  ///< more is better
  /// `lower_bound` bounds it (from above where more is better).
  bool bounded = false;
  bool positive = false;  ///< of every strategy that runs
  bool of_kinds = false;  ///< what takes the memory, or where
  /// What of an estimate it is, beside times and memory.
  Derived derived{false, false};
};
using Column = ColumnOf<Estimate>;

/// Whether a search for the best of this column looks for the largest.
template <class E>
bool is_maximised(std::string_view column) {
  return std::ranges::find(RecordOf<E>::maximised, column) != RecordOf<E>::maximised.end();
}

template <class M>
double number_of(const M& member) {
  if constexpr (std::is_arithmetic_v<M>) {
    return static_cast<double>(member);
  } else {
    return member.base();
  }
}

/// Field number I of a record as a plain number.
template <class E, std::size_t I>
double field_number(const E& estimate) {
  return number_of(estimate.*(field_at<I>(RecordOf<E>::fields).member));
}

/// Every column: the numeric fields of Estimate in their order, then
/// tokens_per_j and usd_per_token.
std::span<const Column> columns();
const Column* find_column(std::string_view name);

/// One column (weight 1), or several: then the weighted sum of their logarithms, which does not
/// depend on units.
template <class E>
struct ObjectiveOf {
  struct Term {
    const ColumnOf<E>* column = nullptr;
    double weight = 1;
  };
  std::vector<Term> terms;

  /// Smaller is better.
  double score(const E& estimate) const {
    const auto signed_value = [](const Term& term, double value) {
      return term.column->maximised ? -value : value;
    };
    if (terms.size() == 1) return signed_value(terms[0], terms[0].column->value(estimate));
    double sum = 0;
    for (const Term& term : terms) {
      sum += term.weight * signed_value(term, std::log(term.column->value(estimate)));
    }
    return sum;
  }
  /// Whether the score of a lower bound bounds the score.
  bool bounded() const {
    return std::ranges::all_of(terms, [](const Term& term) { return term.column->bounded; });
  }
};
using Objective = ObjectiveOf<Estimate>;

/// left comparison factor [right].
template <class E>
struct ConstraintOf {
  const ColumnOf<E>* left = nullptr;
  Comparison comparison = Comparison::less_equal;
  double factor = 0;
  const ColumnOf<E>* right = nullptr;  ///< null: the factor alone

  bool holds(const E& estimate) const {
    const double value = left->value(estimate);
    const double limit = factor * (right == nullptr ? 1 : right->value(estimate));
    switch (comparison) {
      case Comparison::less:
        return value < limit;
      case Comparison::less_equal:
        return value <= limit;
      case Comparison::equal:
        return value == limit;
      case Comparison::not_equal:
        return value != limit;
      case Comparison::greater_equal:
        return value >= limit;
      case Comparison::greater:
        return value > limit;
      case Comparison::multiple_of:
        return std::fmod(value, limit) == 0;
    }
    return false;
  }
  /// Whether a lower bound that breaks it shows that every member of its group does.
  bool bounded() const {
    const bool constant = right == nullptr || right->name == "memory_capacity_bytes";
    const bool below = comparison == Comparison::less || comparison == Comparison::less_equal;
    const bool above = comparison == Comparison::greater || comparison == Comparison::greater_equal;
    return constant && left->bounded && (left->maximised ? above : below);
  }
};
using Constraint = ConstraintOf<Estimate>;

}  // namespace scalemodel
