#include "scalemodel/calibration/conformal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "support.hpp"

namespace scalemodel {
namespace {

std::vector<double> ones(std::size_t count) { return std::vector<double>(count, 1.0); }

TEST_CASE("without weights the bound is the order statistic ceil(coverage (n + 1))") {
  std::vector<double> values;
  for (int n = 1; n <= 40; ++n) {
    values.push_back(n);
    for (const double coverage : {0.5, 0.8, 0.9}) {
      CAPTURE(n);
      CAPTURE(coverage);
      const double rank = std::ceil(coverage * (n + 1) - 1e-9);
      const double bound = conformal_bound(values, ones(values.size()), coverage);
      if (rank > n) {
        CHECK(std::isinf(bound));
      } else {
        CHECK(bound == rank);
      }
    }
  }
}

TEST_CASE("the next value stays below as often as promised") {
  std::mt19937 chance(7);
  std::normal_distribution<double> error(0.1, 0.3);
  constexpr int kTrials = 4000;
  for (const std::size_t seen : {9UL, 30UL, 200UL}) {
    int below = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> values(seen);
      for (double& value : values) value = error(chance);
      if (error(chance) <= conformal_bound(values, ones(seen), 0.8)) ++below;
    }
    CAPTURE(seen);
    const double share = static_cast<double>(below) / kTrials;
    CHECK(share > 0.78);
    // An order statistic overshoots by less than the share of one value.
    CHECK(share < 0.82 + 1.0 / static_cast<double>(seen + 1));
  }
}

TEST_CASE("the order of values does not matter, nor does a common factor of the weights") {
  const std::vector<double> values{3, -1, 2, 7, 0, 5, 4, -2, 1, 6};
  const std::vector<double> weights{1, 2, 1, 1, 3, 1, 2, 1, 1, 2};
  const std::vector<double> sorted{-2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<double> sorted_weights{1, 2, 3, 1, 1, 1, 2, 1, 2, 1};
  std::vector<double> heavier = weights;
  for (double& weight : heavier) weight *= 12.5;
  for (const double coverage : {0.2, 0.5, 0.7}) {
    const double bound = conformal_bound(values, weights, coverage);
    CHECK(bound == conformal_bound(sorted, sorted_weights, coverage));
    CHECK(bound == conformal_bound(values, heavier, coverage));
  }
}

TEST_CASE("a whole weight counts like as many equal values") {
  const std::vector<double> values{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<double> weights{1, 1, 1, 1, 1, 1, 1, 5};
  CHECK(conformal_bound(values, weights, 0.4) == 6);
  CHECK(conformal_bound(values, weights, 0.6) == 8);
  CHECK(conformal_bound(values, ones(8), 0.6) == 6);
}

TEST_CASE("of groups it matters what they hold, not how often") {
  // Group a of 1 to 4, b of 5 and 6: two halves, beside which the next group is a third.
  const std::vector<double> once{1, 2, 3, 4, 5, 6};
  const std::vector<double> weights{0.25, 0.25, 0.25, 0.25, 0.5, 0.5};
  const std::vector<double> twice{1, 1, 2, 2, 3, 3, 4, 4, 5, 6};
  std::vector<double> halved(8, 0.125);
  halved.insert(halved.end(), {0.5, 0.5});
  for (const double coverage : {0.1, 0.25, 0.4, 0.5, 0.6}) {
    const double bound = conformal_bound(once, weights, coverage, 1);
    CHECK(bound == conformal_bound(twice, halved, coverage, 1));
    CHECK(bound >= conformal_bound(once, weights, coverage));  // a value is less than a group
  }
  CHECK(conformal_bound(once, weights, 0.5, 1) == 5);  // 1.5 of 2 + 1
  CHECK(std::isinf(conformal_bound(once, weights, 0.7, 1)));
}

TEST_CASE("more coverage never lowers the bound, and a bound is a value that was seen") {
  std::vector<double> values;
  for (int i = 0; i < 60; ++i) values.push_back(std::sin(1.0 * i));
  double before = -2;
  for (double coverage = 0.05; coverage < 0.97; coverage += 0.05) {
    const double bound = conformal_bound(values, ones(60), coverage);
    CHECK(bound >= before);
    CHECK(std::ranges::find(values, bound) != values.end());
    before = bound;
  }
}

TEST_CASE("too few values promise nothing") {
  CHECK(std::isinf(conformal_bound({}, {}, 0.5)));
  const std::vector<double> few{1, 2, 3};
  CHECK(conformal_bound(few, ones(3), 0.75) == 3);
  CHECK(conformal_bound(few, ones(3), 0.76) == std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace scalemodel
