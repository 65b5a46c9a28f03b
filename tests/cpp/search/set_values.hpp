// What the tests of spaces and of searches share.
#pragma once

#include <initializer_list>
#include <tuple>
#include <type_traits>

#include "scalemodel/search/space.hpp"

namespace scalemodel::testing {

/// Has a space list these values of a knob and no others.
template <auto Member, class T>
void set(Space& space, std::initializer_list<T> values) {
  auto& listed = std::get<field_index(Member)>(space.values);
  listed.clear();
  for (const T value : values) {
    listed.push_back(
        static_cast<typename std::remove_reference_t<decltype(listed)>::value_type>(value));
  }
}

}  // namespace scalemodel::testing
