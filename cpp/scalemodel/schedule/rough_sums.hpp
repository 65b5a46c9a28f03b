// Which of many paths may be the longest, in single precision.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace scalemodel::detail {

/// Paths that are summed up at once.
inline constexpr std::size_t kRowsAtOnce = 16;
/// Of one search for the longest.
inline constexpr std::size_t kMaxRows = 512;
/// Sums of times of parts and what they count, rounded: twenty terms whose positive ones add up to
/// less than three times their sum are off by less.
inline constexpr float kRounding = 4e-6F;

using RowNumbers = std::array<std::uint16_t, kMaxRows>;

/// Rows whose sum of `times` times counts, or that sum without the first term, may be the largest.
/// `counts`: `kRowsAtOnce` rows after `kRowsAtOnce`, column after column; the last ones may be
/// rows of zeros. `rows`: at most `kMaxRows`. The same rows whatever the processor is.
std::span<const std::uint16_t> may_be_longest(const float* counts, std::size_t rows,
                                              std::span<const float> times,
                                              RowNumbers& found) noexcept;

/// A time and the column that counts it.
struct RoughTerm {
  float time;
  std::uint32_t column;
};

/// Sums of some terms, row by row, to which others are added later. `counts`, as above, has
/// `columns`.
void begin_sums(const float* counts, std::size_t columns, std::size_t rows,
                std::span<const RoughTerm> terms, std::span<float, kMaxRows> sums) noexcept;

/// Rows of which `sums` with other terms may be the largest.
std::span<const std::uint16_t> may_be_longest(const float* counts, std::size_t columns,
                                              std::size_t rows, std::span<const RoughTerm> terms,
                                              std::span<const float, kMaxRows> sums,
                                              RowNumbers& found) noexcept;

}  // namespace scalemodel::detail
