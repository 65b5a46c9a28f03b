#include "scalemodel/search/pareto.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/search/staircase.hpp"

namespace scalemodel {
namespace {

using Columns = std::span<const std::span<const double>>;

template <std::size_t M>
using Values = std::array<double, M>;

template <std::size_t M>
struct Row {
  Values<M> value;
  std::size_t index;
};

template <std::size_t M>
bool nowhere_larger(const Values<M>& a, const Values<M>& b) {
  for (std::size_t k = 0; k < M; ++k) {
    if (a[k] > b[k]) return false;
  }
  return true;
}

template <std::size_t M>
bool dominates(const Values<M>& a, const Values<M>& b) {
  return nowhere_larger(a, b) && a != b;
}

/// Equal rows in the order of their places.
template <std::size_t M>
bool lexicographically_less(const Row<M>& a, const Row<M>& b) {
  for (std::size_t k = 0; k < M; ++k) {
    if (a.value[k] != b.value[k]) return a.value[k] < b.value[k];
  }
  return a.index < b.index;
}

// ------------------------------------------------------------------------------------- the order
/// A row's place among all, and the leading part of its first value as a whole number: what sorts.
struct Ordered {
  std::uint32_t key, place;
};

constexpr std::size_t kMaxRows = std::numeric_limits<std::uint32_t>::max();
constexpr int kKeyBits = 32;
constexpr std::size_t kDigitBits = 11, kDigits = 3, kDigitValues = std::size_t{1} << kDigitBits;
constexpr std::size_t kWorthCounting = 2 * kDigitValues;
constexpr std::size_t kRowsAhead = 16;  ///< rows between a fetch and its use

/// Whole numbers in the order of the values, equal where these are.
std::uint64_t ordered_bits(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // -0 becomes 0
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

/// Sorts by one digit of the key; equal digits keep their order.
void sort_by_digit(const std::vector<Ordered>& from, std::vector<Ordered>& to, std::size_t digit) {
  const auto digit_of = [&](const Ordered& row) {
    return (row.key >> (digit * kDigitBits)) % kDigitValues;
  };
  std::array<std::size_t, kDigitValues> next{};
  for (const Ordered& row : from) ++next[digit_of(row)];
  std::size_t sum = 0;
  for (std::size_t& count : next) sum += std::exchange(count, sum);
  PollPoints points;
  for (const Ordered& row : from) {
    points();
    to[next[digit_of(row)]++] = row;
  }
}

/// The rows in lexicographic order. Counting sorts by the leading bits of the first values: their
/// time is linear, and what they leave together is little wherever the values differ.
template <std::size_t M>
std::vector<Ordered> in_order(const std::vector<Row<M>>& rows) {
  std::vector<Ordered> ordered;
  reserve_large(ordered, rows.size());
  std::uint64_t least = ~std::uint64_t{0}, most = 0;
  for (const Row<M>& row : rows) {
    const std::uint64_t key = ordered_bits(row.value[0]);
    least = std::min(least, key);
    most = std::max(most, key);
  }
  const int shift = std::max(0, static_cast<int>(std::bit_width(most - least)) - kKeyBits);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t key = (ordered_bits(rows[i].value[0]) - least) >> shift;
    ordered.push_back({static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(i)});
  }
  PollPoints points;
  const auto less = polled(
      [&](const Ordered& a, const Ordered& b) {
        return a.key != b.key ? a.key < b.key
                              : lexicographically_less(rows[a.place], rows[b.place]);
      },
      points);
  if (rows.size() < kWorthCounting) {
    std::ranges::sort(ordered, less);
    return ordered;
  }
  auto other = large_vector<Ordered>(rows.size());
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    sort_by_digit(ordered, other, digit);
    ordered.swap(other);
  }
  for (auto begin = ordered.begin(); begin != ordered.end();) {
    points();
    auto end = begin + 1;
    while (end != ordered.end() && end->key == begin->key) ++end;
    if (end - begin > 1) std::ranges::sort(begin, end, less);
    begin = end;
  }
  return ordered;
}

// In what follows values come once each, in lexicographic order. Then none dominates an earlier
// one, and an earlier one that is nowhere larger dominates.

/// Takes the values of a front as they come.
template <std::size_t M>
class FrontFilter;

template <>
class FrontFilter<2> {
 public:
  bool takes(const Values<2>& value) {
    const bool taken = value[1] < least_ || first_;
    if (!taken) return false;
    first_ = false;
    least_ = value[1];
    return true;
  }

 private:
  bool first_ = true;  ///< an infinite value is one too
  double least_ = 0;
};

template <>
class FrontFilter<3> {
 public:
  bool takes(const Values<3>& value) { return earlier_.insert(value[1], value[2]); }

 private:
  Staircase earlier_;
};

/// A value of four without its first one, in whose order they come; the index is its place there.
using Rest = Row<3>;

bool second_less(const Rest& a, const Rest& b) { return a.value[0] < b.value[0]; }

/// Few rows: each against all that stayed. Leaves the front in their beginning, ordered by the
/// second value, and answers its size.
std::size_t front_of_few(std::span<Rest> rows) {
  auto end = rows.begin();
  for (const Rest& row : rows) {
    poll_point();
    const bool dominated = std::any_of(rows.begin(), end, [&](const Rest& earlier) {
      return nowhere_larger(earlier.value, row.value);
    });
    if (!dominated) *end++ = row;
  }
  std::sort(rows.begin(), end, second_less);
  return static_cast<std::size_t>(end - rows.begin());
}

/// Drops of the later rows what an earlier one dominates: a sweep along the second value over the
/// staircase of the third and fourth.
std::size_t not_dominated(std::span<const Rest> earlier, std::span<Rest> later,
                          const AbscissaRange& range) {
  constexpr std::size_t kRowsPerPart = 8, kMaxParts = 256;
  const std::size_t parts = std::clamp(earlier.size() / kRowsPerPart, std::size_t{1}, kMaxParts);
  PartedStaircase passed(range, static_cast<int>(parts));
  auto next = earlier.begin();
  const auto end = std::remove_if(later.begin(), later.end(), [&](const Rest& row) {
    poll_point();
    for (; next != earlier.end() && next->value[0] <= row.value[0]; ++next) {
      passed.insert(next->value[1], next->value[2]);
    }
    return passed.covers(row.value[1], row.value[2]);
  });
  return static_cast<std::size_t>(end - later.begin());
}

/// Halves by the first value. Leaves the front in the beginning of the rows, ordered by the second
/// value, and answers its size; `free` is as large.
std::size_t front_of(std::span<Rest> rows, std::span<Rest> free, const AbscissaRange& range) {
  constexpr std::size_t kFew = 48;
  if (rows.size() <= kFew) return front_of_few(rows);
  const std::size_t half = rows.size() / 2;
  const auto earlier = rows.first(front_of(rows.first(half), free.first(half), range));
  auto later = rows.subspan(half);
  later = later.first(front_of(later, free.subspan(half), range));
  later = later.first(not_dominated(earlier, later, range));
  const auto end = std::merge(earlier.begin(), earlier.end(), later.begin(), later.end(),
                              free.begin(), second_less);
  std::copy(free.begin(), end, rows.begin());
  return earlier.size() + later.size();
}

/// Calls `visit(begin, end)` for every value of the front, with the places in `ordered` of the rows
/// that have it.
template <std::size_t M, class Visit>
void visit_front(const std::vector<Row<M>>& rows, const std::vector<Ordered>& ordered,
                 const Visit& visit) {
  const auto value_at = [&](std::size_t i) -> const Values<M>& {
    return rows[ordered[i].place].value;
  };
  const auto end_of = [&](std::size_t begin) {
    std::size_t end = begin + 1;
    while (end < ordered.size() && value_at(end) == value_at(begin)) ++end;
    return end;
  };
  const auto for_each_value = [&](const auto& of_value) {
    for (std::size_t begin = 0; begin < ordered.size();) {
      poll_point();
      if (begin + kRowsAhead < ordered.size()) {
        __builtin_prefetch(&rows[ordered[begin + kRowsAhead].place]);
      }
      const std::size_t end = end_of(begin);
      of_value(begin, end);
      begin = end;
    }
  };
  if constexpr (M < 4) {
    FrontFilter<M> filter;
    for_each_value([&](std::size_t begin, std::size_t end) {
      if (filter.takes(value_at(begin))) visit(begin, end);
    });
  } else {
    std::vector<Rest> distinct;
    reserve_large(distinct, rows.size());
    AbscissaRange range;  // of the third values
    for_each_value([&](std::size_t begin, std::size_t) {
      const Values<M>& value = value_at(begin);
      distinct.push_back({{value[1], value[2], value[3]}, begin});
      range.include(value[2]);
    });
    auto free = large_vector<Rest>(distinct.size());
    const std::size_t kept = front_of(distinct, free, range);
    std::vector<bool> stays(ordered.size());  // they come in the order of the second value
    for (std::size_t i = 0; i < kept; ++i) stays[distinct[i].index] = true;
    for (std::size_t begin = 0; begin < ordered.size(); ++begin) {
      if (stays[begin]) visit(begin, end_of(begin));
    }
  }
}

// ----------------------------------------------------------------------------- the pre-filter
constexpr std::size_t kSample = 1024, kWindow = 24, kWorthFiltering = 4 * kSample;

/// A place in n rows for each k: evenly spread whatever pattern the rows follow (Weyl sequence).
std::size_t sample_place(std::size_t k, std::size_t n) {
  constexpr double kGoldenRatio = 0.6180339887498949;
  const double turns = kGoldenRatio * static_cast<double>(k + 1);
  const double place = (turns - std::floor(turns)) * static_cast<double>(n);
  return std::min(static_cast<std::size_t>(place), n - 1);
}

/// Some rows of the sample, a bit each.
class SampleRows {
 public:
  /// Those that a value dominates, found without a branch on each number: which of two is larger is
  /// anyone's guess, and a wrong guess costs more than a comparison.
  template <std::size_t M>
  static SampleRows dominated_by(const Values<M>& value, const std::vector<Row<M>>& sample) {
    SampleRows found;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const Values<M>& other = sample[i].value;
      unsigned nowhere_larger = 1, somewhere_less = 0;
      for (std::size_t k = 0; k < M; ++k) {
        nowhere_larger &= value[k] <= other[k] ? 1U : 0U;
        somewhere_less |= value[k] < other[k] ? 1U : 0U;
      }
      found.words_[i / kBits] |= std::uint64_t{nowhere_larger & somewhere_less} << (i % kBits);
    }
    return found;
  }

  void add(const SampleRows& more) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= more.words_[i];
  }

  std::size_t count_without(const SampleRows& others) const {
    int count = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      count += std::popcount(words_[i] & ~others.words_[i]);
    }
    return static_cast<std::size_t>(count);
  }

 private:
  static constexpr std::size_t kBits = 64;
  std::array<std::uint64_t, kSample / kBits> words_{};
};

/// Rows of the sample that together dominate most of it, strongest first; none where most of the
/// sample stays. Greedy: each next one adds most to what is dominated.
template <std::size_t M>
std::vector<Values<M>> strong_rows(const std::vector<Row<M>>& sample) {
  const std::vector<Ordered> ordered = in_order(sample);
  std::vector<Values<M>> front;
  visit_front(sample, ordered, [&](std::size_t begin, std::size_t) {
    front.push_back(sample[ordered[begin].place].value);
  });
  std::vector<Values<M>> strong;
  if (front.size() > sample.size() / 2) return strong;
  std::vector<SampleRows> dominated;
  dominated.reserve(front.size());
  for (const Values<M>& value : front) {
    dominated.push_back(SampleRows::dominated_by(value, sample));
  }
  SampleRows gone;
  while (strong.size() < kWindow) {
    std::size_t most = 0, best = 0;
    for (std::size_t i = 0; i < front.size(); ++i) {
      const std::size_t count = dominated[i].count_without(gone);
      if (count > most) {
        most = count;
        best = i;
      }
    }
    if (most == 0) break;
    strong.push_back(front[best]);
    gone.add(dominated[best]);
  }
  return strong;
}

template <std::size_t M>
bool dominated_by(const std::vector<Values<M>>& strong, const Values<M>& value) {
  return std::ranges::any_of(strong,
                             [&](const Values<M>& other) { return dominates(other, value); });
}

/// Rows left when what strong rows dominate is dropped; `row_at(i)` gives row i of `n`.
template <std::size_t M, class RowAt>
std::vector<Row<M>> filtered(std::size_t n, const RowAt& row_at) {
  std::vector<Values<M>> strong;
  if (n >= kWorthFiltering) {
    std::vector<Row<M>> sample;
    sample.reserve(kSample);
    for (std::size_t k = 0; k < kSample; ++k) sample.push_back(row_at(sample_place(k, n)));
    strong = strong_rows(sample);
  }
  std::vector<Row<M>> left;
  if (strong.empty()) reserve_large(left, n);
  PollPoints points;
  for (std::size_t i = 0; i < n; ++i) {
    points();
    const Row<M> row = row_at(i);
    if (!dominated_by(strong, row.value)) left.push_back(row);
  }
  return left;
}

template <std::size_t M>
std::vector<std::int64_t> front_of_columns(Columns columns) {
  const std::size_t n = columns.front().size();
  std::vector<Row<M>> rows = filtered<M>(n, [&](std::size_t i) {
    Row<M> row{{}, i};
    for (std::size_t k = 0; k < M; ++k) row.value[k] = columns[k][i];
    return row;
  });
  // Again with a sample of what is left, as long as that halves it.
  for (std::size_t before = n; rows.size() >= kWorthFiltering && rows.size() <= before / 2;) {
    before = rows.size();
    rows = filtered<M>(before, [&](std::size_t i) { return rows[i]; });
  }
  const std::vector<Ordered> ordered = in_order(rows);
  std::vector<std::int64_t> front;
  reserve_large(front, rows.size());
  visit_front(rows, ordered, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      front.push_back(static_cast<std::int64_t>(rows[ordered[i].place].index));
    }
  });
  return front;
}

void check(Columns columns) {
  if (columns.size() < kMinObjectives || columns.size() > kMaxObjectives) {
    throw MalformedQuestion("columns: " + std::to_string(columns.size()) +
                            " objectives; must be two, three or four");
  }
  if (columns.front().size() > kMaxRows) {
    throw MalformedQuestion("columns: " + std::to_string(columns.front().size()) +
                            " rows; must be at most " + std::to_string(kMaxRows));
  }
  for (std::size_t k = 0; k < columns.size(); ++k) {
    if (columns[k].size() != columns.front().size()) {
      throw MalformedQuestion("columns: column " + std::to_string(k) + " has " +
                              std::to_string(columns[k].size()) + " rows; column 0 has " +
                              std::to_string(columns.front().size()));
    }
    const auto bad =
        std::ranges::find_if(columns[k], [](double value) { return std::isnan(value); });
    if (bad != columns[k].end()) {
      throw MalformedQuestion("columns: column " + std::to_string(k) + ", row " +
                              std::to_string(bad - columns[k].begin()) +
                              " is NaN; must be a number or infinite");
    }
  }
}

}  // namespace

std::vector<std::int64_t> pareto_front(Columns columns) {
  check(columns);
  if (columns.size() == 2) return front_of_columns<2>(columns);
  if (columns.size() == 3) return front_of_columns<3>(columns);
  return front_of_columns<4>(columns);
}

}  // namespace scalemodel
