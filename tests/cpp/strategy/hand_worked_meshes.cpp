// Meshes of layer groups as parameters see them, and networks without start-up times.
#include "scalemodel/strategy/mesh.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

TEST_CASE("by hand: ranks that share out a sequence are replicas or shards of parameters") {
  // 4 x 2 x 8 ranks: the matrices in four, each part in 2 x 8 shards.
  const Mesh mesh = parse_mesh("tp@4+cp@2+fsdp@8", 64).of_parameters();
  CHECK(mesh.degree(Parallelism::tp) == 4);
  CHECK(mesh.degree(Parallelism::cp) == 1);
  CHECK(mesh.degree(Parallelism::fsdp) == 16);
  CHECK(mesh.ranks() == 64);
}

TEST_CASE("a network without latency starts at once, inside a domain and beyond") {
  Ablation ablation;
  ablation.latency = false;
  const Cluster ideal = ablated(testing::reference_cluster(64), ablation);
  const GroupShape across = group_shape(ideal, 16, 1), inside = group_shape(ideal, 8, 1);
  const auto time = [&](Bytes size, const GroupShape& group) {
    return collective_time(Collective::all_gather, size, group, ideal).base();
  };
  for (const GroupShape& group : {across, inside}) {
    CHECK(time(2 * unit::MB, group) == testing::Approx(2 * time(1 * unit::MB, group)));
  }
  CHECK(ideal.fabric.p2p_latency + ideal.scale_up.p2p_latency == Seconds{});
}

}  // namespace
}  // namespace scalemodel
