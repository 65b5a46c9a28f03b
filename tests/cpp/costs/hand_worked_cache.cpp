// Keys and values that a rank caches, by hand.
#include "scalemodel/serving/capacity.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

/// Bytes of a block of sixteen tokens on a rank, two a value.
double block_bytes(const DecoderShape& shape, int tensor_ranks) {
  Engine engine;
  engine.block_tokens = 16;
  ServingKernels kernels;
  kernels.cache = Precision::bf16;
  ServingLayout layout;
  layout.tp = tensor_ranks;
  return CacheBlocks(make_decoder(shape), engine, kernels, layout).block().base();
}

TEST_CASE("by hand: a rank caches one whole head of keys and values at least") {
  // 80 layers, 8 heads of 128 and 128 values: 8 of them on one rank, 1 on eight and on sixteen.
  const DecoderShape shape = testing::grouped_70b_shape();
  CHECK(block_bytes(shape, 1) == 16 * 80 * 8 * 256 * 2.0);
  CHECK(block_bytes(shape, 8) == 16 * 80 * 1 * 256 * 2.0);
  CHECK(block_bytes(shape, 16) == 16 * 80 * 1 * 256 * 2.0);
}

TEST_CASE("by hand: latent attention caches a latent and its rotary keys, on every rank") {
  // 27 layers of 512 + 64 values (DeepSeek-V2, arXiv 2405.04434, section 2.1).
  const DecoderShape shape = testing::latent_experts_shape();
  CHECK(block_bytes(shape, 1) == testing::Approx(16 * 27 * 576 * 2.0));
  CHECK(block_bytes(shape, 8) == testing::Approx(16 * 27 * 576 * 2.0));
}

}  // namespace
}  // namespace scalemodel
