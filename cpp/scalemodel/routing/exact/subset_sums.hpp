// Subsets of sizes that add up to a given sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace scalemodel {

/// A filter of sums in bytes, up to rounding: it never misses a sum that was inserted, and seldom
/// claims one that was not.
class SumFilter {
 public:
  /// For `count` sums between 0 and `largest`.
  SumFilter(std::size_t count, double largest);
  void insert(double sum, double tolerance);
  bool may_contain(double sum) const {
    const auto place = static_cast<std::size_t>(sum * scale_);
    return (words_[place / kBits] >> place % kBits & 1U) != 0;
  }

 private:
  static constexpr std::size_t kBits = 64;
  std::vector<std::uint64_t> words_;
  double scale_;  ///< places per byte
};

/// Positions of the sizes of a subset, ascending.
using SubsetOfSizes = std::vector<std::int32_t>;

/// All subsets of `sizes` (ascending, above 0) that add up to `sum`, by two halves of the sizes
/// (Horowitz and Sahni, J. ACM 21 (1974) 277-292). Nothing where a half has more than
/// `max_half_subsets` subsets that do not exceed the sum, or where more than `max_subsets` subsets
/// add up to it. `work` grows by the number of listed subsets of halves.
std::optional<std::vector<SubsetOfSizes>> subsets_of_sum(std::span<const double> sizes, double sum,
                                                         double tolerance,
                                                         std::size_t max_half_subsets,
                                                         std::size_t max_subsets,
                                                         std::size_t& work);

}  // namespace scalemodel
