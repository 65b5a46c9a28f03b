// Annealing of sets of flows over the planes of two tiers, the largest sets first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/exact/spine_assignment.hpp"

namespace scalemodel {

/// Lowers the longest time to drain a link by moves of whole sets of flows: a set takes another
/// plane, or two sets with a common side exchange their planes.
///
/// The energy is the sum over links of the time above a limit. A sum of squares would make two
/// large sets on one link cost more than the small sets that have to move. A set is inserted when
/// the temperature has fallen to a small part of its size, on the plane where it adds the least
/// energy: large sets are arranged before small ones, which is the strength of longest-first
/// placement that annealing of all sets at once loses. The limit starts slightly above the least
/// possible time and halves its distance to it whenever all links keep it.
class PlaneAnnealing {
 public:
  /// The longest time, as a share of the least possible one, that no more moves are spent on.
  static constexpr double kNearEnough = 1.001;

  /// `per_byte`: drain time of a byte by side and plane, as a share of the least possible time.
  /// `allowed`: by set and plane; every set may use at least one plane.
  PlaneAnnealing(std::span<const std::vector<SideLoad>> sets, std::vector<double> per_byte,
                 std::vector<char> allowed, std::int32_t planes);

  void run(std::int64_t moves, SplitMix& random);

  /// Planes by set in the best state so far.
  std::span<const std::int32_t> planes() const { return best_; }
  /// Longest drain time in that state, as a share of the least possible time.
  double longest() const { return least_; }

 private:
  struct Entry {
    std::int32_t side, first_cell;
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
  void insert(std::int32_t set);
  void try_other_plane(std::int32_t set, double temperature, SplitMix& random);
  void try_exchange(std::int32_t set, double temperature, SplitMix& random);
  void update_best();

  std::int32_t planes_;
  std::vector<std::int32_t> first_{0};
  std::vector<Entry> entries_;
  std::vector<double> largest_;                     ///< by set: its largest share of a link
  std::vector<std::int32_t> order_;                 ///< sets, the largest first
  std::vector<std::vector<std::int32_t>> on_side_;  ///< inserted sets, by side
  std::vector<double> per_byte_, load_;             ///< by cell, a side and a plane: shares
  std::vector<double> net_;                         ///< by side: bytes that an exchange moves
  std::vector<char> allowed_;
  std::vector<std::int32_t> plane_, best_;
  std::size_t inserted_ = 0;
  double limit_ = 0, least_ = 0;
};

}  // namespace scalemodel
