#include "scalemodel/ops/elementwise.hpp"

#include "scalemodel/ops/embedding.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::at_most;

StreamingKernel fitted_streaming_kernel() {
  return {3, 2 * unit::us, 0.3e-3 * unit::us, 0.9, 3, 1.5};
}

Seconds time_of(double rows, double columns,
                const StreamingKernel& kernel = fitted_streaming_kernel(),
                const Accelerator& accelerator = testing::reference_accelerator()) {
  return streaming_time(rows, columns, 2, kernel, accelerator);
}

TEST_CASE("a kernel is never faster than its launch, nor than its bytes outside the cache") {
  const Accelerator a = testing::reference_accelerator();
  StreamingKernel kernel = fitted_streaming_kernel();
  kernel.cached_speedup = 1;
  for (const double rows : {1.0, 100.0, 1e5}) {
    for (const double columns : {1.0, 1024.0, 65536.0}) {
      const Bytes bytes{rows * columns * kernel.values_moved * 2};
      CHECK(time_of(rows, columns, kernel) >= kernel.launch);
      CHECK(time_of(rows, columns, kernel) > bytes / a.memory_bandwidth);
    }
  }
}

TEST_CASE("time never falls with rows or columns, the cache notwithstanding") {
  for (double rows = 1; rows < 1e6; rows *= 2) {
    for (const double columns : {64.0, 4096.0}) {
      CHECK(at_most(time_of(rows, columns), time_of(1.1 * rows, columns)));
      CHECK(at_most(time_of(rows, columns), time_of(rows, 1.1 * columns)));
    }
  }
}

TEST_CASE("in the limit a kernel streams at its fraction of the bandwidth") {
  const Accelerator a = testing::reference_accelerator();
  const double rows = 1e7, columns = 4096;
  const Bytes bytes{rows * columns * 6};
  CHECK(time_of(rows, columns) / (bytes / (0.9 * a.memory_bandwidth)) == Approx(1).epsilon(1e-3));
}

TEST_CASE("a blend of one is a sum; an empty matrix costs nothing") {
  StreamingKernel sum = fitted_streaming_kernel();
  sum.blend = 1;
  sum.cached_speedup = 1;
  const Accelerator a = testing::reference_accelerator();
  const Seconds parts = sum.launch + 512 * sum.column +
                        Bytes{64 * 512 * 6.0} / (sum.memory_fraction * a.memory_bandwidth);
  CHECK(time_of(64, 512, sum).base() == Approx(parts.base()));
  CHECK(time_of(0, 512) == Seconds{});
  CHECK(time_of(512, 0) == Seconds{});
}

TEST_CASE("a lookup costs its rows, indices and sums") {
  const Accelerator a = testing::reference_accelerator();
  const LookupKernel kernel{2 * unit::us, 0.5};
  const EmbeddingBags bags{4, 1000, 10, 128, 4};
  CHECK(lookup_bytes(bags) == Bytes{4.0 * 1000 * (10 * (128 * 4 + 8) + 128 * 4)});
  CHECK(lookup_time(bags, kernel, a) - kernel.launch > lookup_bytes(bags) / a.memory_bandwidth);
  EmbeddingBags twice = bags;
  twice.batch *= 2;
  CHECK(((lookup_time(twice, kernel, a) - kernel.launch) /
         (lookup_time(bags, kernel, a) - kernel.launch)) == Approx(2));
  CHECK(lookup_time({4, 0, 10, 128, 4}, kernel, a) == Seconds{});
}

}  // namespace
}  // namespace scalemodel
