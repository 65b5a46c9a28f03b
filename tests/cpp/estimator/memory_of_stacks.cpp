// What a software stack keeps in memory beyond what the mathematics asks for.
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::degrees;
using testing::estimate;

constexpr double kVocab = 128256, kHidden = 8192, kSequence = 4096;

Estimate of_70b(const Strategy& s, const Stack& stack) {
  return estimate(testing::grouped_70b_shape(), testing::reference_cluster(64),
                  testing::training(64, static_cast<int>(kSequence)), s, stack);
}

Bytes reported_of_70b(const Strategy& s, const Stack& stack, const Estimate& e) {
  Tables tables(make_decoder(testing::grouped_70b_shape()), testing::reference_cluster(64),
                testing::training(64, static_cast<int>(kSequence)), stack);
  tables.tabulate(s);
  return reported_memory(tables, s, e);
}

TEST_CASE("an unfused loss holds its bytes per logit, a gathering head those of all ranks") {
  Stack stack = testing::reference_stack();
  stack.loss_per_logit = Bytes{18};
  stack.split_loss_per_logit = Bytes{22};
  CHECK(of_70b(degrees(1), stack).memory_logits.base() == Approx(18 * kSequence * kVocab));
  CHECK(of_70b(degrees(8), stack).memory_logits.base() == Approx(22 * kSequence * kVocab / 8));
  stack.whole_logits = true;
  CHECK(of_70b(degrees(8), stack).memory_logits.base() == Approx(22 * kSequence * kVocab));
  stack.fused_loss = true;
  CHECK(of_70b(degrees(8), stack).memory_logits.base() == Approx(4 * kSequence * kVocab));
}

TEST_CASE("master weights that serve as the shards take the place of the stored ones") {
  Stack stack = testing::reference_stack();
  Strategy s = degrees(1);
  s.sharding = Sharding::zero3;
  const Estimate both = of_70b(s, stack);
  stack.master_shards = true;
  const Estimate one = of_70b(s, stack);
  CHECK(both.memory_weights > Bytes{});
  CHECK(about_equal(one.memory_weights, 2 * both.memory_weights));  // FP32 instead of BF16
  CHECK(about_equal(one.memory_optimizer + one.memory_weights, both.memory_optimizer));
  CHECK(about_equal(one.memory + both.memory_weights, both.memory));
  // Without sharded weights there is nothing to take the place of.
  s.sharding = Sharding::zero1;
  CHECK(of_70b(s, stack) == of_70b(s, testing::reference_stack()));
}

TEST_CASE("fused accumulation leaves one unread gradient per shape of a weight") {
  Stack stack = testing::reference_stack();
  const Estimate without = of_70b(degrees(8), stack);
  stack.unused_gradients = true;
  const Estimate with = of_70b(degrees(8), stack);
  const Model model = make_decoder(testing::grouped_70b_shape());
  const LayerKind& kind = model.kinds[0];
  const double layer =
      (kind.attention_parameters + kind.dense_parameters) / 8 + kind.norm_parameters;
  const double head = kVocab * kHidden / 8 + kHidden;  // and the last norm
  CHECK((with.memory_temporary - without.memory_temporary).base() == Approx(2 * (layer + head)));
  Task narrow = testing::training(64, 4096);
  narrow.gradient_precision = GradientPrecision::bf16;
  CHECK(estimate(testing::grouped_70b_shape(), testing::reference_cluster(64), narrow, degrees(8),
                 stack) ==
        estimate(testing::grouped_70b_shape(), testing::reference_cluster(64), narrow, degrees(8)));
}

TEST_CASE("experts of one shape share an unread gradient") {
  Stack stack = testing::reference_stack();
  const auto extra = [&](int ep) {
    Strategy s = degrees(1, 1, 1, ep);
    const auto temporary = [&](bool unused) {
      stack.unused_gradients = unused;
      return estimate(testing::experts_8x7b_shape(), testing::reference_cluster(64),
                      testing::training(64, 4096), s, stack)
          .memory_temporary;
    };
    return temporary(true) - temporary(false);
  };
  CHECK(about_equal(extra(1), extra(8), 1e-12));
}

/// A stack whose updates copy, and a task with 16-bit gradients.
struct CopyingUpdate {
  Stack stack = testing::reference_stack();
  Task task = testing::training(64, static_cast<int>(kSequence));

  CopyingUpdate() {
    stack.update_copies_gradients = true;
    task.gradient_precision = GradientPrecision::bf16;
  }
  Estimate of(const DecoderShape& shape, const Strategy& s) const {
    return estimate(shape, testing::reference_cluster(64), task, s, stack);
  }
};

TEST_CASE("a step is as full as its fuller moment: its passes, or the update with its copies") {
  const DecoderShape shape = testing::grouped_70b_shape();
  int of_passes = 0, of_update = 0;
  for (const Sharding sharding : {Sharding::ddp, Sharding::zero1}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      for (const int tp : {1, 8}) {
        Strategy s = degrees(tp);
        s.sharding = sharding;
        s.recompute = recompute;
        CopyingUpdate update;
        const Estimate with = update.of(shape, s);
        update.stack.update_copies_gradients = false;
        const Estimate without = update.of(shape, s);
        const Bytes states =
            without.memory_weights + without.memory_gradients + without.memory_optimizer;
        const Bytes copies = without.memory_optimizer / 12 * 4;  // of master weight and moments
        const Bytes updating = states + copies;
        CHECK(about_equal(with.memory_allocated, max(without.memory_allocated, updating)));
        CHECK(about_equal(with.memory_allocated,
                          with.memory_weights + with.memory_gradients + with.memory_optimizer +
                              with.memory_activations + with.memory_logits + with.memory_temporary +
                              with.memory_communication));
        CHECK((with.memory_activations == Bytes{}) == (updating > without.memory_allocated));
        ++(updating > without.memory_allocated ? of_update : of_passes);
      }
    }
  }
  CHECK(of_passes > 0);
  CHECK(of_update > 0);
}

TEST_CASE("gradients in FP32, and states in host memory, are not copied for the update") {
  Strategy s = degrees(8);
  s.recompute = Recompute::full;
  CopyingUpdate update;
  const DecoderShape shape = testing::grouped_70b_shape();
  s.offload_optimizer = true;
  const Estimate copied = update.of(shape, s);
  update.stack.update_copies_gradients = false;
  CHECK(copied == update.of(shape, s));
  s.offload_optimizer = false;
  update.task.gradient_precision = GradientPrecision::fp32;
  const Estimate wide = update.of(shape, s);
  update.stack.update_copies_gradients = true;
  CHECK(wide == update.of(shape, s));
}

TEST_CASE("narrow moments are copied for dense parameters and for experts in turn") {
  const DecoderShape shape = testing::experts_8x7b_shape();
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  s.recompute = Recompute::full;
  CopyingUpdate update;
  update.task.moment_bytes = 2;
  update.stack.update_copies_gradients = false;
  const Estimate without = update.of(shape, s);
  update.stack.update_copies_moments = true;
  const Estimate with = update.of(shape, s);
  const Model model = make_decoder(shape);
  const LayerKind& kind = model.kinds[0];
  const double experts = shape.layers * kind.expert_parameters;
  CHECK((with.memory_optimizer - without.memory_optimizer).base() == Approx(2 * 4 * experts));
  CHECK(with.optimizer > without.optimizer);
}

TEST_CASE("master weights as remainders spare what 16-bit weights hold") {
  Stack stack = testing::reference_stack();
  const Bytes whole = of_70b(degrees(8), stack).memory_optimizer;
  stack.master_remainders = true;
  CHECK(about_equal(of_70b(degrees(8), stack).memory_optimizer, whole / 12 * 10));
}

TEST_CASE("narrow weights alone: layers in one byte, embedding and head in two") {
  Stack stack = testing::reference_stack();
  stack.narrow_weights = true;
  Task task = testing::training(64, static_cast<int>(kSequence));
  task.precision = Precision::fp8;
  const Estimate e = estimate(testing::grouped_70b_shape(), testing::reference_cluster(64), task,
                              degrees(8), stack);
  const double parameters = make_decoder(testing::grouped_70b_shape()).parameters();
  const double ends = 2 * kVocab * kHidden;
  CHECK(e.memory_weights.base() == Approx((parameters + ends) / 8).epsilon(2e-4));  // whole norms
  task.precision = Precision::bf16;
  CHECK(estimate(testing::grouped_70b_shape(), testing::reference_cluster(64), task, degrees(8),
                 stack) ==
        estimate(testing::grouped_70b_shape(), testing::reference_cluster(64), task, degrees(8)));
}

TEST_CASE("gradients in two formats: the narrow ones are never shared out") {
  Stack stack = testing::reference_stack();
  const double parameters = make_decoder(testing::grouped_70b_shape()).parameters();
  for (const Sharding sharding : {Sharding::ddp, Sharding::zero1, Sharding::zero2}) {
    Strategy s = degrees(1);
    s.sharding = sharding;
    stack.narrow_gradients = false;
    const Bytes wide = of_70b(s, stack).memory_gradients;
    stack.narrow_gradients = true;
    CHECK((of_70b(s, stack).memory_gradients - wide).base() == Approx(2 * parameters));
  }
}

TEST_CASE("states that are shared out are copied while they step, replicated ones are not") {
  Stack stack = testing::reference_stack();
  stack.optimizer_copy = Bytes{6};
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  CHECK(of_70b(s, stack) == of_70b(s, testing::reference_stack()));
  s.sharding = Sharding::zero1;
  CHECK(about_equal(of_70b(s, stack).memory_optimizer / 18,
                    of_70b(s, testing::reference_stack()).memory_optimizer / 12));
}

TEST_CASE("kept stage outputs: one per micro-batch in flight, whole unless the sequence is split") {
  Stack stack = testing::reference_stack();
  for (const bool sequence_parallel : {false, true}) {
    Strategy s = degrees(4, 8);
    s.sequence_parallel = sequence_parallel;
    stack.keep_stage_outputs = false;
    const Estimate without = of_70b(s, stack);
    stack.keep_stage_outputs = true;
    const Estimate with = of_70b(s, stack);
    REQUIRE(with.fullest_stage == 0);
    const double output = 2 * kSequence * kHidden / (sequence_parallel ? 4 : 1);
    CHECK((with.memory_activations - without.memory_activations).base() == Approx(8 * output));
  }
  CHECK(of_70b(degrees(8), stack) == of_70b(degrees(8), testing::reference_stack()));
}

TEST_CASE("a stack that keeps gathered inputs is as if the strategy did") {
  Stack stack = testing::reference_stack();
  Strategy s = degrees(8, 2);
  s.sequence_parallel = true;
  const Estimate again = of_70b(s, stack);
  s.regather = false;
  const Estimate kept = of_70b(s, stack);
  s.regather = true;
  stack.keep_gathered = true;
  CHECK(of_70b(s, stack) == kept);
  CHECK(kept.memory_activations > again.memory_activations);
}

TEST_CASE("every second GEMM: the widths kept, by hand") {
  Stack stack = testing::reference_stack();
  stack.selective = Selective::operators;
  Strategy s = degrees(1);
  s.recompute = Recompute::selective;
  const Estimate e = of_70b(s, stack);
  // The input, query, value, attention's output and statistics, gate and the layer's output; the
  // head keeps its input twice.
  const double per_token = 2 * (8192.0 + 8192 + 1024 + 8192 + 28672 + 8192) + 4 * 64;
  CHECK(e.memory_activations.base() ==
        Approx(80 * kSequence * per_token + kSequence * kHidden * 4));
}

TEST_CASE("what a log calls memory: allocated, with fragments, with everything on the device") {
  Stack stack = testing::reference_stack();
  stack.fragmentation_fraction = 0.1;
  stack.reserve = 3 * unit::GiB;
  const Strategy s = degrees(8, 4);
  const Estimate e = of_70b(s, stack);
  const auto reported = [&](MemoryReport report) {
    stack.memory_report = report;
    return reported_of_70b(s, stack, e);
  };
  CHECK(reported(MemoryReport::allocated) == e.memory_allocated);
  CHECK(reported(MemoryReport::device) == e.memory);
  CHECK(about_equal(reported(MemoryReport::reserved) + stack.reserve, e.memory));
  CHECK(reported(MemoryReport::reserved) > e.memory_allocated);
}

TEST_CASE("a log of the last rank tells of the stage with the fewest micro-batches in flight") {
  Stack stack = testing::reference_stack();
  stack.memory_report = MemoryReport::last_stage;
  Strategy s = degrees(8, 4);
  s.schedule = Schedule::interleaved;
  const auto interleaved = [&](int chunks) {
    s.vpp = chunks;
    return of_70b(s, stack);
  };
  const auto less = [&](int chunks) {
    const Estimate e = interleaved(chunks);
    CHECK(e.fullest_stage == 0);
    return e.memory_allocated - reported_of_70b(s, stack, e);
  };
  CHECK(less(10) > Bytes{});
  // Of its chunks the first stage has 2 (pp - 1) + (v - 1) pp + 1 in flight and the last one the
  // first term less: with twice as many chunks 43/10 and not 23/5 stages, and 6/10 and not 6/5
  // more.
  const Bytes fewer = interleaved(5).memory_activations - interleaved(10).memory_activations;
  CHECK(about_equal(less(5) - less(10), 2 * fewer));
}

}  // namespace
}  // namespace scalemodel
