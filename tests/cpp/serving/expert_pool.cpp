// Attention and experts on pools of their own: rounds of micro-batches, memory, exchange.
#include "scalemodel/serving/expert_pool.hpp"

#include <array>
#include <memory>

#include "scalemodel/base/error.hpp"
#include "scalemodel/serving/layout.hpp"
#include "scalemodel/serving/step_times.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

constexpr double kSequences = 512;

StepWork decoding(double sequences) {
  StepWork work;
  work.sequences = sequences;
  work.context = 1000;
  return work;
}

ServingLayout apart(std::uint16_t attention, std::uint16_t experts, std::uint16_t micro_batches) {
  ServingLayout layout;
  layout.dp = attention;
  layout.ep = layout.expert_ranks = experts;
  layout.micro_batches = micro_batches;
  return layout;
}

/// No time of the CPU, and none in which ranks wait for each other.
Engine idle_engine() {
  Engine engine = reference_engine();
  engine.step_host = engine.sequence_host = engine.collective_wait = Seconds{};
  return engine;
}

/// Links on which nothing takes time.
Cluster free_network(int accelerators) {
  Cluster cluster = reference_cluster(accelerators);
  cluster.fabric.bandwidth = cluster.scale_up.bandwidth = BytesPerSecond{1e15};
  cluster.fabric.p2p_latency = cluster.scale_up.p2p_latency = Seconds{};
  return cluster;
}

StepTimes pools_on(const Cluster& cluster, const ServingLayout& layout,
                   std::shared_ptr<const ExpertPool> pool = nullptr,
                   const ServingKernels& kernels = reference_kernels()) {
  return {make_decoder(experts_8x7b_shape()),
          cluster,
          idle_engine(),
          kernels,
          layout,
          1,
          0,
          {},
          std::move(pool)};
}

PoolTimes times_of(double attention, double experts, double dispatch, double combine,
                   double waits = 0) {
  return {Seconds{attention}, Seconds{experts}, Seconds{dispatch}, Seconds{combine},
          Seconds{waits}};
}

}  // namespace

TEST_CASE("one micro-batch waits for itself, and many for the slowest place") {
  const PoolTimes each = times_of(3, 4, 1, 2, 0.5);
  CHECK(alternating_time(each, 1) == Seconds{10.5});
  CHECK(alternating_time(each, 2) == Seconds{10.5});  // 2 x 4 < 10.5: the round is not full yet
  CHECK(alternating_time(each, 3) == Seconds{12});
  CHECK(alternating_time(each, 8) == Seconds{32});
}

TEST_CASE("three micro-batches fill the round where the ways take less than either pool") {
  // MegaScale-Infer's second and third conditions: Tc < Tf and m >= 2 (1 + Tc/Tf).
  for (const double way : {0.0, 0.2, 0.49}) {
    CHECK(alternating_time(times_of(1, 1, way, way), 3) == Seconds{3});
  }
  CHECK(alternating_time(times_of(1, 1, 0.6, 0.6), 3) > Seconds{3});
  CHECK(alternating_time(times_of(1, 1, 0.6, 0.6), 4) == Seconds{4});
}

TEST_CASE("what attention does not hide is what the round takes longer") {
  for (const PoolTimes& each : {times_of(3, 4, 1, 2, 0.5), times_of(5, 1, 0.5, 0.5),
                                times_of(1, 1, 6, 2), times_of(1, 9, 2, 2)}) {
    for (const int parts : {1, 2, 3, 4}) {
      const ExposedExperts left = exposed_experts(each, parts);
      const Seconds hidden = alternating_time(each, parts) - parts * each.attention;
      CHECK((left.experts + left.exchange).base() == Approx(hidden.base()));
      CHECK(left.experts >= Seconds{});
      CHECK(left.exchange >= Seconds{});
    }
  }
  CHECK(exposed_experts(times_of(1, 9, 2, 2), 4).exchange == Seconds{});
  CHECK(exposed_experts(times_of(1, 1, 6, 2), 4).experts == Seconds{});
}

TEST_CASE("a step with one micro-batch overlaps nothing, and its causes sum to it") {
  const Cluster cluster = reference_cluster(16);
  const StepTimes one = pools_on(cluster, apart(8, 8, 1));
  const PoolLoad load = one.pools(decoding(kSequences));
  const Seconds sum = load.attention + load.experts + load.dispatch + load.combine;
  CHECK(sum.base() == Approx(load.step.base()));
  for (const std::uint16_t parts : {1, 2, 3, 4, 8}) {
    const StepTime t = pools_on(cluster, apart(8, 8, parts)).of(decoding(kSequences));
    const Seconds causes = t.linear + t.experts + t.prefill_attention + t.decode_attention +
                           t.elementwise + t.head + t.draft + t.encoder + t.tp + t.ep + t.cp +
                           t.pp + t.host;
    CHECK(causes.base() == Approx(t.total.base()));
  }
}

TEST_CASE("no pool is busy for longer than the step, and one of them nearly all of it") {
  const Cluster cluster = reference_cluster(24);
  for (const std::uint16_t attention : {2, 8, 16}) {
    const PoolLoad load =
        pools_on(cluster, apart(attention, 8, 4)).pools(decoding(64.0 * attention));
    const Seconds most = max(max(load.attention, load.experts), max(load.dispatch, load.combine));
    CHECK(most <= load.step * (1 + 1e-12));
    CHECK(most > 0.75 * load.step);
  }
}

TEST_CASE("over a free network the pools compute what they do together") {
  ServingLayout together;
  together.dp = together.ep = 8;
  const Cluster cluster = free_network(16);
  ServingKernels kernels = reference_kernels();  // tokens are sent to their experts' ranks alone
  kernels.sends_tokens = true;
  kernels.received_experts = kernels.experts;
  const StepTime same = pools_on(cluster, together, nullptr, kernels).of(decoding(kSequences));
  const StepTime t = pools_on(cluster, apart(8, 8, 1), nullptr, kernels).of(decoding(kSequences));
  CHECK(t.linear.base() == Approx(same.linear.base()));
  CHECK(t.elementwise.base() == Approx(same.elementwise.base()));
  CHECK(t.decode_attention.base() == Approx(same.decode_attention.base()));
  CHECK(t.head.base() == Approx(same.head.base()));
  CHECK(t.experts.base() == Approx(same.experts.base()));
  CHECK(t.ep < 1e-4 * t.total);  // 1e15 bytes per second
}

TEST_CASE("a pool with tensor ranks puts tokens of one micro-batch together beside another") {
  const auto busy = [](std::uint16_t parts, double bandwidth) {
    ServingLayout layout = apart(4, 4, parts);
    layout.ep = 2;
    Cluster cluster = reference_cluster(8);
    cluster.scale_up.bandwidth = BytesPerSecond{bandwidth};
    return pools_on(cluster, layout).pools(decoding(kSequences)).experts;
  };
  const double slow = 2e9, fast = 1e13;
  for (const std::uint16_t parts : {1, 2}) CHECK(busy(parts, slow) > busy(parts, fast));
  CHECK(busy(3, 2 * fast) / busy(3, fast) == Approx(1).epsilon(1e-3));
  CHECK(busy(3, slow) > busy(3, fast));
}

TEST_CASE("no number of micro-batches beats both pools busy all the time") {
  const Cluster cluster = free_network(16);
  const PoolLoad once = pools_on(cluster, apart(8, 8, 1)).pools(decoding(kSequences));
  const Seconds bound = max(once.attention, once.experts);
  for (const std::uint16_t parts : {1, 2, 3, 4, 6}) {
    CHECK(pools_on(cluster, apart(8, 8, parts)).total(decoding(kSequences)) >= bound * (1 - 1e-12));
  }
}

TEST_CASE("slower accelerators and links of the expert pool never make a step shorter") {
  const Cluster cluster = reference_cluster(8);
  const auto step = [&](double speed, double link) {
    Cluster other = reference_cluster(8);
    other.accelerator.memory_bandwidth = speed * other.accelerator.memory_bandwidth;
    other.fabric.bandwidth = link * other.fabric.bandwidth;
    const auto pool = std::make_shared<const ExpertPool>(ExpertPool{other, reference_kernels()});
    return pools_on(cluster, apart(8, 8, 3), pool).total(decoding(kSequences));
  };
  CHECK(step(0.5, 1) > step(1, 1));
  CHECK(step(1, 0.05) > step(1, 1));
  CHECK(step(2, 2) <= step(1, 1));
}

TEST_CASE("bytes between pools take the busier adapter, or the links of a domain") {
  const Cluster cluster = reference_cluster(64);
  const Bytes small{1e6}, large{3e6};
  const ServingLayout inside = apart(4, 4, 1), across = apart(8, 8, 1);
  CHECK(pool_exchange_time(small, large, across, cluster, nullptr) ==
        pool_exchange_time(large, small, across, cluster, nullptr));
  CHECK(pool_exchange_time(small, large, inside, cluster, nullptr) <
        pool_exchange_time(small, large, across, cluster, nullptr));
  Cluster slow = cluster;
  slow.fabric.bandwidth = 0.1 * slow.fabric.bandwidth;
  CHECK(pool_exchange_time(large, small, across, cluster, &slow) >
        pool_exchange_time(large, small, across, cluster, &cluster));
}

TEST_CASE("experts leave the attention pool and have to fit on their own") {
  const Model model = make_decoder(experts_8x7b_shape());
  const ServingKernels kernels = reference_kernels();
  const Engine engine = reference_engine();
  const RequestLengths lengths{1000, 100};
  ServingLayout together;
  together.dp = together.ep = 8;
  const Cluster cluster = reference_cluster(16);
  const auto on = [&](const ServingLayout& layout, const ExpertPool* pool = nullptr) {
    return cache_capacity(model, cluster, engine, kernels, layout, lengths, {}, pool);
  };
  const CacheCapacity both = on(together), own = on(apart(8, 8, 1));
  CHECK((own.weights + own.expert_weights).base() == Approx(both.weights.base()));
  CHECK(own.blocks > both.blocks);
  CHECK(both.expert_weights == Bytes{});
  const CacheCapacity parts = on(apart(8, 8, 4));
  CHECK(parts.expert_activations < own.expert_activations);
  ExpertPool pool{cluster, kernels};
  pool.cluster.accelerator.memory_capacity = own.expert_weights;
  CHECK(on(apart(8, 8, 1), &pool).max_running_sequences == 0);
}

TEST_CASE("shared experts lie whole on every accelerator of the pool, routers with attention") {
  const Model model = make_decoder(latent_experts_shape());
  const ServingKernels kernels = reference_kernels();
  const PoolParameters all = pool_parameters(model, 0);
  CHECK(all.shared > 0);
  CHECK(all.chosen < all.routed);
  ServingLayout together;
  together.dp = together.ep = 8;
  const double linear = operand_bytes(kernels.math), experts = kernels.experts.weight_bytes;
  const Bytes both = weight_bytes(model, kernels, together);
  const Bytes attention = weight_bytes(model, kernels, apart(8, 8, 1));
  // Data-parallel ranks held the shared experts whole, as the pool does now.
  CHECK((both - attention).base() ==
        Approx(experts * all.routed / 8 + linear * all.shared).epsilon(1e-9));
  CHECK(expert_weight_bytes(model, kernels, apart(8, 8, 1)).base() ==
        Approx(experts * all.routed / 8 + linear * all.shared).epsilon(1e-9));
  const Bytes drafted = expert_weight_bytes(model, kernels, apart(8, 8, 1), true);
  CHECK(drafted > expert_weight_bytes(model, kernels, apart(8, 8, 1)));
  for (const LayerKind& kind : model.kinds) {
    const Unit* shared = shared_experts(kind);
    CHECK((shared != nullptr) == (kind.feed_forward.shared_width > 0));
    for (const Unit& unit : kind.units) {
      for (const LayerOperator& op : unit.operators) {
        if (op.routes || op.kind == OperatorKind::norm) CHECK(!computed_by_pool(kind, unit, op));
      }
    }
  }
}

TEST_CASE("layouts of pools are legal or say why not") {
  const Model model = make_decoder(experts_8x7b_shape());  // eight experts
  const Cluster cluster = reference_cluster(16), small = reference_cluster(4);
  CHECK(check_layout(model, apart(8, 8, 2), cluster) == Reason::ok);
  CHECK(check_layout(model, apart(16, 8, 2), cluster) == Reason::mesh);
  CHECK(check_layout(model, apart(16, 8, 2), cluster, &cluster) == Reason::ok);
  CHECK(check_layout(model, apart(8, 8, 2), cluster, &small) == Reason::mesh);
  CHECK(check_layout(make_decoder(dense_7b_shape()), apart(1, 1, 1), cluster) ==
        Reason::ep_experts);
  ServingLayout split = apart(4, 8, 1);
  split.ep = 3;
  CHECK(check_layout(model, split, cluster) == Reason::ep_mesh);
  ServingLayout lone;
  lone.micro_batches = 2;
  CHECK_THROWS_AS(expect_pool_fields(lone), MalformedQuestion);
  ServingLayout staged = apart(2, 8, 1);
  staged.pp = 2;
  CHECK_THROWS_AS(expect_pool_fields(staged), MalformedQuestion);
}

}  // namespace scalemodel::testing
