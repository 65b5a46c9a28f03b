#include "scalemodel/collectives/curve.hpp"

#include <cmath>

namespace scalemodel {

Seconds measured_time(const MeasuredCurve& curve, Bytes size) noexcept {
  if (size <= curve.size[0]) return curve.time[0];
  std::size_t last = 0;
  while (last + 1 < MeasuredCurve::kPoints && curve.time[last + 1] > Seconds{}) ++last;
  if (size >= curve.size[last]) return (size / curve.size[last]) * curve.time[last];
  std::size_t above = 1;
  while (curve.size[above] < size) ++above;
  const double position =
      std::log(size / curve.size[above - 1]) / std::log(curve.size[above] / curve.size[above - 1]);
  return std::pow(curve.time[above] / curve.time[above - 1], position) * curve.time[above - 1];
}

}  // namespace scalemodel
