// Option groups that a point's placements make equal.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// Finds the runs of an option list: neighbouring groups that share a cell.
void find_runs(Options& options);

/// Which runs of a point's groups differ in nothing that a bound could tell: their placements put
/// the same ranks next to each other. One placement in three to ten is another one at all.
class PlacedTwins {
 public:
  void start(const Tables& tables, const Point& point, const Options& options);

  /// Number of the first run whose groups have the bounds of those of this one, in their order.
  std::uint32_t first_like(std::size_t run) const { return first_like_[run]; }

 private:
  std::vector<PlacedGroups> met_;
  std::vector<std::uint32_t> met_at_;  ///< of each placement, its number among those
  std::vector<std::uint32_t> first_;   ///< by kind of run and number of placed groups
  std::vector<std::uint32_t> first_like_;
};

}  // namespace scalemodel
