// Adapters, precisions, windows, latent attention and experts in a whole step.
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;
using testing::degrees;
using testing::estimate;
using testing::Question;

const Cluster& cluster() {
  static const Cluster reference = testing::reference_cluster(64);
  return reference;
}

TEST_CASE("adapters take less time and memory than learning every weight") {
  for (const Sharding sharding : {Sharding::ddp, Sharding::zero1, Sharding::zero3}) {
    for (const LoraTargets targets : {LoraTargets::qkv, LoraTargets::attention, LoraTargets::all}) {
      for (const int pp : {1, 4}) {
        Strategy s = degrees(8, pp);
        s.sharding = sharding;
        Task task = testing::training(128, 4096);
        const Estimate full = estimate(testing::grouped_70b_shape(), cluster(), task, s);
        task.method = Method::lora;
        task.lora_targets = targets;
        const Estimate adapters = estimate(testing::grouped_70b_shape(), cluster(), task, s);
        CHECK(adapters.step_time < full.step_time);
        CHECK(adapters.memory < full.memory);
        CHECK(adapters.memory_weights == full.memory_weights);
        CHECK(adapters.memory_gradients < 0.05 * full.memory_gradients);
        CHECK(adapters.memory_optimizer < 0.05 * full.memory_optimizer);
        CHECK(adapters.exposed_dp <= full.exposed_dp);
        CHECK(adapters.optimizer < full.optimizer);
      }
    }
  }
}

TEST_CASE("frozen weights: four flop per parameter and token instead of six") {
  const DecoderShape shape = testing::dense_7b_shape();
  Task task = testing::training(64, 512);  // short, so that attention is small
  const auto work = [&] {
    const Estimate e = estimate(shape, cluster(), task, degrees(1));
    return e.mfu_fraction * e.step_time.base();
  };
  const double six = work();
  task.method = Method::lora;
  CHECK(work() / six == Approx(4.0 / 6).epsilon(0.02));
}

TEST_CASE("a larger adapter costs more of everything") {
  Task task = testing::training(128, 4096);
  task.method = Method::lora;
  Estimate before;
  for (const int rank : {8, 64, 512}) {
    task.lora_rank = rank;
    const Estimate e = estimate(testing::grouped_70b_shape(), cluster(), task, degrees(8, 2));
    CHECK(e.memory_gradients > before.memory_gradients);
    CHECK(e.memory_optimizer > before.memory_optimizer);
    CHECK(e.step_time > before.step_time);
    before = e;
  }
}

TEST_CASE("a window at least as long as the sequence is full attention, bit for bit") {
  for (const AttentionKernel attention : {AttentionKernel::unfused, AttentionKernel::flash2}) {
    Task task = testing::training(128, 4096);
    task.attention = attention;
    DecoderShape shape = testing::dense_7b_shape();
    const Estimate full = estimate(shape, cluster(), task, degrees(4, 2));
    for (const int window : {4096, 8192, 1 << 20}) {
      shape.window = window;
      CHECK(estimate(shape, cluster(), task, degrees(4, 2)) == full);
    }
  }
}

TEST_CASE("a shorter window is faster, and so are fewer layers of full attention") {
  const Task task = testing::training(64, 32768);
  const auto step = [&](int window, int every) {
    DecoderShape shape = testing::dense_7b_shape();
    shape.window = window;
    shape.full_attention_every = every;
    return estimate(shape, cluster(), task, degrees(8)).step_time;
  };
  CHECK(step(1024, 0) < step(4096, 0));
  CHECK(step(4096, 0) < step(4096, 4));
  CHECK(step(4096, 4) < step(4096, 2));
  CHECK(step(4096, 2) < step(0, 0));
  CHECK(about_equal(step(4096, 1), step(0, 0)));
}

TEST_CASE("FP8 is faster on the same accelerators, and never in half the time") {
  // Experts launched one by one wait for the host, which has more to launch in FP8.
  Stack stack = testing::reference_stack();
  stack.grouped_launch = true;
  for (const DecoderShape& shape : {testing::grouped_70b_shape(), testing::experts_8x7b_shape()}) {
    const Strategy s = degrees(4, 2);
    const Estimate wide = estimate(shape, cluster(), testing::training(128, 4096), s, stack);
    const Estimate narrow =
        estimate(shape, cluster(), testing::training(128, 4096, Precision::fp8), s, stack);
    CHECK(narrow.step_time < wide.step_time);
    CHECK(narrow.step_time > 0.5 * wide.step_time);
    CHECK(narrow.memory_optimizer == wide.memory_optimizer);
    CHECK(narrow.mfu_fraction < wide.mfu_fraction);  // of a peak twice as high
  }
}

TEST_CASE("a precision the accelerator lacks is a verdict with a reason") {
  Cluster old = cluster();
  for (const Precision missing : {Precision::bf16, Precision::fp8, Precision::tf32}) {
    old.accelerator.peak[static_cast<std::size_t>(missing)] = FlopPerSecond{};
  }
  const auto verdict = [&](Precision precision) {
    return estimate(testing::dense_7b_shape(), old, testing::training(128, 2048, precision),
                    degrees(8))
        .verdict;
  };
  CHECK(verdict(Precision::fp16) == Reason::ok);
  CHECK(verdict(Precision::fp32) == Reason::ok);
  CHECK(verdict(Precision::bf16) == Reason::precision);
  CHECK(verdict(Precision::tf32) == Reason::precision);
  CHECK(verdict(Precision::fp8) == Reason::precision);
  CHECK(verdict(Precision::fp4) == Reason::precision);
}

TEST_CASE("FP4 is faster than FP8 where the accelerator has it") {
  Cluster newer = cluster();
  newer.accelerator.peak[static_cast<std::size_t>(Precision::fp4)] =
      4 * newer.accelerator.peak_of(Precision::bf16);
  newer.accelerator.gemm.fp4 = newer.accelerator.gemm.fp8;
  const auto step = [&](Precision precision) {
    return estimate(testing::grouped_70b_shape(), newer, testing::training(128, 4096, precision),
                    degrees(4, 2))
        .step_time;
  };
  CHECK(step(Precision::fp4) < step(Precision::fp8));
  CHECK(step(Precision::fp8) < step(Precision::bf16));
  CHECK(step(Precision::bf16) < step(Precision::fp32));
}

TEST_CASE("experts cost the time of the active parameters and the memory of all") {
  const DecoderShape routed = testing::experts_8x7b_shape();
  DecoderShape all = routed;
  all.experts_per_token = 8;
  Strategy s = degrees(4, 2);
  const Task task = testing::training(128, 4096);
  const Estimate few = estimate(routed, cluster(), task, s),
                 every = estimate(all, cluster(), task, s);
  CHECK(few.memory_weights == every.memory_weights);
  CHECK(few.compute < 0.5 * every.compute);
  CHECK(few.memory_activations < every.memory_activations);
}

TEST_CASE("imbalance of one is even; more costs time") {
  Task task = testing::training(128, 4096);
  const Strategy s = degrees(1, 2, 1, 8);
  Seconds before;
  for (const double imbalance : {1.0, 1.2, 2.0}) {
    task.imbalance = imbalance;
    const Estimate e = estimate(testing::experts_8x7b_shape(), cluster(), task, s);
    CHECK(e.step_time > before);
    before = e.step_time;
  }
  task.imbalance = 3;
  CHECK(estimate(testing::dense_7b_shape(), cluster(), task, degrees(2)).step_time ==
        estimate(testing::dense_7b_shape(), cluster(), testing::training(128, 4096), degrees(2))
            .step_time);
}

TEST_CASE("latent attention keeps less than heads of its width would") {
  DecoderShape latent = testing::latent_experts_shape(), plain = latent;
  plain.kv_lora_rank = plain.q_lora_rank = plain.qk_rope_head_dim = 0;
  plain.head_dim = 192;
  CHECK(make_decoder(latent).parameters() != make_decoder(plain).parameters());
  for (const int tp : {1, 2, 8}) {
    const Estimate e = estimate(latent, cluster(), testing::training(128, 4096), degrees(tp, 1));
    CHECK(testing::can_run(e));
  }
}

TEST_CASE("tying the tables changes memory, not the products of the head") {
  DecoderShape tied = testing::dense_7b_shape();
  tied.tied_embeddings = true;
  const Task task = testing::training(128, 2048);
  for (const int pp : {1, 4}) {
    const Estimate one = estimate(tied, cluster(), task, degrees(2, pp));
    const Estimate two = estimate(testing::dense_7b_shape(), cluster(), task, degrees(2, pp));
    CHECK(about_equal(one.compute, two.compute));
    CHECK(at_most(one.memory, two.memory));
    CHECK(one.mfu_fraction * one.step_time.base() ==
          Approx(two.mfu_fraction * two.step_time.base()));
  }
}

TEST_CASE("longer sequences and larger batches take longer") {
  const Strategy s = degrees(4, 2);
  Seconds before;
  for (const int sequence : {1024, 4096, 16384}) {
    const Estimate e =
        estimate(testing::dense_7b_shape(), cluster(), testing::training(128, sequence), s);
    CHECK(e.step_time > before);
    before = e.step_time;
  }
  before = Seconds{};
  for (const int batch : {64, 128, 1024}) {
    const Estimate e =
        estimate(testing::dense_7b_shape(), cluster(), testing::training(batch, 4096), s);
    CHECK(e.step_time > before);
    before = e.step_time;
  }
}

TEST_CASE("a simpler optimizer updates faster") {
  Task task = testing::training(64, 2048);
  Seconds before{1e9};
  for (const Optimizer optimizer : {Optimizer::adam, Optimizer::sgd_momentum, Optimizer::sgd}) {
    task.optimizer = optimizer;
    const Estimate e = estimate(testing::dense_7b_shape(), cluster(), task, degrees(1));
    CHECK(e.optimizer < before);
    before = e.optimizer;
  }
}

TEST_CASE("a free cluster costs nothing; twice the price costs twice") {
  Cluster c = cluster();
  const auto cost = [&](double price) {
    c.price = DollarsPerSecond{price};
    return estimate(testing::dense_7b_shape(), c, testing::training(64, 2048), degrees(1))
        .cost.base();
  };
  CHECK(cost(0) == 0);
  CHECK(cost(2) == Approx(2 * cost(1)));
}

}  // namespace
}  // namespace scalemodel
