#include "scalemodel/calibration/conformal.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

double conformal_bound(std::span<const double> values, std::span<const double> weights,
                       double coverage, double next_weight) {
  if (values.empty()) return kInfinity;
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  const double seen = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double next = next_weight > 0 ? next_weight : seen / static_cast<double>(values.size());
  // Sums of many weights round; a level met up to that is met.
  const double needed = coverage * (seen + next) * (1 - 1e-12);
  double below = 0;
  for (const std::size_t i : order) {
    below += weights[i];
    if (below >= needed) return values[i];
  }
  return kInfinity;
}

}  // namespace scalemodel
