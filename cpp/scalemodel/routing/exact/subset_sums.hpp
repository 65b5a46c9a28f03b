// Which of some sizes add up to a given sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace scalemodel {

/// Bytes that were put in, up to rounding: says no only where they were not, and seldom yes.
class SumFilter {
 public:
  /// For `count` sums between 0 and `most`.
  SumFilter(std::size_t count, double most);
  void put(double sum, double tolerance);
  bool may_have(double sum) const {
    const auto place = static_cast<std::size_t>(sum * scale_);
    return (words_[place / kBits] >> place % kBits & 1U) != 0;
  }

 private:
  static constexpr std::size_t kBits = 64;
  std::vector<std::uint64_t> words_;
  double scale_;  ///< places per byte
};

/// Positions that add up, ascending.
using SubsetOfSizes = std::vector<std::int32_t>;

/// All subsets of `sizes` (ascending, above 0) that add up to `sum`, by two halves of the sizes
/// (Horowitz and Sahni, J. ACM 21 (1974) 277-292); nothing where a half has more than `most_halves`
/// subsets that do not exceed it, or more than `most` subsets add up. `work` grows by the subsets
/// looked at.
std::optional<std::vector<SubsetOfSizes>> subsets_of_sum(std::span<const double> sizes, double sum,
                                                         double tolerance, std::size_t most_halves,
                                                         std::size_t most, std::size_t& work);

}  // namespace scalemodel
