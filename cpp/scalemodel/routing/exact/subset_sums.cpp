#include "scalemodel/routing/exact/subset_sums.hpp"

#include <algorithm>
#include <bit>

namespace scalemodel {
namespace {

constexpr std::size_t kSparse = 16;  ///< places of a filter for each sum

/// A subset of every other size, from the first or from the second on.
struct HalfSum {
  double sum = 0;
  std::uint64_t members = 0;
};

/// All subsets whose sum does not exceed `most`; false where they are too many.
bool list(std::span<const double> sizes, std::size_t from, double most, std::size_t most_halves,
          const HalfSum& half, std::vector<HalfSum>& into) {
  if (into.size() >= most_halves) return false;
  into.push_back(half);
  for (std::size_t i = from; i < sizes.size() && half.sum + sizes[i] <= most; i += 2) {
    const HalfSum larger{half.sum + sizes[i], half.members | std::uint64_t{1} << i / 2};
    if (!list(sizes, i + 2, most, most_halves, larger, into)) return false;
  }
  return true;
}

/// Keeps the halves that may have a partner, in order of their sums.
void keep_partners(std::vector<HalfSum>& halves, std::span<const HalfSum> partners, double sum,
                   double tolerance) {
  SumFilter missing(partners.size(), sum + tolerance);
  for (const HalfSum& partner : partners) missing.put(std::max(0.0, sum - partner.sum), tolerance);
  std::erase_if(halves, [&](const HalfSum& half) { return !missing.may_have(half.sum); });
}

}  // namespace

SumFilter::SumFilter(std::size_t count, double most)
    : words_(std::bit_ceil(kSparse * count / kBits + 1) + 1, 0),
      scale_(static_cast<double>(kBits * (words_.size() - 1)) / most) {}

void SumFilter::put(double sum, double tolerance) {
  for (const double edge : {std::max(0.0, sum - tolerance), sum + tolerance}) {
    const auto place = static_cast<std::size_t>(edge * scale_);
    words_[place / kBits] |= std::uint64_t{1} << place % kBits;
  }
}

std::optional<std::vector<SubsetOfSizes>> subsets_of_sum(std::span<const double> sizes, double sum,
                                                         double tolerance, std::size_t most_halves,
                                                         std::size_t most, std::size_t& work) {
  constexpr std::size_t kMostSizes = 128;  // two words of members
  std::vector<SubsetOfSizes> found;
  if (sizes.size() > kMostSizes) return std::nullopt;
  std::vector<HalfSum> even, odd;
  const bool all = list(sizes, 0, sum + tolerance, most_halves, {}, even) &&
                   list(sizes, 1, sum + tolerance, most_halves, {}, odd);
  work += even.size() + odd.size();
  if (!all) return std::nullopt;
  keep_partners(odd, even, sum, tolerance);
  keep_partners(even, odd, sum, tolerance);
  std::ranges::sort(even, {}, &HalfSum::sum);
  std::ranges::sort(odd, {}, &HalfSum::sum);
  std::size_t end = odd.size();
  for (const HalfSum& half : even) {
    while (end > 0 && odd[end - 1].sum > sum - half.sum + tolerance) --end;
    for (std::size_t o = end; o > 0 && odd[o - 1].sum >= sum - half.sum - tolerance; --o) {
      if (found.size() >= most) return std::nullopt;
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
