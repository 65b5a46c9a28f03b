#include "scalemodel/routing/resplit.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {
namespace {

constexpr std::int32_t kNobody = -1;

}  // namespace

Resplitter::Resplitter(const RoutingInstance& instance, DrainState& state, double target)
    : instance_(instance),
      state_(state),
      target_(target),
      plane_of_link_(instance.graph.links(), kNobody) {
  const TwoTier& tiers = instance.graph.two_tier();
  for (std::int32_t leaf = 0; leaf < tiers.leaves; ++leaf) {
    for (std::int32_t plane = 0; plane < tiers.planes; ++plane) {
      plane_of_link_[tiers.up[tiers.at(leaf, plane)]] = plane;
      plane_of_link_[tiers.down[tiers.at(leaf, plane)]] = plane;
    }
  }
  load_.assign(4 * static_cast<std::size_t>(tiers.leaves), 0.0);
  per_byte_.assign(load_.size(), 0.0);
  delta_.assign(2 * static_cast<std::size_t>(tiers.leaves), 0.0);
}

std::int32_t Resplitter::link(std::int32_t row, int plane) const {
  const TwoTier& tiers = instance_.graph.two_tier();
  return row < tiers.leaves ? tiers.up[tiers.at(row, planes_[plane])]
                            : tiers.down[tiers.at(row - tiers.leaves, planes_[plane])];
}

/// The flows of both planes that may use either; the others count as load that stays.
void Resplitter::gather() {
  const TwoTier& tiers = instance_.graph.two_tier();
  members_.clear();
  std::ranges::fill(load_, 0.0);
  for (std::int32_t row = 0; row < 2 * tiers.leaves; ++row) {
    for (const int plane : {0, 1}) {
      const std::int32_t l = link(row, plane);
      const BytesPerSecond capacity = instance_.graph.capacity(l);
      per_byte_[2 * row + plane] = capacity.base() > 0 ? 1 / capacity.base() : 0.0;
      for (const std::int32_t flow : state_.flows_on(l)) {
        load_[2 * row + plane] += instance_.flows.bytes[flow];
        if (row >= tiers.leaves || instance_.position_of_plane(flow, planes_[1 - plane]) == kNobody)
          continue;
        const std::int32_t to = instance_.graph.leaf_of(instance_.flows.destination[flow]);
        members_.push_back({flow, {row, tiers.leaves + to}, {kNobody, kNobody}, plane});
      }
    }
  }
}

/// Neighbours in the order of sizes become partners at one end.
void Resplitter::pair_up(int side, double jitter, SplitMix& random) {
  key_.resize(members_.size());
  order_.resize(members_.size());
  for (std::size_t m = 0; m < members_.size(); ++m) {
    order_[m] = static_cast<std::int32_t>(m);
    key_[m] = instance_.flows.bytes[members_[m].flow] * (1 + jitter * (random.unit() - 0.5));
  }
  std::ranges::sort(order_, [&](std::int32_t a, std::int32_t b) {
    const std::int32_t row_a = members_[a].row[side], row_b = members_[b].row[side];
    return row_a != row_b ? row_a < row_b : key_[a] > key_[b];
  });
  for (std::size_t i = 0; i + 1 < order_.size(); ++i) {
    Member& one = members_[order_[i]];
    Member& two = members_[order_[i + 1]];
    if (one.row[side] != two.row[side]) continue;
    one.partner[side] = order_[i + 1];
    two.partner[side] = order_[i];
    ++i;
  }
}

/// Components of partners, alternating between the planes from a random start.
void Resplitter::divide(SplitMix& random) {
  for (const Member& m : members_) {
    for (const int side : {0, 1}) {
      load_[2 * m.row[side] + m.plane] -= instance_.flows.bytes[m.flow];
    }
  }
  std::size_t next = 0;
  component_.clear();
  component_first_.assign(1, 0);
  for (Member& m : members_) m.plane = kNobody;
  for (; next < members_.size(); ++next) {
    if (members_[next].plane != kNobody) continue;
    members_[next].plane = static_cast<std::int32_t>(random.next() & 1U);
    component_.push_back(static_cast<std::int32_t>(next));
    for (const int first_side : {0, 1}) {
      int side = first_side;
      auto at = static_cast<std::int32_t>(next);
      for (std::int32_t other = members_[at].partner[side];
           other != kNobody && members_[other].plane == kNobody;
           other = members_[at].partner[side]) {
        members_[other].plane = 1 - members_[at].plane;
        component_.push_back(other);
        at = other;
        side = 1 - side;
      }
    }
    component_first_.push_back(static_cast<std::int32_t>(component_.size()));
  }
  for (const Member& m : members_) {
    for (const int side : {0, 1}) {
      load_[2 * m.row[side] + m.plane] += instance_.flows.bytes[m.flow];
    }
  }
}

double Resplitter::excess(std::int32_t row, int plane, double bytes) const {
  const double over =
      std::max((load_[2 * row + plane] + bytes) * per_byte_[2 * row + plane] - target_, 0.0);
  return over * over;
}

double Resplitter::change_of_turn(std::size_t component) {
  touched_.clear();
  for (std::int32_t i = component_first_[component]; i < component_first_[component + 1]; ++i) {
    const Member& m = members_[component_[i]];
    const double bytes = (m.plane == 0 ? 1.0 : -1.0) * instance_.flows.bytes[m.flow];
    for (const std::int32_t row : m.row) {
      touched_.push_back(row);
      delta_[row] += bytes;
    }
  }
  double change = 0;
  for (const std::int32_t row : touched_) {
    const double moved = delta_[row];
    delta_[row] = 0;
    if (moved == 0.0) continue;
    change +=
        excess(row, 0, -moved) + excess(row, 1, moved) - excess(row, 0, 0) - excess(row, 1, 0);
  }
  return change;
}

void Resplitter::turn(std::size_t component) {
  for (std::int32_t i = component_first_[component]; i < component_first_[component + 1]; ++i) {
    Member& m = members_[component_[i]];
    const double bytes = instance_.flows.bytes[m.flow];
    for (const std::int32_t row : m.row) {
      load_[2 * row + m.plane] -= bytes;
      load_[2 * row + 1 - m.plane] += bytes;
    }
    m.plane = 1 - m.plane;
  }
}

void Resplitter::improve() {
  constexpr int kPasses = 4;
  bool changed = true;
  for (int pass = 0; pass < kPasses && changed; ++pass) {
    changed = false;
    for (std::size_t c = 0; c + 1 < component_first_.size(); ++c) {
      if (change_of_turn(c) >= 0) continue;
      turn(c);
      changed = true;
    }
  }
}

void Resplitter::try_split(double temperature, double jitter, SplitMix& random) {
  const std::int32_t planes = instance_.graph.two_tier().planes;
  if (planes < 2) return;
  const auto overfull = state_.overfull();
  const std::int32_t start = overfull[random.below(static_cast<std::int32_t>(overfull.size()))];
  planes_[0] = plane_of_link_[start];
  planes_[1] = random.below(planes - 1);
  planes_[1] += planes_[1] >= planes_[0] ? 1 : 0;
  gather();
  double before = 0, after = 0;
  const auto rows = static_cast<std::int32_t>(delta_.size());
  for (std::int32_t row = 0; row < rows; ++row) before += excess(row, 0, 0) + excess(row, 1, 0);
  pair_up(0, jitter, random);
  pair_up(1, jitter, random);
  divide(random);
  improve();
  for (std::int32_t row = 0; row < rows; ++row) after += excess(row, 0, 0) + excess(row, 1, 0);
  const double worse = after - before;
  if (worse > 0 && random.unit() >= std::exp(-worse / temperature)) return;
  for (const Member& m : members_) {
    const std::int32_t to = instance_.position_of_plane(m.flow, planes_[m.plane]);
    if (state_.choice()[m.flow] != to) state_.move(m.flow, to);
  }
}

}  // namespace scalemodel
