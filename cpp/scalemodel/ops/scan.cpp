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
    case Recurrence::rwkv7:
    case Recurrence::hgrn:
    case Recurrence::rwkv4:
    case Recurrence::rwkv6:
      return 0;
    case Recurrence::gla:
    case Recurrence::delta:
      return conv_width > 0 ? inner() + 2 * keys() : 0;
    case Recurrence::mamba1:
    case Recurrence::convolution:
    case Recurrence::jet:
    case Recurrence::rg_lru:
      return inner();
    case Recurrence::mamba2:
      return rank > 0 ? inner() : inner() + 2 * keys();
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
    case Recurrence::rg_lru:
      return 2 * d;
    case Recurrence::mamba2:
      return 2 * d + 2 * k + heads;
    case Recurrence::gated_delta:
    case Recurrence::jet:
      return 2 * d + 2 * k + 2.0 * heads;
    case Recurrence::kimi_delta:
      return 2 * d + 3 * k + heads;  // the decay has a value per channel of the keys
    case Recurrence::lightning:
      return 2 * d + 2 * k;
    case Recurrence::convolution:
      return 3 * d;
    case Recurrence::rwkv7:  // decays and rates have a value per channel
      return 2 * d + 4 * k;
    case Recurrence::gla:
      return 2 * d + (rank > 0 ? 3 : 2) * k;
    case Recurrence::rwkv6:
      return 2 * d + 3 * k;
    case Recurrence::hgrn:
      return d + 2 * k;
    case Recurrence::delta:
      return d + 2 * k + heads;
    case Recurrence::rwkv4:
      return 3 * d;
  }
  return 0;
}

double RecurrentShape::saved_values() const {
  const double d = inner(), k = keys(), c = conv_channels();
  switch (kind) {
    case Recurrence::none:
      return 0;
    case Recurrence::mamba1:  // inputs of convolution, time step and scan; the gate
      return 4 * d + 2.0 * key_dim + rank;
    case Recurrence::mamba2:  // convolution and states are computed again
      return projected() + d;
    case Recurrence::gated_delta: {
      // What is convolved; queries and keys behind their norms and, where several heads share them,
      // repeated for each; values, gates, the output before and behind its norm and its gate;
      // inverses of the chunks. Source: NVIDIA/Megatron-LM, core/ssm/gated_delta_net.py, forward.
      const double repeated = heads > groups ? 2.0 * heads * key_dim : 0;
      return c + 2 * k + repeated + 5 * d + static_cast<double>(heads) * chunk + 2.0 * heads;
    }
    case Recurrence::jet:  // before and after the activation of queries and keys too; weights of
                           // the convolution, and what they are made of
      return 4 * d + 4 * k + static_cast<double>(heads) * chunk + 2.0 * heads + d * conv_width +
             2.0 * rank;
    case Recurrence::rg_lru:  // both inputs, what is convolved, both gates, the states
      return 6 * d;
    case Recurrence::kimi_delta:
      return 2 * c + 2 * d + k + 2.0 * heads * chunk + heads;
    case Recurrence::lightning:
    case Recurrence::gla:
    case Recurrence::hgrn:
    case Recurrence::rwkv4:
    case Recurrence::rwkv6:
      return projected() + conv_channels() + d;
    case Recurrence::delta:  // inverses of the chunks
      return projected() + c + d + static_cast<double>(heads) * chunk;
    case Recurrence::convolution:
      return 4 * d;
    case Recurrence::rwkv7:  // no convolution; two inverses of every chunk
      return 2 * d + 4 * k + 2.0 * heads * chunk;
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
    case Recurrence::rg_lru:
      each = 10 * s.inner() * n;
      break;
    case Recurrence::mamba2:
      each = h * (4 * n * p + 2 * q * p) + 2 * q * s.keys();
      break;
    case Recurrence::gated_delta:
    case Recurrence::kimi_delta:
    case Recurrence::rwkv7:
    case Recurrence::jet:
    case Recurrence::delta:
      each = h * (6 * n * p + q * (6 * n + 4 * p) + q * q);
      break;
    case Recurrence::lightning:
    case Recurrence::gla:
    case Recurrence::hgrn:
    case Recurrence::rwkv6:
      each = h * (4 * n * p + 2 * q * (n + p));
      break;
    case Recurrence::rwkv4:
      each = 23 * s.inner();
      break;
  }
  return Flop{computed_tokens(work) * each};
}

namespace {

/// Values of a token in FP32 beside those in the format of the layer: a decay and a step size of
/// every head of a delta rule; decays of Kimi's are per channel of the keys.
double wide_values(const RecurrentShape& s) {
  switch (s.kind) {
    case Recurrence::gated_delta:
    case Recurrence::jet:
      return 2.0 * s.heads;
    case Recurrence::kimi_delta:
      return 2.0 * s.heads + s.keys();
    case Recurrence::rwkv7:
    case Recurrence::hgrn:
    case Recurrence::rwkv6:
      return s.keys();
    case Recurrence::gla:
      return s.rank > 0 ? s.keys() : 0;
    case Recurrence::delta:
      return s.heads;
    case Recurrence::none:
    case Recurrence::mamba1:
    case Recurrence::mamba2:
    case Recurrence::lightning:
    case Recurrence::convolution:
    case Recurrence::rg_lru:
    case Recurrence::rwkv4:
      break;
  }
  return 0;
}

/// Values of a token in the format of the layer, read and written.
double narrow_values(const RecurrentShape& s) {
  const double d = s.inner(), k = s.keys();
  switch (s.kind) {
    case Recurrence::none:
      break;
    case Recurrence::mamba1:
      return s.projected() + d + 2.0 * s.key_dim + d;
    case Recurrence::mamba2:
    case Recurrence::convolution:
      return s.projected() + d;
    case Recurrence::gated_delta:
    case Recurrence::kimi_delta:
    case Recurrence::lightning:
    case Recurrence::jet:
    case Recurrence::gla:
    case Recurrence::delta:
    case Recurrence::rwkv6:
      return 2 * d + 2 * k;
    case Recurrence::hgrn:  // forget gates are its keys
      return 2 * d + k;
    case Recurrence::rwkv4:
    case Recurrence::rg_lru:  // what is convolved, and both gates
      return 3 * d + d;
    case Recurrence::rwkv7:  // with the rate of every channel
      return 2 * d + 3 * k;
  }
  return 0;
}

double token_bytes(const RecurrentShape& s, double element) {
  constexpr double kWide = 4;
  return narrow_values(s) * element + wide_values(s) * kWide;
}

/// Chunks of a sequence, one behind the other.
double chain_of(const ScanWork& work) {
  return work.shape.chunk > 0 ? std::ceil(work.tokens / work.shape.chunk) : 0;
}

}  // namespace

Bytes scan_bytes(const ScanWork& work, double element) noexcept {
  const RecurrentShape& s = work.shape;
  const bool delta = s.kind == Recurrence::gated_delta || s.kind == Recurrence::kimi_delta ||
                     s.kind == Recurrence::rwkv7 || s.kind == Recurrence::jet ||
                     s.kind == Recurrence::delta;
  const double states = work.batch * chain_of(work) * s.state_values() * kStateBytes;
  return Bytes{work.batch * work.tokens * token_bytes(s, element) + (delta ? 1 : 2) * states};
}

KernelWork scan_kernel_work(const ScanWork& work, double element) noexcept {
  const double chain = chain_of(work);
  return {scan_flop(work).base(), scan_bytes(work, element).base(), chain,
          work.batch * chain * work.shape.heads};
}

KernelWork update_work(const ScanWork& work, double element, bool keeps) noexcept {
  // Rates of the catalogue are fitted to as many operations of a value of the state for a token,
  // whatever the rule: delta rules have 7 (decay 1, prediction, correction and output 2 each),
  // state spaces 5.
  constexpr double kOperations = 8;
  const RecurrentShape& s = work.shape;
  const double tokens = work.batch * work.tokens, states = work.batch * s.state_values();
  const double passes = 2 + (keeps ? work.tokens : 0);
  return {tokens * kOperations * s.state_values(),
          tokens * token_bytes(s, element) + passes * states * kStateBytes, work.tokens,
          work.batch * s.heads};
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
  const bool by_element = s.kind == Recurrence::mamba1 || s.kind == Recurrence::rg_lru ||
                          s.kind == Recurrence::rwkv4 ||
                          (s.kind == Recurrence::hgrn && s.chunk == 0);
  const FlopPerSecond peak =
      by_element ? accelerator.single_precision_peak() : accelerator.dense_rate();
  WorkKernel kernel;
  kernel.launch = kernels.launch;
  kernel.step = kernels.step;
  kernel.rate = kernels.compute_fraction * peak;
  kernel.bandwidth = kernels.memory_fraction * accelerator.memory_bandwidth;
  kernel.blend = kernels.blend;
  KernelWork scanned = scan_kernel_work(work, element);
  const Seconds forward = work_kernel_time(scanned, kernel, accelerator.l2);
  kernel.launch = 2 * kernel.launch;
  scanned.steps *= 2;
  scanned.flop *= kernels.backward;
  scanned.bytes *= kernels.backward;
  return {forward, work_kernel_time(scanned, kernel, accelerator.l2)};
}

Seconds scan_decode_time(const ScanWork& work, const Accelerator& accelerator) noexcept {
  constexpr double kElement = 2;
  const Bytes updated{update_work(work, kElement, false).bytes};
  const Bytes windows{2 * work.batch * work.shape.window_values() * kElement};
  return memory_time(updated + windows, accelerator.elementwise.add_fraction, accelerator);
}

}  // namespace scalemodel
