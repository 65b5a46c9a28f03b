// Parts of one layer's cost worked out by hand.
#include <algorithm>
#include <string_view>
#include <vector>

#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/costs/layer_memory.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// A question of 4,096 tokens with nothing hidden and no launches of the host.
Tables tables_of(const DecoderShape& shape, const Strategy& s, const Stack& stack,
                 const Task& task = testing::training(64, 4096)) {
  Tables tables(make_decoder(shape), testing::reference_cluster(64), task, stack);
  tables.tabulate(s);
  return tables;
}

const Cell& cell_of(const Tables& tables, const Strategy& s) {
  return *tables.find_cell(s, resolve_degrees(s, tables.cluster(), tables.task()));
}

OperatorCost operator_of(const Tables& tables, const Strategy& s, std::string_view name) {
  const OperatorList all = tables.operators(s, 0);
  const auto found = std::ranges::find(all, name, &OperatorCost::name);
  REQUIRE(found != all.end());
  return *found;
}

TEST_CASE("by hand: tensor ranks beyond the key and value heads keep a copy of one") {
  // 64 heads of 128 and 8 of keys and values over 16 ranks: 4 query heads and one whole of each.
  // h x 512 of queries, h x 128 of keys, of values, 512 x h out; 3 h f / 16; two norms.
  const double h = 8192, f = 28672;
  const Strategy s = testing::degrees(16);
  const Tables tables = tables_of(testing::grouped_70b_shape(), s, testing::plain_sum_stack());
  CHECK(cell_of(tables, s).layers[0].dense_parameters ==
        Approx(h * 512 + 2 * h * 128 + 512 * h + 3 * h * f / 16 + 2 * h));
  LayerLayout layout;
  layout.tp = 16;
  const LayerKind& kind = tables.model().kinds[0];
  const LocalSizes size = local_sizes(kind, layout, tables.conditions(s));
  CHECK(size.kv_heads == 1);
  CHECK(size.k == 128);
}

TEST_CASE("by hand: rows of experts on one rank are brought into order and back, 8 bytes a value") {
  // Two copies of 4,096 tokens, 4,096 wide: read and written on the way in and on the way out,
  // two bytes each, at 0.88 x 0.9 of 3.35 TB/s, in thirty kernels of 2 us.
  const Strategy s = testing::degrees(1);
  const Tables tables = tables_of(testing::experts_8x7b_shape(), s, testing::plain_sum_stack());
  const double bytes = 4 * (2 * 4096) * 4096 * 2.0;
  CHECK(operator_of(tables, s, "permute").forward.base() ==
        Approx(bytes / (0.88 * 0.9 * 3.35e12) + 30 * 2e-6));
}

TEST_CASE("by hand: two choices among eight ranks reach 15/8 of them") {
  // 8 (1 - (7/8)^2) = 1.875 copies leave where a rank takes one of each token, else 2.
  const Strategy s = testing::degrees(1, 1, 1, 8);
  const auto sent = [&](bool deduplicated) {
    Stack stack = testing::plain_sum_stack();
    stack.deduplicated_dispatch = deduplicated;
    const Tables tables = tables_of(testing::experts_8x7b_shape(), s, stack);
    const CellMessages messages = tables.messages(s);
    for (const Message& message : messages.layers[0]) {
      if (message.communicator == Communicator::ep) return message.size.base();
    }
    return 0.0;
  };
  CHECK(sent(false) == Approx(2 * 4096 * 4096 * 2.0));
  CHECK(sent(true) == Approx(1.875 * 4096 * 4096 * 2.0));
}

TEST_CASE("by hand: a context rank attends with its own queries to all keys") {
  // 32,768 tokens over four ranks: 1/4 of 2 x 32 x 256 x s (s + 128)/2 flop at 0.34 of 990 TFLOP/s,
  // and 10 us to launch; keys and queries are far from deciding.
  const Task task = testing::training(64, 32768);
  const Strategy s = testing::degrees(1, 1, 4);
  Stack stack = testing::plain_sum_stack();
  stack.attention = AttentionKernel::flash2;
  const Tables tables = tables_of(testing::dense_7b_shape(), s, stack, task);
  const double sequence = 32768, flop = 2.0 * 32 * 256 * sequence * (sequence + 128) / 2 / 4;
  CHECK(operator_of(tables, s, "attention").forward.base() ==
        Approx(flop / (0.34 * 990e12) + 10e-6));
}

TEST_CASE("by hand: PyTorch's ring carries every query head and adds up in FP32") {
  // 64 query heads of 128 on eight keys: o = q = 8192, w = 16384 over four ranks of 8,192 tokens.
  // Forward 2 (4 + 2) o + 3 ((8 + 2) o + 2 2 w) bytes a token, backward the same of q + w.
  const Task task = testing::training(64, 32768);
  const Strategy s = testing::degrees(1, 1, 4);
  Stack stack = testing::plain_sum_stack();
  stack.attention = AttentionKernel::flash2;
  const Tables plain = tables_of(testing::grouped_70b_shape(), s, stack, task);
  stack.repeated_kv = true;
  const Tables tables = tables_of(testing::grouped_70b_shape(), s, stack, task);
  const double q = 8192, w = 2 * q, tokens = 8192;
  CHECK(operator_of(tables, s, "context_passes").bytes.base() ==
        Approx(tokens * (12 * q + 3 * (10 * q + 4 * w))));
  const auto exchanged = [&](const Tables& of) {
    return operator_of(of, s, "context_parallel").bytes.base();
  };
  CHECK(exchanged(tables) == Approx(tokens * w * 2));
  CHECK(exchanged(tables) == Approx(8 * exchanged(plain)));
  CHECK(cell_of(tables, s).layers[0].working > cell_of(plain, s).layers[0].working);
  CHECK(cell_of(tables, s).layers[0].forward.total() > cell_of(plain, s).layers[0].forward.total());
}

TEST_CASE("by hand: what the last of four context ranks moves beside its attention") {
  // 64 query heads of 128 on eight keys: q = o = 8192, w = 2048, 8,192 tokens of two bytes a value.
  // Ring, forward: w joined, the first output scaled, three added. Backward: w copied, one query
  // gradient copied and three added, one half of w copied, two halves and a whole added.
  const Task task = testing::training(64, 32768);
  Strategy s = testing::degrees(1, 1, 4);
  const double q = 8192, w = 2048, bytes = 8192 * 2.0;
  const auto passes = [&](ContextParallel context, const Stack& stack) {
    s.context = context;
    return operator_of(tables_of(testing::grouped_70b_shape(), s, stack, task), s,
                       "context_passes");
  };
  Stack stack = testing::plain_sum_stack();
  stack.attention = AttentionKernel::flash3;
  const Accelerator& a = testing::reference_cluster(64).accelerator;
  const double rate = a.elementwise.add_fraction * stack.memory_efficiency;
  const OperatorCost ring = passes(ContextParallel::ring, stack);
  CHECK(ring.bytes.base() == Approx(bytes * (2 * w + 11 * q)));
  CHECK(ring.backward.base() ==
        Approx(memory_time(Bytes{bytes * (9 * w + 11 * q)}, rate, a).base()));
  // Heads for tokens: what is sent and what came is copied once, either way.
  CHECK(passes(ContextParallel::all_to_all, stack).bytes.base() == Approx(bytes * 4 * (2 * q + w)));
}

TEST_CASE("by hand: FP8 attention exchanges heads in one byte a value") {
  Task task = testing::training(64, 32768);
  task.precision = Precision::fp8;
  Strategy s = testing::degrees(1, 1, 4);
  s.context = ContextParallel::all_to_all;
  const auto exchanged = [&](bool narrow) {
    Stack stack = testing::plain_sum_stack();
    stack.attention = AttentionKernel::flash3;
    stack.fp8_attention = narrow;
    const Tables tables = tables_of(testing::grouped_70b_shape(), s, stack, task);
    const CellMessages messages = tables.messages(s);
    for (const Message& message : messages.layers[0]) {
      if (message.communicator == Communicator::cp) return message.size.base();
    }
    return 0.0;
  };
  CHECK(exchanged(false) == Approx(8192 * (2 * 8192 + 2048) * 2.0));
  CHECK(exchanged(true) == Approx(8192 * (2 * 8192 + 2048) * 1.0));
}

TEST_CASE("by hand: beside frozen weights FP8 writes what it quantises once, not twice") {
  // Of 2 bytes read and one written twice, one is not written: a quarter of that time.
  Task task = testing::training(64, 4096);
  task.precision = Precision::fp8;
  const Strategy s = testing::degrees(1);
  const Stack stack = testing::plain_sum_stack();
  const auto forward = [&] {
    return operator_of(tables_of(testing::dense_7b_shape(), s, stack, task), s, "attention_out")
        .forward.base();
  };
  const GemmTimer timer(testing::reference_cluster(64).accelerator, Precision::fp8);
  GemmShape shape{4096, 4096, 4096};
  const double both = timer.time(shape).base();
  shape.quantised = true;
  const double none = timer.time(shape).base();
  CHECK(both > none);
  const double trained = forward();
  task.method = Method::lora;
  CHECK(trained - forward() == Approx((both - none) / 4 / stack.gemm_efficiency));
}

TEST_CASE("by hand: one kernel for both gradients of a norm reads its input once") {
  const Strategy s = testing::degrees(1);
  Stack stack = testing::plain_sum_stack();
  const Accelerator& a = testing::reference_cluster(64).accelerator;
  const auto backward = [&] {
    return operator_of(tables_of(testing::dense_7b_shape(), s, stack), s, "norm").backward.base();
  };
  const double rate = a.elementwise.norm_fraction * stack.memory_efficiency;
  const Bytes stream{4096 * 4096 * 2.0};
  const double second = a.elementwise.launch.base();
  CHECK(backward() == Approx(memory_time(5 * stream, rate, a).base() + second));
  stack.joint_norm_gradients = true;
  CHECK(backward() == Approx(memory_time(3 * stream, rate, a).base() + second));
}

TEST_CASE("by hand: what a gated layer keeps of a token") {
  // Inputs of two norms and two linear blocks, 8 h bytes, q, k and v 6 h, attention's output 2 h
  // and an FP32 sum for each of 32 heads, gate, up and their product 6 f. Two masks with dropout.
  // Korthikanti et al., arXiv 2205.05198, section 4.
  const double h = 4096, f = 11008, token = 16 * h + 4 * 32 + 6 * f;
  const Strategy s = testing::degrees(1);
  Stack stack = testing::plain_sum_stack();
  stack.attention = AttentionKernel::flash2;
  const auto saved = [&](const Strategy& by, const Task& task) {
    const Tables tables = tables_of(testing::dense_7b_shape(), by, stack, task);
    return cell_of(tables, by).layers[0].saved[static_cast<std::size_t>(Recompute::none)].base();
  };
  Task task = testing::training(64, 2048);
  CHECK(saved(s, task) == Approx(2048 * token));
  task.dropout = OnOff::on;
  CHECK(saved(s, task) == Approx(2048 * (token + 2 * h)));
  // Without flash kernels two 16-bit maps of 32 heads, of which a context rank has its rows.
  task.dropout = OnOff::off;
  task.attention = AttentionKernel::unfused;
  CHECK(saved(testing::degrees(1, 1, 2), task) ==
        Approx(1024 * token + 32.0 * 1024 * 2048 * (2 + 2)));
}

TEST_CASE("by hand: what a gated layer keeps of a token in FP8, and beside frozen weights") {
  const double h = 4096, f = 11008, sums = 4 * 32;
  Stack stack = testing::plain_sum_stack();
  stack.attention = AttentionKernel::flash2;
  Task task = testing::training(64, 2048);
  const auto saved = [&] {
    const Strategy s = testing::degrees(1);
    const Tables tables = tables_of(testing::dense_7b_shape(), s, stack, task);
    const LayerCost& layer = cell_of(tables, s).layers[0];
    return layer.saved[static_cast<std::size_t>(Recompute::none)].base() / 2048;
  };
  // Norms and attention keep 16 bits of what they read, attention of what it writes too; linear
  // layers keep 8 of all that they read, a copy of attention's output among it.
  task.precision = Precision::fp8;
  const double linear = 2 * h + h + f;
  CHECK(saved() == Approx(4 * h + 6 * h + 2 * h + sums + 4 * f + linear));
  stack.fp8_attention = true;
  CHECK(saved() == Approx(4 * h + 3 * h + h + sums + 4 * f + linear));
  stack.fp8_attention = false;
  // No gradient of a frozen weight asks for its input. Adapters keep 16 bits of it, which attention
  // has of its output already.
  task.method = Method::lora;
  for (const Precision precision : {Precision::bf16, Precision::fp8}) {
    task.precision = precision;
    const double frozen = 4 * h + 6 * h + 2 * h + sums + 4 * f;
    task.lora_targets = LoraTargets::qkv;
    CHECK(saved() == Approx(frozen + 2 * h));
    task.lora_targets = LoraTargets::attention;
    CHECK(saved() == Approx(frozen + 2 * h));
    task.lora_targets = LoraTargets::all;
    CHECK(saved() == Approx(frozen + 4 * h + 2 * f));
  }
}

TEST_CASE("by hand: of four chunks under their own products the first is exposed") {
  Strategy s = testing::degrees(2);
  s.overlap_tp = TensorOverlap::pipelined;
  const Tables tables = tables_of(testing::dense_7b_shape(), s, testing::plain_sum_stack());
  const Phase forward = cell_of(tables, s).layers[0].forward;
  CHECK(forward.tp > Seconds{});
  CHECK(forward.hidden.base() == Approx(3 * forward.tp.base()));
}

}  // namespace
}  // namespace scalemodel
