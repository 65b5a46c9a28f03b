#include "scalemodel/ops/moe.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::at_most;

GroupedGemmKernel fitted_grouped_kernel() {
  GroupedGemmKernel kernel;
  kernel.launch = 20 * unit::us;
  kernel.expert = 0.01 * unit::us;
  kernel.active = 20 * unit::us;
  kernel.compute_fraction = 0.6;
  kernel.memory_fraction = 0.85;
  kernel.cached_speedup = 3;
  kernel.occupancy_exponent = 0.5;
  kernel.tile_rows = 120;
  kernel.tile_onset = 3;
  kernel.activation_passes = 1;
  kernel.gather_passes = 2;
  return kernel;
}

/// Every fraction 1, nothing beside the products.
GroupedGemmKernel perfect_kernel(Precision math) {
  GroupedGemmKernel kernel;
  kernel.math = math;
  kernel.weight_bytes = operand_bytes(math);
  return kernel;
}

ExpertLayer layer_of(const ExpertRouting& routing, double hidden = 4096,
                     double intermediate = 2048) {
  return {expert_load(routing),
          routing.tokens,
          static_cast<double>(routing.topk),
          static_cast<double>(routing.experts),
          static_cast<double>(routing.ranks),
          hidden,
          intermediate,
          1,
          3};
}

template <class Visit>
void for_layers(Visit&& visit) {
  for (const double skew : {0.0, 1.2}) {
    for (const double tokens : {1.0, 16.0, 500.0, 16384.0}) {
      for (const auto& [experts, topk] : {std::pair{8, 2}, {128, 8}}) {
        for (const int ranks : {1, 4}) visit(layer_of({tokens, experts, topk, ranks, skew}));
      }
    }
  }
}

Seconds time_of(const ExpertLayer& layer, const GroupedGemmKernel& kernel = fitted_grouped_kernel(),
                const Accelerator& accelerator = testing::reference_accelerator()) {
  return expert_layer_time(layer, kernel, accelerator);
}

TEST_CASE("no grouped product beats the roofline") {
  const Accelerator a = testing::reference_accelerator();
  for (const Precision math : {Precision::bf16, Precision::fp8}) {
    const GroupedGemmKernel kernel = perfect_kernel(math);
    for (const double rows : {1.0, 100.0, 1e5}) {
      for (const double groups : {1.0, 64.0}) {
        for (const double columns : {64.0, 8192.0}) {
          const GroupedShape shape{std::max(rows, groups), groups, columns, 4096};
          const Bytes weights{groups * columns * 4096 * operand_bytes(math)};
          const Seconds bound = max(Flop{2 * shape.rows * columns * 4096} / a.peak_of(math),
                                    weights / a.memory_bandwidth);
          CHECK(grouped_gemm_time(shape, weights, kernel, a) >= (1 - 1e-12) * bound);
        }
      }
    }
  }
}

TEST_CASE("an expert layer needs no time without tokens, and at least its launch with them") {
  CHECK(time_of({}) == Seconds{});
  for_layers(
      [](const ExpertLayer& layer) { CHECK(time_of(layer) > fitted_grouped_kernel().launch); });
}

TEST_CASE("more rows, experts, tokens or width never make a layer faster") {
  for_layers([](const ExpertLayer& layer) {
    const Seconds time = time_of(layer);
    ExpertLayer rows = layer, active = layer, tokens = layer, hidden = layer, wide = layer;
    rows.load.pairs *= 1.5;
    active.load.active += 1;
    tokens.tokens *= 2;
    hidden.hidden *= 2;
    wide.intermediate *= 2;
    CHECK(at_most(time, time_of(rows)));
    CHECK(at_most(time, time_of(active)));
    CHECK(at_most(time, time_of(tokens)));
    CHECK(at_most(time, time_of(hidden)));
    CHECK(at_most(time, time_of(wide)));
  });
}

TEST_CASE("splitting experts or dropping the gate never makes a layer slower") {
  for_layers([](const ExpertLayer& layer) {
    ExpertLayer split = layer, ungated = layer;
    split.tensor_ranks = 4;
    ungated.matrices = 2;
    CHECK(at_most(time_of(split), time_of(layer)));
    CHECK(at_most(time_of(ungated), time_of(layer)));
  });
}

TEST_CASE("a faster accelerator never makes a layer slower") {
  const Accelerator slow = testing::reference_accelerator();
  Accelerator quick = slow, wide = slow, roomy = slow;
  for (FlopPerSecond& peak : quick.peak) peak = 2 * peak;
  wide.memory_bandwidth = 2 * wide.memory_bandwidth;
  roomy.l2 = 2 * roomy.l2;
  for_layers([&](const ExpertLayer& layer) {
    const Seconds time = time_of(layer);
    CHECK(at_most(time_of(layer, fitted_grouped_kernel(), quick), time));
    CHECK(at_most(time_of(layer, fitted_grouped_kernel(), wide), time));
    CHECK(at_most(time_of(layer, fitted_grouped_kernel(), roomy), time));
  });
}

TEST_CASE("computing the pairs of other ranks costs extra, on one rank nothing") {
  GroupedGemmKernel all = fitted_grouped_kernel(), own = all;
  all.computes_remote = true;
  all.gather_passes = own.gather_passes = 0;
  for_layers([&](const ExpertLayer& layer) {
    CHECK(at_most(time_of(layer, own), time_of(layer, all)));
    if (layer.expert_ranks == 1) CHECK(time_of(layer, all) == time_of(layer, own));
  });
}

TEST_CASE("long groups cost in proportion to their rows") {
  const Accelerator a = testing::reference_accelerator();
  const GroupedGemmKernel kernel = fitted_grouped_kernel();
  const GroupedShape once{1e6, 8, 4096, 4096}, twice{2e6, 8, 4096, 4096};
  CHECK(grouped_call_time(twice, kernel, a) / grouped_call_time(once, kernel, a) ==
        testing::Approx(2).epsilon(0.01));
}

TEST_CASE("tiles that are reserved for any token cost time, whether rows come or not") {
  GroupedGemmKernel packed = fitted_grouped_kernel();
  packed.tile_rows = 64;  // half of the tiles that are reserved
  GroupedGemmKernel reserved = packed;
  reserved.reserved_rows = 128;
  for_layers([&](const ExpertLayer& layer) {
    const ReservedRows rows = reserved_rows(layer, reserved);
    const double held = layer.experts / layer.expert_ranks, pairs = layer.tokens * layer.topk;
    CHECK(rows.filled >= layer.load.pairs);
    CHECK(rows.filled + rows.empty >= pairs);
    // A whole tile more than what is asked for, unless the fullest rank fills more of them.
    const double most = std::max(pairs + 127 * held + 128, rows.filled);
    CHECK(rows.filled + rows.empty <= most);
    CHECK(reserved_rows(layer, packed).empty == 0);
    CHECK(at_most(time_of(layer, packed), time_of(layer, reserved)));
    ExpertLayer idle = layer;
    idle.load.active = layer.load.active / 2;
    // Experts without rows save what their weights take to read, not their tiles.
    CHECK(reserved_rows(idle, reserved).empty >= rows.empty);
    CHECK(at_most(time_of(idle, reserved), time_of(layer, reserved)));
  });
}

TEST_CASE("a single row costs the smallest tile, and whole tiles no more than their rows") {
  const Accelerator a = testing::reference_accelerator();
  GroupedGemmKernel kernel = perfect_kernel(Precision::fp8);
  const Bytes cached{1e12};
  const auto time = [&](double rows, double groups) {
    return grouped_gemm_time({rows, groups, 4096, 7168}, cached, kernel, a);
  };
  const Seconds full = time(16 * 64, 16);
  kernel.smallest_tile = 64;
  for (const double rows : {1.0, 28.0, 64.0}) CHECK(time(16 * rows, 16) == full);
  CHECK(time(16 * 65, 16) > full);
  // Beyond one tile half of the last is wasted, of which the smallest is no further part.
  kernel.tile_rows = 64;
  kernel.tile_onset = 1e-3;
  const Seconds wasted = time(16 * 1000, 16);
  kernel.smallest_tile = 0;
  CHECK(time(16 * 1000, 16) == wasted);
  const Seconds unpadded = time(1, 1);
  kernel.tile_rows = 64;
  kernel.smallest_tile = 64;
  kernel.reserved_rows = 64;  // rows as they come are whole tiles
  CHECK(time(1, 1) <= unpadded);
  CHECK(time(16 * 64, 16) == full);
}

TEST_CASE("a kernel loses as many clocks on slower tensor cores, a smaller part of its time") {
  const Accelerator timed = testing::reference_accelerator();
  Accelerator slow = timed;
  for (FlopPerSecond& peak : slow.peak) peak = 0.25 * peak;
  const GroupedGemmKernel kernel = fitted_grouped_kernel();
  CHECK(moved_kernel(kernel, timed, timed).compute_fraction == testing::Approx(0.6));
  const GroupedGemmKernel moved = moved_kernel(kernel, timed, slow);
  CHECK(moved.compute_fraction == testing::Approx(1 / (1 + (1 / 0.6 - 1) / 4)));
  // Seconds of a product: those of the slower cores, and what was lost beside them before.
  const auto seconds = [](const GroupedGemmKernel& of, const Accelerator& on) {
    return 1 / (of.compute_fraction * on.peak_of(of.math).base());
  };
  const double lost = seconds(kernel, timed) - 1 / timed.peak_of(kernel.math).base();
  CHECK(seconds(moved, slow) - 1 / slow.peak_of(kernel.math).base() == testing::Approx(lost));
  // Half the multiprocessors at the same pace lose as much in each of theirs.
  Accelerator half = timed;
  half.multiprocessors = timed.multiprocessors / 2;
  for (FlopPerSecond& peak : half.peak) peak = 0.5 * peak;
  CHECK(moved_kernel(kernel, timed, half).compute_fraction == testing::Approx(0.6));
  GroupedGemmKernel beyond = kernel;
  beyond.compute_fraction = 1.1;
  CHECK(moved_kernel(beyond, timed, slow) == beyond);
}

TEST_CASE("a format the accelerator lacks runs in the next wider one") {
  const Accelerator a = testing::reference_accelerator();  // has no FP4
  GroupedGemmKernel fp4 = perfect_kernel(Precision::fp4), fp8 = fp4;
  fp8.math = Precision::fp8;
  const GroupedShape shape{1e6, 8, 4096, 4096};
  CHECK(grouped_gemm_time(shape, Bytes{1e12}, fp4, a) ==
        grouped_gemm_time(shape, Bytes{1e12}, fp8, a));
}

}  // namespace
}  // namespace scalemodel
