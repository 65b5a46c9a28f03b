// Memory and traffic of one strategy each, worked out by hand for a decoder of 6,738,415,616
// parameters: 32 layers of hidden size 4,096 and 11,008 wide, a vocabulary of 32,000.
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::degrees;
using testing::estimate;

/// 4 h^2 + 3 h f + 2 h, and the two ends with the final norm.
constexpr double kLayer = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008 + 2 * 4096;
constexpr double kEnds = 2.0 * 32000 * 4096 + 4096;
constexpr double kParameters = 32 * kLayer + kEnds;

Estimate of_7b(int accelerators, const Strategy& s, const Stack& stack = testing::reference_stack(),
               Task task = testing::training(8, 2048)) {
  return estimate(testing::dense_7b_shape(), testing::reference_cluster(accelerators), task, s,
                  stack);
}

TEST_CASE("by hand: offloaded optimizer states travel to the accelerator and back") {
  // Master weight and two moments, 12 bytes a parameter, over 60 GB/s, there and back: 2.695 s.
  static_assert(kParameters == 6738415616);
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  s.offload_optimizer = true;
  const Estimate e = of_7b(1, s, testing::plain_sum_stack());
  CHECK(e.exposed_offload.base() == Approx(2 * 12 * kParameters / 60e9));
  CHECK(e.exposed_offload.base() == Approx(2.6953662));
  // 30 of 32 layers' states wait on the host, in a node of eight ranks.
  CHECK(e.host_memory.base() == Approx(8 * 12 * kParameters * 30 / 32));
}

TEST_CASE("by hand: an update reads and writes its states") {
  // Two reads of an FP32 gradient (clipping) and its zeroing, master weight and moments in and out,
  // a 16-bit weight out: 3 x 4 + 2 x 12 + 2 = 38 bytes at 0.88 x 0.9 of 3.35 TB/s, and 2 us.
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  const Estimate e = of_7b(1, s);
  CHECK(e.optimizer.base() == Approx(38 * kParameters / (0.88 * 0.9 * 3.35e12) + 2e-6));
}

TEST_CASE("by hand: sharded parameters are gathered two layers at a time") {
  // This layer and the next in 16 bits, both ends, and one layer's gradient in FP32.
  // Rajbhandari et al., SC 2020; prefetching as in PyTorch FSDP (Zhao et al., VLDB 2023).
  Strategy s = degrees(1);
  s.sharding = Sharding::zero3;
  const Estimate e = of_7b(8, s);
  CHECK(e.memory_gathered.base() == Approx(2 * (2 * kLayer + kEnds) + 4 * kLayer));
  CHECK(e.memory_weights.base() == Approx(2 * kParameters / 8));
}

TEST_CASE("by hand: a pipeline stage has a buffer for what comes and one for what goes") {
  // 2,048 tokens x 4,096 x 2 bytes, twice.
  const Estimate e = of_7b(2, degrees(1, 2));
  CHECK(e.memory_communication.base() == 2 * 2048 * 4096 * 2.0);
}

TEST_CASE("by hand: hardware flop of a recomputation of two layers in eight") {
  // Four stages of eight layers that run two of them again: a quarter of all layers' forward flop.
  // A token: 2 flop per parameter of the matrices, 2 x 32 x (128 + 128) x 2,048/2 of attention.
  const double layer = 2 * (kLayer - 2 * 4096) + 2.0 * 32 * 256 * 1024;
  const double head = 2.0 * 32000 * 4096;
  const double model = 3 * (32 * layer + head), again = 0.25 * 32 * layer;
  Strategy s = degrees(1, 4);
  s.recompute = Recompute::full;
  s.recompute_layers = 2;
  const Estimate e = of_7b(4, s);
  CHECK(e.hfu_fraction / e.mfu_fraction == Approx(1 + again / model));
  CHECK(e.mfu_fraction * e.step_time.base() * 4 * 990e12 == Approx(8 * 2048 * model));
}

TEST_CASE("by hand: whole transfers between stages carry a tensor rank's part tp times") {
  // The last stage, which has the head, waits for its first input and then for each of the eight
  // gradients that it sends: nine hops, at 10 us and 2,048 x 4,096 x 2 bytes over 0.75 x 450 GB/s
  // each.
  Strategy s = degrees(4, 2);
  s.split_p2p = s.sequence_parallel = false;
  Stack stack = testing::plain_sum_stack();
  stack.overlap_p2p = false;
  const Estimate whole = of_7b(8, s, stack);
  const double hop = 10e-6 + 2048 * 4096 * 2.0 / (0.75 * 450e9);
  CHECK(whole.exposed_pp.base() == Approx((8 + 1) * hop));
}

TEST_CASE("by hand: FP8 keeps a copy of the weights beside those in 16 bits") {
  // Two bytes and one, unless weights are sharded and cast as they are gathered.
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  const Task task = testing::training(8, 2048, Precision::fp8);
  const Stack stack = testing::reference_stack();
  CHECK(of_7b(8, s, stack, task).memory_weights.base() == Approx(3 * kParameters));
  s.sharding = Sharding::zero3;
  CHECK(of_7b(8, s, stack, task).memory_weights.base() == Approx(2 * kParameters / 8));
}

TEST_CASE("by hand: of a reduction that compute covers the last layer's bucket is exposed") {
  // 2 x 7/8 x 4 bytes a parameter at 0.8 x 450 GB/s take 131 ms, the backward pass of 32,768 tokens
  // more than a second: 1/32 of them is left.
  Strategy s = degrees(1);
  s.sharding = Sharding::ddp;
  const Cluster cluster = testing::without_latency(testing::reference_cluster(8));
  const Estimate e = estimate(testing::dense_7b_shape(), cluster, testing::training(8, 32768), s);
  const double reduction = 2 * 7.0 / 8 * 4 * kParameters / (0.8 * 450e9);
  CHECK(e.exposed_dp.base() == Approx(reduction / 32));
}

TEST_CASE("by hand: the same of the reduction that ZeRO-2 repeats, and of what it gathers") {
  // One micro-batch: gradients of 4 bytes are scattered and parameters of 2 bytes gathered, either
  // 7/8 of them, layer by layer.
  Strategy s = degrees(1);
  s.sharding = Sharding::zero2;
  const Cluster cluster = testing::without_latency(testing::reference_cluster(8));
  const Estimate e = estimate(testing::dense_7b_shape(), cluster, testing::training(8, 32768), s);
  const double moved = 7.0 / 8 * (4 + 2) * kParameters / (0.8 * 450e9);
  CHECK(e.exposed_dp.base() == Approx(moved / 32));
}

TEST_CASE("by hand: energy counts every accelerator and the host of every node") {
  // A facility of PUE 1.2 with two nodes of eight and 1,750 W beside them.
  const Estimate e = of_7b(16, degrees(8), testing::reference_stack(), testing::training(16, 2048));
  CHECK(e.energy.base() == Approx(1.2 * e.step_time.base() * (16 * e.power.base() + 2 * 1750)));
}

}  // namespace
}  // namespace scalemodel
