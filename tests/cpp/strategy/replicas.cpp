#include "scalemodel/strategy/replicas.hpp"

#include <array>

#include "support.hpp"

namespace scalemodel {
namespace {

Cluster cluster_of(int nodes) {
  Cluster cluster;
  cluster.node_accelerators = 8;
  cluster.accelerators = 8 * nodes;
  return cluster;
}

Placement placement_of(std::string_view name) { return *enum_from<Placement>(name); }

ReplicaLayout layout_of(const Strategy& strategy, int nodes) {
  Task task;
  task.global_batch = 1024;
  const Cluster cluster = cluster_of(nodes);
  return {strategy, cluster, resolve_degrees(strategy, cluster, task)};
}

std::vector<std::int32_t> on(const ReplicaLayout& layout, std::int32_t node) {
  return layout.on(std::array{node});
}

TEST_CASE("a replica holds the whole state") {
  Strategy s;
  s.tp = 4;
  s.sharding = Sharding::ddp;
  CHECK(layout_of(s, 4).replicas() == 8);
  s.sharding = Sharding::zero1;
  CHECK(layout_of(s, 4).replicas() == 1);
  s.sharding = Sharding::hsdp;
  s.shard_degree = 2;
  CHECK(layout_of(s, 4).replicas() == 4);
  s.shard_degree = 8;
  CHECK(layout_of(s, 4).replicas() == 1);
  // Eight experts' ranks span two data-parallel ranks of four.
  s.sharding = Sharding::ddp;
  s.ep = 8;
  CHECK(layout_of(s, 4).replicas() == 4);
  // Context ranks of a shard group count before its data ranks.
  s.ep = 1;
  s.tp = 2;
  s.cp = 2;
  s.sharding = Sharding::hsdp;
  s.shard_degree = 4;
  CHECK(layout_of(s, 4).replicas() == 4);
}

TEST_CASE("a lost node takes the replicas along that have ranks on it") {
  Strategy s;
  s.tp = 4;
  s.pp = 4;
  s.sharding = Sharding::ddp;
  // Data ranks inside stages: two replicas share each of four nodes.
  s.placement = placement_of("tp-cp-dp-pp");
  const ReplicaLayout inside = layout_of(s, 8);
  CHECK(inside.replicas() == 4);
  CHECK(on(inside, 0) == std::vector<std::int32_t>{0, 1});
  CHECK(on(inside, 1) == std::vector<std::int32_t>{2, 3});
  CHECK(on(inside, 2) == std::vector<std::int32_t>{0, 1});
  CHECK(inside.units() == 2);
  CHECK(inside.apart(2) == std::vector<std::int32_t>{0, 1});
  // Stages inside replicas: each fills two nodes of its own.
  s.placement = placement_of("tp-cp-pp-dp");
  const ReplicaLayout outside = layout_of(s, 8);
  CHECK(on(outside, 1) == std::vector<std::int32_t>{0});
  CHECK(on(outside, 7) == std::vector<std::int32_t>{3});
  CHECK(outside.units() == 4);
  CHECK(outside.apart(3) == std::vector<std::int32_t>{0, 2, 4});
  CHECK(outside.on(outside.apart(3)).size() == 3);
  CHECK(outside.apart(8).size() == 8);
  CHECK(outside.apart(0).empty());
}

TEST_CASE("a node of several small replicas fails as one") {
  Strategy s;
  s.tp = 2;
  s.sharding = Sharding::ddp;
  const ReplicaLayout layout = layout_of(s, 4);
  CHECK(layout.replicas() == 16);
  CHECK(layout.units() == 4);
  CHECK(on(layout, 2) == std::vector<std::int32_t>{8, 9, 10, 11});
}

}  // namespace
}  // namespace scalemodel
