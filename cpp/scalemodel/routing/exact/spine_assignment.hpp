// Sets of flows on planes such that none gets in another's way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/exact/cdcl_solver.hpp"

namespace scalemodel {

/// What a set puts on one row; a row is what leaves, or what enters, one leaf.
struct RowLoad {
  std::int32_t row;
  double load;
};

/// Sets that fill a row of a plane together.
struct Filling {
  std::int32_t row;
  std::vector<std::int32_t> sets;  ///< two or more
};

/// Gives every set a plane such that no row of a plane carries more than its room, where what is
/// too much is known of two sets already, or which sets fill a row together. Planes are then the
/// values of variables that exclude each other; a row with as many sets as planes, all in each
/// other's way, uses every plane, and one with fillings has a set that fills it alone, or one of
/// these, on every plane.
///
/// Tight covers need a search that learns: large sets leave room that few combinations fill, and
/// moves that lower a number of conflicts (tabu search) or plain backtracking end far from a
/// solution time and again.
class SetColouring final : public ClauseSearch {
 public:
  /// `room`: by row and plane; 0: the plane is closed to the row. `fillings`: of a row all or none.
  /// Preconditions: rooms of a row are alike where they are not 0; at least one set.
  SetColouring(std::span<const std::vector<RowLoad>> sets, std::span<const double> room,
               std::int32_t planes, std::span<const Filling> fillings = {});

 private:
  struct Member {
    std::int32_t set;
    double load;
  };
  struct Row {
    std::vector<Member> members;         ///< the largest first
    std::vector<std::int32_t> fillings;  ///< numbers
    std::vector<double> room;            ///< by plane
    double most = 0;                     ///< room
    std::size_t exclusive = 0;           ///< of the largest, any two are too much
  };

  void follow_from(Literal literal, std::vector<Literal>& into) const override;
  void join(std::span<const std::vector<RowLoad>> sets);
  void open_planes(std::span<const std::vector<RowLoad>> sets, std::span<const double> room);
  void use_every_plane(const Row& row);
  void fill_every_plane(const Row& row);
  void spread();

  std::vector<Row> rows_;
  std::span<const Filling> fillings_;
  std::vector<std::vector<std::int32_t>> edges_;    ///< by set: those it shares no plane with
  std::vector<std::vector<std::int32_t>> with_;     ///< by set: fillings that need it,
  std::vector<std::vector<std::int32_t>> against_;  ///< and those of its rows that do not
  bool alike_ = true;                               ///< all planes are open to all sets
};

}  // namespace scalemodel
