// Dividing the flows of two planes anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/drain_state.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Euler split for unequal flows: at every leaf the flows of two planes, ordered by size, become
/// partners two by two, and partners go to different planes. Paths and cycles of partners can be
/// turned as a whole; each takes the turn that leaves less squared excess, then all again while
/// that helps. Random factors on the sizes make other partners each time. Flows that can use one of
/// the two planes only stay where they are.
class Resplitter {
 public:
  Resplitter(const RoutingInstance& instance, DrainState& state, double target);

  /// One division of the plane of a random overfull link and another one; undone unless the excess
  /// falls or exp(-growth / temperature) lets it pass. Precondition: some link is overfull.
  void try_split(double temperature, double jitter, SplitMix& random);

 private:
  struct Member {
    std::int32_t flow;
    std::array<std::int32_t, 2> row;      ///< of its leaf: what leaves, what enters
    std::array<std::int32_t, 2> partner;  ///< at that leaf
    std::int32_t plane;                   ///< first or second
  };

  void gather();
  void pair_up(int side, double jitter, SplitMix& random);
  void divide(SplitMix& random);
  void improve();
  double excess(std::int32_t row, int plane, double bytes) const;
  double change_of_turn(std::size_t component);
  void turn(std::size_t component);
  std::int32_t link(std::int32_t row, int plane) const;

  const RoutingInstance& instance_;
  DrainState& state_;
  double target_;
  std::vector<std::int32_t> plane_of_link_;
  std::array<std::int32_t, 2> planes_{};
  std::vector<Member> members_;
  std::vector<std::int32_t> order_, row_first_;
  std::vector<double> key_;
  std::vector<std::int32_t> component_first_, component_;
  std::vector<double> load_;   ///< bytes, by row and plane
  std::vector<double> delta_;  ///< bytes moved from the first to the second plane, by row
  std::vector<std::int32_t> touched_;
  std::vector<double> per_byte_;  ///< seconds, by row and plane
};

}  // namespace scalemodel
