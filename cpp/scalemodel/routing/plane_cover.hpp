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
/// set takes all the room of some rows and no set takes part of such a row. Every set needs a plane
/// and every such row of a plane a set: the one with the fewest possibilities left is decided next,
/// larger sets first among equals, and taken back where anything has none. The search starts again
/// after a while, in another order and by turns over all planes at once or one plane after the
/// other. Source: Knuth's algorithm X with dancing links, arXiv
/// cs/0011047.
class PlaneCover {
 public:
  /// `room`: by row and plane; 0: the plane is closed to the row. `must_fill`: by row.
  PlaneCover(std::span<const std::vector<RowLoad>> sets, std::vector<double> room,
             std::vector<char> must_fill, std::int32_t planes);

  /// Whether a division was found within about `work` visits of links.
  bool solve(std::int64_t work, SplitMix& random);
  /// By set.
  std::span<const std::int32_t> planes() const { return plane_; }

 private:
  static constexpr std::int32_t kNowhere = -1;

  /// A set on a plane, in the list of one thing that it decides; or the head of such a list.
  struct Node {
    std::int32_t up, down, head;
    std::int32_t option;  ///< set times planes plus plane
  };
  struct Head {
    std::int32_t left, right, size;
  };
  std::size_t cell(std::int32_t row, std::int32_t plane) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(planes_) +
           static_cast<std::size_t>(plane);
  }
  bool fits(std::int32_t set, std::int32_t plane) const;
  void link_up(SplitMix& random);
  void cover(std::int32_t head);
  void uncover(std::int32_t head);
  void change_room(std::int32_t option, double sign);
  std::int32_t choose();
  bool decide();

  std::span<const std::vector<RowLoad>> sets_;
  std::vector<double> room_, left_;  ///< left_: of rows that need not be full
  std::vector<char> must_fill_;
  std::int32_t planes_;
  std::vector<std::int32_t> plane_;
  std::vector<Node> nodes_;
  std::vector<Head> heads_;           ///< sets, cells, and the root of their list
  std::vector<std::int32_t> option_;  ///< by option: its first node; the others follow
  bool plane_by_plane_ = false;
  std::int64_t work_ = 0, limit_ = 0;
};

}  // namespace scalemodel
