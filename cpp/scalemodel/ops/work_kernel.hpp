// A kernel by what it works on: start, chains, arithmetic and traffic, whichever takes longest.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/ops/smooth_max.hpp"

namespace scalemodel {

/// What one call of a kernel works on (see ops/scan.hpp and ops/mixer_work.hpp).
struct KernelWork {
  double flop = 0;
  double bytes = 0;
  double steps = 0;   ///< that follow one another: chunks of a sequence, calls
  double pieces = 0;  ///< of any other work that the kernel does one by one
  double core = 0;    ///< flop of attention in a module whose projections are the other flop
};

/// Constants of one kernel of one software stack on one accelerator.
struct WorkKernel {
  static constexpr double kUnlimited = 1e20;  ///< of what the times of a kernel do not tell

  Seconds launch;  ///< fixed time of a call
  Seconds step;    ///< of one step of a chain
  Seconds piece;   ///< of one piece of other work
  FlopPerSecond rate{kUnlimited};
  BytesPerSecond bandwidth{kUnlimited};
  double cached_speedup = 1;  ///< over that, where the operands stay in the last-level cache
  double blend = 1;           ///< exponent of the smooth maximum of start and work
  FlopPerSecond core_rate;    ///< of the core; 0: as `rate`

  bool operator==(const WorkKernel&) const = default;
};

/// t = smooth_max( launch + steps step,
///                 flop/rate + core/core_rate + bytes/(bandwidth H) + pieces piece ),
/// H = 1 + (cached - 1)/(1 + (bytes/L2)^3)
///
/// The start of a kernel overlaps with its first work, hence the blend instead of a sum.
inline Seconds work_kernel_time(const KernelWork& work, const WorkKernel& kernel,
                                Bytes l2) noexcept {
  const double crowding = l2 > Bytes{} ? work.bytes / l2.base() : 1e9;
  const double cached = 1 + (kernel.cached_speedup - 1) / (1 + crowding * crowding * crowding);
  const Seconds start = kernel.launch + work.steps * kernel.step;
  const FlopPerSecond core_rate =
      kernel.core_rate > FlopPerSecond{} ? kernel.core_rate : kernel.rate;
  const Seconds busy = Flop{work.flop} / kernel.rate + Flop{work.core} / core_rate +
                       Bytes{work.bytes} / (cached * kernel.bandwidth) + work.pieces * kernel.piece;
  if (busy <= Seconds{}) return start;
  return Seconds{smooth_max(start.base(), busy.base(), kernel.blend)};
}

template <>
struct RecordOf<WorkKernel> {
  static constexpr std::string_view name = "WorkKernel";
  using T = WorkKernel;
  static constexpr FieldTable fields{
      field("launch_s", &T::launch, 0, 10, "fixed time of a call"),
      field("step_s", &T::step, 0, 10, "one step of a chain"),
      field("piece_s", &T::piece, 0, 10, "one piece of other work"),
      field("rate_flop_per_s", &T::rate, 1, 1e20, "arithmetic"),
      field("bandwidth_bytes_per_s", &T::bandwidth, 1, 1e20, "memory traffic"),
      field("cached_speedup", &T::cached_speedup, 1, 1000, "operands in the last-level cache"),
      field("blend", &T::blend, 0.5, 100, "exponent of the smooth maximum"),
      field("core_rate_flop_per_s", &T::core_rate, 0, 1e20,
            "arithmetic of the core of a module; 0: as the other")};
};

}  // namespace scalemodel
