// The rows of a table that no other row beats in every objective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace scalemodel {

inline constexpr std::size_t kMinObjectives = 2, kMaxObjectives = 4;

/// Indices of the rows that no row dominates, the best in the first objective first: in
/// lexicographic order of their values, equal ones ascending. `columns` are the objectives, all
/// minimised.
///
/// A row dominates another when it is nowhere larger and somewhere smaller, so equal rows stay
/// together. Infinities are ordinary values. Exact, and the result depends on nothing but the
/// values.
///
/// Cost for n rows, also when all of them stay: O(n log n) for two and three objectives,
/// O(n log^2 n) for four (Kung, Luccio and Preparata, J. ACM 22 (1975) 469-476). What a few strong
/// rows dominate is dropped before anything is sorted (Godfrey, Shipley and Gryz, VLDB 2005), which
/// leaves little to do where the front is small; the rest is sorted in blocks that a cache holds.
///
/// Throws MalformedQuestion for fewer than two or more than four columns, columns of different
/// length, more than 4,294,967,295 rows, and NaN.
std::vector<std::int64_t> pareto_front(std::span<const std::span<const double>> columns);

}  // namespace scalemodel
