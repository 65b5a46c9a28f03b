#include "scalemodel/search/pareto.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
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

  template <class T>
  static auto at(std::vector<T>& values, std::size_t place) {
    return values.begin() + static_cast<std::ptrdiff_t>(place);
  }
  /// The last block that does not start beyond an abscissa; the first where all do.
  std::size_t block_of(double abscissa) const {
    const auto after = std::ranges::upper_bound(first_, abscissa);
    return static_cast<std::size_t>(after - first_.begin()) - (after == first_.begin() ? 0 : 1);
  }
  template <class Steps>
  static auto beyond(Steps& steps, double abscissa) {
    return std::upper_bound(steps.begin(), steps.end(), abscissa,
                            [](double a, const Step& step) { return a < step.abscissa; });
  }

 public:
  void insert(double abscissa, double ordinate) {
    if (blocks_.empty()) {
      blocks_.push_back({{abscissa, ordinate}});
      first_.push_back(abscissa);
      return;
    }
    const std::size_t block = block_of(abscissa);
    std::vector<Step>& steps = blocks_[block];
    auto from = beyond(steps, abscissa);
    const auto to =
        std::partition_point(from, steps.end(), [&](Step s) { return s.ordinate >= ordinate; });
    const bool reaches_end = to == steps.end();
    if (from != steps.begin()) {
      const Step& before = *(from - 1);
      if (before.ordinate <= ordinate) return;
      if (before.abscissa == abscissa) --from;
    }
    if (from == to) {
      steps.insert(from, {abscissa, ordinate});
    } else {
      *from = {abscissa, ordinate};
      steps.erase(from + 1, to);
    }
    first_[block] = steps.front().abscissa;
    if (reaches_end) drop_covered(block + 1, ordinate);
    if (blocks_[block].size() > kMaxSteps) split(block);
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

// In what follows the rows are distinct and in lexicographic order. Then no row dominates an
// earlier one, and an earlier one that is nowhere larger dominates.

std::vector<Row<2>> front_of(std::span<const Row<2>> rows) {
  std::vector<Row<2>> front;
  for (const Row<2>& row : rows) {
    poll_point();
    if (front.empty() || row.value[1] < front.back().value[1]) front.push_back(row);
  }
  return front;
}

std::vector<Row<3>> front_of(std::span<const Row<3>> rows) {
  std::vector<Row<3>> front;
  Staircase earlier;
  for (const Row<3>& row : rows) {
    poll_point();
    if (earlier.covers(row.value[1], row.value[2])) continue;
    earlier.insert(row.value[1], row.value[2]);
    front.push_back(row);
  }
  return front;
}

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

/// The front of rows in any order, each value once, with its place in the sorted rows as index.
template <std::size_t M>
std::vector<Row<M>> sort_and_front(std::vector<Row<M>>& rows) {
  PollPoints points;
  std::ranges::sort(rows, polled(lexicographically_less<M>, points));
  std::vector<Row<M>> distinct;
  distinct.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].value != rows[i - 1].value) distinct.push_back({rows[i].value, i});
  }
  return front_of(std::span<const Row<M>>(distinct));
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
  std::vector<Row<M>> front = sort_and_front(sample);
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
  if (strong.empty()) left.reserve(n);
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
  std::vector<Row<M>> kept = sort_and_front(rows);
  // In the order of all values; of four objectives the front comes in that of the second.
  if (M > 3) std::ranges::sort(kept, {}, &Row<M>::index);
  std::vector<std::int64_t> front;
  for (const Row<M>& row : kept) {
    for (std::size_t i = row.index; i < rows.size() && rows[i].value == row.value; ++i) {
      front.push_back(static_cast<std::int64_t>(rows[i].index));
    }
  }
  return front;
}

void check(Columns columns) {
  if (columns.size() < kMinObjectives || columns.size() > kMaxObjectives) {
    throw MalformedQuestion("columns: " + std::to_string(columns.size()) +
                            " objectives; must be two, three or four");
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
