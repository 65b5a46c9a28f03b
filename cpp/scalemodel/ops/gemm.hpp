// Time of a dense matrix multiplication C[m,n] = A[m,k] B[k,n].
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

struct GemmShape {
  double m = 0, n = 0, k = 0;
  double batch = 1;
  double output_bytes = 2;  ///< per element of C; 8 where C is accumulated into in FP32
  bool quantised = false;   ///< A is in the narrow format already
  bool transposed = false;  ///< both operands lie in rows of m and n values, as in x' dy
  double taps = 1;          ///< of a convolution: places of A where a value stands, stored once
  bool one_way = false;     ///< A is quantised for this GEMM alone, not transposed for another

  constexpr Flop flop() const { return Flop{2 * batch * m * n * k}; }
  bool operator==(const GemmShape&) const = default;
};

/// Times of the shapes that one timer met last, for who asks for few shapes again and again. Holds
/// no memory until the first is kept. Of one thread.
class GemmTimes {
 public:
  /// What `make()` says of the shape, worked out where it is not kept.
  template <class Make>
  Seconds get(const GemmShape& shape, const Make& make) {
    if (known_.empty()) known_.resize(kPlaces);
    Known& known = known_[place(shape)];
    if (known.shape == shape) return known.time;
    known = {shape, make()};
    return known.time;
  }

 private:
  /// Shapes that are kept, one in each place.
  static constexpr std::size_t kPlaces = 1024;

  static std::size_t place(const GemmShape& shape) noexcept;

  struct Known {
    GemmShape shape{-1};  ///< of no rows at all: nothing is kept
    Seconds time;
  };
  std::vector<Known> known_;
};

/// What the operands of a GEMM are stored in, and the peak of the units that multiply them.
struct GemmFormat {
  double activation_bytes = 2;  ///< per element of A
  double weight_bytes = 2;      ///< per element of B
  FlopPerSecond peak;
  bool warm = false;  ///< small operands stay in the cache from call to call, as in a benchmark

  bool operator==(const GemmFormat&) const = default;
};

template <>
struct RecordOf<GemmFormat> {
  static constexpr std::string_view name = "GemmFormat";
  using T = GemmFormat;
  static constexpr FieldTable fields{
      field("activation_bytes", &T::activation_bytes, 0.01, 16, "per element of A"),
      field("weight_bytes", &T::weight_bytes, 0.01, 16, "per element of B"),
      field("peak_flop_per_s", &T::peak, 1, 1e20, "dense peak of the multiplying units"),
      field("warm", &T::warm, "whether small operands stay in the cache between calls")};
};

/// Matrix multiplications of one accelerator in one precision. Construction hoists what does not
/// depend on the shape; `time` is then a few hundred multiplications.
class GemmTimer {
 public:
  GemmTimer() = default;
  GemmTimer(const Accelerator& accelerator, Precision precision);
  /// A named kernel with constants of its own, in the tile shapes of the accelerator.
  GemmTimer(const Accelerator& accelerator, const TileGemm& constants, const GemmFormat& format);

  /// Tile form. A tile of a x b outputs advances 64 elements of k in one step, limited by the
  /// tensor cores, by the operands that reach a multiprocessor (cache rate c) or by the latency
  /// tau; then it writes its outputs (epilogue rate o; f is the clock):
  ///
  ///     step = max(128 a b/(P/SM), 64 (a ea + b eb)/(c f), tau/f),   end = a b eo/(o f)
  ///
  /// u tiles, each cut into s slices of k, give w = u s/SM tiles per multiprocessor. Up to r of
  /// them run side by side, which hides the latency but not the arithmetic, so that a round of
  /// load = min(w, r) tiles takes max(load arithmetic, tau) per step:
  ///
  ///     T = rounds(w/r) (step(load) ceil(k/64)/s + load end) + [s > 1] (split + passes s m n/M)
  ///     rounds(x) = 1 if x <= 1 else q ceil(x) + (1-q) x,   M = memory fraction * bandwidth
  ///
  /// The library picks the tile and the split: either the s that balances steps against the
  /// reduction inside one wave, in closed form, or one that fills 2, 3 ... whole waves. Then
  ///
  ///     t = launch + ((min T/eff)^p + (bytes/M + ramp)^p)^(1/p) + quantisation of A
  ///     eff = sustained + (burst - sustained)/(1 + T/(burst throttle))
  ///
  /// where ramp = r (1 - exp(-bytes/(M r))) is the memory pipeline filling. eff and e_c are lower
  /// by the fraction of GemmKernels where rows are not whole 16 bytes. Mean error on cuBLAS
  /// timings 4.5-7 % (A100, Hopper, Blackwell), the spread between library builds 4-5 %. Where no
  /// such fit exists the roofline form t = t0 + max(flop/(e_c P), bytes/(e_m W)) is used (11-16 %).
  Seconds time(const GemmShape& shape) const noexcept;

  /// Keeps what it times from now on in `kept`, which must outlive that; null: no longer.
  void keep_in(GemmTimes* kept) noexcept { kept_ = kept; }

  /// Whether operands are quantised before they are multiplied.
  bool narrow() const noexcept { return format_.activation_bytes < 2; }

 private:
  struct Tile {
    double rows, columns;
    double arithmetic_s;  ///< one step, tensor cores and operands
    double step_s;        ///< the same for a tile alone: not below the latency
    double epilogue_s;    ///< per byte of an output element
    double resident;      ///< tiles side by side on a multiprocessor
  };

  void prepare(const Accelerator& accelerator);
  /// Rate over that of rows of whole 16 bytes.
  double row_fraction(const GemmShape& shape) const noexcept;
  double rounds(double x) const noexcept;
  double tile_s(const Tile& tile, double load, double steps, double epilogue) const noexcept;
  double fastest_s(const GemmShape& shape, double memory_rate) const noexcept;
  Seconds tiled(const GemmShape& shape, Bytes bytes) const noexcept;
  Seconds worked_out(const GemmShape& shape) const noexcept;

  bool tiled_ = false;
  double multiprocessors_ = 1;
  double latency_s_ = 0;
  double warm_gain_ = 0;
  GemmFormat format_;
  BytesPerSecond memory_bandwidth_;
  Bytes cache_;
  GemmKernels kernels_;
  TileGemm constants_;
  bool any_rows_ = true;  ///< rows of every length run at one rate
  int tiles_used_ = 0;
  std::array<Tile, kGemmTiles> tiles_{};
  GemmTimes* kept_ = nullptr;
};

}  // namespace scalemodel
