// Alternating chains between two planes of a two-tier fabric.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/drain_state.hpp"
#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Moves flows between two planes so that what one end of a flow gains is given back there by a
/// flow of about the same size, as a Kempe chain does for equal flows: a flow of an overfull link
/// changes from plane a to b; at each of its leaves the flow on b whose return to a leaves the
/// least squared excess follows, if that is better than none, and so on from that flow's other
/// leaf.
class ChainMover {
 public:
  ChainMover(const RoutingInstance& instance, DrainState& state);

  /// One chain from a random flow of a random overfull link; undone unless the excess falls or
  /// exp(-growth / temperature) lets it pass. Precondition: some link is overfull.
  void try_chain(double temperature, SplitMix& random);

 private:
  enum class Side : std::uint8_t { up, down };

  void shift(std::int32_t flow, std::int32_t position);
  void extend(Side side, std::int32_t leaf, std::int32_t lost, std::int32_t gained);
  std::int32_t plane_of(std::int32_t flow) const;
  std::int32_t link(Side side, std::int32_t leaf, std::int32_t plane) const;
  std::int32_t leaf(Side side, std::int32_t flow) const;

  const RoutingInstance& instance_;
  DrainState& state_;
  std::vector<std::int32_t> from_, to_;   ///< leaves, by flow
  std::vector<std::int32_t> last_moved_;  ///< by flow: chain that moved it last
  std::int32_t chain_ = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> moved_;  ///< flow, position before
};

}  // namespace scalemodel
