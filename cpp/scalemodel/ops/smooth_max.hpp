// A maximum without a corner.
#pragma once

#include <algorithm>
#include <cmath>

namespace scalemodel {

/// (a^p + b^p)^(1/p) for a, b >= 0: a sum at p = 1, a maximum as p grows; never below max(a, b).
inline double smooth_max(double a, double b, double p) noexcept {
  const double high = std::max(a, b), low = std::min(a, b);
  return high > 0 ? high * std::pow(1 + std::pow(low / high, p), 1 / p) : 0;
}

}  // namespace scalemodel
