#include "scalemodel/fleet/autoscaler.hpp"

#include <algorithm>
#include <cmath>

namespace scalemodel {

double ScaleRule::desired(Seconds now, double current, double sum) {
  const double ratio = sum / (settings_.target * current);
  const bool close = std::abs(ratio - 1) <= settings_.tolerance;
  const double least = settings_.min_replicas;
  const double wanted = std::max(least, close ? current : std::ceil(sum / settings_.target));
  while (!window_.empty() && window_.back().desired <= wanted) window_.pop_back();
  window_.push_back({now, wanted});
  while (window_.front().time < now - settings_.down_window) window_.pop_front();
  return wanted >= current ? wanted : std::min(current, window_.front().desired);
}

}  // namespace scalemodel
