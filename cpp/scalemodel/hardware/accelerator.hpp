// An accelerator: data-sheet rates plus the few constants that say how kernels approach them.
#pragma once

#include <array>
#include <cstddef>
#include <tuple>

#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Constants of one matrix multiplication kernel family in the tile form (see ops/gemm.hpp).
struct TileGemm {
  Seconds launch;                    ///< fixed time of a call
  double tau_cycles = 0;             ///< shortest time of one 64-deep step of a tile, in clocks
  double burst_fraction = 0;         ///< fraction of peak a short kernel sustains
  double sustained_fraction = 0;     ///< fraction of peak a very long kernel sustains (clocks drop)
  Seconds throttle;                  ///< kernel time at which half of that drop has happened
  double memory_fraction = 0;        ///< fraction of memory bandwidth
  double cache_bytes_per_clock = 0;  ///< operands into one multiprocessor; 0: never the limit
  double epilogue_bytes_per_clock = 0;  ///< results out of one multiprocessor; 0: no limit
  double wave_weight = 0;               ///< 1: a partial wave costs a whole one; 0: its share
  Seconds split;                        ///< fixed time of a split-k reduction
  double split_passes = 4;              ///< bytes per partial result of a split-k reduction
  Seconds memory_ramp;                  ///< most that filling the memory pipeline adds
  double blend = 3;                     ///< exponent of the smooth maximum of tiles and memory
  double quantise_passes = 0;           ///< passes over the activation operand to quantise it
  Seconds host_floor;                   ///< CPU overhead of a launch: least time of a call

  bool operator==(const TileGemm&) const = default;
};

/// Most tile shapes an accelerator's kernels choose between.
inline constexpr std::size_t kGemmTiles = 8;

/// How matrix multiplications run on one accelerator.
struct GemmKernels {
  bool tiled = false;  ///< the tile form was fitted; otherwise the roofline form is used
  TileGemm dense16, fp8, fp4;
  std::array<double, kGemmTiles> tile_rows{}, tile_columns{};  ///< 0: fewer shapes
  int wave_targets = 1;          ///< whole waves that split-k fills at most
  double resident_elements = 0;  ///< outputs one multiprocessor works on at once; 0: one tile
  int resident_most = 1;         ///< most tiles it works on at once
  double warm_factor = 1;        ///< gain of operands that a benchmark loop left in the cache
  /// Rate over that of rows of whole 16 bytes where an operand or the output has rows of whole 4 or
  /// 8 bytes only, or of 2: a library's kernels for those load and store a few values at a time.
  double rows_of_4_fraction = 1, rows_of_2_fraction = 1;
  FlopPerSecond reference_peak;  ///< BF16 peak the fractions refer to
  double roofline_compute_fraction = 0;
  double roofline_memory_fraction = 0;
  Seconds roofline_launch;

  bool operator==(const GemmKernels&) const = default;
};

/// Flash-attention kernels: sustained fraction of the dense 16-bit peak on long sequences.
struct AttentionKernels {
  double flash2_forward = 0, flash2_backward = 0;
  double flash3_forward = 0, flash3_backward = 0;
  double flash3_narrow = 0.33;  ///< exponentials over products, in time, at head size 128: forward
  Seconds launch;
  double tile = 128;  ///< queries that a kernel masks together

  bool operator==(const AttentionKernels&) const = default;
};

/// Memory-bound kernels: fraction of memory bandwidth they reach.
struct ElementwiseKernels {
  double add_fraction = 0, norm_fraction = 0, softmax_fraction = 0;
  Seconds launch;
  double activation_fraction = 0;  ///< of activation functions; 0: as additions

  constexpr double of_activations() const noexcept {
    return activation_fraction > 0 ? activation_fraction : add_fraction;
  }
  bool operator==(const ElementwiseKernels&) const = default;
};

/// Scans of recurrent mixers (see ops/scan.hpp).
struct ScanKernels {
  double compute_fraction = 1;  ///< of the 16-bit peak
  double memory_fraction = 1;   ///< of memory bandwidth
  Seconds step;                 ///< one chunk after another of the same sequence
  Seconds launch;               ///< of the three to five kernels of a scan together
  double backward = 2.5;        ///< work of the backward pass over that of the forward one
  double blend = 1;             ///< exponent of the smooth maximum of chain and work

  bool operator==(const ScanKernels&) const = default;
};

/// Power drawn by phase of a step (see power/phases.hpp).
struct PowerPhases {
  Watts limit;  ///< sustained power limit (TDP)
  Watts idle;
  double compute_fraction = 0;  ///< of the limit, while computing
  double exposed_fraction = 0;  ///< of the limit, while waiting inside a collective

  bool operator==(const PowerPhases&) const = default;
};

struct Accelerator {
  std::array<FlopPerSecond, kPrecisions> peak{};  ///< dense, by Precision; 0 = not supported
  int multiprocessors = 0;
  Hertz clock;
  Bytes memory_capacity;
  BytesPerSecond memory_bandwidth;
  Bytes l2;
  BytesPerSecond host_bandwidth;  ///< one direction
  double host_slowdown = 1;       ///< operations of a framework, over those of an x86 server
  GemmKernels gemm;
  AttentionKernels attention;
  ElementwiseKernels elementwise;
  ScanKernels scan;
  PowerPhases power;

  constexpr FlopPerSecond peak_of(Precision precision) const {
    return peak[static_cast<std::size_t>(precision)];
  }
  /// Rate of FP32 GEMMs. Matrix units without FP32 make one of six BF16 products of its operands'
  /// three parts, as XLA does at its highest precision (arXiv 1904.06376, jax.lax.Precision).
  constexpr FlopPerSecond single_precision_peak() const {
    constexpr double kProducts = 6;
    const FlopPerSecond stated = peak_of(Precision::fp32);
    return stated > FlopPerSecond{} ? stated : peak_of(Precision::bf16) / kProducts;
  }
  /// The dense 16-bit rate, or the next wider one of accelerators without it.
  constexpr FlopPerSecond dense_rate() const {
    for (const Precision precision : {Precision::bf16, Precision::fp16, Precision::tf32}) {
      if (peak_of(precision) > FlopPerSecond{}) return peak_of(precision);
    }
    return single_precision_peak();
  }
  bool operator==(const Accelerator&) const = default;
};

template <>
struct RecordOf<TileGemm> {
  static constexpr std::string_view name = "TileGemm";
  using T = TileGemm;
  static constexpr FieldTable fields{
      field("launch_s", &T::launch, 0, 1, "fixed time of a call"),
      field("tau_cycles", &T::tau_cycles, 0, 1e6, "shortest 64-deep tile step, clocks"),
      field("burst_fraction", &T::burst_fraction, 0, 2, "fraction of peak, short kernels"),
      field("sustained_fraction", &T::sustained_fraction, 0, 2, "fraction of peak, long kernels"),
      field("throttle_s", &T::throttle, 0, 10, "kernel time of half the drop"),
      field("memory_fraction", &T::memory_fraction, 0, 2, "fraction of memory bandwidth"),
      field("cache_bytes_per_clock", &T::cache_bytes_per_clock, 0, 1e6,
            "operands into a multiprocessor; 0 = no limit"),
      field("epilogue_bytes_per_clock", &T::epilogue_bytes_per_clock, 0, 1e6,
            "results out of a multiprocessor; 0 = no limit"),
      field("wave_weight", &T::wave_weight, 0, 1, "cost of a partial wave"),
      field("split_s", &T::split, 0, 1, "fixed time of a split-k reduction"),
      field("split_passes", &T::split_passes, 0, 1000, "bytes per partial result of a split"),
      field("memory_ramp_s", &T::memory_ramp, 0, 1, "most that filling the memory pipeline adds"),
      field("blend", &T::blend, 0.5, 100, "exponent of the smooth maximum"),
      field("quantise_passes", &T::quantise_passes, 0, 20, "passes to quantise activations"),
      field("host_floor_s", &T::host_floor, 0, 1,
            "CPU overhead of a launch: least time of a call")};
};

template <>
struct RecordOf<GemmKernels> {
  static constexpr std::string_view name = "GemmKernels";
  using T = GemmKernels;
  static constexpr FieldTable fields{
      field("tiled", &T::tiled, "whether the tile form was fitted"),
      field("dense16", &T::dense16, "FP16 and BF16 constants"),
      field("fp8", &T::fp8, "FP8 constants"),
      field("fp4", &T::fp4, "FP4 constants"),
      field("tile_rows", &T::tile_rows, 0, 1e6, "rows of the tile shapes; 0 = none"),
      field("tile_columns", &T::tile_columns, 0, 1e6, "columns of the tile shapes"),
      field("wave_targets", &T::wave_targets, 1, 64, "whole waves that split-k may fill"),
      field("resident_elements", &T::resident_elements, 0, 1e9,
            "outputs a multiprocessor works on at once; 0 = one tile"),
      field("resident_most", &T::resident_most, 1, 64, "most tiles of a multiprocessor at once"),
      field("warm_factor", &T::warm_factor, 1, 100, "gain of operands left in the cache"),
      field("rows_of_4_fraction", &T::rows_of_4_fraction, 1e-3, 1,
            "rate where rows are whole 4 or 8 bytes only"),
      field("rows_of_2_fraction", &T::rows_of_2_fraction, 1e-3, 1,
            "rate where rows are whole 2 bytes only"),
      field("reference_peak_flop_per_s", &T::reference_peak, 0, 1e20, "BF16 peak of the fit"),
      field("roofline_compute_fraction", &T::roofline_compute_fraction, 0, 2,
            "fraction of peak, roofline form"),
      field("roofline_memory_fraction", &T::roofline_memory_fraction, 0, 2,
            "fraction of memory bandwidth, roofline form"),
      field("roofline_launch_s", &T::roofline_launch, 0, 1, "fixed time, roofline form")};
};

template <>
struct RecordOf<AttentionKernels> {
  static constexpr std::string_view name = "AttentionKernels";
  using T = AttentionKernels;
  static constexpr FieldTable fields{
      field("flash2_forward", &T::flash2_forward, 0, 2, "fraction of 16-bit peak"),
      field("flash2_backward", &T::flash2_backward, 0, 2, "fraction of 16-bit peak"),
      field("flash3_forward", &T::flash3_forward, 0, 2, "fraction of 16-bit peak"),
      field("flash3_backward", &T::flash3_backward, 0, 2, "fraction of 16-bit peak"),
      field("flash3_narrow", &T::flash3_narrow, 0, 10,
            "exponentials over products at head size 128, forward"),
      field("tile", &T::tile, 1, 4096, "queries that a kernel masks together"),
      field("launch_s", &T::launch, 0, 1, "fixed time of a call")};
};

template <>
struct RecordOf<ElementwiseKernels> {
  static constexpr std::string_view name = "ElementwiseKernels";
  using T = ElementwiseKernels;
  static constexpr FieldTable fields{
      field("add_fraction", &T::add_fraction, 0, 2, "fraction of memory bandwidth"),
      field("norm_fraction", &T::norm_fraction, 0, 2, "fraction of memory bandwidth"),
      field("softmax_fraction", &T::softmax_fraction, 0, 2, "fraction of memory bandwidth"),
      field("activation_fraction", &T::activation_fraction, 0, 2,
            "fraction of memory bandwidth; 0: as additions"),
      field("launch_s", &T::launch, 0, 1, "fixed time of a call")};
};

template <>
struct RecordOf<ScanKernels> {
  static constexpr std::string_view name = "ScanKernels";
  using T = ScanKernels;
  static constexpr FieldTable fields{
      field("compute_fraction", &T::compute_fraction, 1e-6, 2, "fraction of 16-bit peak"),
      field("memory_fraction", &T::memory_fraction, 1e-6, 2, "fraction of memory bandwidth"),
      field("step_s", &T::step, 0, 1, "one chunk after another of a sequence"),
      field("launch_s", &T::launch, 0, 1, "fixed time of a scan"),
      field("backward", &T::backward, 0, 100, "work of the backward pass over the forward one"),
      field("blend", &T::blend, 0.5, 100, "exponent of the smooth maximum of chain and work")};
};

template <>
struct RecordOf<PowerPhases> {
  static constexpr std::string_view name = "PowerPhases";
  using T = PowerPhases;
  static constexpr FieldTable fields{
      field("limit_w", &T::limit, 0, 1e6, "sustained power limit"),
      field("idle_w", &T::idle, 0, 1e6, "power of an idle accelerator"),
      field("compute_fraction", &T::compute_fraction, 0, 2, "of the limit, computing"),
      field("exposed_fraction", &T::exposed_fraction, 0, 2, "of the limit, waiting on a network")};
};

template <>
struct RecordOf<Accelerator> {
  static constexpr std::string_view name = "Accelerator";
  using T = Accelerator;
  static constexpr FieldTable fields{
      field("peak_flop_per_s", &T::peak, 0, 1e20, "dense peak by precision; 0 = unsupported"),
      field("multiprocessors", &T::multiprocessors, 1, 1e5, "streaming multiprocessors"),
      field("clock_hz", &T::clock, 1e6, 1e11, "boost clock"),
      field("memory_capacity_bytes", &T::memory_capacity, 1e6, 1e15, "device memory"),
      field("memory_bandwidth_bytes_per_s", &T::memory_bandwidth, 1e6, 1e16, "peak bandwidth"),
      field("l2_bytes", &T::l2, 0, 1e13, "last-level cache"),
      field("host_bandwidth_bytes_per_s", &T::host_bandwidth, 1e6, 1e15, "one direction"),
      field("host_slowdown", &T::host_slowdown, 0.1, 100,
            "CPU overhead of an operation of a framework over that of an x86 server"),
      field("gemm", &T::gemm, "matrix multiplication constants"),
      field("attention", &T::attention, "attention constants"),
      field("elementwise", &T::elementwise, "memory-bound kernel constants"),
      field("scan", &T::scan, "constants of recurrent scans"),
      field("power", &T::power, "power by phase")};
};

}  // namespace scalemodel
