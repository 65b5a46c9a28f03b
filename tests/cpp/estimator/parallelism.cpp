// Data, context and expert parallelism: traffic, equivalences, no-ops.
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;
using testing::degrees;
using testing::estimate;
using testing::Question;

/// Communication of the data-parallel ranks, exposed or not; nothing else communicates.
Seconds data_parallel(const Estimate& e) { return e.exposed_dp + e.hidden; }

TEST_CASE("one accelerator communicates nothing") {
  for (std::size_t i = 0; i < EnumNames<Sharding>::names.size(); ++i) {
    Strategy s = degrees(1);
    s.sharding = static_cast<Sharding>(i);
    const Estimate e = estimate(testing::dense_7b_shape(), testing::reference_cluster(1),
                                testing::training(4, 2048), s);
    CAPTURE(name_of(s.sharding));
    CHECK(testing::exposed(e) == Seconds{});
    CHECK(e.hidden == Seconds{});
    CHECK(e.bubble == Seconds{});
    CHECK(about_equal(e.step_time, e.compute + e.optimizer + e.overhead));
  }
}

TEST_CASE("ZeRO-2 moves the bytes of ZeRO-1 layer by layer, each at the latency of a collective") {
  const Task task = testing::training(64, 2048);  // one micro-batch a rank
  Strategy layers = degrees(1), whole = degrees(1);
  layers.sharding = Sharding::zero2;
  whole.sharding = Sharding::zero1;
  for (Strategy* s : {&layers, &whole}) {
    s->overlap_grad_reduce = s->overlap_param_gather = OnOff::off;
  }
  const auto exposed = [&](const Cluster& cluster, const Strategy& s) {
    return estimate(testing::dense_7b_shape(), cluster, task, s).exposed_dp;
  };
  const Cluster real = testing::reference_cluster(64), ideal = testing::without_latency(real);
  CHECK(about_equal(exposed(ideal, layers), exposed(ideal, whole)));
  CHECK(exposed(real, layers) > 1.05 * exposed(real, whole));
}

TEST_CASE("a gradient reduction moves 2 (d - 1)/d of the gradients, once a step") {
  const double gradients = 4 * make_decoder(testing::dense_7b_shape()).parameters();
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  for (const int accelerators : {2, 4, 8}) {
    for (const int batches : {1, 4}) {
      const Cluster cluster = testing::without_latency(testing::reference_cluster(accelerators));
      const Estimate e =
          estimate(testing::dense_7b_shape(), cluster,
                   testing::training(batches * accelerators, 2048), s, testing::plain_sum_stack());
      const double d = accelerators;
      const Seconds wanted =
          Bytes{2 * (d - 1) / d * gradients} /
          (cluster.scale_up.all_reduce.bandwidth_fraction2 * cluster.scale_up.bandwidth);
      CHECK(about_equal(e.exposed_dp, wanted));
    }
  }
}

TEST_CASE("ZeRO-1 moves the bytes of the all-reduce it replaces") {
  Task task = testing::training(64, 2048);
  task.gradient_precision = GradientPrecision::bf16;  // gradients and weights of equal width
  for (const int accelerators : {8, 64}) {
    const Cluster cluster = testing::without_latency(testing::reference_cluster(accelerators));
    Strategy s = degrees(1);
    const auto traffic = [&](Sharding sharding) {
      s.sharding = sharding;
      return data_parallel(
          estimate(testing::dense_7b_shape(), cluster, task, s, testing::plain_sum_stack()));
    };
    const Seconds all_reduce = traffic(Sharding::ddp);
    CHECK(about_equal(traffic(Sharding::zero1), all_reduce));
    // One micro-batch: ZeRO-2 reduces once as well. Fully sharded parameters are gathered twice.
    if (accelerators == 64) CHECK(about_equal(traffic(Sharding::zero2), all_reduce));
    if (accelerators == 64) CHECK(about_equal(traffic(Sharding::zero3), 1.5 * all_reduce, 0.03));
  }
}

TEST_CASE("ZeRO-2 and ZeRO-3 repeat their traffic with every micro-batch, ZeRO-1 does not") {
  const Cluster cluster = testing::reference_cluster(64);
  const auto traffic = [&](Sharding sharding, int micro_batches) {
    Strategy s = degrees(1);
    s.sharding = sharding;
    return data_parallel(estimate(testing::dense_7b_shape(), cluster,
                                  testing::training(64 * micro_batches, 2048), s,
                                  testing::plain_sum_stack()));
  };
  CHECK(about_equal(traffic(Sharding::zero1, 4), traffic(Sharding::zero1, 1)));
  CHECK(about_equal(traffic(Sharding::ddp, 4), traffic(Sharding::ddp, 1)));
  CHECK(about_equal(traffic(Sharding::zero3, 4), 4 * traffic(Sharding::zero3, 1)));
  CHECK(traffic(Sharding::zero2, 4) > 1.5 * traffic(Sharding::zero2, 1));
}

TEST_CASE("ZeRO-2 of one replica is ZeRO-1, in interleaved pipelines too") {
  const Cluster cluster = testing::reference_cluster(16);
  Strategy s = degrees(2, 8);
  s.vpp = 5;
  s.placement = static_cast<Placement>(23);  // pp-dp-cp-tp: tensor ranks in different nodes
  REQUIRE(name_of(s.placement) == "pp-dp-cp-tp");
  const auto step = [&](Sharding sharding) {
    s.sharding = sharding;
    return estimate(testing::grouped_70b_shape(), cluster, testing::training(24, 4096), s)
        .step_time;
  };
  CHECK(about_equal(step(Sharding::zero2), step(Sharding::zero1), 1e-12));
}

TEST_CASE("HSDP over all replicas is ZeRO-3, exactly") {
  int compared = 0;
  testing::for_random_estimates(
      1500, 41, [&](const Question& question, const Strategy& given, const Estimate&) {
        Strategy s = given;
        s.sharding = Sharding::zero3;
        const Estimate sharded = evaluate(question.tables, s);
        const Degrees d = resolve_degrees(s, question.tables.cluster(), question.tables.task());
        s.sharding = Sharding::hsdp;
        s.shard_degree = static_cast<std::uint16_t>(d.dp * d.cp);
        CHECK(evaluate(question.tables, s) == sharded);
        ++compared;
      });
  CHECK(compared == 1500);
}

TEST_CASE("HSDP with shards of one reduces what plain data parallelism reduces") {
  const Cluster cluster = testing::without_latency(testing::reference_cluster(64));
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  const Task task = testing::training(64, 2048);
  const Estimate plain =
      estimate(testing::dense_7b_shape(), cluster, task, s, testing::plain_sum_stack());
  s.sharding = Sharding::hsdp;
  s.shard_degree = 1;
  const Estimate hybrid =
      estimate(testing::dense_7b_shape(), cluster, task, s, testing::plain_sum_stack());
  CHECK(about_equal(data_parallel(hybrid), data_parallel(plain)));
  CHECK(hybrid.memory_weights == plain.memory_weights);
  CHECK(hybrid.memory_gradients == plain.memory_gradients);
  CHECK(hybrid.memory_optimizer == plain.memory_optimizer);
}

TEST_CASE("smaller shard groups hold more, and one node communicates less than all of them") {
  Strategy s = degrees(1);
  s.sharding = Sharding::hsdp;
  std::vector<Estimate> by_size;
  for (const int shard : {8, 16, 64, 512}) {
    s.shard_degree = static_cast<std::uint16_t>(shard);
    by_size.push_back(estimate(testing::dense_7b_shape(), testing::reference_cluster(512),
                               testing::training(512, 2048), s, testing::plain_sum_stack()));
  }
  for (std::size_t i = 1; i < by_size.size(); ++i) {
    CHECK(by_size[i].memory_weights < by_size[i - 1].memory_weights);
    CHECK(by_size[i].memory_optimizer < by_size[i - 1].memory_optimizer);
  }
  CHECK(by_size.front().exposed_dp < by_size.back().exposed_dp);
}

TEST_CASE("without a pipeline the step is affine in the number of micro-batches") {
  for (const Sharding sharding : {Sharding::ddp, Sharding::zero1, Sharding::zero3}) {
    Strategy s = degrees(4);
    s.sharding = sharding;
    const auto step = [&](int micro_batches) {
      return estimate(testing::dense_7b_shape(), testing::reference_cluster(64),
                      testing::training(16 * micro_batches, 2048), s)
          .step_time;
    };
    const Seconds slope = step(2) - step(1);
    CHECK(slope > Seconds{});
    for (const int m : {3, 8, 32}) CHECK(about_equal(step(m), step(1) + (m - 1) * slope));
  }
}

TEST_CASE("k times the layers cost k times in the body") {
  for (const int pp : {1, 4}) {
    const auto step = [&](int layers) {
      DecoderShape shape = testing::dense_7b_shape();
      shape.layers = layers;
      return estimate(shape, testing::reference_cluster(64), testing::training(256, 2048),
                      degrees(4, pp), testing::plain_sum_stack());
    };
    const Estimate one = step(16), two = step(32), three = step(48), four = step(64);
    CHECK(about_equal(two.compute - one.compute, three.compute - two.compute));
    CHECK(about_equal(four.compute - two.compute, 2 * (two.compute - one.compute)));
    CHECK(about_equal(two.exposed_tp - one.exposed_tp, three.exposed_tp - two.exposed_tp));
    CHECK(about_equal(two.memory_activations - one.memory_activations,
                      three.memory_activations - two.memory_activations));
  }
}

TEST_CASE("context parallelism of one is a no-op, whatever it would exchange") {
  testing::for_random_estimates(
      1500, 42, [](const Question& question, const Strategy& given, const Estimate& e) {
        if (given.cp > 1) return;
        Strategy s = given;
        for (const ContextParallel context :
             {ContextParallel::ring, ContextParallel::all_to_all, ContextParallel::all_gather}) {
          s.context = context;
          Tables tables = question.tables;
          tables.tabulate(s);
          CHECK(evaluate(tables, s) == e);
        }
        CHECK(e.exposed_cp == Seconds{});
      });
}

TEST_CASE("a degree of one leaves no trace of its cause") {
  testing::for_random_estimates(
      3000, 43, [](const Question&, const Strategy& s, const Estimate& e) {
        if (s.tp == 1) CHECK(e.exposed_tp == Seconds{});
        if (s.cp == 1) CHECK(e.exposed_cp == Seconds{});
        if (s.pp == 1) CHECK(e.exposed_pp == Seconds{});
        if (s.pp == 1) CHECK(e.bubble == Seconds{});
        if (!s.offload_weights && !s.offload_activations && !s.offload_optimizer) {
          CHECK(e.exposed_offload == Seconds{});
          CHECK(e.host_memory == Bytes{});
        }
      });
}

TEST_CASE("sequence parallelism without tensor parallelism is a no-op") {
  testing::for_random_estimates(
      1000, 44, [](const Question& question, const Strategy& given, const Estimate& e) {
        if (given.tp > 1) return;
        Strategy s = given;
        s.sequence_parallel = !s.sequence_parallel;
        Tables tables = question.tables;
        tables.tabulate(s);
        CHECK(evaluate(tables, s) == e);
      });
}

TEST_CASE("where an axis of one rank stands in the mesh changes nothing") {
  // Two placements that agree on the order of the axes longer than one are one placement.
  std::vector<Question> questions = testing::all_questions();
  testing::Random random(45);
  int compared = 0;
  for (int attempt = 0; attempt < 4000; ++attempt) {
    Question& question =
        questions[static_cast<std::size_t>(random.below(static_cast<int>(questions.size())))];
    Strategy s = testing::random_strategy(random);
    const Degrees d = resolve_degrees(s, question.tables.cluster(), question.tables.task());
    const auto longer = [&](Placement placement) {
      std::vector<Axis> axes;
      for (const Axis axis : axes_of(placement)) {
        const int degree = axis == Axis::tp   ? d.tp
                           : axis == Axis::cp ? d.cp
                           : axis == Axis::dp ? d.dp
                                              : d.pp;
        if (degree > 1) axes.push_back(axis);
      }
      return axes;
    };
    question.tables.tabulate(s);
    const Estimate e = evaluate(question.tables, s);
    Strategy other = s;
    other.placement = random.pick_enum<Placement>();
    if (!testing::can_run(e) || longer(other.placement) != longer(s.placement)) continue;
    question.tables.tabulate(other);
    CAPTURE(question.name);
    CAPTURE(name_of(s.placement));
    CAPTURE(name_of(other.placement));
    CAPTURE(d.tp);
    CAPTURE(d.cp);
    CAPTURE(d.dp);
    CAPTURE(d.pp);
    CHECK(evaluate(question.tables, other) == e);
    ++compared;
  }
  CHECK(compared > 300);
}

TEST_CASE("naming the derived degree changes nothing") {
  testing::for_random_estimates(
      1000, 46, [](const Question& question, const Strategy& given, const Estimate& e) {
        Strategy s = given;
        const Degrees d = resolve_degrees(s, question.tables.cluster(), question.tables.task());
        s.dp = static_cast<std::uint32_t>(d.dp);
        s.etp = static_cast<std::uint8_t>(d.etp);
        CHECK(evaluate(question.tables, s) == e);
      });
}

TEST_CASE("tensor parallelism beyond the domain is legal, only slower") {
  const Cluster cluster = testing::reference_cluster(64);
  Seconds before;
  for (const int tp : {8, 16, 32}) {
    const Estimate e =
        estimate(testing::grouped_70b_shape(), cluster, testing::training(64, 4096), degrees(tp));
    REQUIRE(testing::can_run(e));
    CHECK(e.step_time > before);
    before = e.step_time;
  }
  Cluster joined = cluster;
  joined.scale_up.domain = 64;
  const Estimate wide =
      estimate(testing::grouped_70b_shape(), joined, testing::training(64, 4096), degrees(16));
  CHECK(wide.exposed_tp <
        estimate(testing::grouped_70b_shape(), cluster, testing::training(64, 4096), degrees(16))
            .exposed_tp);
}

TEST_CASE("a wider domain changes nothing where every group fitted before") {
  Cluster narrow = testing::reference_cluster(8), wide = narrow;
  wide.scale_up.domain = 72;
  for (const int tp : {1, 2, 8}) {
    CHECK(estimate(testing::dense_7b_shape(), narrow, testing::training(64, 2048), degrees(tp)) ==
          estimate(testing::dense_7b_shape(), wide, testing::training(64, 2048), degrees(tp)));
  }
}

TEST_CASE("expert parallelism replaces gradient traffic of experts by exchanges of tokens") {
  const Cluster cluster = testing::without_latency(testing::reference_cluster(8));
  const auto with = [&](int ep) {
    Strategy s = degrees(1, 1, 1, ep);
    s.sharding = Sharding::ddp;
    return estimate(testing::experts_8x7b_shape(), cluster, testing::training(8, 2048), s,
                    testing::plain_sum_stack());
  };
  Estimate before = with(1);
  CHECK(before.exposed_ep == Seconds{});
  for (const int ep : {2, 4, 8}) {
    const Estimate e = with(ep);
    CHECK(e.exposed_ep > before.exposed_ep);
    CHECK(e.exposed_dp < before.exposed_dp);
    before = e;
  }
}

TEST_CASE("ZeRO-2 reduces as many layers whether a stage runs in one chunk or in several") {
  Stack stack = testing::plain_sum_stack();
  const auto reduced = [&](int vpp) {
    Strategy s = degrees(8, 2);
    s.vpp = static_cast<std::uint8_t>(vpp);
    s.sharding = Sharding::zero2;
    s.overlap_grad_reduce = OnOff::off;
    return estimate(testing::gpt3_shape(), testing::reference_cluster(64),
                    testing::training(64, 2048), s, stack)
        .exposed_dp;
  };
  for (const int vpp : {2, 4, 8}) CHECK(about_equal(reduced(vpp), reduced(1)));
}

}  // namespace
}  // namespace scalemodel
