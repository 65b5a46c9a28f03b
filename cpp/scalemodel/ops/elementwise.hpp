// Kernels that stream their operands through memory once: additions, activations, norms, casts.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/smooth_max.hpp"

namespace scalemodel {

/// Constants of one operation of one software stack on one accelerator.
struct StreamingKernel {
  double values_moved = 2;     ///< operands read and written per element of the matrix
  Seconds launch;              ///< fixed time of a call
  Seconds column;              ///< per column: work that one row's block does one after another
  double memory_fraction = 1;  ///< of memory bandwidth, beyond the cache
  double cached_speedup = 1;   ///< over that, where the operands stay in the last-level cache
  double blend = 1;            ///< exponent of the smooth maximum of start and streaming

  bool operator==(const StreamingKernel&) const = default;
};

/// t = smooth_max( launch + column columns, bytes/(e W H) ), H = 1 + (cached - 1)/(1 +
/// (bytes/L2)^3)
///
/// bytes = rows columns values_moved value_bytes. The start of a kernel overlaps with its first
/// transfers, hence the blend instead of a sum; benchmarks repeat a call, so that small operands
/// come from the cache. Fitted to 15,000 published timings; cross-validated error 1-4 % on
/// kernels above 20 us, 10-17 % on tables rounded to a microsecond.
inline Seconds streaming_time(double rows, double columns, double value_bytes,
                              const StreamingKernel& kernel,
                              const Accelerator& accelerator) noexcept {
  if (rows <= 0 || columns <= 0) return Seconds{};
  const Bytes bytes{rows * columns * kernel.values_moved * value_bytes};
  const double crowding = accelerator.l2 > Bytes{} ? bytes / accelerator.l2 : 1e9;
  const double cached = 1 + (kernel.cached_speedup - 1) / (1 + crowding * crowding * crowding);
  const Seconds start = kernel.launch + columns * kernel.column;
  const Seconds streaming =
      bytes / (kernel.memory_fraction * cached * accelerator.memory_bandwidth);
  return Seconds{smooth_max(start.base(), streaming.base(), kernel.blend)};
}

template <>
struct RecordOf<StreamingKernel> {
  static constexpr std::string_view name = "StreamingKernel";
  using T = StreamingKernel;
  static constexpr FieldTable fields{
      field("values_moved", &T::values_moved, 0, 100, "read and written per element"),
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("column_s", &T::column, 0, 1, "per column"),
      field("memory_fraction", &T::memory_fraction, 1e-3, 2, "of memory bandwidth"),
      field("cached_speedup", &T::cached_speedup, 1, 100, "operands in the last-level cache"),
      field("blend", &T::blend, 0.5, 100, "exponent of the smooth maximum")};
};

}  // namespace scalemodel
