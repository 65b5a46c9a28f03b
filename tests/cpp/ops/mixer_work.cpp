// What kernels of sparse attention and around mixers work on, by hand.
#include "scalemodel/ops/mixer_work.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// 16 heads of 576 and 512 over 2,048 selected keys, an indexer of 64 x 128.
SparseShape selected() {
  SparseShape s;
  s.hidden = 7168;
  s.heads = 16;
  s.projected = 1e8;
  s.indexer = 1e7;
  s.index_width = 64 * 128;
  s.key_width = 1088;
  s.cached_values = 576;
  s.selected = 2048;
  return s;
}

TEST_CASE("by hand: a query attends to the keys that are chosen, and to its window") {
  SparseShape s = selected();
  CHECK(s.attended({1, 1, 10'000}) == 2048);
  CHECK(s.attended({1, 1, 1000}) == 999.5);   // itself by half
  CHECK(s.attended({1, 1000, 1000}) == 500);  // causal
  s.ratio = 4;
  s.window = 128;
  CHECK(s.attended({1, 1, 4000.5}) == 1000 + 128);  // one key of four tokens
  s.selected = 0;
  CHECK(s.attended({1, 1, 40'000.5}) == 10'000 + 128);
}

TEST_CASE("by hand: a module of sparse attention, one token and a prompt") {
  const SparseShape s = selected();
  const double weights = 2 * 1.1e8;
  // 8 sequences, one token each: both GEMMs per weight, 2,048 keys of 576 values a sequence.
  const KernelWork one = sparse_module_work(s, {8, 1, 10'000});
  CHECK(one.flop == Approx(8 * 2 * 1.1e8));
  CHECK(one.core == Approx(8 * 2 * 16 * 1088 * 2048.0));
  CHECK(one.bytes == Approx(weights + 4 * 8 * 7168 + 8 * 2 * 2048 * 576.0));
  CHECK(one.pieces == Approx(8 * 9999.5 / 1000));
  // A prompt reads all of its keys once.
  const KernelWork prompt = sparse_module_work(s, {1, 4096, 4096});
  CHECK(prompt.bytes == Approx(weights + 4 * 4096 * 7168.0 + 2 * 4096 * 576.0));
}

TEST_CASE("a tile of heads is multiplied as a whole, however few of them a rank has") {
  SparseShape s = selected();
  s.head_tile = 64;
  const CallSizes call{8, 1, 10'000};
  const double few = sparse_module_work(s, call).core;
  s.heads = 64;
  CHECK(sparse_module_work(s, call).core == few);
  s.heads = 65;
  CHECK(sparse_module_work(s, call).core == 2 * few);
}

TEST_CASE("keys that one program walks follow one another, whatever asks for them") {
  const SparseShape s = selected();
  CHECK(chained_module_work(s, {64, 32, 500'000}).steps == 500'000);
  CHECK(chained_module_work(s, {1, 1, 500'000}).steps == 500'000);
  CHECK(chained_module_work(s, {4, 64, 1000}).flop == sparse_module_work(s, {4, 64, 1000}).flop);
}

TEST_CASE("an index of several heads of keys is read, that of one is walked key by key") {
  SparseShape s = selected();
  s.index_width = 128;
  s.key_width = s.cached_values = 256;  // one head of keys
  const CallSizes call{4, 1, 1280};
  const KernelWork plain = sparse_module_work(s, call);
  CHECK(blocked_module_work(s, call).steps == plain.steps + 10);
  CHECK(blocked_module_work(s, call).pieces == plain.pieces);
  CHECK(blocked_module_work(s, call).bytes == plain.bytes);
  s.cached_values = 512;
  s.index_width = 256;
  CHECK(blocked_module_work(s, call).pieces == 0);
  CHECK(blocked_module_work(s, call).bytes ==
        Approx(sparse_module_work(s, call).bytes + 4 * 1280 * s.cache_bytes * 128));
}

TEST_CASE("running sequences without a sparse kernel: the square of all rows of keys") {
  SparseShape s = selected();
  s.key_width = s.cached_values = 256;
  const double rows = 512.0 * 8192;
  CHECK(eager_module_work(s, {512, 1, 8192}).core == Approx(rows * rows));
  CHECK(eager_module_work(s, {256, 1, 16'384}).core == Approx(rows * rows));
  s.cached_values = 512;
  CHECK(eager_module_work(s, {512, 1, 8192}).core == Approx(4 * rows * rows));
}

TEST_CASE("by hand: without a sparse kernel every pair is scored, for each head of keys") {
  SparseShape s = selected();
  s.key_width = s.cached_values = 256;  // one head of keys
  const CallSizes call{2, 512, 640};
  CHECK(eager_module_work(s, call).pieces == Approx(2 * 512 * 640 / 1000.0));
  CHECK(eager_module_work(s, call).core == 0);
  s.selected = 16;
  CHECK(eager_module_work(s, call).pieces == Approx(2 * 512 * 640 / 1000.0));
  s.cached_values = 2 * s.key_width;  // laid out once more
  CHECK(eager_module_work(s, call).pieces == Approx(2 * 2 * 2 * 512 * 640 / 1000.0));
  CHECK(eager_module_work(s, call).flop == sparse_module_work(s, call).flop);
}

TEST_CASE("the core of a module takes its own rate, or that of the other flop") {
  WorkKernel kernel;
  kernel.rate = FlopPerSecond{2e14};
  KernelWork work{1e12, 0, 0, 0, 3e12};
  CHECK(work_kernel_time(work, kernel, Bytes{}).base() == Approx(4e12 / 2e14));
  kernel.core_rate = FlopPerSecond{6e14};
  CHECK(work_kernel_time(work, kernel, Bytes{}).base() == Approx(1e12 / 2e14 + 3e12 / 6e14));
}

TEST_CASE("by hand: the parts of sparse attention") {
  const SparseShape s = selected();
  const CallSizes call{2, 1, 10'000};
  CHECK(sparse_core_work(s, call).flop == 2 * 2 * 16 * 1088 * 2048.0);
  CHECK(sparse_core_work(s, call).bytes == 2 * (2 * 16 * 1088 + 2 * 2048 * 576.0));
  CHECK(index_scores_work(s, call).flop == 2 * 2 * 64 * 128 * 9999.5);
  // FP32 scores, and 132 bytes of every key of a sequence.
  CHECK(index_scores_work(s, call).bytes == 4 * 2 * 9999.5 + 132 * 2 * 10'000.0);
  CHECK(choice_work(s, call).bytes == 4 * 2 * 9999.5);
}

TEST_CASE("by hand: convolutions, streams and experts with their exchange") {
  // Read and written in 16 bits; of running sequences also three tokens of the window.
  CHECK(convolution_work({2, 512, 512}, 6144, 4, false).bytes == 4 * 2 * 512 * 6144.0);
  CHECK(convolution_work({2, 513, 513}, 6144, 4, false).pieces == 2 * 2 * 6144);
  CHECK(convolution_work({2, 1, 1}, 6144, 4, true).bytes == 4 * 2 * 6144 + 4 * 2 * 6144 * 3);
  CHECK(stream_mixing_work(100, 4096, 4).flop == 2 * 100 * 4 * 4096 * 4 * 6.0);
  CHECK(fused_experts_work(64, 4096, 2048, 8, 256, 8, 1.5).flop ==
        6 * 64 * 8 * 1.5 * 4096 * 2048.0);
}

}  // namespace
}  // namespace scalemodel
