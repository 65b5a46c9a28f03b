#include "scalemodel/schedule/rough_sums.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "draws.hpp"
#include "support.hpp"

namespace scalemodel {

TEST_CASE("the longest path is among those that may be") {
  testing::Random random(71);
  for (int i = 0; i < testing::draws(200); ++i) {
    const auto rows = static_cast<std::size_t>(1 + random.below(600));
    const auto columns = static_cast<std::size_t>(2 + random.below(19));
    const std::size_t padded =
        (rows + detail::kRowsAtOnce - 1) / detail::kRowsAtOnce * detail::kRowsAtOnce;
    std::vector<float> counts(padded * columns), times(columns);
    for (float& time : times) time = static_cast<float>(random.between(0, 1));
    std::vector<double> alone(rows), with_hops(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < columns; ++column) {
        const std::size_t block = row / detail::kRowsAtOnce, lane = row % detail::kRowsAtOnce;
        const auto count = static_cast<float>(random.below(10));
        counts[(block * columns + column) * detail::kRowsAtOnce + lane] = count;
        const double time = static_cast<double>(times[column]) * static_cast<double>(count);
        with_hops[row] += time;
        if (column > 0) alone[row] += time;
      }
    }
    detail::RowNumbers found;
    const auto maybe = detail::may_be_longest(counts.data(), rows, times, found);
    const std::size_t looked_at = std::min(rows, detail::kMaxRows);
    for (const auto* sums : {&alone, &with_hops}) {
      const auto longest =
          std::max_element(sums->begin(), sums->begin() + static_cast<std::ptrdiff_t>(looked_at));
      const auto row = static_cast<std::uint16_t>(longest - sums->begin());
      CHECK(std::ranges::find(maybe, row) != maybe.end());
    }
    CHECK(std::ranges::is_sorted(maybe));
    CHECK(maybe.back() < looked_at);
    if (looked_at > 100) CHECK(maybe.size() < looked_at / 2);
  }
}

TEST_CASE("the longest path is among those that may be, whichever times were added before") {
  testing::Random random(73);
  for (int i = 0; i < testing::draws(100); ++i) {
    const auto rows = static_cast<std::size_t>(1 + random.below(500));
    const auto columns = static_cast<std::size_t>(2 + random.below(19));
    const std::size_t padded =
        (rows + detail::kRowsAtOnce - 1) / detail::kRowsAtOnce * detail::kRowsAtOnce;
    std::vector<float> counts(padded * columns);
    std::vector<detail::RoughTerm> before, after;
    for (std::uint32_t column = 0; column < columns; ++column) {
      (random.flip() ? before : after)
          .push_back({static_cast<float>(random.between(0, 1)), column});
    }
    std::vector<double> all(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t block = row / detail::kRowsAtOnce, lane = row % detail::kRowsAtOnce;
      for (const auto* terms : {&before, &after}) {
        for (const detail::RoughTerm& term : *terms) {
          const auto count = static_cast<float>(random.below(10));
          counts[(block * columns + term.column) * detail::kRowsAtOnce + lane] = count;
          all[row] += static_cast<double>(term.time) * static_cast<double>(count);
        }
      }
    }
    std::array<float, detail::kMaxRows> sums;
    detail::begin_sums(counts.data(), columns, rows, before, sums);
    detail::RowNumbers found;
    const auto maybe = detail::may_be_longest(counts.data(), columns, rows, after, sums, found);
    const auto longest = std::ranges::max_element(all) - all.begin();
    CHECK(std::ranges::find(maybe, static_cast<std::uint16_t>(longest)) != maybe.end());
    CHECK(std::ranges::is_sorted(maybe));
    CHECK(maybe.back() < rows);
  }
}

}  // namespace scalemodel
