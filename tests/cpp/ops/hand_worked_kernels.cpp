// Times of kernels worked out by hand, where one term decides.
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/dispatch.hpp"
#include "scalemodel/ops/moe.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("by hand: flash attention repeats the scores in its backward pass") {
  // Five products where the forward pass has two: 2.5 times its flop, at 0.3 of 990 TFLOP/s, and
  // two launches of 10 us. Dao, arXiv 2307.08691.
  const Accelerator a = testing::reference_accelerator();
  AttentionWork work;
  work.batch = 1;
  work.queries = work.keys = 32768;
  work.heads = work.kv_heads = 32;
  work.head_dim = work.v_head_dim = 128;
  const GemmTimer gemm(a, Precision::bf16);
  const AttentionTime time =
      attention_time(work, AttentionKernel::flash2, a, Precision::bf16, gemm);
  const double flop = 2.0 * 32 * 256 * 32768 * (32768 + 128) / 2;
  CHECK(time.forward.base() == Approx(flop / (0.34 * 990e12) + 10e-6));
  CHECK(time.backward.base() == Approx(2.5 * flop / (0.3 * 990e12) + 20e-6));
}

TEST_CASE("by hand: of two choices on four nodes three quarters leave the node") {
  // 1,000 tokens of 5,000 values in 16 bits are 10 MB; 2 x 3/4 of that at 10 GB/s.
  DispatchKernel kernel;
  kernel.copies_once = false;
  kernel.network_rate = 10 * (unit::GB / unit::s);
  DispatchWork work;
  work.tokens = 1000;
  work.hidden = 5000;
  work.topk = 2;
  work.ranks = work.nodes = 4;
  CHECK(dispatch_time(work, kernel).base() == Approx(1.5e-3));
}

TEST_CASE("by hand: a gated expert multiplies by three matrices") {
  // 10,000 rows through 4,096 x 1,024 three times, at half of 990 TFLOP/s, memory out of the way.
  Accelerator a = testing::reference_accelerator();
  a.memory_bandwidth = BytesPerSecond{1e30};
  GroupedGemmKernel kernel;
  kernel.compute_fraction = 0.5;
  kernel.memory_fraction = 1;
  kernel.tile_rows = 0;
  kernel.launch = kernel.expert = kernel.active = Seconds{};
  ExpertLayer layer;
  layer.load = {10000, 8, 10000};
  layer.tokens = 10000;
  layer.experts = 8;
  layer.hidden = 4096;
  layer.intermediate = 1024;
  layer.matrices = 3;
  CHECK(expert_layer_time(layer, kernel, a).base() ==
        Approx(2.0 * 10000 * 3 * 4096 * 1024 / (0.5 * 990e12)));
}

}  // namespace
}  // namespace scalemodel
