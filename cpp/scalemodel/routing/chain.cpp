#include "scalemodel/routing/chain.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace scalemodel {

ChainMover::ChainMover(const RoutingInstance& instance, DrainState& state)
    : instance_(instance), state_(state), last_moved_(instance.size(), 0) {
  for (std::size_t f = 0; f < instance.size(); ++f) {
    from_.push_back(instance.graph.leaf_of(instance.flows.source[f]));
    to_.push_back(instance.graph.leaf_of(instance.flows.destination[f]));
  }
}

std::int32_t ChainMover::plane_of(std::int32_t flow) const {
  const PathSets& paths = instance_.paths;
  return paths.via[paths.path_first[paths.set[flow]] + state_.choice()[flow]];
}

std::int32_t ChainMover::link(Side side, std::int32_t leaf, std::int32_t plane) const {
  const TwoTier& tiers = instance_.graph.two_tier();
  return (side == Side::up ? tiers.up : tiers.down)[tiers.at(leaf, plane)];
}

std::int32_t ChainMover::leaf(Side side, std::int32_t flow) const {
  return (side == Side::up ? from_ : to_)[flow];
}

void ChainMover::shift(std::int32_t flow, std::int32_t position) {
  moved_.emplace_back(flow, state_.choice()[flow]);
  last_moved_[flow] = chain_;
  state_.move(flow, position);
}

void ChainMover::extend(Side side, std::int32_t leaf_number, std::int32_t lost,
                        std::int32_t gained) {
  const std::int32_t most = 4 * instance_.graph.two_tier().leaves;
  for (std::int32_t step = 0; step < most; ++step) {
    const std::int32_t full = link(side, leaf_number, gained);
    const std::int32_t empty = link(side, leaf_number, lost);
    double least = state_.excess_with(full, 0) + state_.excess_with(empty, 0);
    std::int32_t follower = PathSets::kNone, place = PathSets::kNone;
    for (const std::int32_t flow : state_.flows_on(full)) {
      if (last_moved_[flow] == chain_) continue;
      const double bytes = instance_.flows.bytes[flow];
      const double excess = state_.excess_with(full, -bytes) + state_.excess_with(empty, bytes);
      if (excess >= least) continue;
      const std::int32_t position = instance_.position_of_plane(flow, lost);
      if (position == PathSets::kNone) continue;
      least = excess;
      follower = flow;
      place = position;
    }
    if (follower == PathSets::kNone) return;
    shift(follower, place);
    side = side == Side::up ? Side::down : Side::up;
    leaf_number = leaf(side, follower);
    std::swap(lost, gained);
  }
}

void ChainMover::try_chain(double temperature, SplitMix& random) {
  const auto overfull = state_.overfull();
  const std::int32_t start = overfull[random.below(static_cast<std::int32_t>(overfull.size()))];
  const auto users = state_.flows_on(start);
  const std::int32_t flow = users[random.below(static_cast<std::int32_t>(users.size()))];
  const std::int32_t position = random.below(instance_.paths_of(flow));
  if (position == state_.choice()[flow]) return;
  const double before = state_.excess();
  ++chain_;
  moved_.clear();
  const std::int32_t old_plane = plane_of(flow);
  shift(flow, position);
  const std::int32_t new_plane = plane_of(flow);
  extend(Side::down, to_[flow], old_plane, new_plane);
  extend(Side::up, from_[flow], old_plane, new_plane);
  const double worse = state_.excess() - before;
  if (worse <= 0 || random.unit() < std::exp(-worse / temperature)) return;
  for (std::size_t i = moved_.size(); i-- > 0;) state_.move(moved_[i].first, moved_[i].second);
}

}  // namespace scalemodel
