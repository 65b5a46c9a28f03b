// Assignment of sets of flows to spines such that no link is overloaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/exact/cdcl_solver.hpp"

namespace scalemodel {

/// Load that a set of flows puts on one side of a leaf: its uplinks or its downlinks.
struct SideLoad {
  std::int32_t side;
  double load;
};

/// Sets whose loads together fill one link of a side exactly.
struct ExactPacking {
  std::int32_t side;
  std::vector<std::int32_t> sets;  ///< two or more
};

/// Assigns a plane (a spine, or one of its parallel cables) to every set under one link load
/// constraint per side and plane: the loads of the sets on a link do not exceed its capacity. The
/// constraint appears in two forms. Two sets conflict where a side cannot carry both on one link;
/// a side whose sets conflict pairwise and are as many as its planes has an all-different
/// constraint, so every plane is taken. On a side with exact packings every link is filled by one
/// of them or by a set that fills a link alone. Three or more sets that overload a link without a
/// conflict are not excluded.
///
/// Tight instances need clause learning: large sets leave capacity that few combinations fill, and
/// tabu search on the number of conflicts or plain backtracking often ends far from a solution.
class SpineAssignment final : public CdclSolver {
 public:
  /// `capacity`: by side and plane; 0 closes the plane to the side. A side has either all of its
  /// `packings` or none. Preconditions: the open links of a side have equal capacities; at least
  /// one set.
  SpineAssignment(std::span<const std::vector<SideLoad>> sets, std::span<const double> capacity,
                  std::int32_t planes, std::span<const ExactPacking> packings = {});

 private:
  struct Member {
    std::int32_t set;
    double load;
  };
  /// The link load constraints of one side, over all planes.
  struct LinkLoads {
    std::vector<Member> members;         ///< sets with load on the side, the largest first
    std::vector<std::int32_t> packings;  ///< numbers of its exact packings
    std::vector<double> capacity;        ///< by plane
    double open_capacity = 0;            ///< capacity of an open link
    std::size_t clique_size = 0;         ///< the first members that conflict pairwise
  };

  void append_implications(Literal assigned, std::vector<Literal>& into) const override;
  void find_conflicts(std::span<const std::vector<SideLoad>> sets);
  void close_planes(std::span<const std::vector<SideLoad>> sets, std::span<const double> capacity);
  void require_all_different(const LinkLoads& side);
  void require_packings(const LinkLoads& side);
  void break_symmetry();

  std::vector<LinkLoads> sides_;
  std::span<const ExactPacking> packings_;
  std::vector<std::vector<std::int32_t>> conflicts_;         ///< by set: sets that it excludes
  std::vector<std::vector<std::int32_t>> packings_with_;     ///< by set: packings that contain it
  std::vector<std::vector<std::int32_t>> packings_without_;  ///< by set: the others of its sides
  bool interchangeable_ = true;                              ///< every plane is open to every set
};

}  // namespace scalemodel
