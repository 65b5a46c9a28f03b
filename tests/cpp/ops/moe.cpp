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
  GroupedGemmKernel packed = fitted_grouped_kernel(), reserved = packed;
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
