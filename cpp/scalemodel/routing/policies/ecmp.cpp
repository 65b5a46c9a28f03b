#include "scalemodel/routing/policies/ecmp.hpp"

#include <bit>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {
namespace {

std::int32_t wrapping_sum(std::int32_t a, std::int32_t b) {
  return std::bit_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

/// Position of the path of a flow whose connection has the hash `key`.
std::int32_t hashed_path(const RoutingInstance& instance, std::size_t flow, std::int32_t key) {
  poll_point();
  const std::int32_t leaf = instance.graph.end_switch(instance.flows.source[flow]);
  const auto hash = static_cast<std::uint32_t>(ecmp_hash(wrapping_sum(leaf, key)));
  return static_cast<std::int32_t>(hash % static_cast<std::uint32_t>(instance.paths_of(flow)));
}

}  // namespace

std::int32_t ecmp_hash(std::int32_t value) {
  auto a = static_cast<std::uint32_t>(value);
  const auto shifted_right = [](std::uint32_t bits, int places) {
    return static_cast<std::uint32_t>(std::bit_cast<std::int32_t>(bits) >> places);
  };
  a = (a + 0x7ed55d16U) + (a << 12U);
  a = (a ^ 0xc761c23cU) ^ shifted_right(a, 19);
  a = (a + 0x165667b1U) + (a << 5U);
  a = (a + 0xd3a2646cU) ^ (a << 9U);
  a = (a + 0xfd7046c5U) + (a << 3U);
  a = (a ^ 0xb55a4f09U) ^ shifted_right(a, 16);
  const auto result = std::bit_cast<std::int32_t>(a);
  return result < 0 ? std::bit_cast<std::int32_t>(~a + 1U) : result;
}

Choice ecmp(const RoutingInstance& instance) {
  Choice choice(instance.size(), PathSets::kNone);
  for (std::size_t f = 0; f < choice.size(); ++f) {
    if (instance.paths_of(f) == 0) continue;
    const std::int32_t source = instance.graph.nic_node(instance.flows.source[f]);
    const std::int32_t destination = instance.graph.nic_node(instance.flows.destination[f]);
    const std::int32_t key = ecmp_hash(wrapping_sum(source, ecmp_hash(destination)));
    choice[f] = hashed_path(instance, f, key);
  }
  return choice;
}

Routing subflow_ecmp(const RoutingInstance& instance, std::int32_t parts) {
  Routing routing;
  for (std::size_t f = 0; f < instance.size(); ++f) {
    const std::int32_t source = instance.graph.nic_node(instance.flows.source[f]);
    const std::int32_t destination = instance.graph.nic_node(instance.flows.destination[f]);
    const bool routed = instance.paths_of(f) > 0;
    const std::int32_t count = routed ? parts : 1;
    for (std::int32_t q = 0; q < count; ++q) {
      const std::int32_t port = ecmp_hash(wrapping_sum(destination, ecmp_hash(q)));
      const std::int32_t key = ecmp_hash(wrapping_sum(source, port));
      routing.choice.push_back(routed ? hashed_path(instance, f, key) : PathSets::kNone);
      routing.share.push_back(1.0 / count);
    }
    routing.first.push_back(static_cast<std::int32_t>(routing.choice.size()));
  }
  return routing;
}

}  // namespace scalemodel
