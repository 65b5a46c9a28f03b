// How long interleaved stages take whose chunks hold unequal numbers of layers.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace scalemodel {

/// Duration of an interleaved step where chunks are unequal: stages then wait for each other in
/// ways that no sum over a stage's own chunks tells. Run once per layout with a layer as the unit
/// of time, backward passes twice as long as forward ones, at a few weights of the head; an
/// estimate reads it off in between. The duration is convex in the weight and soon linear in the
/// number of micro-batches.
class InterleavedPace {
 public:
  InterleavedPace() = default;
  /// `chunk_layers` in the order a micro-batch passes them, pp vpp of them; the last has the head.
  InterleavedPace(const std::vector<int>& chunk_layers, int pp);

  bool uneven() const noexcept { return group_ > 0; }

  /// Times of both passes of one layer that the step lasts. `head`: in the same unit.
  /// Precondition: uneven.
  double duration(double micro_batches, double head) const noexcept;

 private:
  static constexpr std::array<double, 6> kHeads{0, 0.5, 1, 2, 4, 8};
  static constexpr std::array<int, 3> kGroups{1, 2, 4};  ///< of micro-batches, `group_` each
  static constexpr int kManyGroups = 6;

  double group_ = 0;
  std::array<std::array<double, kGroups.size()>, kHeads.size()> durations_{};
  std::array<double, kHeads.size()> further_{};  ///< of every group after these
};

}  // namespace scalemodel
