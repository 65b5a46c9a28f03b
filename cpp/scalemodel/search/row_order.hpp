// Rows of a few values in lexicographic order, a block at a time that a cache holds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"

namespace scalemodel {

template <std::size_t M>
using Values = std::array<double, M>;

/// Values and their place among all.
template <std::size_t M>
struct Row {
  Values<M> value;
  std::size_t index;
};

/// Equal rows in the order of their places.
template <std::size_t M>
bool lexicographically_less(const Row<M>& a, const Row<M>& b) {
  for (std::size_t k = 0; k < M; ++k) {
    if (a.value[k] != b.value[k]) return a.value[k] < b.value[k];
  }
  return a.index < b.index;
}

/// Whole numbers in the order of the values, equal where these are.
inline std::uint64_t ordered_bits(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // -0 becomes 0
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

/// Numbers of few bits that never fall as first values rise.
class FirstValueKeys {
 public:
  /// Of the first values of rows 0 to `count` - 1.
  template <class FirstValue>
  FirstValueKeys(std::size_t count, int bits, const FirstValue& first_value) {
    std::uint64_t most = 0;
    PollPoints points;
    for (std::size_t i = 0; i < count; ++i) {
      points();
      const std::uint64_t one = ordered_bits(first_value(i));
      least_ = std::min(least_, one);
      most = std::max(most, one);
    }
    if (count > 0) range_ = most - least_;
    shift_ = std::max(0, static_cast<int>(std::bit_width(range_)) - bits);
  }

  std::uint32_t operator()(double first_value) const {
    return static_cast<std::uint32_t>((ordered_bits(first_value) - least_) >> shift_);
  }
  std::uint32_t most() const { return static_cast<std::uint32_t>(range_ >> shift_); }
  bool all_equal() const { return range_ == 0; }

 private:
  std::uint64_t least_ = std::numeric_limits<std::uint64_t>::max(), range_ = 0;
  int shift_ = 0;
};

/// Sorts rows by counting them into blocks of neighbouring first values, then block by block. Only
/// the first step leaves the cache, and it reads and writes what lies side by side, so that a row
/// of many millions costs little more than one of thousands. Time is linear wherever the leading
/// bits of the first values differ.
template <std::size_t M>
class RowOrder {
 public:
  /// Calls `visit(row, rows)` for every block, with the number of its rows; `row(i)` is row i of it
  /// in order. Rows of equal values are in one block. `row_at(i)` gives row i of all.
  template <class RowAt, class Visit>
  void visit_blocks(std::size_t count, const RowAt& row_at, const Visit& visit) {
    if (count <= kMaxInBlock) {
      std::vector<Row<M>> rows;
      rows.reserve(count);
      for (std::size_t i = 0; i < count; ++i) rows.push_back(row_at(i));
      visit_block(rows, visit);
      return;
    }
    const FirstValueKeys cell_of(count, cell_bits(count),
                                 [&](std::size_t i) { return row_at(i).value[0]; });
    PollPoints points;
    std::vector<std::uint32_t> rows_in(std::size_t{cell_of.most()} + 1);
    for (std::size_t i = 0; i < count; ++i) {
      points();
      ++rows_in[cell_of(row_at(i).value[0])];
    }
    std::vector<std::uint16_t> block_of(rows_in.size());
    const std::vector<std::size_t> block_end = cut_into_blocks(rows_in, block_of);
    std::vector<std::size_t> next(block_end.size(), 0);
    std::copy(block_end.begin(), block_end.end() - 1, next.begin() + 1);
    const auto room = large_room<Row<M>>(count);
    const std::span<Row<M>> rows(room.get(), count);
    for (std::size_t i = 0; i < count; ++i) {
      points();
      const Row<M> row = row_at(i);
      rows[next[block_of[cell_of(row.value[0])]]++] = row;
    }
    std::size_t begin = 0;
    for (const std::size_t end : block_end) {
      visit_crowd(rows.subspan(begin, end - begin), visit);
      begin = end;
    }
  }

 private:
  struct Ordered {
    std::uint32_t key, place;
  };
  static constexpr std::size_t kDigitBits = 11, kDigitValues = std::size_t{1} << kDigitBits;
  static constexpr int kKeyBits = 2 * kDigitBits;
  static constexpr std::size_t kRowsPerBlock = 8192, kMaxInBlock = 4 * kRowsPerBlock;
  static constexpr std::size_t kWorthCounting = 2 * kDigitValues;

  /// Some rows in each cell, and no more cells than a cache holds.
  static int cell_bits(std::size_t count) {
    constexpr std::size_t kRowsPerCell = 32;
    constexpr int kMaxBits = 14;
    return std::min(static_cast<int>(std::bit_width(count / kRowsPerCell)), kMaxBits);
  }

  /// Puts neighbouring cells into blocks. Answers where the rows of each block end.
  static std::vector<std::size_t> cut_into_blocks(std::span<const std::uint32_t> rows_in,
                                                  std::span<std::uint16_t> block_of) {
    std::vector<std::size_t> ends{0};
    std::size_t in_block = 0;
    for (std::size_t cell = 0; cell < rows_in.size(); ++cell) {
      if (in_block > 0 && in_block + rows_in[cell] > kRowsPerBlock) {
        ends.push_back(ends.back());
        in_block = 0;
      }
      block_of[cell] = static_cast<std::uint16_t>(ends.size() - 1);
      in_block += rows_in[cell];
      ends.back() += rows_in[cell];
    }
    return ends;
  }

  /// A block, which may be much larger than others where first values lie close together.
  template <class Visit>
  void visit_crowd(std::span<const Row<M>> rows, const Visit& visit) {
    if (rows.size() <= kMaxInBlock || have_equal_first_values(rows)) {
      visit_block(rows, visit);
    } else {
      visit_blocks(rows.size(), [&](std::size_t i) -> const Row<M>& { return rows[i]; }, visit);
    }
  }

  static bool have_equal_first_values(std::span<const Row<M>> rows) {
    return std::ranges::all_of(
        rows, [&](const Row<M>& row) { return row.value[0] == rows.front().value[0]; });
  }

  template <class Visit>
  void visit_block(std::span<const Row<M>> rows, const Visit& visit) {
    const FirstValueKeys key_of(rows.size(), kKeyBits,
                                [&](std::size_t i) { return rows[i].value[0]; });
    ordered_.clear();
    ordered_.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ordered_.push_back({key_of(rows[i].value[0]), static_cast<std::uint32_t>(i)});
    }
    PollPoints points;
    const auto less = polled(
        [&](const Ordered& a, const Ordered& b) {
          return a.key != b.key ? a.key < b.key
                                : lexicographically_less(rows[a.place], rows[b.place]);
        },
        points);
    if (rows.size() < kWorthCounting || key_of.all_equal()) {
      std::ranges::sort(ordered_, less);
    } else {
      other_.resize(rows.size());
      sort_by_digit(ordered_, other_, 0);
      sort_by_digit(other_, ordered_, 1);
      for (auto begin = ordered_.begin(); begin != ordered_.end();) {
        points();
        auto end = begin + 1;
        while (end != ordered_.end() && end->key == begin->key) ++end;
        if (end - begin > 1) std::ranges::sort(begin, end, less);
        begin = end;
      }
    }
    visit([&](std::size_t i) -> const Row<M>& { return rows[ordered_[i].place]; }, rows.size());
  }

  /// Sorts by one digit of the key; equal digits keep their order.
  static void sort_by_digit(const std::vector<Ordered>& from, std::vector<Ordered>& to,
                            std::size_t digit) {
    const auto digit_of = [&](const Ordered& row) {
      return (row.key >> (digit * kDigitBits)) % kDigitValues;
    };
    std::array<std::uint32_t, kDigitValues> next{};
    for (const Ordered& row : from) ++next[digit_of(row)];
    std::uint32_t sum = 0;
    for (std::uint32_t& count : next) sum += std::exchange(count, sum);
    PollPoints points;
    for (const Ordered& row : from) {
      points();
      to[next[digit_of(row)]++] = row;
    }
  }

  std::vector<Ordered> ordered_, other_;  ///< rows of a block by key
};

}  // namespace scalemodel
