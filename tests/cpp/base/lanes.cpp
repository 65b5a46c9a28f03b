#include "scalemodel/base/lanes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "support.hpp"

namespace scalemodel::testing {
namespace {

using Four = Lanes<4>;

Four side_by_side(double a, double b, double c, double d) {
  return scalemodel::side_by_side(std::array{a, b, c, d});
}

double spread(double found, double expected) {
  return std::abs(found - expected) / std::max(std::abs(expected), 1e-300);
}

}  // namespace

TEST_CASE_TEMPLATE("functions of numbers side by side are those of each, to a few last bits", All,
                   Lanes<4>, Lanes<8>) {
  for (double x = -60; x <= 60; x += 0.37) {
    const auto all = by_place<All>([&](std::size_t i) {
      const std::array of_x{x, -x, 0.1 * x, 700 * x / 60};
      return of_x[i % of_x.size()] / (1.0 + 0.1 * static_cast<double>(i / of_x.size()));
    });
    const All grown = exp(all), back = log(grown);
    for (std::size_t i = 0; i < All::kSize; ++i) {
      CAPTURE(all[i]);
      CHECK(spread(grown[i], std::exp(all[i])) < 5e-16);
      CHECK(std::abs(back[i] - std::log(grown[i])) <= 1e-15 * std::max(0.5, std::abs(all[i])));
      CHECK(floor(all)[i] == std::floor(all[i]));
      CHECK(ceil(all)[i] == std::ceil(all[i]));
      CHECK(abs(all)[i] == std::abs(all[i]));
      CHECK(sqrt(abs(all))[i] == std::sqrt(std::abs(all[i])));
      const double base = 1 / (1 + std::exp(0.1 * x));
      CHECK(spread(pow(All{base}, abs(all) * 0.1)[i], std::pow(base, 0.1 * std::abs(all[i]))) <
            1e-13);
    }
  }
  CHECK(exp(All{0.0})[0] == 1);
  CHECK(log(All{1.0})[0] == 0);
  CHECK(log2(All{8.0})[All::kSize - 1] == Approx(3));
}

TEST_CASE("numbers too small or too large for e^x stop at the ends") {
  const Four ends = exp(side_by_side(-1e9, -750, 750, 1e9));
  CHECK(ends[0] == ends[1]);
  CHECK(ends[1] < 1e-300);
  CHECK(ends[2] == ends[3]);
  CHECK(ends[3] > 1e300);
}

TEST_CASE("a choice is made in each place, and quantities keep their dimension") {
  const Four few = side_by_side(1, 2, 3, 4);
  const Four::Mask large = few > 2.5;
  CHECK(any(large));
  CHECK_FALSE(all(large));
  CHECK(all(large | (few <= 2.5)));
  CHECK_FALSE(any(large & !large));
  const SecondsOf<Four> times = few * Seconds{2};
  const HertzOf<Four> rates = 1 / times;
  const Four product = times * rates;
  const auto least = min(times, SecondsOf<Four>{Seconds{5}});
  const auto chosen = select(large, times, Seconds{7});
  for (std::size_t i = 0; i < Four::kSize; ++i) {
    CHECK(product[i] == Approx(1));
    CHECK(at_place(least, i) == min(Seconds{2 * few[i]}, Seconds{5}));
    CHECK(at_place(chosen, i) == (few[i] > 2.5 ? Seconds{2 * few[i]} : Seconds{7}));
  }
  CHECK(clamp(few, 1.5, 3.5)[0] == 1.5);
  CHECK(clamp(few, 1.5, 3.5)[3] == 3.5);
}

}  // namespace scalemodel::testing
