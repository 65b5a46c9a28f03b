// A generator whose sequence is the same on every platform.
#pragma once

#include <cstdint>

namespace scalemodel {

/// SplitMix64: 64 bits of state, any seed. Source: Steele, Lea and Flood, OOPSLA 2014, p. 453-472.
class SplitMix {
 public:
  constexpr explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  /// Uniform in [0, count); the bias is below count / 2^32. Precondition: count >= 1.
  constexpr std::int32_t below(std::int32_t count) {
    const std::uint64_t high = next() >> 32U;
    return static_cast<std::int32_t>((high * static_cast<std::uint64_t>(count)) >> 32U);
  }
  /// Uniform in [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace scalemodel
