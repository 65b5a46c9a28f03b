#include "scalemodel/routing/rates/packing_bound.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "approx.hpp"
#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// The least possible load of the fullest link, by trying every assignment.
double least_possible(const std::vector<double>& loads, std::vector<double>& sum,
                      std::size_t next = 0) {
  if (next == loads.size()) return std::ranges::max(sum);
  double best = 1e300;
  for (double& link : sum) {
    link += loads[next];
    best = std::min(best, least_possible(loads, sum, next + 1));
    link -= loads[next];
  }
  return best;
}

double plain_bound(const std::vector<double>& loads, std::size_t links) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return std::max(sum / static_cast<double>(links), std::ranges::max(loads));
}

TEST_CASE("the bound of few sizes is the least possible load of a leaf") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SplitMix random(seed);
    const std::size_t links = 2 + random.below(2);
    std::vector<double> loads(3 + random.below(6));
    for (double& load : loads) load = 2 + random.below(6);
    std::vector<double> sum(links, 0.0);
    const double best = least_possible(loads, sum);
    const double least = plain_bound(loads, links);
    const std::vector<LeafPacking> leaf{LeafPacking(loads, links, least)};
    CAPTURE(seed);
    CHECK(packing_bound(leaf, least) == testing::Approx(best));
    CHECK(leaf[0].may_fit(best));
    CHECK_FALSE(leaf[0].may_fit(best - 0.5));
  }
}

TEST_CASE("the bound of many sizes is between the plain one and the least possible load") {
  double gap = 0, plain = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SplitMix random(seed);
    std::vector<double> loads(9);
    for (double& load : loads) load = 1 + 4 * random.unit();
    std::vector<double> sum(3, 0.0);
    const double best = least_possible(loads, sum);
    const double least = plain_bound(loads, 3);
    const std::vector<LeafPacking> leaf{LeafPacking(loads, 3, least)};
    const double bound = packing_bound(leaf, least);
    CHECK(bound >= least);
    CHECK(bound <= best * (1 + 1e-9));
    gap += best / bound - 1;
    plain += best / least - 1;
  }
  CHECK(gap < 0.1 * plain);
}

TEST_CASE("leaves with little traffic do not raise the bound of others") {
  // Three flows of 2 on two links need 4; one flow of 5 alone is already more.
  const std::vector<LeafPacking> leaves{LeafPacking(std::vector{2.0, 2.0, 2.0}, 2, 3),
                                        LeafPacking(std::vector{5.0}, 2, 5)};
  CHECK(packing_bound(std::span(leaves).first(1), 3) == testing::Approx(4));
  CHECK(packing_bound(leaves, 5) == testing::Approx(5));
}

}  // namespace
}  // namespace scalemodel
