// Whether flows of few sizes fit on equal links, answered many times.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace scalemodel {

/// Packings of numbers of flows by size on equal links. Answers are remembered.
class SizePatterns {
 public:
  /// `sizes`: distinct, ascending; `full`: what a link carries.
  SizePatterns(std::span<const double> sizes, double full)
      : sizes_(sizes.begin(), sizes.end()), full_(full) {}

  /// Whether `count` flows of every size fit on `links` links.
  bool fit(std::span<const std::int32_t> count, std::int32_t links);

 private:
  using Counts = std::vector<std::int32_t>;
  bool fill_link(Counts& left, std::size_t size, double space, std::int32_t links);

  std::vector<double> sizes_;
  double full_;
  std::unordered_map<std::uint64_t, bool> known_;
};

}  // namespace scalemodel
