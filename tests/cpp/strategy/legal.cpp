#include "scalemodel/strategy/legal.hpp"

#include <set>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::degrees;

/// A question with an answer, from which each case breaks one rule.
struct Case {
  DecoderShape shape = testing::dense_7b_shape();
  Cluster cluster = testing::reference_cluster(64);
  Task task = testing::training(256, 4096);
  Strategy strategy = degrees(4, 2);
};

Reason verdict(const Case& c) {
  return testing::estimate(c.shape, c.cluster, c.task, c.strategy).verdict;
}

std::set<Reason> reached;

/// Verdict after `change`, noted as reached.
template <class Change>
Reason after(Change&& change) {
  Case c;
  change(c);
  const Reason reason = verdict(c);
  reached.insert(reason);
  return reason;
}

void use_experts(Case& c) {
  c.shape = testing::experts_8x7b_shape();
  c.strategy = degrees(4, 2, 1, 8);
  c.strategy.sharding = Sharding::zero3;
}

TEST_CASE("every reason has a question that it answers") {
  reached.clear();
  CHECK(after([](Case&) {}) == Reason::ok);
  CHECK(after([](Case& c) { c.strategy.micro_batch = 32; }) == Reason::out_of_memory);
  CHECK(after([](Case& c) { c.strategy.dp = 4; }) == Reason::mesh);
  CHECK(after([](Case& c) { c.shape.heads = 30, c.shape.kv_heads = 15; }) == Reason::tp_heads);
  CHECK(after([](Case& c) { c.shape.ffn = 11010; }) == Reason::tp_ffn);
  CHECK(after([](Case& c) { c.shape.layers = 1; }) == Reason::pp_layers);
  CHECK(after([](Case& c) {
          c.strategy = degrees(8);
          c.strategy.vpp = 2;
        }) == Reason::vpp_without_pp);
  CHECK(after([](Case& c) { c.strategy.schedule = Schedule::interleaved; }) ==
        Reason::vpp_schedule);
  CHECK(after([](Case& c) {
          c.strategy.schedule = Schedule::dualpipe;
          c.task.global_batch = 24;
        }) == Reason::dualpipe_stages);
  CHECK(after([](Case& c) {
          c.strategy.schedule = Schedule::dualpipe_v;
          c.task.global_batch = 24;
        }) == Reason::dualpipe_v_batches);
  CHECK(after([](Case& c) { c.strategy.cp = 2, c.task.sequence = 4097; }) == Reason::cp_sequence);
  CHECK(after([](Case& c) {
          c.strategy.cp = 8;
          c.strategy.context = ContextParallel::all_to_all;
          c.shape.heads = 16;
        }) == Reason::cp_heads);
  CHECK(after([](Case& c) { c.task.sequence = 4098; }) == Reason::sp_sequence);
  CHECK(after([](Case& c) { c.strategy.ep = 2; }) == Reason::ep_experts);
  CHECK(after([](Case& c) {
          use_experts(c);
          c.strategy.etp = 8;
        }) == Reason::ep_mesh);
  CHECK(after([](Case& c) {
          use_experts(c);
          c.strategy.ep = 2;
          c.strategy.etp = 4;
          c.shape.expert_ffn = 14338;
        }) == Reason::etp_ffn);
  CHECK(after([](Case& c) { c.task.global_batch = 255; }) == Reason::batch);
  CHECK(after([](Case& c) {
          c.strategy.sharding = Sharding::hsdp;
          c.strategy.shard_degree = 3;
        }) == Reason::shard_degree);
  CHECK(after([](Case& c) { c.strategy.quantized_gather = true; }) == Reason::quantized_sharding);
  CHECK(after([](Case& c) {
          c.strategy.sharding = Sharding::zero3;
          c.strategy.secondary_degree = 3;
        }) == Reason::secondary_degree);
  CHECK(after([](Case& c) {
          c.strategy.recompute = Recompute::full;
          c.strategy.recompute_layers = 33;
        }) == Reason::recompute_layers);
  CHECK(after([](Case& c) { c.task.precision = Precision::fp4; }) == Reason::precision);
  CHECK(after([](Case& c) {
          c.strategy.offload_optimizer = true;
          c.cluster.host_memory = 1 * unit::GB;
        }) == Reason::offload);
  CHECK(reached.size() == EnumNames<Reason>::names.size());
}

TEST_CASE("further ways to break the same rules") {
  CHECK(after([](Case& c) { c.strategy.quantized_reduce = true; }) == Reason::quantized_sharding);
  CHECK(after([](Case& c) { c.strategy.secondary_degree = 2; }) == Reason::secondary_degree);
  CHECK(after([](Case& c) {
          c.strategy.sharding = Sharding::hsdp;
          c.strategy.shard_degree = 4;
          c.strategy.secondary_degree = 8;
        }) == Reason::secondary_degree);
  CHECK(after([](Case& c) {
          c.strategy.sharding = Sharding::hsdp;
          c.strategy.shard_degree = 4;
          c.strategy.secondary_degree = 2;
          c.strategy.quantized_gather = c.strategy.quantized_reduce = true;
        }) == Reason::ok);
  CHECK(after([](Case& c) { c.strategy = degrees(64, 2); }) == Reason::mesh);
  CHECK(after([](Case& c) { c.strategy = degrees(3); }) == Reason::mesh);
  CHECK(after([](Case& c) { c.strategy.vpp = 18; }) == Reason::pp_layers);
  CHECK(after([](Case& c) {
          c.strategy.vpp = 2;
          c.strategy.schedule = Schedule::gpipe;
        }) == Reason::vpp_schedule);
  CHECK(after([](Case& c) {
          c.strategy.vpp = 2;
          c.strategy.schedule = Schedule::dualpipe;
        }) == Reason::vpp_schedule);
  CHECK(after([](Case& c) {
          c.strategy = degrees(8, 1);
          c.strategy.schedule = Schedule::dualpipe;
        }) == Reason::dualpipe_stages);
  CHECK(after([](Case& c) {
          c.strategy.vpp = 2;
          c.strategy.schedule = Schedule::zero_bubble_v;
        }) == Reason::vpp_schedule);
  CHECK(after([](Case& c) {
          use_experts(c);
          c.strategy.ep = 3;
        }) == Reason::ep_experts);
  CHECK(after([](Case& c) {
          use_experts(c);
          c.shape.shared_experts = 1;
          c.shape.shared_ffn = 1001;
        }) == Reason::tp_ffn);
  // Tensor parallelism over FP16 where the accelerator stores in a format it cannot compute.
  CHECK(after([](Case& c) {
          c.task.precision = Precision::fp8;
          c.cluster.accelerator.peak[static_cast<std::size_t>(Precision::bf16)] = FlopPerSecond{};
        }) == Reason::precision);
}

TEST_CASE("every tp goes with every ep whose product with etp divides the ranks of a stage") {
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4}) {
      for (const int ep : {1, 2, 4, 8}) {
        for (const int etp : {0, 1, 2, 4, 8}) {
          Case c;
          use_experts(c);
          c.strategy = degrees(tp, pp, 1, ep);
          c.strategy.etp = static_cast<std::uint8_t>(etp);
          CAPTURE(tp);
          CAPTURE(pp);
          CAPTURE(ep);
          CAPTURE(etp);
          const Degrees d = resolve_degrees(c.strategy, c.cluster, c.task);
          CHECK(d.etp == (etp > 0 ? etp : ep > 1 ? 1 : tp));
          const bool divides = 64 / pp % (ep * d.etp) == 0;
          const Reason reason = verdict(c);
          CHECK(reason == (divides ? reason : Reason::ep_mesh));
          CHECK(is_illegal(reason) == !divides);
        }
      }
    }
  }
}

TEST_CASE("a degree left out is derived so that the mesh fills the cluster") {
  const Task task = testing::training(256, 4096);
  for (const int accelerators : {8, 64, 512}) {
    const Cluster cluster = testing::reference_cluster(accelerators);
    for (const int tp : {1, 2, 4}) {
      for (const int pp : {1, 2}) {
        const Strategy strategy = degrees(tp, pp);
        const Degrees d = resolve_degrees(strategy, cluster, task);
        CHECK(d.tp * d.pp * d.cp * d.dp == accelerators);
        CHECK(d.inner() * d.pp == accelerators);
        CHECK(d.micro_batches * d.dp * d.micro_batch == task.global_batch);
      }
    }
  }
}

TEST_CASE("a sharding group is every replica, one rank, or what HSDP names") {
  const Cluster cluster = testing::reference_cluster(64);
  const Task task = testing::training(256, 4096);
  Strategy s = degrees(2, 2, 2);
  const auto shard = [&](Sharding sharding, int degree = 0) {
    s.sharding = sharding;
    s.shard_degree = static_cast<std::uint16_t>(degree);
    return resolve_degrees(s, cluster, task).shard;
  };
  CHECK(shard(Sharding::ddp) == 1);
  CHECK(shard(Sharding::zero1) == 16);
  CHECK(shard(Sharding::zero2) == 16);
  CHECK(shard(Sharding::zero3) == 16);
  CHECK(shard(Sharding::hsdp, 8) == 8);
  CHECK(shard(Sharding::hsdp) == 4);  // the ranks of a node that hold the same slice of a layer
}

TEST_CASE("an estimate of what cannot run carries the reason and nothing else") {
  Case c;
  c.strategy.dp = 4;
  const Estimate e = testing::estimate(c.shape, c.cluster, c.task, c.strategy);
  CHECK(e.verdict == Reason::mesh);
  CHECK(e.step_time == Seconds{});
  CHECK(e.memory == Bytes{});
  CHECK(e.energy == Joules{});
}

}  // namespace
}  // namespace scalemodel
