#include "scalemodel/search/pareto.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/large_memory.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/search/row_order.hpp"
#include "scalemodel/search/staircase.hpp"

namespace scalemodel {
namespace {

using Columns = std::span<const std::span<const double>>;

constexpr std::size_t kMaxRows = std::numeric_limits<std::uint32_t>::max();

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

/// Merges two fronts along the second value, without what an earlier row dominates of the later
/// ones: a sweep over the staircase of the third and fourth values. Answers where the rows end.
std::span<Rest>::iterator merge_fronts(std::span<const Rest> earlier, std::span<const Rest> later,
                                       std::span<Rest>::iterator to, const AbscissaRange& range) {
  constexpr std::size_t kRowsPerPart = 8, kMaxParts = 256;
  const std::size_t parts = std::clamp(earlier.size() / kRowsPerPart, std::size_t{1}, kMaxParts);
  PartedStaircase passed(range, static_cast<int>(parts));
  auto next = earlier.begin();
  for (const Rest& row : later) {
    poll_point();
    for (; next != earlier.end() && next->value[0] <= row.value[0]; ++next) {
      passed.insert(next->value[1], next->value[2]);
      *to++ = *next;
    }
    if (!passed.covers(row.value[1], row.value[2])) *to++ = row;
  }
  return std::copy(next, earlier.end(), to);
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
  const auto end = merge_fronts(earlier, later, free.begin(), range);
  std::copy(free.begin(), end, rows.begin());
  return static_cast<std::size_t>(end - free.begin());
}

/// Calls `of_value(begin, end, row)` for every value of a block, with the places of its rows in
/// order; `row(i)` is the one at place i.
template <std::size_t M, class RowAt, class OfValue>
void for_each_value(std::size_t count, const RowAt& row_at, const OfValue& of_value) {
  RowOrder<M>().visit_blocks(count, row_at, [&](const auto& row, std::size_t rows) {
    for (std::size_t begin = 0; begin < rows;) {
      poll_point();
      std::size_t end = begin + 1;
      while (end < rows && row(end).value == row(begin).value) ++end;
      of_value(begin, end, row);
      begin = end;
    }
  });
}

/// Calls `visit(row)` for every row of the front, in lexicographic order. `row_at(i)` gives row i
/// of `count`.
template <std::size_t M, class RowAt, class Visit>
void visit_front(std::size_t count, const RowAt& row_at, const Visit& visit) {
  FrontFilter<M> filter;
  for_each_value<M>(count, row_at, [&](std::size_t begin, std::size_t end, const auto& row) {
    if (!filter.takes(row(begin).value)) return;
    for (std::size_t i = begin; i < end; ++i) visit(row(i).index);
  });
}

/// All values are known before one of four objectives is known to stay.
template <std::size_t M, class RowAt, class Visit>
  requires(M == 4)
void visit_front(std::size_t count, const RowAt& row_at, const Visit& visit) {
  std::vector<Rest> distinct;
  reserve_large(distinct, count);
  std::vector<std::uint32_t> in_order;  // indices of all rows
  reserve_large(in_order, count);
  std::vector<bool> repeats(count);  // by place: whether the row equals that before it
  AbscissaRange range;               // of the third values
  for_each_value<M>(count, row_at, [&](std::size_t begin, std::size_t end, const auto& row) {
    const Values<M>& value = row(begin).value;
    distinct.push_back({{value[1], value[2], value[3]}, in_order.size()});
    range.include(value[2]);
    for (std::size_t i = begin; i < end; ++i) {
      if (i > begin) repeats[in_order.size()] = true;
      in_order.push_back(static_cast<std::uint32_t>(row(i).index));
    }
  });
  const auto free = large_room<Rest>(distinct.size());
  const std::size_t kept = front_of(distinct, {free.get(), distinct.size()}, range);
  std::vector<bool> stays(count);  // they come in the order of the second value
  for (std::size_t i = 0; i < kept; ++i) stays[distinct[i].index] = true;
  bool stay = false;
  for (std::size_t place = 0; place < count; ++place) {
    if (!repeats[place]) stay = stays[place];
    if (stay) visit(in_order[place]);
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
  static SampleRows dominated_by(const Values<M>& value, const std::vector<Values<M>>& sample) {
    SampleRows found;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const Values<M>& other = sample[i];
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
std::vector<Values<M>> strong_rows(const std::vector<Values<M>>& sample) {
  std::vector<Values<M>> front, strong;
  visit_front<M>(
      sample.size(), [&](std::size_t i) { return Row<M>{sample[i], i}; },
      [&](std::size_t i) {
        if (front.empty() || front.back() != sample[i]) front.push_back(sample[i]);
      });
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

/// Strong rows of n rows, found in a sample; none of few rows, or where most of them stay.
template <std::size_t M, class RowAt>
std::vector<Values<M>> strong_rows(std::size_t n, const RowAt& row_at) {
  if (n < kWorthFiltering) return {};
  std::vector<Values<M>> sample;
  sample.reserve(kSample);
  for (std::size_t k = 0; k < kSample; ++k) sample.push_back(row_at(sample_place(k, n)).value);
  return strong_rows(sample);
}

/// Rows left when what strong rows dominate is dropped; `row_at(i)` gives row i of `n`.
template <std::size_t M, class RowAt>
std::vector<Row<M>> filtered(std::size_t n, const RowAt& row_at,
                             const std::vector<Values<M>>& strong) {
  std::vector<Row<M>> left;
  PollPoints points;
  for (std::size_t i = 0; i < n; ++i) {
    points();
    const Row<M> row = row_at(i);
    if (!dominated_by(strong, row.value)) left.push_back(row);
  }
  return left;
}

template <std::size_t M, class RowAt>
std::vector<std::int64_t> front_of_rows(std::size_t n, const RowAt& row_at) {
  std::vector<std::int64_t> front;
  reserve_large(front, n);
  visit_front<M>(n, row_at, [&](std::size_t i) { front.push_back(static_cast<std::int64_t>(i)); });
  return front;
}

template <std::size_t M>
std::vector<std::int64_t> front_of_columns(Columns columns) {
  const std::size_t n = columns.front().size();
  const auto of_columns = [&](std::size_t i) {
    Row<M> row{{}, i};
    for (std::size_t k = 0; k < M; ++k) row.value[k] = columns[k][i];
    return row;
  };
  std::vector<Values<M>> strong = strong_rows<M>(n, of_columns);
  if (strong.empty()) return front_of_rows<M>(n, of_columns);
  std::vector<Row<M>> rows = filtered(n, of_columns, strong);
  const auto of_rows = [&](std::size_t i) -> const Row<M>& { return rows[i]; };
  // Again with a sample of what is left, as long as that halves it.
  for (std::size_t before = n; rows.size() <= before / 2;) {
    strong = strong_rows<M>(rows.size(), of_rows);
    if (strong.empty()) break;
    before = rows.size();
    rows = filtered(before, of_rows, strong);
  }
  return front_of_rows<M>(rows.size(), of_rows);
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
