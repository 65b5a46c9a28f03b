#include "scalemodel/schedule/rough_sums.hpp"

#include <algorithm>
#include <cstring>

// Compiled twice, the loader takes what the processor has. Sanitizers run before it can.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SCALEMODEL_WIDE_LANES __attribute__((target_clones("avx2", "default")))
#else
#define SCALEMODEL_WIDE_LANES
#endif

namespace scalemodel::detail {
namespace {

/// Of GCC and Clang: arithmetic lane by lane.
constexpr std::size_t kHalfRows = 8;
using HalfRows = float __attribute__((vector_size(kHalfRows * sizeof(float))));
constexpr std::size_t kMaxBlocks = kMaxRows / kHalfRows;
static_assert(kRowsAtOnce == 2 * kHalfRows);

/// Adds the numbers of the rows of a block whose lane of `near` is set.
inline void add_rows(const void* near, std::size_t block, std::size_t rows, RowNumbers& found,
                     std::size_t& size) {
  std::array<std::uint64_t, kHalfRows / 2> pairs;
  std::memcpy(pairs.data(), near, sizeof pairs);
  if ((pairs[0] | pairs[1] | pairs[2] | pairs[3]) == 0) return;
  std::array<std::int32_t, kHalfRows> lanes;
  std::memcpy(lanes.data(), near, sizeof lanes);
  for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
    if (pairs[pair] == 0) continue;
    for (std::size_t lane = 2 * pair; lane < 2 * pair + 2; ++lane) {
      const std::size_t row = block * kHalfRows + lane;
      if (lanes[lane] != 0 && row < rows) found[size++] = static_cast<std::uint16_t>(row);
    }
  }
}

}  // namespace

SCALEMODEL_WIDE_LANES
std::span<const std::uint16_t> may_be_longest(const float* counts, std::size_t rows,
                                              std::span<const float> times,
                                              RowNumbers& found) noexcept {
  rows = std::min(rows, kMaxRows);
  const std::size_t blocks = 2 * ((rows + kRowsAtOnce - 1) / kRowsAtOnce);
  // Of passes alone, and with the hops between them, which the first column counts.
  std::array<HalfRows, kMaxBlocks> alone, with_hops;
  HalfRows most{}, most_with_hops{};
  for (std::size_t block = 0; block < blocks; block += 2) {
    HalfRows count, other_count, sum{}, other_sum{};
    std::memcpy(&count, counts, sizeof count);
    std::memcpy(&other_count, counts + kHalfRows, sizeof count);
    const HalfRows hops = times[0] * count, other_hops = times[0] * other_count;
    counts += kRowsAtOnce;
    for (std::size_t column = 1; column < times.size(); ++column, counts += kRowsAtOnce) {
      std::memcpy(&count, counts, sizeof count);
      std::memcpy(&other_count, counts + kHalfRows, sizeof count);
      sum += times[column] * count;
      other_sum += times[column] * other_count;
    }
    alone[block] = sum;
    alone[block + 1] = other_sum;
    sum += hops;
    other_sum += other_hops;
    with_hops[block] = sum;
    with_hops[block + 1] = other_sum;
    for (std::size_t i = block; i < block + 2; ++i) {
      most = alone[i] > most ? alone[i] : most;
      most_with_hops = with_hops[i] > most_with_hops ? with_hops[i] : most_with_hops;
    }
  }
  float least = 0, least_with_hops = 0;
  for (std::size_t lane = 0; lane < kHalfRows; ++lane) {
    least = std::max(least, most[lane]);
    least_with_hops = std::max(least_with_hops, most_with_hops[lane]);
  }
  least *= 1 - kRounding;
  least_with_hops *= 1 - kRounding;
  std::size_t size = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto near = (alone[block] >= least) | (with_hops[block] >= least_with_hops);
    add_rows(&near, block, rows, found, size);
  }
  return {found.data(), size};
}

SCALEMODEL_WIDE_LANES
void begin_sums(const float* counts, std::size_t columns, std::size_t rows,
                std::span<const RoughTerm> terms, std::span<float, kMaxRows> sums) noexcept {
  rows = std::min(rows, kMaxRows);
  for (std::size_t first = 0; first < rows; first += kRowsAtOnce) {
    HalfRows count, other_count, sum{}, other_sum{};
    for (const RoughTerm& term : terms) {
      const float* column = counts + term.column * kRowsAtOnce;
      std::memcpy(&count, column, sizeof count);
      std::memcpy(&other_count, column + kHalfRows, sizeof count);
      sum += term.time * count;
      other_sum += term.time * other_count;
    }
    std::memcpy(&sums[first], &sum, sizeof sum);
    std::memcpy(&sums[first + kHalfRows], &other_sum, sizeof sum);
    counts += columns * kRowsAtOnce;
  }
}

SCALEMODEL_WIDE_LANES
std::span<const std::uint16_t> may_be_longest(const float* counts, std::size_t columns,
                                              std::size_t rows, std::span<const RoughTerm> terms,
                                              std::span<const float, kMaxRows> sums,
                                              RowNumbers& found) noexcept {
  rows = std::min(rows, kMaxRows);
  const std::size_t blocks = 2 * ((rows + kRowsAtOnce - 1) / kRowsAtOnce);
  std::array<HalfRows, kMaxBlocks> all;
  HalfRows most{};
  for (std::size_t block = 0; block < blocks; block += 2) {
    HalfRows count, other_count, sum, other_sum;
    std::memcpy(&sum, &sums[block * kHalfRows], sizeof sum);
    std::memcpy(&other_sum, &sums[(block + 1) * kHalfRows], sizeof sum);
    for (const RoughTerm& term : terms) {
      const float* column = counts + term.column * kRowsAtOnce;
      std::memcpy(&count, column, sizeof count);
      std::memcpy(&other_count, column + kHalfRows, sizeof count);
      sum += term.time * count;
      other_sum += term.time * other_count;
    }
    all[block] = sum;
    all[block + 1] = other_sum;
    most = sum > most ? sum : most;
    most = other_sum > most ? other_sum : most;
    counts += columns * kRowsAtOnce;
  }
  float least = 0;
  for (std::size_t lane = 0; lane < kHalfRows; ++lane) least = std::max(least, most[lane]);
  least *= 1 - kRounding;
  std::size_t size = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto near = all[block] >= least;
    add_rows(&near, block, rows, found, size);
  }
  return {found.data(), size};
}

}  // namespace scalemodel::detail
