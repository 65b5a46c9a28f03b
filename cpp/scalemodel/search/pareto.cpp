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

/// Points of a plane, asked whether one of them lies nowhere above and nowhere right of a given
/// one. Holds those that no other one covers: their ordinates fall as their abscissae rise. They
/// are few also where many were inserted, and stay in the cache; in blocks, so that an insertion
/// moves few of them where they are many.
class Staircase {
  struct Step {
    double abscissa, ordinate;
  };
  static constexpr std::size_t kMaxSteps = 512;

  template <class Vector>
  static auto at(Vector& values, std::size_t place) {
    return values.begin() + static_cast<std::ptrdiff_t>(place);
  }
  /// How many of the first values a value does not stay below. Halves without a branch on the
  /// comparison: where a value lies is anyone's guess, and a wrong guess costs more than a step.
  template <class Values, class Abscissa>
  static std::size_t not_beyond(const Values& values, double abscissa, const Abscissa& of) {
    std::size_t begin = 0, count = values.size();
    while (count > 1) {
      const std::size_t half = count / 2;
      begin += of(values[begin + half - 1]) <= abscissa ? half : 0;
      count -= half;
    }
    return begin + (count == 1 && of(values[begin]) <= abscissa ? 1 : 0);
  }
  /// The last block that does not start beyond an abscissa; the first where all do.
  std::size_t block_of(double abscissa) const {
    const std::size_t after = not_beyond(first_, abscissa, [](double first) { return first; });
    return after - (after == 0 ? 0 : 1);
  }
  template <class Steps>
  static auto beyond(Steps& steps, double abscissa) {
    return at(steps, not_beyond(steps, abscissa, [](const Step& step) { return step.abscissa; }));
  }

 public:
  /// Whether the point is new: no other one covers it.
  bool insert(double abscissa, double ordinate) {
    if (blocks_.empty()) {
      blocks_.push_back({{abscissa, ordinate}});
      first_.push_back(abscissa);
      return true;
    }
    const std::size_t block = block_of(abscissa);
    std::vector<Step>& steps = blocks_[block];
    auto from = beyond(steps, abscissa);
    // What a point covers is next to it, and little of it on average.
    auto to = from;
    if (from != steps.begin()) {
      const Step& before = *(from - 1);
      if (before.ordinate <= ordinate) return false;
      if (before.abscissa == abscissa) --from;
    }
    while (to != steps.end() && to->ordinate >= ordinate) ++to;
    const bool reaches_end = to == steps.end();
    if (from == to) {
      steps.insert(from, {abscissa, ordinate});
    } else {
      *from = {abscissa, ordinate};
      steps.erase(from + 1, to);
    }
    first_[block] = steps.front().abscissa;
    if (reaches_end) drop_covered(block + 1, ordinate);
    if (blocks_[block].size() > kMaxSteps) split(block);
    return true;
  }

  bool covers(double abscissa, double ordinate) const {
    if (blocks_.empty()) return false;
    const std::vector<Step>& steps = blocks_[block_of(abscissa)];
    const auto after = beyond(steps, abscissa);
    return after != steps.begin() && (after - 1)->ordinate <= ordinate;
  }

 private:
  void drop_covered(std::size_t block, double ordinate) {
    std::size_t end = block;
    while (end < blocks_.size() && blocks_[end].back().ordinate >= ordinate) ++end;
    blocks_.erase(at(blocks_, block), at(blocks_, end));
    first_.erase(at(first_, block), at(first_, end));
    if (block == blocks_.size()) return;
    std::vector<Step>& steps = blocks_[block];
    const auto is_covered = [&](const Step& step) { return step.ordinate >= ordinate; };
    steps.erase(steps.begin(), std::partition_point(steps.begin(), steps.end(), is_covered));
    first_[block] = steps.front().abscissa;
  }

  void split(std::size_t block) {
    std::vector<Step>& steps = blocks_[block];
    std::vector<Step> later(at(steps, steps.size() / 2), steps.end());
    steps.resize(steps.size() / 2);
    first_.insert(at(first_, block + 1), later.front().abscissa);
    blocks_.insert(at(blocks_, block + 1), std::move(later));
  }

  std::vector<std::vector<Step>> blocks_;  ///< ascending, none empty
  std::vector<double> first_;              ///< abscissae of the first steps
};

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
    if (!(value[1] < least_ || first_)) return false;
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

bool second_less(const Row<4>& a, const Row<4>& b) { return a.value[1] < b.value[1]; }

/// Few rows: each against all that stayed. Ordered by the second value.
std::vector<Row<4>> front_of_few(std::span<const Row<4>> rows) {
  std::vector<Row<4>> front;
  for (const Row<4>& row : rows) {
    poll_point();
    const bool dominated = std::ranges::any_of(
        front, [&](const Row<4>& earlier) { return nowhere_larger(earlier.value, row.value); });
    if (!dominated) front.push_back(row);
  }
  std::ranges::sort(front, second_less);
  return front;
}

/// Halves by the first value; what the earlier half dominates in the later one is found by a sweep
/// along the second value over the staircase of the third and fourth. Ordered by the second value.
std::vector<Row<4>> front_of(std::span<const Row<4>> rows) {
  constexpr std::size_t kFew = 48;
  if (rows.size() <= kFew) return front_of_few(rows);
  const std::vector<Row<4>> earlier = front_of(rows.first(rows.size() / 2));
  std::vector<Row<4>> later = front_of(rows.subspan(rows.size() / 2));
  Staircase passed;
  auto next = earlier.begin();
  std::erase_if(later, [&](const Row<4>& row) {
    poll_point();
    for (; next != earlier.end() && next->value[1] <= row.value[1]; ++next) {
      passed.insert(next->value[2], next->value[3]);
    }
    return passed.covers(row.value[2], row.value[3]);
  });
  std::vector<Row<4>> front;
  front.reserve(earlier.size() + later.size());
  std::ranges::merge(earlier, later, std::back_inserter(front), second_less);
  return front;
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
    std::vector<Row<M>> distinct;
    reserve_large(distinct, rows.size());
    for_each_value(
        [&](std::size_t begin, std::size_t) { distinct.push_back({value_at(begin), begin}); });
    std::vector<Row<M>> kept = front_of(std::span<const Row<M>>(distinct));
    std::ranges::sort(kept, {}, &Row<M>::index);  // it comes in the order of the second value
    for (const Row<M>& row : kept) visit(row.index, end_of(row.index));
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

/// Rows of the sample that together dominate most of it, strongest first; none where most of the
/// sample stays. Greedy: each next one adds most to what is dominated.
template <std::size_t M>
std::vector<Values<M>> strong_rows(std::vector<Row<M>> sample) {
  const std::vector<Ordered> ordered = in_order(sample);
  std::vector<Row<M>> front;
  visit_front(sample, ordered, [&](std::size_t begin, std::size_t) {
    front.push_back(sample[ordered[begin].place]);
  });
  std::vector<Values<M>> strong;
  if (front.size() > sample.size() / 2) return strong;
  while (strong.size() < kWindow) {
    std::size_t most = 0;
    Values<M> best{};
    for (const Row<M>& candidate : front) {
      const auto dominated = static_cast<std::size_t>(std::ranges::count_if(
          sample, [&](const Row<M>& row) { return dominates(candidate.value, row.value); }));
      if (dominated > most) {
        most = dominated;
        best = candidate.value;
      }
    }
    if (most == 0) break;
    strong.push_back(best);
    std::erase_if(sample, [&](const Row<M>& row) { return dominates(best, row.value); });
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
    strong = strong_rows(std::move(sample));
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
