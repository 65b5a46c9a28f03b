// Measured curves: which one applies to a group, and what it says about a size.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/hardware/measured.hpp"

namespace scalemodel {

/// The curve of this operation and shape of group, or null.
constexpr const MeasuredCurve* curve_of(Collective op, const GroupShape& group,
                                        const MeasuredCurves& curves) noexcept {
  for (const MeasuredCurve& curve : curves) {
    if (curve.ranks == 0) return nullptr;
    if (curve.op == op && curve.ranks == group.ranks && curve.domains == group.domains) {
      return &curve;
    }
  }
  return nullptr;
}

/// Straight lines between the points in logarithms of size and time. Below the first point its
/// time (latency), beyond the last its bandwidth. Precondition: sizes ascend, times are positive.
Seconds measured_time(const MeasuredCurve& curve, Bytes size) noexcept;

}  // namespace scalemodel
