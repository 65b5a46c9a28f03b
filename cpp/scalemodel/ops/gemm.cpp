#include "scalemodel/ops/gemm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "scalemodel/ops/smooth_max.hpp"

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

/// Whole part of a quotient whose rounding must not lose a slice.
double whole(double x) { return std::floor(x * (1 + 1e-12)); }

/// What the widest loads and stores move at once: rows of whole such pieces need no others.
constexpr std::uint64_t kWholeBytes = 16;
/// Of an element of the output; where it is added up in FP32, its rows are the wider ones.
constexpr double kOutputElement = 2;

/// Bytes of a row of `values` beyond whole pieces. A share of ranks that is no whole number
/// is a mean over them and tells nothing of any row.
std::uint64_t odd_bytes(double values, double bytes) {
  constexpr double kMost = 1e15;  // counts beyond are no longer exact
  if (!(values < kMost)) return 0;
  const auto count = static_cast<std::uint64_t>(values);
  if (static_cast<double>(count) != values) return 0;
  return count * static_cast<std::uint64_t>(bytes) % kWholeBytes;
}

/// k is cut into at most this many slices.
constexpr double kMaxSplits = 32;

/// Whether rows have rates of their own: of 16-bit and 8-bit operands only, as measured.
bool known_rows(const GemmKernels& kernels, const GemmFormat& format) {
  const bool counted = format.activation_bytes == 1 || format.activation_bytes == 2;
  return counted && std::min(kernels.rows_of_4_fraction, kernels.rows_of_2_fraction) < 1;
}

}  // namespace

GemmTimer::GemmTimer(const Accelerator& accelerator, Precision precision)
    : multiprocessors_(accelerator.multiprocessors),
      format_{operand_bytes(precision), operand_bytes(precision), accelerator.peak_of(precision),
              false},
      memory_bandwidth_(accelerator.memory_bandwidth),
      kernels_(accelerator.gemm),
      constants_(constants_of(accelerator.gemm, precision)),
      any_rows_(!known_rows(kernels_, format_)) {
  const bool tensor_core = precision != Precision::fp32 && precision != Precision::tf32;
  const FlopPerSecond sheet16 = accelerator.peak_of(Precision::bf16);
  const bool known = sheet16 > FlopPerSecond{} && kernels_.reference_peak > FlopPerSecond{};
  tiled_ = kernels_.tiled && tensor_core && known && constants_.burst_fraction > 0;
  if (!tiled_) return;
  // The fitted fractions refer to the peak the fit used; narrower formats scale with the sheet.
  format_.peak = (format_.peak / sheet16) * kernels_.reference_peak;
  prepare(accelerator);
}

GemmTimer::GemmTimer(const Accelerator& accelerator, const TileGemm& constants,
                     const GemmFormat& format)
    : tiled_(true),
      multiprocessors_(accelerator.multiprocessors),
      format_(format),
      memory_bandwidth_(accelerator.memory_bandwidth),
      kernels_(accelerator.gemm),
      constants_(constants),
      any_rows_(!known_rows(kernels_, format_)) {
  prepare(accelerator);
}

void GemmTimer::prepare(const Accelerator& accelerator) {
  const double clock = accelerator.clock.base();
  latency_s_ = constants_.tau_cycles / clock;
  cache_ = accelerator.l2;
  warm_gain_ = format_.warm && cache_ > Bytes{} ? kernels_.warm_factor - 1 : 0;
  for (std::size_t i = 0; i < kGemmTiles; ++i) {
    const double a = kernels_.tile_rows[i], b = kernels_.tile_columns[i];
    if (a <= 0 || b <= 0) continue;
    double arithmetic = 128 * a * b / (format_.peak.base() / multiprocessors_);
    if (constants_.cache_bytes_per_clock > 0) {
      const double operands = 64 * (a * format_.activation_bytes + b * format_.weight_bytes);
      arithmetic = std::max(arithmetic, operands / (constants_.cache_bytes_per_clock * clock));
    }
    const double epilogue = constants_.epilogue_bytes_per_clock > 0
                                ? a * b / (constants_.epilogue_bytes_per_clock * clock)
                                : 0;
    const double most = kernels_.resident_most;
    const double resident = std::clamp(std::floor(kernels_.resident_elements / (a * b)), 1.0, most);
    tiles_[static_cast<std::size_t>(tiles_used_++)] = {
        a, b, arithmetic, std::max(arithmetic, latency_s_), epilogue, resident};
  }
  tiled_ = tiles_used_ > 0;
}

std::size_t GemmTimes::place(const GemmShape& shape) noexcept {
  // Sizes differ in their upper bits, most of the lower ones are zero.
  std::uint64_t mixed = 0;
  for (const double size : {shape.m, shape.n, shape.k, shape.batch, shape.output_bytes}) {
    mixed = (std::rotl(mixed, 23) ^ std::bit_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15ULL;
  }
  static_assert(kPlaces == 1024, "as many as ten bits tell apart");
  return mixed >> 54;
}

Seconds GemmTimer::time(const GemmShape& shape) const noexcept {
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.batch <= 0) return Seconds{};
  if (kept_ == nullptr) return worked_out(shape);
  return kept_->get(shape, [&] { return worked_out(shape); });
}

Seconds GemmTimer::worked_out(const GemmShape& shape) const noexcept {
  const Bytes bytes{shape.batch * (format_.activation_bytes * shape.m * shape.k / shape.taps +
                                   format_.weight_bytes * shape.n * shape.k +
                                   shape.output_bytes * shape.m * shape.n)};
  if (tiled_) return tiled(shape, bytes);
  const double compute_fraction = kernels_.roofline_compute_fraction * row_fraction(shape);
  return kernels_.roofline_launch +
         max(shape.flop() / (compute_fraction * format_.peak),
             bytes / (kernels_.roofline_memory_fraction * memory_bandwidth_));
}

double GemmTimer::row_fraction(const GemmShape& shape) const noexcept {
  if (any_rows_) return 1;
  const double operand = shape.transposed ? shape.m : shape.k;
  const std::uint64_t odd =
      odd_bytes(operand, format_.activation_bytes) | odd_bytes(shape.n, kOutputElement);
  if (odd == 0) return 1;
  return odd % 4 == 0 ? kernels_.rows_of_4_fraction : kernels_.rows_of_2_fraction;
}

double GemmTimer::rounds(double x) const noexcept {
  if (x <= 1) return 1;
  return constants_.wave_weight * std::ceil(x) + (1 - constants_.wave_weight) * x;
}

/// Time of `load` tiles per multiprocessor, each of `steps` steps and an epilogue.
double GemmTimer::tile_s(const Tile& tile, double load, double steps,
                         double epilogue) const noexcept {
  if (tile.resident <= 1 || load <= 1) return rounds(load) * (tile.step_s * steps + epilogue);
  const double together = std::min(rounds(load), tile.resident);
  const double step = std::max(together * tile.arithmetic_s, latency_s_);
  return rounds(load / tile.resident) * (step * steps + together * epilogue);
}

double GemmTimer::fastest_s(const GemmShape& shape, double memory_rate) const noexcept {
  const double steps = std::ceil(shape.k / 64);
  const double max_splits = std::min(steps, kMaxSplits);
  // One more slice: its partial results written and read.
  const double slice_s = constants_.split_passes * shape.batch * shape.m * shape.n / memory_rate;
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < tiles_used_; ++i) {
    const Tile& tile = tiles_[static_cast<std::size_t>(i)];
    const double epilogue = tile.epilogue_s * shape.output_bytes;
    const double load = std::ceil(shape.m / tile.rows) * std::ceil(shape.n / tile.columns) *
                        shape.batch / multiprocessors_;
    best = std::min(best, tile_s(tile, load, steps, epilogue));
    const auto consider = [&](double split) {
      const double fixed = constants_.split.base() + split * slice_s;
      if (fixed >= best) return;
      best = std::min(best, tile_s(tile, load * split, steps / split, epilogue) + fixed);
    };
    if (2 * load > kernels_.wave_targets) continue;
    const double fit = 1 / load;
    // Inside one wave steps/split + split slice_s is convex: the best whole split lies beside its
    // minimum.
    const double one_wave = std::min(whole(fit), max_splits);
    if (one_wave >= 2) {
      const double ideal = std::floor(std::sqrt(tile.step_s * steps / std::max(slice_s, 1e-30)));
      const double low = std::clamp(ideal, 2.0, one_wave);
      consider(low);
      if (low < one_wave && ideal >= 2) consider(low + 1);
    }
    for (int waves = 2; waves <= kernels_.wave_targets; ++waves) {
      const double split = whole(waves * fit);
      if (split > max_splits) break;
      if (split >= 2) consider(split);
    }
  }
  return best;
}

Seconds GemmTimer::tiled(const GemmShape& shape, Bytes bytes) const noexcept {
  const double memory_rate = constants_.memory_fraction * memory_bandwidth_.base();
  const double best = fastest_s(shape, memory_rate);
  const double burst = constants_.burst_fraction, sustained = constants_.sustained_fraction;
  const double efficiency =
      (sustained + (burst - sustained) / (1 + best / (burst * constants_.throttle.base()))) *
      row_fraction(shape);
  double moving = bytes.base() / memory_rate;
  if (warm_gain_ > 0) {
    const double share = 6 * (bytes / cache_);
    moving /= 1 + warm_gain_ / (1 + share * share * share);
  }
  const double ramp = constants_.memory_ramp.base();
  if (ramp > 0) moving += ramp * (1 - std::exp(-moving / ramp));
  // Read in 16 bits and written twice, or once.
  const double b = format_.activation_bytes;
  const double written = shape.one_way ? (2 + b) / (2 + 2 * b) : 1;
  const double quantise = shape.quantised
                              ? 0
                              : written * constants_.quantise_passes * shape.batch * shape.m *
                                    shape.k * (2 + b) / memory_bandwidth_.base();
  const Seconds device = constants_.launch + Seconds{quantise} +
                         Seconds{smooth_max(best / efficiency, moving, constants_.blend)};
  return max(device, constants_.host_floor);
}

}  // namespace scalemodel
