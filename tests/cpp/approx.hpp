// Equality of floating-point numbers in the C++ tests.
#pragma once

#include <doctest/doctest.h>

#include <limits>

namespace scalemodel::testing {

/// Equal within a fraction of the larger of the two, however small both are; the fraction is
/// doctest's own 1.2e-5 unless `.epsilon()` says another. `doctest::Approx` itself adds 1 to that
/// larger number, which lets any two times of a few microseconds pass for equal. What is added here
/// is so small that zero equals zero, and no other normal number does.
inline doctest::Approx Approx(double value) {
  return doctest::Approx(value).scale(std::numeric_limits<double>::min());
}

}  // namespace scalemodel::testing
