// Moves of single flows that repair planes which are almost filled.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/exact/few_sizes.hpp"

namespace scalemodel {

/// Planes of flows in whole units, and what is wrong with the loads of their links.
class PlaneRepair {
 public:
  using Numbers = std::vector<std::int32_t>;

  /// `units`: by entry of `few`; `full`: units that a link carries.
  PlaneRepair(const FewSizes& few, std::span<const std::int32_t> units, std::int32_t full,
              std::int32_t planes);

  /// Puts every entry on a plane.
  void assign(std::span<const std::int32_t> planes);

  /// Sum over links of the squared units above what a link carries, or below what the other links
  /// of its side leave to it; 0 where all flows fit.
  std::int64_t excess() const { return excess_; }
  const Numbers& planes() const { return plane_; }

  /// Cold annealing: moves of one flow and exchanges of two flows of a side. True once all fit.
  bool run(std::int64_t moves, SplitMix& random);

 private:
  struct LinkChange {
    std::int32_t link, units;
  };
  std::int32_t link(std::int32_t side, std::int32_t plane) const { return side * planes_ + plane; }
  std::int64_t penalty(std::int32_t link, std::int32_t load) const;
  /// What the penalties of some links, each named once, change by.
  std::int64_t change_of(std::span<const LinkChange> changes) const;
  void apply(std::span<const LinkChange> changes, std::int64_t change);

  const FewSizes& few_;
  std::vector<std::int32_t> units_;
  std::int32_t full_, planes_;
  Numbers least_;            ///< by side: units that a link carries at least
  std::vector<Numbers> at_;  ///< entries, by side
  Numbers plane_, load_;     ///< by entry; by link
  std::int64_t excess_ = 0;
};

}  // namespace scalemodel
