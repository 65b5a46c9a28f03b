// Time of the expert layers of a mixture of experts: grouped GEMMs over routed tokens.
#pragma once

#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/ops/expert_load.hpp"

namespace scalemodel {

/// Constants of one grouped GEMM kernel, of one software stack, on one accelerator.
struct GroupedGemmKernel {
  Precision math = Precision::bf16;  ///< format of the tensor-core instructions
  double weight_bytes = 2;           ///< per weight, scales included
  Seconds launch;                    ///< fixed time of a call: routing, sorting, kernels
  Seconds expert;                    ///< per expert of the layer, with or without rows
  Seconds active;                    ///< per multiprocessor and expert with rows
  double compute_fraction = 1;       ///< of peak, on long groups
  double memory_fraction = 1;        ///< of memory bandwidth, on weights outside the cache
  double cached_speedup = 1;         ///< over that, of weights that stay in the last-level cache
  double occupancy_exponent = 0;     ///< loss of bandwidth of grids that do not fill the chip
  double tile_rows = 0;              ///< rows an expert's last tile wastes, at most
  double tile_onset = 1;             ///< rows per expert at which half of them are wasted
  double smallest_tile = 0;          ///< rows of the tile that a lone row of an expert takes
  double activation_passes = 0;      ///< over the activations of the busiest rank's pairs
  double gather_passes = 0;          ///< over those of all pairs that enter the kernel
  bool computes_remote = false;      ///< pairs of other ranks' experts are computed as well
  double reserved_rows = 0;          ///< of a tile of a layout that reserves as many tiles as its
                                     ///< tokens could fill; 0: rows are packed
  double inner_passes = 0;           ///< over what lies between both projections, of reserved rows,
                                     ///< and one over outputs; 0: activation passes as above

  bool operator==(const GroupedGemmKernel&) const = default;
};

/// Groups of rows, one per expert, times one matrix each.
struct GroupedShape {
  double rows = 0;     ///< of all groups
  double groups = 0;   ///< with at least one row
  double columns = 0;  ///< of each matrix
  double depth = 0;
};

/// The kernel alone, without launch and routing:
///
///     padded = max(smallest_tile groups,
///                  rows + tile_rows groups rows/(rows + tile_onset groups))
///     t      = smooth_max( 2 padded columns depth/(e P), groups columns depth es/(e_m W occ H) )
///     occ    = min(1, groups max(columns/64, 1)/(2 SM))^om
///     H      = 1 + (cached - 1)/(1 + (2 resident/L2)^3)
///
/// Every group wastes part of its last tile; small groups run on small tiles, hence the onset, and
/// no tile is smaller than an instruction or a kernel has it: 64 rows of WGMMA as DeepGEMM issues
/// it, 16 of the tiles that Triton's kernels choose from. Rows of a layout that reserves tiles are
/// whole tiles as they come. A grid of fewer blocks than the chip holds cannot draw the whole
/// memory bandwidth. `resident` are the weight bytes of the whole call: a benchmark that repeats a
/// call finds them in the cache where they fit. Never below the roofline for fractions <= 1 and
/// weights beyond the cache.
Seconds grouped_gemm_time(const GroupedShape& shape, Bytes resident,
                          const GroupedGemmKernel& kernel, const Accelerator& accelerator) noexcept;

/// An expert layer as one rank runs it.
struct ExpertLayer {
  ExpertLoad load;
  double tokens = 0;  ///< entering the layer over the expert-parallel group
  double topk = 1;
  double experts = 1;
  double expert_ranks = 1;
  double hidden = 0;
  double intermediate = 0;  ///< of one expert before it is split
  double tensor_ranks = 1;  ///< ranks that split an expert
  double matrices = 3;      ///< 3 with a gate, 2 without
};

/// Up (and gate) projection, activation and down projection of the busiest rank:
///
///     t = launch + expert experts + active groups/SM + up + down
///         + 2 activation_passes pairs (2 h + G I)/W + 2 gather_passes entering topk (h + G I)/W
///
/// with I the intermediate size of this rank and G the number of matrices. `entering` are the
/// tokens that the kernel is given: all of the expert-parallel group's. A kernel that computes
/// remote pairs is given the rank's own tokens, all their pairs, and sends those of other ranks'
/// experts through one of its own.
///
/// Fitted to published timings of 80 (accelerator, format, kernel, stack) cells: mean over cells of
/// the cross-validated error 12 %, 7-16 % in most, 19-29 % for generic Triton kernels on Blackwell
/// and Ada. Constants of a sister accelerator give 12-14 % within Hopper and within Blackwell.
Seconds expert_layer_time(const ExpertLayer& layer, const GroupedGemmKernel& kernel,
                          const Accelerator& accelerator) noexcept;

/// Rows of a layout that is sized without knowing where tokens go, as graphs of kernels need: every
/// pair that enters and a part of a tile of A rows for each expert of the rank. An expert with rows
/// fills whole tiles, other ranks' pairs and idle experts leave the rest empty:
///
///     reserved = A ceil((entering topk + held (A - 1))/A)
///     filled   = max(A active, pairs + A/2 active)
///
/// Empty tiles come last. They load their operands as others do, through the cache, and take as
/// long as if they were computed; passes over activations run over all of them, which read and
/// write 2 (inner_passes I + h) bytes of a row where they were counted. Sources: vllm-project/vllm,
/// fused_moe/deep_gemm_utils.py (compute_aligned_M); deepseek-ai/DeepGEMM, scheduler.cuh
/// (is_computation_valid: products are skipped, loads are not).
struct ReservedRows {
  double filled = 0;  ///< rows of tiles with a token; packed rows where no tiles are reserved
  double empty = 0;   ///< rows of the tiles behind them
};
ReservedRows reserved_rows(const ExpertLayer& layer, const GroupedGemmKernel& kernel) noexcept;

/// The down projection of such a layer alone, a part of its time.
Seconds expert_down_time(const ExpertLayer& layer, const GroupedGemmKernel& kernel,
                         const Accelerator& accelerator) noexcept;

/// The kernel on an accelerator of the same architecture as the one that it was timed on, whose
/// tensor cores have another pace p, of a multiprocessor in a clock. What a tile loses beside its
/// products, f = 1/(1 + lost), are clocks of loads and issues, as many here as there:
///
///     f' = 1/(1 + (1/f - 1) p'/p)
///
/// So parts with slowed tensor cores come nearer to their peak. Fractions above 1 stay.
GroupedGemmKernel moved_kernel(const GroupedGemmKernel& kernel, const Accelerator& timed_on,
                               const Accelerator& accelerator) noexcept;

/// Products launched for given groups, as training frameworks do: launch, start of every group,
/// kernel.
Seconds grouped_call_time(const GroupedShape& shape, const GroupedGemmKernel& kernel,
                          const Accelerator& accelerator) noexcept;

template <>
struct RecordOf<GroupedGemmKernel> {
  static constexpr std::string_view name = "GroupedGemmKernel";
  using T = GroupedGemmKernel;
  static constexpr FieldTable fields{
      field("math", &T::math, "format of the tensor-core instructions"),
      field("weight_bytes", &T::weight_bytes, 0.1, 16, "bytes per weight, scales included"),
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("expert_s", &T::expert, 0, 1, "per expert of the layer"),
      field("active_s", &T::active, 0, 1, "per multiprocessor and expert with rows"),
      field("compute_fraction", &T::compute_fraction, 1e-3, 2, "of peak, long groups"),
      field("memory_fraction", &T::memory_fraction, 1e-3, 2, "of memory bandwidth"),
      field("cached_speedup", &T::cached_speedup, 1, 100, "weights in the last-level cache"),
      field("occupancy_exponent", &T::occupancy_exponent, 0, 1, "loss of small grids"),
      field("tile_rows", &T::tile_rows, 0, 1e5, "rows wasted per expert, at most"),
      field("tile_onset", &T::tile_onset, 1e-3, 1e5, "rows per expert that waste half of them"),
      field("smallest_tile", &T::smallest_tile, 0, 1e4, "rows that the only row of a group costs"),
      field("activation_passes", &T::activation_passes, 0, 1e3, "over the busiest rank's pairs"),
      field("gather_passes", &T::gather_passes, 0, 1e3, "over all entering pairs"),
      field("computes_remote", &T::computes_remote, "pairs of other ranks are computed as well"),
      field("reserved_rows", &T::reserved_rows, 0, 1e4,
            "of a tile, where tiles are reserved for all tokens that could come; 0 = packed"),
      field("inner_passes", &T::inner_passes, 0, 1e3,
            "over what lies between both projections, of reserved rows; 0 = activation passes")};
};

}  // namespace scalemodel
