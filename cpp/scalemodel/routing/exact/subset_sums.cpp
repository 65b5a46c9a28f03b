#include "scalemodel/routing/exact/subset_sums.hpp"

#include <algorithm>
#include <bit>

namespace scalemodel {
namespace {

constexpr std::size_t kPlacesPerSum = 16;  ///< of a filter

/// A subset of one half of the sizes: every other size, from the first or from the second on.
struct HalfSubset {
  double sum = 0;
  std::uint64_t members = 0;
};

/// Lists all subsets of a half that contain `half` and whose sum does not exceed `largest`; false
/// where `into` would exceed `max_subsets`.
bool list_half_subsets(std::span<const double> sizes, std::size_t from, double largest,
                       std::size_t max_subsets, const HalfSubset& half,
                       std::vector<HalfSubset>& into) {
  if (into.size() >= max_subsets) return false;
  into.push_back(half);
  for (std::size_t i = from; i < sizes.size() && half.sum + sizes[i] <= largest; i += 2) {
    const HalfSubset larger{half.sum + sizes[i], half.members | std::uint64_t{1} << i / 2};
    if (!list_half_subsets(sizes, i + 2, largest, max_subsets, larger, into)) return false;
  }
  return true;
}

/// Keeps the subsets that may have a complement among those of the other half.
void keep_complemented(std::vector<HalfSubset>& halves, std::span<const HalfSubset> others,
                       double sum, double tolerance) {
  SumFilter complements(others.size(), sum + tolerance);
  for (const HalfSubset& other : others) {
    complements.insert(std::max(0.0, sum - other.sum), tolerance);
  }
  std::erase_if(halves, [&](const HalfSubset& half) { return !complements.may_contain(half.sum); });
}

}  // namespace

SumFilter::SumFilter(std::size_t count, double largest)
    : words_(std::bit_ceil(kPlacesPerSum * count / kBits + 1) + 1, 0),
      scale_(static_cast<double>(kBits * (words_.size() - 1)) / largest) {}

void SumFilter::insert(double sum, double tolerance) {
  for (const double edge : {std::max(0.0, sum - tolerance), sum + tolerance}) {
    const auto place = static_cast<std::size_t>(edge * scale_);
    words_[place / kBits] |= std::uint64_t{1} << place % kBits;
  }
}

std::optional<std::vector<SubsetOfSizes>> subsets_of_sum(std::span<const double> sizes, double sum,
                                                         double tolerance,
                                                         std::size_t max_half_subsets,
                                                         std::size_t max_subsets,
                                                         std::size_t& work) {
  constexpr std::size_t kMaxSizes = 128;  // one word of members per half
  std::vector<SubsetOfSizes> found;
  if (sizes.size() > kMaxSizes) return std::nullopt;
  std::vector<HalfSubset> even, odd;
  const bool all = list_half_subsets(sizes, 0, sum + tolerance, max_half_subsets, {}, even) &&
                   list_half_subsets(sizes, 1, sum + tolerance, max_half_subsets, {}, odd);
  work += even.size() + odd.size();
  if (!all) return std::nullopt;
  keep_complemented(odd, even, sum, tolerance);
  keep_complemented(even, odd, sum, tolerance);
  std::ranges::sort(even, {}, &HalfSubset::sum);
  std::ranges::sort(odd, {}, &HalfSubset::sum);
  std::size_t end = odd.size();
  for (const HalfSubset& half : even) {
    while (end > 0 && odd[end - 1].sum > sum - half.sum + tolerance) --end;
    for (std::size_t o = end; o > 0 && odd[o - 1].sum >= sum - half.sum - tolerance; --o) {
      if (found.size() >= max_subsets) return std::nullopt;
      SubsetOfSizes& subset = found.emplace_back();
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::uint64_t members = i % 2 == 0 ? half.members : odd[o - 1].members;
        if ((members >> i / 2 & 1U) != 0) subset.push_back(static_cast<std::int32_t>(i));
      }
    }
  }
  return found;
}

}  // namespace scalemodel
