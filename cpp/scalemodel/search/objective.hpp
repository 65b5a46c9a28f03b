// What a search ranks by and what it insists on.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// A number of an estimate: a field of Estimate, or one derived from them.
struct Column {
  std::string_view name;
  double (*value)(const Estimate&);
  bool maximised = false;  ///< more is better
  /// `lower_bound` bounds it (from above where more is better).
  bool bounded = false;
  bool positive = false;  ///< of every strategy that runs
};

/// Every column: the numeric fields of Estimate in their order, then
/// tokens_per_j and usd_per_token.
std::span<const Column> columns();
const Column* find_column(std::string_view name);

/// One column (weight 1), or several: then the weighted sum of their logarithms, which does not
/// depend on units.
struct Objective {
  struct Term {
    const Column* column = nullptr;
    double weight = 1;
  };
  std::vector<Term> terms;

  /// Smaller is better.
  double score(const Estimate& estimate) const;
  /// Whether the score of a lower bound bounds the score.
  bool bounded() const;
};

/// left comparison factor [right].
struct Constraint {
  const Column* left = nullptr;
  Comparison comparison = Comparison::less_equal;
  double factor = 0;
  const Column* right = nullptr;  ///< null: the factor alone

  bool holds(const Estimate& estimate) const;
  /// Whether a lower bound that breaks it shows that every member of its group does.
  bool bounded() const;
};

}  // namespace scalemodel
