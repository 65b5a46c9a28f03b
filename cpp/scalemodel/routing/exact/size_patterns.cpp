#include "scalemodel/routing/exact/size_patterns.hpp"

#include <algorithm>
#include <cstddef>

namespace scalemodel {

bool SizePatterns::fit(std::span<const std::int32_t> count, std::int32_t links) {
  constexpr std::uint64_t kBase = 1021;  // above any number of flows of a size at a leaf
  double sum = 0;
  auto key = static_cast<std::uint64_t>(links);
  std::size_t largest = sizes_.size();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    sum += count[i] * sizes_[i];
    key = key * kBase + static_cast<std::uint64_t>(count[i]);
    if (count[i] > 0) largest = i;
  }
  if (largest == sizes_.size()) return true;
  if (sum > links * full_ || sizes_[largest] > full_) return false;
  if (links == 1) return true;
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  // Some link carries a flow of the largest size.
  Counts left(count.begin(), count.end());
  --left[largest];
  const bool fits = fill_link(left, largest, full_ - sizes_[largest], links);
  known_[key] = fits;
  return fits;
}

/// Fills up a link by flows of this size and smaller ones, many of them first.
bool SizePatterns::fill_link(Counts& left, std::size_t size, double space, std::int32_t links) {
  const std::int32_t before = left[size];
  auto most = static_cast<std::int32_t>(space / sizes_[size]);
  most = std::min(most, before);
  for (std::int32_t taken = most; taken >= 0; --taken) {
    left[size] = before - taken;
    const double rest = space - taken * sizes_[size];
    const bool fits = size == 0 ? fit(left, links - 1) : fill_link(left, size - 1, rest, links);
    if (fits) {
      left[size] = before;
      return true;
    }
    if (size == 0) break;  // with fewer flows of the smallest size more are left
  }
  left[size] = before;
  return false;
}

}  // namespace scalemodel
