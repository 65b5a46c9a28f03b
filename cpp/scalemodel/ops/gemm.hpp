// Time of a dense matrix multiplication C[m,n] = A[m,k] B[k,n].
#pragma once

#include <array>

#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

struct GemmShape {
  double m = 0, n = 0, k = 0;
  double batch = 1;
  double output_bytes = 2;  ///< per element of C; 8 where C is accumulated into in FP32

  constexpr Flop flop() const { return Flop{2 * batch * m * n * k}; }
};

/// Matrix multiplications of one accelerator in one precision. Construction hoists what does not
/// depend on the shape; `time` is then about a hundred multiplications.
class GemmTimer {
 public:
  GemmTimer() = default;
  GemmTimer(const Accelerator& accelerator, Precision precision);

  /// Tile form. A tile of a x b outputs advances 64 elements of k at a time; a step takes the
  /// smooth maximum (exponent p) of tensor-core, cache and issue time; u tiles (times split-k s)
  /// run in waves over the SMs:
  ///
  ///     step  = ((128 a b/(P/SM))^p + (64 (a+b) es/(l2 f))^p + (tau/f)^p)^(1/p)
  ///     waves = 1 if w <= 1 else q ceil(w) + (1-q) w,   w = u/SM
  ///     T     = waves step (ceil(max(k/s, 64)/64) + prologue) + [s > 1] (split + 4 s m n/(e_mem
  ///     W)) t     = t0 + ((min T / eff)^p + (bytes/(e_mem W))^p)^(1/p) + quantisation of A eff   =
  ///     sustained + (burst - sustained)/(1 + T/(burst throttle))
  ///
  /// Mean error on published cuBLAS timings 5-8 % (A100 to GB300). Where no such fit exists the
  /// roofline form t = t0 + max(flop/(e_c P), bytes/(e_m W)) is used (11-16 %).
  Seconds time(const GemmShape& shape) const noexcept;

 private:
  struct Tile {
    double rows, columns;
    double step_s;
  };
  static constexpr int kTiles = 11;

  Seconds tiled(const GemmShape& shape, Bytes bytes) const noexcept;

  bool tiled_ = false;
  double multiprocessors_ = 1;
  double operand_bytes_ = 2;
  FlopPerSecond peak_;
  BytesPerSecond memory_bandwidth_;
  GemmKernels kernels_;
  TileGemm constants_;
  std::array<Tile, kTiles> tiles_{};
};

}  // namespace scalemodel
