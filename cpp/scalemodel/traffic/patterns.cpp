#include "scalemodel/traffic/patterns.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

/// Parent of a rank in the in-order binary tree over the ranks 1 to `count`: the lowest set bit
/// moves up by one. The root is the largest power of two; its parent is 0.
std::uint32_t tree_parent(std::uint32_t rank, std::uint32_t count) {
  const std::uint32_t bit = rank & (~rank + 1);
  const std::uint32_t above = (rank & ~bit) | (bit << 1U);
  if (above <= count) return above;
  // The full tree has this parent to the right, beyond the ranks: the parent is on the left.
  return rank & ~bit;
}

}  // namespace

void open_job(Flows& flows) { ++flows.jobs; }

void add_ring(Flows& flows, std::span<const std::int32_t> members, Bytes bytes_per_step) {
  if (members.size() < 2) return;
  ++flows.groups;
  poll_point(1 + static_cast<std::int64_t>(members.size()) / 8);
  for (std::size_t i = 0; i + 1 < members.size(); ++i) {
    flows.add(members[i], members[i + 1], bytes_per_step);
  }
  flows.add(members.back(), members.front(), bytes_per_step);
}

void add_all_to_all(Flows& flows, std::span<const std::int32_t> members, Bytes bytes_per_pair) {
  if (members.size() < 2) return;
  ++flows.groups;
  for (const std::int32_t from : members) {
    poll_point(1 + static_cast<std::int64_t>(members.size()) / 8);
    for (const std::int32_t to : members) {
      if (from != to) flows.add(from, to, bytes_per_pair);
    }
  }
}

void add_chain(Flows& flows, std::span<const std::int32_t> members, Bytes bytes, bool both_ways) {
  for (std::size_t i = 0; i + 1 < members.size(); ++i) {
    ++flows.groups;
    flows.add(members[i], members[i + 1], bytes);
    if (both_ways) flows.add(members[i + 1], members[i], bytes);
  }
}

void add_double_binary_tree(Flows& flows, std::span<const std::int32_t> members, Bytes size) {
  const auto count = static_cast<std::uint32_t>(members.size());
  if (count < 2) return;
  ++flows.groups;
  const auto add_tree = [&](std::uint32_t shift) {
    // Rank r of the tree is member (r - 1 + shift) mod count: with a shift by one, leaves (odd
    // ranks) become inner nodes.
    const auto member = [&](std::uint32_t rank) { return members[(rank - 1 + shift) % count]; };
    for (std::uint32_t rank = 1; rank <= count; ++rank) {
      const std::uint32_t parent = tree_parent(rank, count);
      if (parent == 0) continue;
      flows.add(member(rank), member(parent), 0.5 * size);
      flows.add(member(parent), member(rank), 0.5 * size);
    }
  };
  add_tree(0);
  add_tree(1);
}

void add_in_network(Flows& flows, std::span<const std::int32_t> members, Bytes size) {
  add_ring(flows, members, size);
}

void add_decomposed_rings(Flows& flows, std::span<const std::int32_t> members,
                          std::span<const std::int32_t> shape, Bytes size) {
  std::size_t count = 1;
  for (const std::int32_t extent : shape) {
    count *= static_cast<std::size_t>(std::max(extent, 0));
  }
  if (count != members.size()) {
    throw MalformedQuestion("shape: has " + std::to_string(count) +
                            " members where the group has " + std::to_string(members.size()));
  }
  std::size_t stride = 1;
  std::vector<std::int32_t> ring;
  for (const std::int32_t extent : shape) {
    const auto ranks = static_cast<std::size_t>(extent);
    const double share = 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i / stride % ranks != 0) continue;  // not the first of its ring
      ring.clear();
      for (std::size_t r = 0; r < ranks; ++r) ring.push_back(members[i + r * stride]);
      add_ring(flows, ring, share / static_cast<double>(stride) * size);
    }
    stride *= ranks;
  }
}

void add_copy_rings(Flows& flows, std::span<const std::int32_t> nics, std::int32_t copies,
                    Bytes bytes_per_step) {
  const std::size_t copy = nics.size() / copies;
  std::vector<std::int32_t> ring(copies);
  for (std::size_t i = 0; i < copy; ++i) {
    for (std::int32_t c = 0; c < copies; ++c) ring[c] = nics[c * copy + i];
    add_ring(flows, ring, bytes_per_step);
  }
}

void add_pattern(Flows& flows, TrafficPattern pattern, std::span<const std::int32_t> members,
                 Bytes size) {
  switch (pattern) {
    case TrafficPattern::ring:
      if (!members.empty()) add_ring(flows, members, size / static_cast<double>(members.size()));
      return;
    case TrafficPattern::all_to_all:
      add_all_to_all(flows, members, size);
      return;
    case TrafficPattern::chain:
      add_chain(flows, members, size, false);
      return;
    case TrafficPattern::double_binary_tree:
      add_double_binary_tree(flows, members, size);
      return;
    case TrafficPattern::in_network:
      add_in_network(flows, members, size);
      return;
  }
}

std::int32_t pattern_steps(TrafficPattern pattern, std::int32_t members) {
  return pattern == TrafficPattern::ring ? std::max(2 * (members - 1), 1) : 1;
}

}  // namespace scalemodel
