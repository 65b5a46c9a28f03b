#include "scalemodel/ops/gemm.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::at_most;

constexpr double kExtents[] = {1, 16, 100, 1024, 4096, 16384};
constexpr Precision kSupported[] = {Precision::fp32, Precision::tf32, Precision::fp16,
                                    Precision::bf16, Precision::fp8};

/// Time without the fixed start of a call.
Seconds floor_of(const GemmShape& shape, Precision precision, const Accelerator& a) {
  const double operands = shape.batch * (shape.m * shape.k + shape.n * shape.k);
  const Bytes bytes{operand_bytes(precision) * operands +
                    shape.output_bytes * shape.batch * shape.m * shape.n};
  return max(shape.flop() / a.peak_of(precision), bytes / a.memory_bandwidth);
}

template <class Visit>
void for_shapes(Visit&& visit) {
  for (const double m : kExtents) {
    for (const double n : kExtents) {
      for (const double k : kExtents) {
        for (const double batch : {1.0, 8.0}) visit(GemmShape{m, n, k, batch, 2});
      }
    }
  }
}

TEST_CASE("quantising for one GEMM writes a narrow operand once, not twice") {
  const GemmTimer narrow(testing::reference_accelerator(), Precision::fp8);
  const GemmShape both{8192, 8192, 8192};
  GemmShape one = both, none = both;
  one.one_way = true;
  none.quantised = true;
  const Seconds whole = narrow.time(both) - narrow.time(none);
  CHECK(whole > Seconds{});
  CHECK(testing::about_equal(narrow.time(one) - narrow.time(none), 0.75 * whole));
}

TEST_CASE("no GEMM beats the roofline") {
  Accelerator a = testing::reference_accelerator();
  for (const bool tiled : {false, true}) {
    a.gemm.tiled = tiled;
    for (const Precision precision : kSupported) {
      const GemmTimer timer(a, precision);
      for_shapes([&](const GemmShape& shape) {
        CAPTURE(name_of(precision));
        CAPTURE(shape.m);
        CAPTURE(shape.n);
        CAPTURE(shape.k);
        CHECK(timer.time(shape) > floor_of(shape, precision, a));
      });
    }
  }
}

TEST_CASE("tiles are timed where both the fit's peak and the sheet's are known") {
  for (const bool of_fit : {true, false}) {
    Accelerator a = testing::reference_accelerator();
    a.gemm.tiled = true;
    Accelerator rooflined = a;
    rooflined.gemm.tiled = false;
    (of_fit ? a.gemm.reference_peak : a.peak[static_cast<std::size_t>(Precision::bf16)]) =
        FlopPerSecond{};
    const GemmShape shape{4096, 4096, 4096, 1, 2};
    CHECK(GemmTimer(a, Precision::fp8).time(shape) ==
          GemmTimer(rooflined, Precision::fp8).time(shape));
  }
}

TEST_CASE("an empty product costs nothing") {
  const GemmTimer timer(testing::reference_accelerator(), Precision::bf16);
  CHECK(timer.time({0, 8, 8, 1, 2}) == Seconds{});
  CHECK(timer.time({8, 0, 8, 1, 2}) == Seconds{});
  CHECK(timer.time({8, 8, 0, 1, 2}) == Seconds{});
  CHECK(timer.time({8, 8, 8, 0, 2}) == Seconds{});
}

TEST_CASE("faster arithmetic or memory never makes a product slower") {
  const Accelerator base = testing::reference_accelerator();
  for (const bool tiled : {false, true}) {
    Accelerator slow = base;
    slow.gemm.tiled = tiled;
    Accelerator quick = slow, wide = slow;
    for (FlopPerSecond& peak : quick.peak) peak = 2 * peak;
    quick.gemm.reference_peak = 2 * quick.gemm.reference_peak;
    wide.memory_bandwidth = 2 * wide.memory_bandwidth;
    for (const Precision precision : kSupported) {
      const GemmTimer timer(slow, precision), quicker(quick, precision), wider(wide, precision);
      for_shapes([&](const GemmShape& shape) {
        CHECK(at_most(quicker.time(shape), timer.time(shape)));
        CHECK(at_most(wider.time(shape), timer.time(shape)));
      });
    }
  }
}

TEST_CASE("time never falls with the depth, the batch or the bytes of an output") {
  const GemmTimer timer(testing::reference_accelerator(), Precision::bf16);
  for_shapes([&](const GemmShape& shape) {
    CAPTURE(shape.m);
    CAPTURE(shape.n);
    CAPTURE(shape.k);
    const Seconds time = timer.time(shape);
    GemmShape deeper = shape, more = shape, heavier = shape;
    deeper.k *= 2;
    more.batch *= 2;
    heavier.output_bytes = 8;
    CHECK(at_most(time, timer.time(deeper)));
    CHECK(at_most(time, timer.time(more)));
    CHECK(at_most(time, timer.time(heavier)));
  });
}

TEST_CASE("in the limit a product costs in proportion to its flop") {
  const Accelerator a = testing::reference_accelerator();
  for (const Precision precision : kSupported) {
    CAPTURE(name_of(precision));
    const GemmTimer timer(a, precision);
    const GemmShape big{65536, 65536, 65536, 1, 2}, double_depth{65536, 65536, 131072, 1, 2};
    CHECK(timer.time(double_depth) / timer.time(big) == testing::Approx(2).epsilon(0.02));
  }
}

TEST_CASE("narrower formats are at least as fast on large products") {
  const Accelerator a = testing::reference_accelerator();
  const GemmShape big{16384, 16384, 16384, 1, 2};
  const auto time = [&](Precision precision) { return GemmTimer(a, precision).time(big); };
  CHECK(time(Precision::tf32) < time(Precision::fp32));
  CHECK(time(Precision::bf16) < time(Precision::tf32));
  CHECK(time(Precision::bf16) == time(Precision::fp16));
  CHECK(time(Precision::fp8) < time(Precision::bf16));
}

TEST_CASE("FP4 follows its own peak and bytes") {
  Accelerator a = testing::reference_accelerator();
  a.peak[static_cast<std::size_t>(Precision::fp4)] = 4 * a.peak_of(Precision::bf16);
  a.gemm.fp4 = a.gemm.fp8;
  const GemmShape compute_bound{16384, 16384, 16384, 1, 2}, memory_bound{1, 16384, 16384, 1, 2};
  for (const bool tiled : {false, true}) {
    a.gemm.tiled = tiled;
    const GemmTimer fp4(a, Precision::fp4), fp8(a, Precision::fp8);
    CHECK(fp4.time(compute_bound) < fp8.time(compute_bound));
    CHECK(fp4.time(memory_bound) < fp8.time(memory_bound));
  }
}

/// A kernel of its own in the tiles of the reference accelerator.
GemmTimer narrow_timer(const TileGemm& kernel, double weight_bytes, bool warm = false) {
  const Accelerator a = testing::reference_accelerator();
  return {a, kernel, {2, weight_bytes, a.peak_of(Precision::bf16), warm}};
}

/// An accelerator that multiplies rows of less than whole 16 bytes at other rates.
Accelerator with_slow_rows(bool tiled) {
  Accelerator a = testing::reference_accelerator();
  a.gemm.tiled = tiled;
  a.gemm.rows_of_4_fraction = 0.4;
  a.gemm.rows_of_2_fraction = 0.2;
  return a;
}

TEST_CASE("rows of whole 16 bytes run as if there were no others") {
  for (const bool tiled : {false, true}) {
    Accelerator even = with_slow_rows(tiled);
    even.gemm.rows_of_4_fraction = even.gemm.rows_of_2_fraction = 1;
    const GemmTimer known(with_slow_rows(tiled), Precision::bf16), unknown(even, Precision::bf16);
    for (const double m : {1.0, 17.0, 4096.0, 9001.0}) {
      for (const double n : {8.0, 50304.0}) {
        for (const double k : {16.0, 1024.0, 4104.0}) {
          CHECK(known.time({m, n, k, 1, 2}) == unknown.time({m, n, k, 1, 2}));
          CHECK(known.time({n, k, m, 1, 8, true, true}) ==
                unknown.time({n, k, m, 1, 8, true, true}));
        }
      }
    }
    // A share of ranks that is no whole number is a mean of them.
    CHECK(known.time({4096, 6282.125, 1024, 1, 2}) == unknown.time({4096, 6282.125, 1024, 1, 2}));
  }
}

TEST_CASE("shorter rows of an operand or of the output multiply at their fraction") {
  for (const bool tiled : {false, true}) {
    CAPTURE(tiled);
    const GemmTimer timer(with_slow_rows(tiled), Precision::bf16);
    const Seconds whole = timer.time({16384, 16384, 16384, 1, 2});
    const auto ratio = [&](const GemmShape& shape) { return timer.time(shape) / whole; };
    // One row of tiles more than the whole; long products, where launches are nothing.
    for (const double odd : {16379.0, 16383.0}) {
      CHECK(ratio({16384, odd, 16384, 1, 2}) == doctest::Approx(5).epsilon(0.02));
      CHECK(ratio({16384, 16384, odd, 1, 2}) == doctest::Approx(5).epsilon(0.02));
      CHECK(ratio({odd, 16384, 16384, 1, 2}) == doctest::Approx(1).epsilon(0.02));
      // x' dy lies in rows of its m and n.
      CHECK(ratio({odd, 16384, 16384, 1, 2, true, true}) == doctest::Approx(5).epsilon(0.02));
      CHECK(ratio({16384, 16384, odd, 1, 2, true, true}) == doctest::Approx(1).epsilon(0.02));
    }
    for (const double even : {16378.0, 16380.0}) {
      CHECK(ratio({16384, even, 16384, 1, 2}) == doctest::Approx(2.5).epsilon(0.02));
    }
    CHECK(ratio({16384, 16382, 16381, 1, 2}) == doctest::Approx(5).epsilon(0.02));
  }
}

TEST_CASE("8-bit rows need twice the values, wider ones have no rates of their own") {
  const Accelerator a = with_slow_rows(true);
  const GemmShape eights{16384, 16384, 16376, 1, 2};
  const GemmShape whole{16384, 16384, 16384, 1, 2};
  const GemmTimer narrow(a, Precision::fp8), half(a, Precision::bf16), wide(a, Precision::fp32);
  CHECK(narrow.time(eights) > 2 * narrow.time(whole));
  CHECK(half.time(eights) <= half.time(whole));
  CHECK(wide.time({16384, 16384, 16383, 1, 2}) <= wide.time(whole));
}

TEST_CASE("a named kernel with the constants and formats of a precision is that precision") {
  const Accelerator a = testing::reference_accelerator();
  const GemmTimer precision(a, Precision::bf16), named = narrow_timer(a.gemm.dense16, 2);
  for_shapes([&](const GemmShape& shape) { CHECK(precision.time(shape) == named.time(shape)); });
}

TEST_CASE("lighter weights, a warm cache and residency never make a product slower") {
  Accelerator a = testing::reference_accelerator();
  a.gemm.warm_factor = 3;
  const FlopPerSecond peak = a.peak_of(Precision::bf16);
  const GemmTimer cold(a, a.gemm.dense16, {2, 2, peak, false});
  const GemmTimer light(a, a.gemm.dense16, {2, 0.52, peak, false});
  const GemmTimer warm(a, a.gemm.dense16, {2, 2, peak, true});
  for_shapes([&](const GemmShape& shape) {
    CHECK(at_most(light.time(shape), cold.time(shape)));
    CHECK(at_most(warm.time(shape), cold.time(shape)));
  });
  const GemmShape small{64, 4096, 1024, 1, 2}, large{16384, 16384, 16384, 1, 2};
  CHECK(warm.time(small) < cold.time(small));
  CHECK(warm.time(large) / cold.time(large) == testing::Approx(1).epsilon(1e-3));
}

TEST_CASE("the host floor bounds short calls only") {
  const TileGemm kernel = testing::reference_accelerator().gemm.dense16;
  TileGemm issued = kernel;
  issued.host_floor = 60 * unit::us;
  const GemmTimer device = narrow_timer(kernel, 2), host = narrow_timer(issued, 2);
  for_shapes([&](const GemmShape& shape) {
    CHECK(host.time(shape) == max(device.time(shape), issued.host_floor));
  });
}

TEST_CASE("side by side tiles hide latency, not arithmetic") {
  Accelerator alone = testing::reference_accelerator();
  alone.gemm.tile_rows = {128, 0, 0, 0, 0, 0, 0, 0};
  alone.gemm.tile_columns = {128, 0, 0, 0, 0, 0, 0, 0};
  alone.gemm.wave_targets = 1;
  alone.gemm.dense16.wave_weight = 1;
  alone.gemm.dense16.tau_cycles = 2000;
  Accelerator together = alone;
  together.gemm.resident_elements = 2 * 128 * 128;
  together.gemm.resident_most = 2;
  const GemmShape two_each{128, 128.0 * 2 * alone.multiprocessors, 4096, 1, 2};
  CHECK(GemmTimer(together, Precision::bf16).time(two_each) <
        GemmTimer(alone, Precision::bf16).time(two_each));
  alone.gemm.dense16.tau_cycles = together.gemm.dense16.tau_cycles = 0;
  CHECK(GemmTimer(together, Precision::bf16).time(two_each) ==
        GemmTimer(alone, Precision::bf16).time(two_each));
}

TEST_CASE("deep products of few tiles are cut along k") {
  Accelerator a = testing::reference_accelerator();
  const GemmShape deep{64, 128, 65536, 1, 2};
  const Seconds cut = GemmTimer(a, Precision::bf16).time(deep);
  a.gemm.dense16.split = 1 * unit::s;
  CHECK(cut < 0.5 * GemmTimer(a, Precision::bf16).time(deep));
}

}  // namespace
}  // namespace scalemodel
