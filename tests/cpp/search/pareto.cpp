#include "scalemodel/search/pareto.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {
namespace {

using Table = std::vector<std::vector<double>>;  // by column
using Front = std::vector<std::int64_t>;

Front front_of(const Table& table) {
  std::vector<std::span<const double>> columns;
  for (const auto& column : table) columns.emplace_back(column);
  Front front = pareto_front(columns);
  std::ranges::sort(front);
  return front;
}

bool is_dominated(const Table& table, std::size_t row, std::size_t by) {
  bool smaller = false;
  for (const auto& column : table) {
    if (column[by] > column[row]) return false;
    smaller |= column[by] < column[row];
  }
  return smaller;
}

Front by_definition(const Table& table) {
  Front front;
  const std::size_t n = table.front().size();
  for (std::size_t i = 0; i < n; ++i) {
    bool dominated = false;
    for (std::size_t j = 0; j < n && !dominated; ++j) dominated = is_dominated(table, i, j);
    if (!dominated) front.push_back(static_cast<std::int64_t>(i));
  }
  return front;
}

/// The same numbers on every machine: a linear congruential generator (Knuth's MMIX constants).
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  /// Uniform in [0, 1).
  double next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state_ >> 11U) / 9007199254740992.0;
  }
  /// A whole number below `limit`, as a float.
  double below(int limit) { return static_cast<double>(static_cast<int>(next() * limit)); }

 private:
  std::uint64_t state_;
};

Table ties(std::size_t rows, std::size_t objectives, int values, std::uint64_t seed) {
  Numbers numbers(seed);
  Table table(objectives, std::vector<double>(rows));
  for (auto& column : table) {
    for (double& value : column) value = numbers.below(values);
  }
  return table;
}

/// The last objective falls as the others rise, so that most rows stay.
Table shell(std::size_t rows, std::size_t objectives, double thickness, std::uint64_t seed) {
  Numbers numbers(seed);
  Table table(objectives, std::vector<double>(rows));
  for (std::size_t i = 0; i < rows; ++i) {
    double last = thickness * numbers.next();
    for (std::size_t k = 0; k + 1 < objectives; ++k) {
      table[k][i] = numbers.next();
      last -= table[k][i];
    }
    table[objectives - 1][i] = last;
  }
  return table;
}

TEST_CASE("a front is what the definition says, with many ties and with few") {
  for (const std::size_t objectives : {2U, 3U, 4U}) {
    for (const std::size_t rows : {0U, 1U, 2U, 7U, 40U, 150U, 600U}) {
      for (const int values : {1, 2, 4, 30, 1'000'000}) {
        CAPTURE(objectives);
        CAPTURE(rows);
        CAPTURE(values);
        const Table table = ties(rows, objectives, values, rows + objectives);
        CHECK(front_of(table) == by_definition(table));
      }
    }
  }
}

TEST_CASE("long tables, which are filtered first, agree with the definition") {
  for (const std::size_t objectives : {2U, 3U, 4U}) {
    for (const double thickness : {0.0, 0.05, 100.0}) {
      CAPTURE(objectives);
      CAPTURE(thickness);
      const Table table = shell(5'000, objectives, thickness, 11);
      CHECK(front_of(table) == by_definition(table));
    }
  }
}

TEST_CASE("fronts of four agree with the definition where one value is far from all others") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr int kRows = 800;
  for (const double far : {1.0, 1e300, std::numeric_limits<double>::max(), kInfinity}) {
    for (const double thickness : {0.0, 0.05}) {
      CAPTURE(far);
      CAPTURE(thickness);
      Numbers numbers(3);
      Table table(4, std::vector<double>(kRows));
      for (std::size_t i = 0; i < kRows; ++i) {  // few third and fourth values cover others
        table[0][i] = static_cast<double>(i);
        table[2][i] = numbers.below(kRows);
        table[3][i] = thickness * numbers.below(kRows) - table[2][i];
      }
      table[2][0] = far;
      table[2][1] = -far;
      table[3][2] = kInfinity;
      CHECK(front_of(table) == by_definition(table));
      std::ranges::fill(table[2], far);
      CHECK(front_of(table) == by_definition(table));
    }
  }
}

TEST_CASE("nothing that stays is dominated, and all that goes is, after many passes of filtering") {
  for (const std::size_t objectives : {2U, 3U, 4U}) {
    CAPTURE(objectives);
    const Table table = ties(200'000, objectives, 1 << 30, 5);
    const Front front = front_of(table);
    std::vector<bool> stays(200'000);
    for (const auto i : front) stays[static_cast<std::size_t>(i)] = true;
    const auto beaten = [&](std::size_t row) {
      return std::any_of(front.begin(), front.end(), [&](std::int64_t other) {
        return is_dominated(table, row, static_cast<std::size_t>(other));
      });
    };
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < stays.size(); i += 17) wrong += beaten(i) == stays[i];
    for (const auto i : front) wrong += beaten(static_cast<std::size_t>(i));
    CHECK(wrong == 0);
  }
}

TEST_CASE("equal rows stay or go together") {
  for (const std::size_t objectives : {2U, 3U, 4U}) {
    CAPTURE(objectives);
    const std::size_t rows = 9'000;
    const Table alike(objectives, std::vector<double>(rows, 2.0));
    Front all(rows);
    std::iota(all.begin(), all.end(), 0);
    CHECK(front_of(alike) == all);
    Table beaten = alike;
    for (auto& column : beaten) column.push_back(2.0);
    beaten.back().back() = 1.0;
    CHECK(front_of(beaten) == Front{static_cast<std::int64_t>(rows)});
  }
}

TEST_CASE("both zeros are the same value") {
  CHECK(front_of({{0.0, -0.0}, {-0.0, 0.0}}) == Front{0, 1});
  CHECK(front_of({{0.0, -0.0, 0.0}, {-0.0, 0.0, 0.0}, {1.0, 0.5, 0.5}}) == Front{1, 2});
}

TEST_CASE("infinities are ordinary values") {
  CHECK(front_of({{kInfinity}, {kInfinity}}) == Front{0});
  for (const std::size_t objectives : {2U, 3U, 4U}) {
    CAPTURE(objectives);
    const Table worst(objectives, {kInfinity, kInfinity});
    CHECK(front_of(worst) == Front{0, 1});
    Table mixed(objectives, {kInfinity, 0.0, kInfinity});
    mixed.front() = {-kInfinity, 0.0, kInfinity};
    CHECK(front_of(mixed) == Front{0, 1});
  }
  const std::vector<double> values{-kInfinity, -1, 0, 1, kInfinity};
  for (const std::size_t objectives : {3U, 4U}) {
    Table table = ties(300, objectives, 5, 3);
    for (auto& column : table) {
      for (double& value : column) value = values[static_cast<std::size_t>(value)];
    }
    CHECK(front_of(table) == by_definition(table));
  }
}

TEST_CASE("malformed columns are refused") {
  CHECK_THROWS_AS(front_of({}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(front_of({{1.0}}), "columns: 1 objectives; must be two, three or four",
                       std::invalid_argument);
  CHECK_THROWS_AS(front_of(Table(5, {1.0})), std::invalid_argument);
  CHECK_THROWS_WITH_AS(front_of({{1.0, 2.0}, {1.0}}),
                       "columns: column 1 has 1 rows; column 0 has 2", std::invalid_argument);
  CHECK_THROWS_WITH_AS(front_of({{1.0, 2.0}, {1.0, std::numeric_limits<double>::quiet_NaN()}}),
                       "columns: column 1, row 1 is NaN; must be a number or infinite",
                       std::invalid_argument);
}

TEST_CASE("many rows are put in order by counting: the front is that of the definition") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr int kRows = 4200;
  Numbers numbers(5);
  for (const std::size_t objectives : {2, 3, 4}) {
    CAPTURE(objectives);
    // All stay but in pairs of equal rows; first values close together, of both signs, or few.
    for (const int kind : {0, 1, 2}) {
      CAPTURE(kind);
      Table table(objectives);
      for (int row = 0; row < kRows; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k + 1 < objectives; ++k) {
          double value = numbers.next();
          if (k == 0 && kind == 0) value = 1e9 + 1e-6 * value;
          if (k == 0 && kind == 1)
            value = row % 50 == 0 ? (row % 100 == 0 ? kInf : -kInf) : 1e-300 * (value - 0.5);
          if (k == 0 && kind == 2) value = std::floor(3 * value) * (row % 2 == 0 ? -0.0 : 0.0);
          if (row % 2 == 1 && k > 0) value = table[k].back();
          table[k].push_back(value);
          sum += k == 0 ? 0 : value;
        }
        table.back().push_back(row % 3 == 0 ? 1 - sum : 2 - sum);
      }
      CHECK(front_of(table) == by_definition(table));
    }
  }
}

TEST_CASE("tables of many blocks come in lexicographic order") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr int kRows = 150'000;
  Numbers numbers(7);
  for (const std::size_t objectives : {2, 3, 4}) {
    // First values spread evenly, in a crowd far from one other, few, or over all magnitudes.
    for (const int kind : {0, 1, 2, 3}) {
      CAPTURE(objectives);
      CAPTURE(kind);
      Table table(objectives);
      for (int row = 0; row < kRows; ++row) {
        double first = numbers.below(1 << 20);
        if (kind == 1) first = row == 0 ? -kInf : 1e6 + first / (1 << 20);
        if (kind == 2) first = numbers.below(3);
        if (kind == 3) first = std::exp(first / 2048 - 256) * (row % 2 == 0 ? -1 : 1);
        table[0].push_back(first);
        double sum = 0;
        for (std::size_t k = 1; k + 1 < objectives; ++k) {
          table[k].push_back(numbers.below(1000));
          sum += table[k].back();
        }
        table.back().push_back(objectives == 2 ? -first : -sum);
      }
      Front expected(kRows);
      std::iota(expected.begin(), expected.end(), 0);
      const auto less = [&](std::int64_t a, std::int64_t b) {
        for (const auto& column : table) {
          if (column[a] != column[b]) return column[a] < column[b];
        }
        return a < b;
      };
      std::ranges::sort(expected, less);
      if (objectives > 2) {  // the least first value of those with equal other values stays
        std::map<std::vector<double>, double> least;
        std::erase_if(expected, [&](std::int64_t row) {
          std::vector<double> others;
          for (std::size_t k = 1; k < objectives; ++k) others.push_back(table[k][row]);
          return least.try_emplace(others, table[0][row]).first->second < table[0][row];
        });
      }
      std::vector<std::span<const double>> columns(table.begin(), table.end());
      CHECK(pareto_front(columns) == expected);
    }
  }
}

}  // namespace
}  // namespace scalemodel
