#include "scalemodel/ops/scan.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

/// Mamba-1 keeps its state in registers over the whole sequence: no chunks.
double chunk_of(const RecurrentShape& shape) { return std::max(1, shape.chunk); }

/// Tokens as kernels compute them, in whole chunks.
double computed_tokens(const ScanWork& work) {
  const double chunk = chunk_of(work.shape);
  return work.batch * chunk * std::ceil(work.tokens / chunk);
}

}  // namespace

RecurrentShape RecurrentShape::sharded(double tp) const {
  RecurrentShape local = *this;
  local.heads = std::max(1, static_cast<int>(heads / tp));
  local.groups = static_cast<int>(std::ceil(groups / tp));
  return local;
}

double RecurrentShape::conv_channels() const {
  switch (kind) {
    case Recurrence::none:
    case Recurrence::lightning:
      return 0;
    case Recurrence::mamba1:
    case Recurrence::convolution:
      return inner();
    case Recurrence::mamba2:
    case Recurrence::gated_delta:
    case Recurrence::kimi_delta:
      return inner() + 2 * keys();
  }
  return 0;
}

double RecurrentShape::projected() const {
  const double d = inner(), k = keys();
  switch (kind) {
    case Recurrence::none:
      return 0;
    case Recurrence::mamba1:
      return 2 * d;
    case Recurrence::mamba2:
      return 2 * d + 2 * k + heads;
    case Recurrence::gated_delta:
      return 2 * d + 2 * k + 2.0 * heads;
    case Recurrence::kimi_delta:
      return 3 * d + 2 * k + heads;  // the decay has a value per channel
    case Recurrence::lightning:
      return 2 * d + 2 * k;
    case Recurrence::convolution:
      return 3 * d;
  }
  return 0;
}

double RecurrentShape::saved_values() const {
  const double d = inner(), c = conv_channels();
  switch (kind) {
    case Recurrence::none:
      return 0;
    case Recurrence::mamba1:  // inputs of convolution, time step and scan; the gate
      return 4 * d + 2.0 * key_dim + rank;
    case Recurrence::mamba2:  // convolution and states are computed again
      return projected() + d;
    case Recurrence::gated_delta:  // before and after the convolution, inverses of the chunks
      return 2 * c + 2 * d + static_cast<double>(heads) * chunk + 2.0 * heads;
    case Recurrence::kimi_delta:
      return 2 * c + 3 * d + 2.0 * heads * chunk + heads;
    case Recurrence::lightning:
      return projected() + d;
    case Recurrence::convolution:
      return 4 * d;
  }
  return 0;
}

double RecurrentShape::state_values() const {
  return kind == Recurrence::convolution ? 0 : inner() * key_dim;
}

double RecurrentShape::window_values() const {
  return conv_channels() * std::max(0, conv_width - 1);
}

Flop scan_flop(const ScanWork& work) noexcept {
  const RecurrentShape& s = work.shape;
  const double h = s.heads, n = s.key_dim, p = s.value_dim, q = chunk_of(s);
  double each = 0;
  switch (s.kind) {
    case Recurrence::none:
    case Recurrence::convolution:
      break;
    case Recurrence::mamba1:
      each = 9 * s.inner() * n;
      break;
    case Recurrence::mamba2:
      each = h * (4 * n * p + 2 * q * p) + 2 * q * s.keys();
      break;
    case Recurrence::gated_delta:
    case Recurrence::kimi_delta:
      each = h * (6 * n * p + q * (6 * n + 4 * p) + q * q);
      break;
    case Recurrence::lightning:
      each = h * (4 * n * p + 4 * q * n);
      break;
  }
  return Flop{computed_tokens(work) * each};
}

Bytes scan_bytes(const ScanWork& work, double element) noexcept {
  const RecurrentShape& s = work.shape;
  const double tokens = work.batch * work.tokens;
  const double chunks = s.chunk > 0 ? work.batch * std::ceil(work.tokens / s.chunk) : 0;
  const double rank = s.kind == Recurrence::mamba1 ? s.inner() + 2.0 * s.key_dim : 0;
  return Bytes{tokens * (s.projected() + rank + s.inner()) * element +
               2 * chunks * s.state_values() * kStateBytes};
}

ScanTime scan_time(const ScanWork& work, const Accelerator& accelerator, double element) noexcept {
  const RecurrentShape& s = work.shape;
  if (!s.present() || work.tokens <= 0) return {};
  const ScanKernels& kernels = accelerator.scan;
  if (s.kind == Recurrence::convolution) {
    // The gates on both sides of the convolution, which costs its own bytes.
    const Seconds gates =
        memory_time(scan_bytes(work, element), accelerator.elementwise.add_fraction, accelerator);
    return {gates, 2 * gates};
  }
  // Element by element on the ordinary units; in chunks on those for matrices.
  const FlopPerSecond peak = s.kind == Recurrence::mamba1 ? accelerator.single_precision_peak()
                                                          : accelerator.peak_of(Precision::bf16);
  const Seconds arithmetic = scan_flop(work) / (kernels.compute_fraction * peak);
  const Seconds memory =
      scan_bytes(work, element) / (kernels.memory_fraction * accelerator.memory_bandwidth);
  const double chunks = s.chunk > 0 ? std::ceil(work.tokens / s.chunk) : 0;
  const Seconds chain = chunks * kernels.step;
  const Seconds busy = max(arithmetic + memory, chain);
  return {kernels.launch + busy,
          2 * kernels.launch + max(kernels.backward * (arithmetic + memory), 2 * chain)};
}

Seconds scan_decode_time(const ScanWork& work, const Accelerator& accelerator) noexcept {
  const RecurrentShape& s = work.shape;
  constexpr double kWindowBytes = 2;
  const Bytes state{2 * work.batch *
                    (s.state_values() * kStateBytes + s.window_values() * kWindowBytes)};
  return memory_time(state, accelerator.elementwise.add_fraction, accelerator);
}

}  // namespace scalemodel
