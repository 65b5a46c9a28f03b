// Sets of flows that fill planes exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"

namespace scalemodel {

/// What a set puts on one row; a row is what leaves, or what enters, one leaf.
struct RowLoad {
  std::int32_t row;
  double load;
};

/// Divides sets among planes such that no row carries more than its room on any plane, where each
/// set takes all the room of some rows and no set takes part of such a row. Covers the rows of one
/// plane after the other: the row with the fewest sets left that fit takes one of them, larger ones
/// first, and takes it back where another row has none. Where the sets left cover no plane, a few
/// planes give theirs back and are covered again in another order; kept unless fewer planes are
/// covered then. Source of the cover: Knuth's algorithm X, arXiv cs/0011047.
class PlaneCover {
 public:
  /// `room`: by row and plane; 0: the plane is closed to the row. `must_fill`: by row.
  PlaneCover(std::span<const std::vector<RowLoad>> sets, std::vector<double> room,
             std::vector<char> must_fill, std::int32_t planes);

  /// Whether a division was found within about `work` looks at a set.
  bool solve(std::int64_t work, SplitMix& random);
  /// By set.
  std::span<const std::int32_t> planes() const { return plane_; }

 private:
  static constexpr std::int32_t kNowhere = -1;

  std::size_t cell(std::int32_t row, std::int32_t plane) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(planes_) +
           static_cast<std::size_t>(plane);
  }
  bool fits(std::int32_t set, std::int32_t plane);
  void put(std::int32_t set, std::int32_t plane);
  void take(std::int32_t set);
  bool cover(std::int32_t plane);
  void cover_all(SplitMix& random);
  void give_back(std::int32_t plane);
  bool place_rest();

  std::span<const std::vector<RowLoad>> sets_;
  std::vector<double> room_, left_;
  std::vector<char> must_fill_;
  std::int32_t planes_;
  std::vector<std::int32_t> plane_;
  std::vector<double> rank_;                       ///< by set: larger ones are tried first
  std::vector<std::vector<std::int32_t>> of_row_;  ///< sets
  std::int64_t entries_ = 0;                       ///< of all rows
  std::vector<std::int32_t> open_;                 ///< planes that are not covered
  std::int64_t work_ = 0, limit_ = 0;
};

}  // namespace scalemodel
