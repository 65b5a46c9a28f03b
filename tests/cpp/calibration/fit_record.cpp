#include "scalemodel/calibration/fit_record.hpp"

#include <array>
#include <cmath>
#include <cstdint>

#include "scalemodel/calibration/fit_kernels.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// Repeatable noise of about `size` standard deviations: the sum of twelve uniform numbers.
double noise(std::size_t i, double size) {
  double sum = -6;
  std::uint64_t state = i * 0x9e3779b97f4a7c15ULL + 1;
  for (int k = 0; k < 12; ++k) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    sum += static_cast<double>(state >> 11U) * 0x1p-53;
  }
  return std::exp(size * sum);
}

const std::vector<FreeField> kFields{{"launch_s", 0.3e-6, 200e-6},
                                     {"add_fraction", 0.02, 1.2},
                                     {"norm_fraction", 0.02, 1.2},
                                     {"softmax_fraction", 0.02, 1.2}};

Accelerator with_kernels(const ElementwiseKernels& kernels) {
  Accelerator accelerator;
  accelerator.memory_bandwidth = BytesPerSecond{2e12};
  accelerator.elementwise = kernels;
  return accelerator;
}

const ElementwiseKernels kPrior{0.8, 0.6, 0.7, Seconds{3e-6}};

/// Forty calls from 64 KiB to 1 GiB, additions and norms in turn.
std::vector<MemoryBoundCall> calls() {
  std::vector<MemoryBoundCall> calls;
  for (int i = 0; i < 40; ++i) {
    const MemoryBound family = i % 2 == 0 ? MemoryBound::add : MemoryBound::norm;
    calls.push_back({family, Bytes{65536 * std::pow(2.0, 0.36 * i)}});
  }
  return calls;
}

std::vector<TimedSample> measured(const ElementwiseKernels& planted, double scatter) {
  std::vector<TimedSample> samples;
  const auto listed = calls();
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const double fraction =
        listed[i].family == MemoryBound::add ? planted.add_fraction : planted.norm_fraction;
    const Seconds exact = planted.launch + listed[i].bytes / (fraction * BytesPerSecond{2e12});
    samples.push_back({noise(i, scatter) * exact, 1, static_cast<int>(i % 5)});
  }
  return samples;
}

TEST_CASE("planted constants come back from forty noisy samples") {
  for (const double launch : {1e-6, 5e-6, 40e-6}) {
    for (const double fraction : {0.3, 0.9}) {
      CAPTURE(launch);
      CAPTURE(fraction);
      const ElementwiseKernels planted{fraction, 0.5 * fraction, 0.1, Seconds{launch}};
      const auto result =
          fit_elementwise(with_kernels(kPrior), calls(), measured(planted, 0.03), kFields);
      CHECK(result.record.launch.base() == Approx(launch).epsilon(0.05));
      CHECK(result.record.add_fraction == Approx(fraction).epsilon(0.05));
      CHECK(result.record.norm_fraction == Approx(0.5 * fraction).epsilon(0.05));
      for (const FittedField& field : result.fit.fields) {
        if (!field.frozen) CHECK(field.relative_error < 0.05);
      }
    }
  }
}

TEST_CASE("what the samples cannot see keeps its prior and says so") {
  const ElementwiseKernels planted{0.5, 0.4, 0.1, Seconds{2e-6}};
  for (const double scatter : {0.0, 0.03}) {
    const auto result =
        fit_elementwise(with_kernels(kPrior), calls(), measured(planted, scatter), kFields);
    CHECK(result.record.softmax_fraction == kPrior.softmax_fraction);
    CHECK(result.fit.fields[3].frozen);
    CHECK(result.fit.fields[3].relative_error == 0);
    CHECK_FALSE(result.fit.fields[1].frozen);
  }
}

TEST_CASE("large transfers alone say nothing about the launch") {
  const ElementwiseKernels planted{0.5, 0.4, 0.1, Seconds{9e-6}};
  const std::vector<MemoryBoundCall> large(12, {MemoryBound::add, Bytes{8e10}});
  std::vector<TimedSample> samples;
  for (std::size_t i = 0; i < large.size(); ++i) {
    samples.push_back({noise(i, 0.03) * (planted.launch + Bytes{8e10} / BytesPerSecond{1e12})});
  }
  const auto result = fit_elementwise(with_kernels(kPrior), large, samples, kFields);
  CHECK(result.fit.fields[0].frozen);
  CHECK(result.record.launch == kPrior.launch);
  CHECK(result.record.add_fraction == Approx(0.5).epsilon(0.05));
}

TEST_CASE("a fit does not depend on where its prior lies in the range") {
  const ElementwiseKernels planted{0.5, 0.4, 0.1, Seconds{4e-6}};
  const auto samples = measured(planted, 0.03);
  for (const double launch : {0.5e-6, 100e-6}) {
    ElementwiseKernels prior = kPrior;
    prior.launch = Seconds{launch};
    const auto result = fit_elementwise(with_kernels(prior), calls(), samples, kFields);
    CHECK(result.record.launch.base() == Approx(4e-6).epsilon(0.05));
  }
}

TEST_CASE("held-out predictions exist for every sample and are no better than fitted ones") {
  const ElementwiseKernels planted{0.5, 0.4, 0.1, Seconds{4e-6}};
  const auto samples = measured(planted, 0.05);
  const TimesFit fit = fit_elementwise(with_kernels(kPrior), calls(), samples, kFields).fit;
  REQUIRE(fit.predicted_s.size() == samples.size());
  REQUIRE(fit.held_out_s.size() == samples.size());
  double inside = 0, outside = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    inside += std::pow(std::log(fit.predicted_s[i] / samples[i].time.base()), 2);
    outside += std::pow(std::log(fit.held_out_s[i] / samples[i].time.base()), 2);
  }
  CHECK(outside >= inside);
  CHECK(outside < 2 * inside);
}

TEST_CASE("one fold has nothing to hold out; no field has nothing to fit") {
  const ElementwiseKernels planted{0.5, 0.4, 0.1, Seconds{4e-6}};
  auto samples = measured(planted, 0);
  const TimesFit none = fit_elementwise(with_kernels(kPrior), calls(), samples, {}).fit;
  CHECK(none.fields.empty());
  CHECK(none.held_out_s == none.predicted_s);
  for (TimedSample& sample : samples) sample.fold = 0;
  CHECK(fit_elementwise(with_kernels(kPrior), calls(), samples, kFields).fit.held_out_s.empty());
}

TEST_CASE("fields are found by name, others are refused") {
  ElementwiseKernels kernels;
  CHECK(set_number(kernels, "launch_s", 2e-6));
  CHECK(kernels.launch.base() == 2e-6);
  CHECK(set_number(kernels, "add_fraction", 0.5));
  CHECK(number_of(kernels, "add_fraction") == 0.5);
  CHECK(number_of(kernels, "launch_s") == 2e-6);
  CHECK_FALSE(set_number(kernels, "nope", 1));
  CHECK(number_of(kernels, "nope") == 0);
}

// ------------------------------------------------------------------------------------- bounds
TEST_CASE("a bound halves when the rate that binds doubles") {
  Accelerator accelerator;
  accelerator.peak[static_cast<std::size_t>(Precision::bf16)] = FlopPerSecond{1e15};
  accelerator.memory_bandwidth = BytesPerSecond{3e12};
  const GemmShape square{8192, 8192, 8192}, thin{1, 8192, 8192};
  const Seconds before = gemm_bound(square, Precision::bf16, accelerator);
  const Seconds memory = gemm_bound(thin, Precision::bf16, accelerator);
  CHECK(before == square.flop() / FlopPerSecond{1e15});
  accelerator.peak[static_cast<std::size_t>(Precision::bf16)] = FlopPerSecond{2e15};
  CHECK(gemm_bound(square, Precision::bf16, accelerator).base() == Approx(before.base() / 2));
  CHECK(gemm_bound(thin, Precision::bf16, accelerator) == memory);
  accelerator.l2 = Bytes{1e9};
  CHECK(gemm_bound(thin, Precision::bf16, accelerator).base() ==
        Approx(memory.base() / kCacheSpeedup));
}

TEST_CASE("no modelled collective beats its wire") {
  Cluster cluster;
  cluster.accelerators = 64;
  cluster.scale_up.domain = 8;
  cluster.scale_up.bandwidth = BytesPerSecond{450e9};
  cluster.fabric.bandwidth = BytesPerSecond{50e9};
  cluster.fabric.bandwidth_fraction = 1;
  cluster.fabric.all_to_all_fraction = 1;
  const CollectiveFit perfect{Seconds{}, Seconds{}, 1, Seconds{}, Seconds{}, 1, Seconds{}};
  cluster.scale_up.all_reduce = cluster.scale_up.all_gather = perfect;
  cluster.scale_up.reduce_scatter = cluster.scale_up.all_to_all = perfect;
  for (const auto op : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                        Collective::all_to_all}) {
    for (const int ranks : {1, 2, 8, 16, 64}) {
      for (const double size : {1e3, 1e6, 1e9}) {
        CAPTURE(name_of(op));
        CAPTURE(ranks);
        const CollectiveCall call{op, Bytes{size}, group_shape(cluster, ranks, 1)};
        const Seconds time = collective_time(op, call.size, call.group, cluster);
        CHECK(collective_bound(call, cluster).base() <= time.base() * (1 + 1e-12));
        if (ranks == 1) CHECK(collective_bound(call, cluster).base() == 0);
      }
    }
  }
}

}  // namespace
}  // namespace scalemodel
