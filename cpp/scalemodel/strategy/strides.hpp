// The mesh of a strategy: which ranks lie how far apart.
#pragma once

#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// Distance between neighbouring ranks of each axis, in accelerators: the ranks inside it.
struct Strides {
  int tp = 1, cp = 1, dp = 1, pp = 1;
};
inline Strides axis_strides(Placement placement, const Degrees& d) noexcept {
  Strides strides;
  int stride = 1;
  for (const Axis axis : axes_of(placement)) {
    switch (axis) {
      case Axis::tp:
        strides.tp = stride;
        stride *= d.tp;
        break;
      case Axis::cp:
        strides.cp = stride;
        stride *= d.cp;
        break;
      case Axis::dp:
        strides.dp = stride;
        stride *= d.dp;
        break;
      case Axis::pp:
        strides.pp = stride;
        stride *= d.pp;
        break;
    }
  }
  return strides;
}

/// Whether replicas of dense parameters, which differ in context and data rank, are counted along
/// the context axis first: the inner one of the two; an axis of one rank has no say.
constexpr bool context_inside_data(const Strides& strides, const Degrees& degrees) {
  return degrees.cp > 1 && (degrees.dp == 1 || strides.cp < strides.dp);
}

}  // namespace scalemodel
