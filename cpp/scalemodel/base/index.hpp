// Signed counts as subscripts.
#pragma once

#include <concepts>
#include <cstddef>

namespace scalemodel {

/// A subscript from a number that is not negative.
constexpr std::size_t at(std::signed_integral auto index) {
  return static_cast<std::size_t>(index);
}

}  // namespace scalemodel
