// Sets of flows on planes such that none gets in another's way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scalemodel/base/random.hpp"

namespace scalemodel {

/// What a set puts on one row; a row is what leaves, or what enters, one leaf.
struct RowLoad {
  std::int32_t row;
  double load;
};

/// Gives every set a plane such that no row of a plane carries more than its room, where two sets
/// either share a row of a plane or do not: planes are the colours of a graph whose edges join sets
/// that together are too much for some row. Largest set first, then tabu search: of the moves of
/// sets in conflict the one that leaves the fewest rows overfull, not back to a plane left a short
/// while ago. Source: Hertz and de Werra, Computing 39 (1987) 345-351; length of that while after
/// Galinier and Hao, J. Comb. Optim. 3 (1999) 379-397, longer because edges are weighted.
class SetColouring {
 public:
  /// `room`: by row and plane; 0: the plane is closed to the row. Preconditions: rooms of a row are
  /// alike where they are not 0; at least one set.
  SetColouring(std::span<const std::vector<RowLoad>> sets, std::span<const double> room,
               std::int32_t planes);

  /// Planes by set; nothing where some row stays overfull within about `work` looks at a plane of a
  /// set.
  std::optional<std::vector<std::int32_t>> solve(std::int64_t work, SplitMix& random);

 private:
  struct Edge {
    std::int32_t set;
    std::int32_t rows;  ///< overfull where both share a plane
  };
  struct Move {
    std::int32_t set, to, change;
  };

  std::size_t at(std::int32_t set, std::int32_t plane) const {
    return static_cast<std::size_t>(plane) * sets_.size() + static_cast<std::size_t>(set);
  }
  void join(std::span<const double> room);
  bool start();
  void put(std::int32_t set, std::int32_t plane);
  void take(std::int32_t set);
  void list_conflicts();
  Move best_move(std::int64_t now, std::int32_t least, SplitMix& random);

  std::span<const std::vector<RowLoad>> sets_;
  std::int32_t planes_;
  std::vector<std::vector<Edge>> edges_;
  std::vector<std::int32_t> plane_;
  std::vector<std::int32_t> own_;          ///< by set: rows that are overfull where it is
  std::vector<std::int32_t> overfull_;     ///< by plane and set: rows, if the set were there
  std::vector<std::int64_t> tabu_;         ///< by plane and set: until when
  std::int32_t conflicts_ = 0;             ///< rows overfull, over pairs of sets
  std::vector<std::int32_t> in_conflict_;  ///< sets, at the last look
};

}  // namespace scalemodel
