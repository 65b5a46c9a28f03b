#include "scalemodel/ops/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace scalemodel {
namespace {

const TileGemm& constants_of(const GemmKernels& kernels, Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
    case Precision::fp16:
    case Precision::bf16:
      return kernels.dense16;
    case Precision::fp8:
      return kernels.fp8;
    case Precision::fp4:
      return kernels.fp4;
  }
  return kernels.dense16;
}

/// (a^p + b^p)^(1/p): a maximum without a corner.
double smooth_max(double a, double b, double p) {
  const double high = std::max(a, b), low = std::min(a, b);
  return high > 0 ? high * std::pow(1 + std::pow(low / high, p), 1 / p) : 0;
}

}  // namespace

GemmTimer::GemmTimer(const Accelerator& accelerator, Precision precision)
    : multiprocessors_(accelerator.multiprocessors),
      operand_bytes_(operand_bytes(precision)),
      peak_(accelerator.peak_of(precision)),
      memory_bandwidth_(accelerator.memory_bandwidth),
      kernels_(accelerator.gemm),
      constants_(constants_of(accelerator.gemm, precision)) {
  const bool tensor_core = precision != Precision::fp32 && precision != Precision::tf32;
  tiled_ = kernels_.tiled && tensor_core && constants_.burst_fraction > 0;
  if (!tiled_) return;
  // The fitted fractions refer to the peak the fit used; narrower formats scale with the sheet.
  const FlopPerSecond sheet16 = accelerator.peak_of(Precision::bf16);
  peak_ = (peak_ / sheet16) * kernels_.reference_peak;
  constexpr std::array<std::array<double, 2>, kTiles> kShapes{{{256, 128},
                                                               {128, 256},
                                                               {128, 128},
                                                               {128, 64},
                                                               {64, 128},
                                                               {64, 64},
                                                               {128, 32},
                                                               {64, 32},
                                                               {32, 64},
                                                               {16, 64},
                                                               {64, 16}}};
  const double clock = accelerator.clock.base();
  const double p = kernels_.blend;
  for (int i = 0; i < kTiles; ++i) {
    const auto [a, b] = kShapes[static_cast<std::size_t>(i)];
    const double math = 128 * a * b / (peak_.base() / multiprocessors_);
    const double cache = 64 * (a + b) * operand_bytes_ / (kernels_.l2_bytes_per_clock * clock);
    const double issue = constants_.tau_cycles / clock;
    const double step =
        std::pow(std::pow(math, p) + std::pow(cache, p) + std::pow(issue, p), 1 / p);
    tiles_[static_cast<std::size_t>(i)] = {a, b, step};
  }
}

Seconds GemmTimer::time(const GemmShape& shape) const noexcept {
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.batch <= 0) return Seconds{};
  const Bytes bytes{shape.batch * (operand_bytes_ * (shape.m * shape.k + shape.n * shape.k) +
                                   shape.output_bytes * shape.m * shape.n)};
  if (tiled_) return tiled(shape, bytes);
  return kernels_.roofline_launch +
         max(shape.flop() / (kernels_.roofline_compute_fraction * peak_),
             bytes / (kernels_.roofline_memory_fraction * memory_bandwidth_));
}

Seconds GemmTimer::tiled(const GemmShape& shape, Bytes bytes) const noexcept {
  const double memory_rate = constants_.memory_fraction * memory_bandwidth_.base();
  const double q = kernels_.wave_weight;
  double best = std::numeric_limits<double>::max();
  for (const Tile& tile : tiles_) {
    const double tiles_total =
        std::ceil(shape.m / tile.rows) * std::ceil(shape.n / tile.columns) * shape.batch;
    for (double split = 1; split <= 32; split *= 2) {
      const double w = tiles_total * split / multiprocessors_;
      const double waves = w <= 1 ? 1 : q * std::ceil(w) + (1 - q) * w;
      const double steps = std::ceil(std::max(shape.k / split, 64.0) / 64) + kernels_.prologue;
      double time = waves * tile.step_s * steps;
      if (split > 1) {
        time += kernels_.split.base() + 4 * split * shape.batch * shape.m * shape.n / memory_rate;
      }
      best = std::min(best, time);
      if (w > 1) break;  // more splits only add waves
    }
  }
  const double burst = constants_.burst_fraction, sustained = constants_.sustained_fraction;
  const double efficiency =
      sustained + (burst - sustained) / (1 + best / (burst * constants_.throttle.base()));
  const double core = smooth_max(best / efficiency, bytes.base() / memory_rate, kernels_.blend);
  const double quantise = constants_.quantise_passes * shape.batch * shape.m * shape.k *
                          (2 + operand_bytes_) / memory_bandwidth_.base();
  return constants_.launch + Seconds{core + quantise};
}

}  // namespace scalemodel
