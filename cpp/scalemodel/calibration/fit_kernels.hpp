// Calibrations of the kernel and collective models, and the times no measurement can beat.
#pragma once

#include <span>
#include <vector>

#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/calibration/fit_record.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/attention_kernels.hpp"
#include "scalemodel/ops/dispatch.hpp"
#include "scalemodel/ops/gemm.hpp"

namespace scalemodel {

/// Fits constants of the tile form that `precision` uses (see ops/gemm.hpp).
/// Precondition: accelerator.gemm.tiled.
RecordFit<TileGemm> fit_tile_gemm(const Accelerator& accelerator, Precision precision,
                                  std::span<const GemmShape> shapes,
                                  std::span<const TimedSample> samples,
                                  std::span<const FreeField> fields);

/// Fits constants of the roofline form. Precondition: not accelerator.gemm.tiled.
RecordFit<GemmKernels> fit_roofline_gemm(const Accelerator& accelerator, Precision precision,
                                         std::span<const GemmShape> shapes,
                                         std::span<const TimedSample> samples,
                                         std::span<const FreeField> fields);

/// Families of memory-bound kernels that share a fraction of the memory bandwidth.
enum class MemoryBound : std::uint8_t { add, norm, softmax, activation };

template <>
struct EnumNames<MemoryBound> {
  static constexpr std::string_view what = "family";
  static constexpr std::array<std::string_view, 4> names{"add", "norm", "softmax", "activation"};
};

struct MemoryBoundCall {
  MemoryBound family = MemoryBound::add;
  Bytes bytes;  ///< read and written
};

/// Fits the launch time and the fractions of memory-bound kernels (see ops/memory_bound.hpp).
RecordFit<ElementwiseKernels> fit_elementwise(const Accelerator& accelerator,
                                              std::span<const MemoryBoundCall> calls,
                                              std::span<const TimedSample> samples,
                                              std::span<const FreeField> fields);

/// Fits constants of a whole-prompt or a one-query kernel (see ops/attention_kernels.hpp).
RecordFit<PrefillKernel> fit_prefill(const Accelerator& accelerator, const PrefillKernel& prior,
                                     std::span<const AttentionCall> calls,
                                     std::span<const TimedSample> samples,
                                     std::span<const FreeField> fields);
RecordFit<DecodeKernel> fit_decode(const Accelerator& accelerator, const DecodeKernel& prior,
                                   std::span<const AttentionCall> calls,
                                   std::span<const TimedSample> samples,
                                   std::span<const FreeField> fields);

/// A pass of the flash kernel of training; the backward pass is two kernels and 2.5 times the flop.
struct FlashPass {
  AttentionWork work;
  bool backward = false;
};

/// Fits rates and launch time of the kernel `flash2` of a training step (see ops/attention.hpp).
RecordFit<AttentionKernels> fit_flash(const Accelerator& accelerator, Precision precision,
                                      std::span<const FlashPass> passes,
                                      std::span<const TimedSample> samples,
                                      std::span<const FreeField> fields);

/// A call of a dispatch kernel on some accelerator.
struct DispatchCall {
  DispatchWork work;
  double value_bytes = 2;   ///< per value of a token as it is sent
  double domain_scale = 1;  ///< line rate inside the domain over that of the kernel's constants
};

/// Fits constants of one direction of a dispatch library to calls on several accelerators: what its
/// kernels reach of the links inside a domain is a share, which the accelerators have in common.
RecordFit<DispatchKernel> fit_dispatch(const DispatchKernel& prior,
                                       std::span<const DispatchCall> calls,
                                       std::span<const TimedSample> samples,
                                       std::span<const FreeField> fields);

struct CollectiveCall {
  Collective op = Collective::all_reduce;
  Bytes size;
  GroupShape group;
};

/// Fits the constants of one operation inside a scale-up domain. All calls are of that operation.
RecordFit<CollectiveFit> fit_collective(const Cluster& cluster,
                                        std::span<const CollectiveCall> calls,
                                        std::span<const TimedSample> samples,
                                        std::span<const FreeField> fields);

/// Fits the constants of the network between domains, all operations together.
RecordFit<Fabric> fit_fabric(const Cluster& cluster, std::span<const CollectiveCall> calls,
                             std::span<const TimedSample> samples,
                             std::span<const FreeField> fields);

/// A working set that stays in the last-level cache may be read this much faster than memory.
inline constexpr double kCacheSpeedup = 6;

/// Bytes a multiplication moves when every operand is read and the result written once.
Bytes gemm_traffic(const GemmShape& shape, Precision precision);

/// max(flop/P, bytes/W): no measurement is faster. W counts kCacheSpeedup times while the operands
/// fit in the last-level cache, which benchmark loops keep warm.
Seconds gemm_bound(const GemmShape& shape, Precision precision, const Accelerator& accelerator);
Seconds memory_bound(Bytes bytes, const Accelerator& accelerator);
Seconds attention_bound(const AttentionCall& call, const Accelerator& accelerator);

/// Time the wire needs for what one rank, and one domain, must send whatever the algorithm: an
/// all-reduce at least once the buffer (a switch that reduces sends the sum back), the others what
/// leaves the rank.
Seconds collective_bound(const CollectiveCall& call, const Cluster& cluster);

}  // namespace scalemodel
