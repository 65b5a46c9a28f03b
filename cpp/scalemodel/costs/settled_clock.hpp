// The clock of multiplying units where kernels of many kinds follow one another.
#pragma once

#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

/// Clocks that a kernel takes which is slowed down as much as longer ones are within a step: four
/// to six milliseconds. Published steps are met no worse with a third of it, and worse without it.
inline constexpr double kSettledClocks = 8e6;

/// An accelerator as a step finds it. A benchmark repeats one kernel, and power limits lower the
/// clock the further the longer that takes. Within a step memory-bound kernels between the GEMMs
/// let the power down again: long GEMMs are slowed down as much as those of `kSettledClocks` are
/// by themselves, short ones as much as in a benchmark. Layer groups, to whose steps no stack was
/// fitted, keep the clock of the benchmark.
inline Accelerator settled(Accelerator accelerator) {
  if (accelerator.clock <= Hertz{}) return accelerator;
  const Seconds longest = kSettledClocks / accelerator.clock;
  GemmKernels& gemm = accelerator.gemm;
  for (TileGemm* tile : {&gemm.dense16, &gemm.fp8, &gemm.fp4}) {
    const Seconds turn = tile->burst_fraction * tile->throttle;
    if (turn <= Seconds{}) continue;
    const double dropped = longest / (longest + turn);
    tile->sustained_fraction =
        tile->burst_fraction + dropped * (tile->sustained_fraction - tile->burst_fraction);
    tile->throttle = dropped * tile->throttle;
  }
  return accelerator;
}

}  // namespace scalemodel
