// Meshes of layer groups as parameters see them, and networks without start-up times.
#include "scalemodel/base/error.hpp"
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

TEST_CASE("of an ideal network and memory every byte takes the stated share of the peak") {
  Ablation ablation;
  ablation.gemm_fraction = ablation.memory_fraction = ablation.network_fraction = 0.5;
  ablation.latency = false;
  const Cluster real = testing::reference_cluster(64), ideal = ablated(real, ablation);
  CHECK_FALSE(ideal.accelerator.gemm.tiled);
  CHECK(ideal.accelerator.elementwise.norm_fraction == 0.5);
  const auto time = [&](Bytes size, int ranks) {
    return collective_time(Collective::all_gather, size, group_shape(ideal, ranks, 1), ideal);
  };
  // 7 of 8 parts come in over the links of a domain, whatever the size.
  const Seconds wire = 7.0 / 8 * (64 * unit::MB) / (0.5 * real.scale_up.bandwidth);
  CHECK(time(64 * unit::MB, 8).base() == testing::Approx(wire.base()));
  CHECK(time(64 * unit::KB, 8).base() == testing::Approx(wire.base() / 1000));
}

TEST_CASE("a mesh suits the groups that its axes can shard") {
  const auto suited = [](std::string_view text, GroupKind kind, bool experts = false) {
    return suits(parse_mesh(text, 64), kind, experts);
  };
  CHECK(suited("tp@8+ddp", GroupKind::mlp));
  CHECK_FALSE(suited("tp@8+ddp", GroupKind::embedding_tables));
  CHECK(suited("row_wise@8+table_wise", GroupKind::embedding_tables));
  CHECK_FALSE(suited("row_wise@8+table_wise", GroupKind::mlp));
  CHECK(suited("ep@8+ddp", GroupKind::transformer, true));
  CHECK_FALSE(suited("ep@8+ddp", GroupKind::transformer));
  CHECK(suited("cp@2+fsdp", GroupKind::transformer));
  CHECK_FALSE(suited("cp@2+fsdp", GroupKind::mlp));
  CHECK_FALSE(suited("cp@2+fsdp", GroupKind::transformer, true));
}

TEST_CASE("a mesh is read as it is written, and what is wrong with it is said") {
  CHECK(to_text(parse_mesh("tp@8+ddp", 64)) == "tp@8+ddp@8");
  const auto refused = [](const char* text, const char* why) {
    CHECK_THROWS_WITH_AS(parse_mesh(text, 64), doctest::Contains(why), MalformedQuestion);
  };
  refused("tp@8+none", "is none of");
  refused("tp@8+tp@2", "stands there twice");
  refused("tp+ddp", "only one degree");
  refused("tp@0", "whole number");
  refused("tp@10000+ddp@100000", "more than 1e8 ranks");
  refused("tp@2+cp@2+ep@2+ddp@2+fsdp@2", "at most 4 axes");
}

}  // namespace
}  // namespace scalemodel
