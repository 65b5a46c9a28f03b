// Sets of flows on the planes of two tiers, the largest first, by annealing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/exact/spine_assignment.hpp"

namespace scalemodel {

/// Lowers the longest time to drain a link where whole sets of flows move from plane to plane: a
/// set takes another plane, or two sets that meet on a row exchange theirs.
///
/// Anneals the sum over links of the time above a limit. Not of its square: what two large sets are
/// in each other's way is then not worth more than the small ones that make room. A set joins when
/// the temperature has fallen to a small part of it, on the plane where it adds least: large sets
/// are arranged while nothing small is there to be shuffled, which is where longest-first placement
/// gets its quality and annealing all sets at once loses it. The limit starts little above the
/// least possible time and halves its distance to it whenever all links keep it.
class PlaneAnnealing {
 public:
  /// `per_byte`: by row and plane, as a share of the least possible time. `allowed`: by set and
  /// plane; every set may use one plane or more.
  PlaneAnnealing(std::span<const std::vector<RowLoad>> sets, std::vector<double> per_byte,
                 std::vector<char> allowed, std::int32_t planes);

  void run(std::int64_t moves, SplitMix& random);

  /// The best met, by set, and its longest time as a share of the least possible.
  std::span<const std::int32_t> planes() const { return best_; }
  double longest() const { return least_; }

 private:
  struct Entry {
    std::int32_t row, first_cell;
    double bytes;
  };

  std::span<const Entry> entries(std::int32_t set) const {
    return std::span(entries_).subspan(first_[set], first_[set + 1] - first_[set]);
  }
  bool may_use(std::int32_t set, std::int32_t plane) const {
    return allowed_[static_cast<std::size_t>(set) * static_cast<std::size_t>(planes_) +
                    static_cast<std::size_t>(plane)] != 0;
  }
  double excess(std::int32_t cell, double bytes) const;
  double change_between(std::int32_t first_cell, std::int32_t from, std::int32_t to,
                        double bytes) const;
  double change_of_move(std::int32_t set, std::int32_t to) const;
  double change_of_exchange(std::int32_t set, std::int32_t other);
  void move(std::int32_t set, std::int32_t to);
  void join(std::int32_t set);
  void try_other_plane(std::int32_t set, double temperature, SplitMix& random);
  void try_exchange(std::int32_t set, double temperature, SplitMix& random);
  void look();

  std::int32_t planes_;
  std::vector<std::int32_t> first_{0};
  std::vector<Entry> entries_;
  std::vector<double> largest_;                    ///< by set: share of a link
  std::vector<std::int32_t> order_;                ///< sets, the largest first
  std::vector<std::vector<std::int32_t>> of_row_;  ///< sets that joined
  std::vector<double> per_byte_, load_;            ///< by row and plane, shares
  std::vector<double> net_;                        ///< by row: bytes of an exchange
  std::vector<char> allowed_;
  std::vector<std::int32_t> plane_, best_;
  std::size_t joined_ = 0;
  double limit_ = 0, least_ = 0;
};

}  // namespace scalemodel
