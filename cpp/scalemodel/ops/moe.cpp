#include "scalemodel/ops/moe.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "scalemodel/ops/smooth_max.hpp"

namespace scalemodel {
namespace {

constexpr double kBlend = 3;  ///< how soft the corner between arithmetic and memory is

/// Peak of the narrowest supported format that is at least as wide as `precision`: a kernel whose
/// format the chip lacks converts and computes in a wider one.
FlopPerSecond peak_at_least(const Accelerator& accelerator, Precision precision) {
  constexpr std::array<Precision, 6> kWidening{Precision::fp4,  Precision::fp8,  Precision::bf16,
                                               Precision::fp16, Precision::tf32, Precision::fp32};
  const auto* const first = std::ranges::find(kWidening, precision);
  for (const auto* each = first; each != kWidening.end(); ++each) {
    if (accelerator.peak_of(*each) > FlopPerSecond{}) return accelerator.peak_of(*each);
  }
  return accelerator.single_precision_peak();
}

Bytes activation_bytes(double passes, double rows, double width) {
  return Bytes{2 * passes * rows * width};
}

/// Pairs of tokens and experts that a rank computes.
double computed_pairs(const ExpertLayer& layer, const GroupedGemmKernel& kernel) {
  const bool remote = kernel.computes_remote && layer.expert_ranks > 1;
  return remote ? std::max(layer.load.touched * layer.topk, layer.load.pairs) : layer.load.pairs;
}

double inner_width(const ExpertLayer& layer) {
  return std::max(layer.intermediate / layer.tensor_ranks, 1.0);
}

/// Rows of all tiles that groups fill, in part or whole.
double padded_rows(const GroupedShape& shape, const GroupedGemmKernel& kernel) {
  if (kernel.reserved_rows > 0) return shape.rows;
  const double wasted = kernel.tile_rows * shape.groups * shape.rows /
                        (shape.rows + kernel.tile_onset * shape.groups);
  return std::max(kernel.smallest_tile * shape.groups, shape.rows + wasted);
}

/// Weights of the experts that have rows.
Bytes resident_bytes(const ExpertLayer& layer, const GroupedGemmKernel& kernel) {
  return Bytes{layer.load.active * layer.matrices * layer.hidden * inner_width(layer) *
               kernel.weight_bytes};
}

/// One projection of a layer: what has rows, and the empty tiles behind it.
Seconds projection_time(const ExpertLayer& layer, double columns, double depth,
                        const GroupedGemmKernel& kernel, const Accelerator& accelerator) {
  const ReservedRows rows = reserved_rows(layer, kernel);
  const GroupedShape shape{rows.filled, layer.load.active, columns, depth};
  const Seconds filled =
      grouped_gemm_time(shape, resident_bytes(layer, kernel), kernel, accelerator);
  if (rows.empty <= 0) return filled;
  return filled + Flop{2 * rows.empty * columns * depth} /
                      (kernel.compute_fraction * peak_at_least(accelerator, kernel.math));
}

}  // namespace

ReservedRows reserved_rows(const ExpertLayer& layer, const GroupedGemmKernel& kernel) noexcept {
  const double tile = kernel.reserved_rows;
  if (tile <= 0) return {computed_pairs(layer, kernel), 0};
  const double held = layer.experts / layer.expert_ranks;
  const double most = layer.tokens * layer.topk + held * (tile - 1);
  const double reserved = tile * std::ceil(most / tile - 1e-9);
  const double filled =
      std::max(tile * layer.load.active, layer.load.pairs + tile / 2 * layer.load.active);
  return {filled, std::max(0.0, reserved - filled)};
}

Seconds grouped_gemm_time(const GroupedShape& shape, Bytes resident,
                          const GroupedGemmKernel& kernel,
                          const Accelerator& accelerator) noexcept {
  if (shape.rows <= 0 || shape.groups <= 0) return Seconds{};
  const double weights = shape.columns * shape.depth;
  const Seconds compute = Flop{2 * padded_rows(shape, kernel) * weights} /
                          (kernel.compute_fraction * peak_at_least(accelerator, kernel.math));
  const double blocks = shape.groups * std::max(shape.columns / 64, 1.0);
  const double occupancy = std::pow(std::min(1.0, blocks / (2.0 * accelerator.multiprocessors)),
                                    kernel.occupancy_exponent);
  const double crowding = accelerator.l2 > Bytes{} ? 2 * (resident / accelerator.l2) : 1e9;
  const double cached = 1 + (kernel.cached_speedup - 1) / (1 + crowding * crowding * crowding);
  const Seconds memory =
      Bytes{shape.groups * weights * kernel.weight_bytes} /
      (kernel.memory_fraction * occupancy * cached * accelerator.memory_bandwidth);
  return Seconds{smooth_max(compute.base(), memory.base(), kBlend)};
}

Seconds expert_layer_time(const ExpertLayer& layer, const GroupedGemmKernel& kernel,
                          const Accelerator& accelerator) noexcept {
  if (layer.tokens <= 0) return Seconds{};
  const ExpertLoad& load = layer.load;
  const ReservedRows rows = reserved_rows(layer, kernel);
  const double pairs = rows.filled + rows.empty;
  const double entering = kernel.computes_remote ? load.touched : layer.tokens;
  const double hidden = layer.hidden;
  const double inner = inner_width(layer);
  const bool counted = kernel.reserved_rows > 0 && kernel.inner_passes > 0;
  const Bytes between = counted ? activation_bytes(1, pairs, kernel.inner_passes * inner + hidden)
                                : activation_bytes(kernel.activation_passes, pairs,
                                                   2 * hidden + layer.matrices * inner);
  const Bytes moved = between + activation_bytes(kernel.gather_passes, entering * layer.topk,
                                                 hidden + layer.matrices * inner);
  return kernel.launch + layer.experts * kernel.expert +
         (load.active / accelerator.multiprocessors) * kernel.active +
         projection_time(layer, (layer.matrices - 1) * inner, hidden, kernel, accelerator) +
         expert_down_time(layer, kernel, accelerator) + moved / accelerator.memory_bandwidth;
}

Seconds expert_down_time(const ExpertLayer& layer, const GroupedGemmKernel& kernel,
                         const Accelerator& accelerator) noexcept {
  return projection_time(layer, layer.hidden, inner_width(layer), kernel, accelerator);
}

GroupedGemmKernel moved_kernel(const GroupedGemmKernel& kernel, const Accelerator& timed_on,
                               const Accelerator& accelerator) noexcept {
  const auto pace = [&](const Accelerator& of) {
    return peak_at_least(of, kernel.math) / (of.multiprocessors * of.clock);
  };
  GroupedGemmKernel moved = kernel;
  if (kernel.compute_fraction < 1) {
    const double lost = 1 / kernel.compute_fraction - 1;
    moved.compute_fraction = 1 / (1 + lost * (pace(accelerator) / pace(timed_on)));
  }
  return moved;
}

Seconds grouped_call_time(const GroupedShape& shape, const GroupedGemmKernel& kernel,
                          const Accelerator& accelerator) noexcept {
  const Bytes resident{shape.groups * shape.columns * shape.depth * kernel.weight_bytes};
  return kernel.launch + (shape.groups / accelerator.multiprocessors) * kernel.active +
         grouped_gemm_time(shape, resident, kernel, accelerator) +
         activation_bytes(kernel.activation_passes, shape.rows, shape.columns + shape.depth) /
             accelerator.memory_bandwidth;
}

}  // namespace scalemodel
