#include "scalemodel/ops/attention_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/ops/decode_case.hpp"

namespace scalemodel {
namespace {

using detail::cube, detail::cube_root, detail::cubic_maximum, detail::residency, detail::rounded;

constexpr double kTile = detail::kAttentionTile;
constexpr double kTensorRows = 16;  // query rows of one tensor-core GEMM
constexpr double kOutputBytes = 2, kPartialBytes = 4;

/// (a^3 + b^3 + c^3)^(1/3).
Seconds cubic_maximum(Seconds a, Seconds b, Seconds c) {
  const Seconds top = max(max(a, b), c);
  if (top <= Seconds{}) return Seconds{};
  const double sum = cube(a / top) + cube(b / top) + cube(c / top);
  return sum == 1 ? top : cube_root(sum) * top;
}

/// Query-key pairs of a head.
double pairs(const AttentionWork& w, double diagonal, bool windowed) {
  if (!w.causal) return w.queries * w.keys;
  if (windowed) return w.queries * w.window - w.window * w.window / 2 + w.queries * diagonal / 2;
  return w.queries * (w.queries + diagonal) / 2 + w.queries * std::max(0.0, w.keys - w.queries);
}

}  // namespace

Seconds prefill_time(const AttentionCall& call, const PrefillKernel& kernel,
                     const Accelerator& a) noexcept {
  const AttentionWork& w = call.work;
  const bool latent = call.latent > 0, absorbed = latent && kernel.absorbed;
  const bool math8 = call.math == Precision::fp8, cache8 = call.cache == Precision::fp8;
  const double element = operand_bytes(call.math), kept = operand_bytes(call.cache);
  const double head = absorbed ? call.latent + call.rotary : w.head_dim;
  const double value = absorbed ? call.latent : w.v_head_dim;
  const double kv_heads = absorbed ? 1 : w.kv_heads;

  double width = head + value;
  if (kernel.pads_width) width = std::exp2(std::ceil(std::log2(width)));
  const double size = width / 256;  // 1 at head size 128
  double loss = 1;
  if (!latent) {
    loss = (1 + kernel.narrow_penalty / size) / (1 + kernel.narrow_penalty);
    if (size > 2) loss *= std::pow(size / 2, kernel.wide_penalty);
    if (w.head_dim != w.v_head_dim) loss *= kernel.mixed_factor;
  }
  const double sixteenths = w.head_dim / 16;
  const double aligned = sixteenths == std::floor(sixteenths) ? 1 : kernel.unaligned_factor;
  double rate = 1;
  Seconds launch = kernel.launch;
  if (math8) {
    rate = kernel.fp8_math_rate;
    launch += kernel.fp8_math_launch;
  } else if (cache8) {
    rate = kernel.fp8_cache_rate;
    launch += kernel.fp8_cache_launch;
  }
  if (!latent && w.head_dim == 192) launch += kernel.odd_head;

  const double tiles = kernel.packs_groups
                           ? w.batch * kv_heads * std::ceil(w.queries * w.heads / kv_heads / kTile)
                           : w.batch * w.heads * std::ceil(w.queries / kTile);
  const double waves = tiles / a.multiprocessors;
  const double partial = waves < 1 ? 1 : rounded(waves, kernel.wave_rounding) / waves;
  const bool windowed = kernel.skips_window && w.window > 0 && w.window < w.keys;
  const Flop flop{kernel.flop_factor * 2 * w.batch * w.heads * width *
                  pairs(w, kernel.diagonal, windowed)};
  const Seconds work =
      loss * aligned * partial * (flop / (kernel.compute_fraction * rate * a.dense_rate()));
  const double steps = std::ceil((windowed ? w.window : w.keys) / kTile);
  const double rows = std::min(1.0, std::max(kTensorRows, w.queries) / kTile);
  const Seconds chain = (aligned / rate) * steps * rows * (kernel.step + size * kernel.step_width);

  const Bytes in_out{w.batch * w.queries * w.heads * (element * head + kOutputBytes * value)};
  // The latent is expanded to 16-bit keys and values before attention; absorbed, it is not.
  const double expanded = latent ? (absorbed ? 0 : 2) : kept;
  const Bytes keys_values{expanded * w.batch * w.keys * w.kv_heads * (w.head_dim + w.v_head_dim)};
  const Bytes cached{kept * w.batch * w.keys * (latent ? call.latent + call.rotary : 0)};
  BytesPerSecond bandwidth = a.memory_bandwidth;
  if (call.resident && a.l2 > Bytes{}) {
    const double fill = kernel.resident_scale * ((in_out + keys_values + cached) / a.l2);
    bandwidth = residency(kernel.resident_gain, fill) * bandwidth;
  }
  const double passes = kernel.cache_passes * (cache8 && !latent ? kernel.fp8_passes : 1);

  const Seconds kernel_time =
      launch + cubic_maximum(work, in_out / (kernel.io_fraction * bandwidth), chain) +
      (passes * keys_values + kernel.latent_passes * cached) / bandwidth + waves * kernel.wave;
  return cubic_maximum<double>(kernel.host, kernel_time);
}

DecodeCase::DecodeCase(const AttentionCall& call, const DecodeKernel& kernel,
                       const Accelerator& a) noexcept {
  const AttentionWork& w = call.work;
  const bool latent = call.latent > 0, cache8 = call.cache == Precision::fp8;
  const double head = latent ? call.latent + call.rotary : w.head_dim;
  const double value = latent ? call.latent : w.v_head_dim;
  const double kv_heads = latent ? 1 : w.kv_heads;
  const double width = head + value;
  const double group = w.heads / kv_heads;
  const double rows =
      kernel.tile_rows * std::ceil(std::min(group, kernel.max_heads) / kernel.tile_rows);
  units_ = a.multiprocessors;
  aimed_ = units_ * kernel.waves;
  max_splits_ = std::max(1.0, kernel.max_splits);
  lanes_ = kv_heads * std::ceil(group / kernel.max_heads);
  wave_rounding_ = kernel.wave_rounding;
  occupancy_exponent_ = kernel.occupancy_exponent;
  window_ = w.window;
  const Flop block_flop{2 * kTile * rows * width};
  const double rate = (cache8 ? kernel.fp8_math : 1) * kernel.tensor_fraction;
  const Seconds gemm = block_flop / (rate / units_ * a.dense_rate());
  const Seconds shortest = (cache8 ? kernel.fp8_block : 1) * (width / 256) * kernel.block;
  block_ = cubic_maximum<double>(gemm, shortest);
  if (cache8 && kernel.fp8_rows > Seconds{}) {
    block_ = cubic_maximum<double>(block_, (rows / kTensorRows) * (width / 256) * kernel.fp8_rows);
  }
  cached_ = Bytes{operand_bytes(call.cache) * kv_heads * (latent ? head : width)};
  in_out_ = Bytes{kOutputBytes * w.heads * width};
  partials_ = Bytes{kernel.partial_passes * kPartialBytes * w.heads * value};
  converted_ = cache8 ? kernel.fp8_passes : 0;
  bandwidth_ = a.memory_bandwidth;
  rate_ = kernel.memory_fraction * (cache8 ? kernel.fp8_memory : 1) * bandwidth_;
  if (call.resident && a.l2 > Bytes{}) {
    resident_gain_ = kernel.resident_gain;
    resident_ = a.l2 / kernel.resident_scale;
  }
  fixed_ = kernel.launch;
  if (cache8) fixed_ += kernel.fp8_launch;
  if (!latent && w.head_dim == 192) fixed_ += kernel.odd_head;
  wave_ = kernel.wave;
  split_ = kernel.split;
}

Seconds decode_time(const AttentionCall& call, const DecodeKernel& kernel,
                    const Accelerator& a) noexcept {
  return DecodeCase(call, kernel, a).time(call.work.batch, call.work.keys);
}

}  // namespace scalemodel
