#include "scalemodel/strategy/strides.hpp"

namespace scalemodel {

Strides axis_strides(Placement placement, const Degrees& d) noexcept {
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

}  // namespace scalemodel
