// Number formats of matrix multiplications and of what is kept beside them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"

namespace scalemodel {

enum class Precision : std::uint8_t { fp32, tf32, fp16, bf16, fp8, fp4 };
inline constexpr std::size_t kPrecisions = 6;

template <>
struct EnumNames<Precision> {
  static constexpr std::string_view what = "precision";
  static constexpr std::array<std::string_view, kPrecisions> names{"fp32", "tf32", "fp16",
                                                                   "bf16", "fp8",  "fp4"};
};

/// Bytes per element of a matrix operand in this format. FP4 carries one FP8 scale per 16
/// elements (NVFP4: 4.5 bits).
constexpr double operand_bytes(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      return 4;
    case Precision::fp16:
    case Precision::bf16:
      return 2;
    case Precision::fp8:
      return 1;
    case Precision::fp4:
      return 0.5625;
  }
  return 0;
}

/// The format of activations, weights and attention beside matrix multiplications in `precision`:
/// FP8 and FP4 training keep everything but the linear layers in BF16.
constexpr Precision storage_precision(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      return Precision::fp32;
    case Precision::fp16:
      return Precision::fp16;
    case Precision::bf16:
    case Precision::fp8:
    case Precision::fp4:
      return Precision::bf16;
  }
  return Precision::bf16;
}

}  // namespace scalemodel
