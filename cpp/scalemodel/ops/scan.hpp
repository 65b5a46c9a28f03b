// Mixers whose state has one size however long the sequence: state spaces, gated delta rules,
// linear attention. A sequence is scanned in chunks; within a chunk GEMMs, between them a chain.
#pragma once

#include <array>
#include <cstdint>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/work_kernel.hpp"

namespace scalemodel {

/// What updates the state. `mamba1`, `mamba2`: selective state spaces (arXiv 2312.00752,
/// 2405.21060); `gated_delta`: a delta rule with one decay per head (arXiv 2412.06464);
/// `kimi_delta`: with one per channel (arXiv 2510.26692); `lightning`: linear attention with a
/// fixed decay (arXiv 2401.04658); `convolution`: gated convolutions, whose state is their window;
/// `rwkv7`: a delta rule with decays and rates per channel (arXiv 2503.14456); `jet`: a gated delta
/// rule behind a convolution of values whose weights come from the token (arXiv 2508.15884);
/// `rg_lru`: a gated linear recurrence of single channels (arXiv 2402.19427); `gla`: linear
/// attention whose decays every token sets per channel, or that are fixed, behind a gate and a norm
/// per head (arXiv 2312.06635, 2307.08621); `hgrn`: the same with forget gates for keys (arXiv
/// 2311.04823, 2404.07904); `delta`: a delta rule without decay (arXiv 2406.06484); `rwkv4`:
/// averages of single channels that decay (arXiv 2305.13048); `rwkv6`: linear attention with decays
/// per channel, of RWKV-5 fixed (arXiv 2404.05892).
enum class Recurrence : std::uint8_t {
  none,
  mamba1,
  mamba2,
  gated_delta,
  kimi_delta,
  lightning,
  convolution,
  rwkv7,
  jet,
  rg_lru,
  gla,
  hgrn,
  delta,
  rwkv4,
  rwkv6
};

template <>
struct EnumNames<Recurrence> {
  static constexpr std::string_view what = "recurrence";
  static constexpr std::array<std::string_view, 15> names{
      "none", "mamba1", "mamba2", "gated_delta", "kimi_delta", "lightning", "convolution", "rwkv7",
      "jet",  "rg_lru", "gla",    "hgrn",        "delta",      "rwkv4",     "rwkv6"};
};

/// Sizes of a recurrent mixer. `groups` heads share keys and queries (B and C of a state space).
struct RecurrentShape {
  Recurrence kind = Recurrence::none;
  int heads = 0, groups = 0;
  int key_dim = 0;    ///< of a head: state size of a state space
  int value_dim = 0;  ///< of a head: its channels
  int conv_width = 0;
  int chunk = 0;  ///< tokens of a chunk of the scan
  int rank = 0;   ///< of low-rank gates and time steps, of what makes weights of a convolution; of
                  ///< `mamba2` above 0 where time steps and states come from what is convolved

  /// What one of `tp` ranks holds: a part of the heads; of few groups a copy of one.
  RecurrentShape sharded(double tp) const;
  bool present() const { return kind != Recurrence::none; }
  double inner() const { return static_cast<double>(heads) * value_dim; }  ///< values of a token
  double keys() const { return static_cast<double>(groups) * key_dim; }
  /// Channels that the short convolution runs over.
  double conv_channels() const;
  /// Values of the projection that the mixer reads of each token.
  double projected() const;
  /// Values that one token saves for the backward pass, beside the input of the layer.
  double saved_values() const;
  /// Values of the state of one sequence, and of its convolution's window.
  double state_values() const;
  double window_values() const;
  bool operator==(const RecurrentShape&) const = default;
};

/// One scan on one rank.
struct ScanWork {
  RecurrentShape shape;  ///< heads and groups of the rank
  double batch = 1;      ///< sequences
  double tokens = 0;     ///< of each
};

/// Flop of the forward pass over whole chunks. Per token and head, chunk Q, state N, head P: state
/// spaces 4 N P + 2 Q P, and 2 Q N per group (arXiv 2405.21060, section 7); delta rules 6 N P +
/// Q (6 N + 4 P) + Q^2; linear attention 4 N P + 2 Q (N + P); Mamba-1 9 N per channel; RWKV-4 23
/// per channel, of its kernel (BlinkDL/RWKV-LM, RWKV-v4/cuda/wkv_cuda.cu); RG-LRU 10, for its two
/// gates, its decay, the scale of what enters, and the update (arXiv 2402.19427, section 2.4).
Flop scan_flop(const ScanWork& work) noexcept;

/// Bytes of the forward pass: what is read and written of each token, and the states of chunks,
/// written and read back: of delta rules in 16 bits, of others in FP32. The gate of the output is
/// another kernel's, but of state spaces, where one projection brings it.
Bytes scan_bytes(const ScanWork& work, double element) noexcept;

/// What the kernels of one scan work on: a chain of the chunks of a sequence.
KernelWork scan_kernel_work(const ScanWork& work, double element) noexcept;

/// One step of running sequences, `work.tokens` new tokens of each: their states, read and written,
/// and one more per token that is verified (`keeps`), should the engine have to go back to it.
KernelWork update_work(const ScanWork& work, double element, bool keeps) noexcept;

struct ScanTime {
  Seconds forward, backward;
};

/// The time of `scan_kernel_work` (see ops/work_kernel.hpp) at the accelerator's fractions of its
/// peak and bandwidth. Back, twice the launches and chains, and `backward` times the work.
ScanTime scan_time(const ScanWork& work, const Accelerator& accelerator, double element) noexcept;

/// A step of running sequences: `update_work` and the windows of their convolutions, at the
/// bandwidth of elementwise kernels.
Seconds scan_decode_time(const ScanWork& work, const Accelerator& accelerator) noexcept;

/// Bytes of a value of a state: FP32.
inline constexpr double kStateBytes = 4;

}  // namespace scalemodel
