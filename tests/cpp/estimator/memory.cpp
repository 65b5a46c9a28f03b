// What falls, rises or stays when memory is shared out.
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;
using testing::degrees;
using testing::estimate;
using testing::Question;

const Cluster& large_cluster() {
  static const Cluster reference = testing::reference_cluster(512);
  return reference;
}

Estimate of_70b(const Strategy& s, const Task& task = testing::training(512, 4096)) {
  return estimate(testing::grouped_70b_shape(), large_cluster(), task, s);
}

TEST_CASE("weights, gradients and optimizer of one rank are counted by hand") {
  const double parameters = make_decoder(testing::dense_7b_shape()).parameters();
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  const auto whole = [&](const Task& task) {
    return estimate(testing::dense_7b_shape(), testing::reference_cluster(8), task, s);
  };
  Task task = testing::training(8, 2048);
  Estimate e = whole(task);
  CHECK(e.memory_weights.base() == Approx(2 * parameters));
  CHECK(e.memory_gradients.base() == Approx(4 * parameters));
  CHECK(e.memory_optimizer.base() == Approx(12 * parameters));  // master weight, two moments
  task.gradient_precision = GradientPrecision::bf16;
  CHECK(whole(task).memory_gradients.base() == Approx(2 * parameters));
  task.optimizer = Optimizer::sgd;
  task.master_bytes = 0;
  CHECK(whole(task).memory_optimizer == Bytes{});
  task.optimizer = Optimizer::sgd_momentum;
  task.moment_bytes = 2;
  CHECK(whole(task).memory_optimizer.base() == Approx(2 * parameters));
}

TEST_CASE("each step of ZeRO shares out one more kind over the replicas") {
  Strategy s = degrees(8, 4);
  constexpr double replicas = 512.0 / 32;
  const auto with = [&](Sharding sharding) {
    s.sharding = sharding;
    return of_70b(s);
  };
  const Estimate ddp = with(Sharding::ddp), one = with(Sharding::zero1),
                 two = with(Sharding::zero2), three = with(Sharding::zero3);
  CHECK(about_equal(one.memory_optimizer, ddp.memory_optimizer / replicas));
  CHECK(one.memory_gradients == ddp.memory_gradients);
  CHECK(one.memory_weights == ddp.memory_weights);
  CHECK(about_equal(two.memory_gradients, ddp.memory_gradients / replicas));
  CHECK(two.memory_weights == ddp.memory_weights);
  CHECK(about_equal(three.memory_weights, ddp.memory_weights / replicas));
  CHECK(three.memory_gathered > Bytes{});
  CHECK(one.memory < ddp.memory);
  CHECK(two.memory < one.memory);
  CHECK(three.memory < two.memory);
  for (const Estimate& e : {one, two, three}) {
    CHECK(e.memory_activations == ddp.memory_activations);
  }
}

TEST_CASE("memory falls with ZeRO for whatever else is chosen") {
  testing::for_random_estimates(
      1000, 31, [](const Question& question, const Strategy& given, const Estimate&) {
        Strategy s = given;
        Estimate before;
        for (const Sharding sharding : {Sharding::ddp, Sharding::zero1, Sharding::zero2}) {
          s.sharding = sharding;
          const Estimate now = evaluate(question.tables, s);
          if (sharding != Sharding::ddp) CHECK(at_most(now.memory, before.memory));
          before = now;
        }
      });
}

TEST_CASE("sharded optimizer states shrink with the number of replicas") {
  Bytes before{1e15};
  for (const int accelerators : {32, 64, 128, 256, 512}) {
    const Estimate e =
        estimate(testing::grouped_70b_shape(), testing::reference_cluster(accelerators),
                 testing::training(512, 4096), degrees(8, 4));
    CHECK(e.memory < before);
    before = e.memory;
  }
}

TEST_CASE("memory falls with tensor parallelism") {
  for (const bool sequence_parallel : {false, true}) {
    for (const Sharding sharding : {Sharding::ddp, Sharding::zero1}) {
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        Bytes before{1e15};
        for (const int tp : {1, 2, 4, 8, 16}) {
          Strategy s = degrees(tp, 4);
          s.sequence_parallel = sequence_parallel;
          s.sharding = sharding;
          s.recompute = recompute;
          const Estimate e = of_70b(s);
          REQUIRE(testing::can_run(e));
          CAPTURE(tp);
          CHECK(e.memory < before);
          before = e.memory;
        }
      }
    }
  }
}

TEST_CASE("memory falls with pipeline parallelism at the same replicas") {
  for (const Sharding sharding : {Sharding::ddp, Sharding::zero1}) {
    Bytes before{1e15};
    for (const int pp : {1, 2, 4, 8, 16}) {
      Strategy s = degrees(8, pp);
      s.sharding = sharding;
      const Estimate e =
          estimate(testing::grouped_70b_shape(), testing::reference_cluster(8 * pp * 4),
                   testing::training(512, 4096), s);
      REQUIRE(testing::can_run(e));
      CAPTURE(pp);
      CHECK(e.memory < before);
      before = e.memory;
    }
  }
}

TEST_CASE("memory falls with context parallelism, and rises with the micro-batch") {
  Bytes before{1e15};
  for (const int cp : {1, 2, 4, 8}) {
    const Estimate e = of_70b(degrees(8, 2, cp), testing::training(512, 32768));
    REQUIRE(testing::can_run(e));
    CHECK(e.memory < before);
    CHECK(at_most(e.memory_activations, before));
    before = e.memory;
  }
  before = Bytes{};
  for (const int micro_batch : {1, 2, 4}) {
    Strategy s = degrees(8, 2);
    s.micro_batch = static_cast<std::uint16_t>(micro_batch);
    const Estimate e = of_70b(s);
    CHECK(e.memory > before);
    before = e.memory;
  }
}

TEST_CASE("expert parallelism shares out the weights of experts") {
  Bytes before{1e15};
  for (const int ep : {1, 2, 4, 8}) {
    Strategy s = degrees(1, 4, 1, ep);
    s.sharding = Sharding::ddp;
    s.etp = 1;
    const Estimate e =
        estimate(testing::experts_8x7b_shape(), large_cluster(), testing::training(512, 4096), s);
    REQUIRE(testing::can_run(e));
    CHECK(e.memory_weights < before);
    before = e.memory_weights;
  }
}

TEST_CASE("recomputation: less memory and more time, in the order none, selective, full") {
  for (const AttentionKernel attention : {AttentionKernel::unfused, AttentionKernel::flash2}) {
    for (const Selective selective : {Selective::core_attention, Selective::operators}) {
      for (const int pp : {1, 4}) {
        Stack stack = testing::reference_stack();
        stack.selective = selective;
        Task task = testing::training(512, 2048);
        task.attention = attention;
        Strategy s = degrees(8, pp);
        Estimate before;
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          s.recompute = recompute;
          const Estimate now = estimate(testing::gpt3_shape(), large_cluster(), task, s, stack);
          CAPTURE(name_of(recompute));
          if (recompute != Recompute::none) {
            CHECK(now.step_time > before.step_time);
            CHECK(at_most(now.memory, before.memory));
            CHECK(at_most(now.memory_activations, before.memory_activations));
          }
          before = now;
        }
      }
    }
  }
}

TEST_CASE("recomputing k layers lies between none and all, and all is all") {
  Strategy s = degrees(8, 4);
  const Estimate none = of_70b(s);
  s.recompute = Recompute::full;
  const Estimate all = of_70b(s);
  Estimate before = none;
  for (const int layers : {1, 5, 10, 15, 19}) {
    s.recompute_layers = static_cast<std::uint16_t>(layers);
    const Estimate e = of_70b(s);
    CAPTURE(layers);
    CHECK(e.step_time > before.step_time);
    CHECK(e.memory < before.memory);
    CHECK(e.step_time < all.step_time);
    CHECK(e.memory > all.memory);
    before = e;
  }
  s.recompute_layers = 20;
  CHECK(about_equal(of_70b(s).step_time, all.step_time));
  CHECK(about_equal(of_70b(s).memory, all.memory));
}

TEST_CASE(
    "what is kept of each micro-batch: GPipe all, 1F1B the stages ahead, zero-bubble p anywhere") {
  Strategy s = degrees(8, 8);
  const auto with = [&](Schedule schedule, int vpp = 1) {
    s.schedule = schedule;
    s.vpp = static_cast<std::uint8_t>(vpp);
    return of_70b(s);
  };
  const Estimate gpipe = with(Schedule::gpipe), plain = with(Schedule::one_f_one_b);
  const Estimate zero = with(Schedule::zero_bubble), dual = with(Schedule::dualpipe);
  REQUIRE(plain.micro_batches > 8);
  // Where every stage keeps as much, the last one with the inputs of the head, and under GPipe with
  // the logits of all micro-batches, is the fullest.
  CHECK(plain.fullest_stage == 0);
  CHECK(gpipe.fullest_stage == 7);
  CHECK(zero.fullest_stage == 7);
  const double ratio = gpipe.memory_activations / plain.memory_activations;
  CHECK(ratio > gpipe.micro_batches / 8);
  CHECK(ratio < 1.2 * gpipe.micro_batches / 8);
  CHECK(about_equal(gpipe.memory_activations / gpipe.micro_batches, zero.memory_activations / 8));
  CHECK(about_equal(gpipe.memory_logits, gpipe.micro_batches * zero.memory_logits));
  // Layers fall evenly on two chunks a stage: 1 + (p - 1)/(p v) times 1F1B.
  const Estimate interleaved = with(Schedule::interleaved, 2);
  CHECK(about_equal(interleaved.memory_activations, (1 + 7.0 / 16) * plain.memory_activations));
  // ZB-2p: nearly twice as many as zero-bubble; ZB-V: as many, but for the head of its first stage.
  const Estimate twice = with(Schedule::zero_bubble_2p), there = with(Schedule::zero_bubble_v);
  CHECK(twice.memory_activations / zero.memory_activations == testing::Approx(15.0 / 8));
  CHECK(there.memory_activations < 1.02 * plain.memory_activations);
  CHECK(there.memory_activations > 0.98 * plain.memory_activations);
  CHECK(there.fullest_stage == 0);
  // DualPipeV: half a stage more, without a second copy of the parameters.
  const Estimate folded = with(Schedule::dualpipe_v);
  CHECK(folded.memory_weights < 1.3 * plain.memory_weights);
  CHECK(folded.memory_activations / there.memory_activations ==
        testing::Approx(8.5 / 8).epsilon(0.02));
  // DualPipe: two copies of the parameters; p + 1 micro-batches over a stage's worth of layers.
  CHECK(dual.memory_weights > 1.9 * plain.memory_weights);
  CHECK(dual.memory_activations > plain.memory_activations);
  CHECK(dual.memory_activations < 1.3 * plain.memory_activations);
}

TEST_CASE("few micro-batches bound what a pipeline keeps") {
  Strategy s = degrees(8, 8);
  const Task task = testing::training(16, 4096);
  const Estimate plain = of_70b(s, task);
  CHECK(plain.micro_batches == 2);
  CHECK(about_equal(8 * plain.memory_activations, 2 * of_70b(s).memory_activations));
  // GPipe keeps no more than these two; its last stage keeps the head's input beside them.
  s.schedule = Schedule::gpipe;
  const Bytes all = of_70b(s, task).memory_activations;
  CHECK(at_most(plain.memory_activations, all));
  CHECK(all < 1.1 * plain.memory_activations);
}

TEST_CASE("offload moves bytes to the host, and is never free of time") {
  for (int which = 0; which < 3; ++which) {
    Strategy s = degrees(8);
    const Estimate stays = of_70b(s);
    s.offload_weights = which == 0;
    s.offload_activations = which == 1;
    s.offload_optimizer = which == 2;
    const Estimate moved = of_70b(s);
    CAPTURE(which);
    CHECK(stays.host_memory == Bytes{});
    CHECK(stays.exposed_offload == Seconds{});
    CHECK(moved.host_memory > Bytes{});
    CHECK(moved.memory < stays.memory);
    CHECK(moved.step_time >= stays.step_time);
    CHECK(moved.hidden + moved.exposed_offload > stays.hidden);
    // What leaves the eight accelerators of a node arrives in its host.
    CHECK(about_equal(8 * (stays.memory_allocated - moved.memory_allocated), moved.host_memory));
  }
}

TEST_CASE("a slower host link exposes more of an offload") {
  Strategy s = degrees(8, 2);
  s.offload_weights = s.offload_optimizer = s.offload_activations = true;
  Seconds before;
  for (const double rate : {200e9, 60e9, 15e9, 1e9}) {
    Cluster c = large_cluster();
    c.accelerator.host_bandwidth = BytesPerSecond{rate};
    const Estimate e = estimate(testing::grouped_70b_shape(), c, testing::training(512, 4096), s);
    CHECK(e.exposed_offload > before);
    before = e.exposed_offload;
  }
}

TEST_CASE("the tied table is held by both ends of a pipeline, and once without one") {
  DecoderShape tied = testing::dense_7b_shape(), untied = tied;
  tied.tied_embeddings = true;
  const double table = 2.0 * 32000 * 4096;
  const auto weights = [&](const DecoderShape& shape, int pp) {
    Strategy s = degrees(1, pp);
    return estimate(shape, testing::reference_cluster(8), testing::training(64, 2048), s)
        .memory_weights.base();
  };
  CHECK(weights(untied, 1) - weights(tied, 1) == Approx(table));
  CHECK(weights(untied, 4) == Approx(weights(tied, 4)));
}

TEST_CASE("fewer key/value heads shrink weights and activations") {
  DecoderShape shape = testing::grouped_70b_shape();
  Estimate before;
  for (const int kv_heads : {64, 8, 1}) {
    shape.kv_heads = kv_heads;
    const Estimate e =
        estimate(shape, large_cluster(), testing::training(512, 4096), degrees(4, 4));
    if (kv_heads != 64) {
      CHECK(e.memory_weights < before.memory_weights);
      CHECK(e.memory_activations < before.memory_activations);
      CHECK(e.step_time < before.step_time);
    }
    before = e;
  }
}

TEST_CASE("more tensor ranks than key/value heads is legal, and no rank holds less than a head") {
  DecoderShape shape = testing::grouped_70b_shape();
  shape.kv_heads = 1;
  for (const int tp : {2, 8, 64}) {
    CHECK(testing::can_run(
        estimate(shape, large_cluster(), testing::training(512, 4096), degrees(tp, 1))));
  }
}

TEST_CASE("the allocator's waste and the context's reserve are charged once each") {
  Stack stack = testing::reference_stack();
  stack.fragmentation_fraction = 0.1;
  stack.reserve = 3 * unit::GiB;
  const Estimate e = estimate(testing::grouped_70b_shape(), large_cluster(),
                              testing::training(512, 4096), degrees(8, 4), stack);
  const Bytes persistent = e.memory_weights + e.memory_gradients + e.memory_optimizer;
  CHECK(about_equal(e.memory_reserve, 0.1 * (e.memory_allocated - persistent) + 3 * unit::GiB));
}

}  // namespace
}  // namespace scalemodel
