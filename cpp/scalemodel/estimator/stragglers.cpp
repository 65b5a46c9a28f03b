#include "scalemodel/estimator/stragglers.hpp"

#include <cmath>
#include <numbers>

#include "scalemodel/base/random.hpp"

namespace scalemodel {
namespace {

/// Normal draws in pairs (Box and Muller, 1958).
double normal(SplitMix& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
  return radius * std::cos(2 * std::numbers::pi * random.unit());
}

}  // namespace

std::vector<double> draw_slowdown(double spread, const Degrees& degrees, bool gathered,
                                  std::uint64_t seed) {
  SplitMix random(seed);
  const auto stages = static_cast<std::size_t>(degrees.pp);
  const auto replicas = static_cast<std::int64_t>(gathered ? 1 : degrees.dp);
  const auto ranks = static_cast<std::int64_t>(degrees.tp) * degrees.cp *
                     static_cast<std::int64_t>(gathered ? degrees.dp : 1);
  constexpr double kLeast = 0.1;  // the far tail of a wide distribution is no faster than this
  std::vector<double> slowest(stages, kLeast), factors(stages);
  double most = 0;
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    for (double& factor : factors) {
      factor = kLeast;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        factor = std::max(factor, 1 + spread * normal(random));
      }
    }
    const double last = *std::ranges::max_element(factors);
    if (last <= most) continue;
    most = last;
    slowest = factors;
  }
  return slowest;
}

}  // namespace scalemodel
