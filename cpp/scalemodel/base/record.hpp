// Field tables: one list of (name, member, legal range, meaning) per value type. Bindings, reprs,
// hashes, pickles, stubs, command-line options and table columns are generated from it.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// One field of record `T`. `low` and `high` bound numbers, in base units; other types ignore them.
template <class T, class M>
struct Field {
  using Record = T;
  using Member = M;
  std::string_view name;
  M T::* member;
  double low;
  double high;
  std::string_view meaning;
};

inline constexpr double kAnyLow = -std::numeric_limits<double>::max();
inline constexpr double kAnyHigh = std::numeric_limits<double>::max();

template <class T, class M>
constexpr Field<T, M> field(std::string_view name, M T::* member, std::string_view meaning) {
  return {name, member, kAnyLow, kAnyHigh, meaning};
}

template <class T, class M>
constexpr Field<T, M> field(std::string_view name, M T::* member, double low, double high,
                            std::string_view meaning) {
  return {name, member, low, high, meaning};
}

/// The same for a member that T inherits, whose own type names the base: `field<T>(...)`.
template <class T, class Base, class M>
  requires std::derived_from<T, Base>
constexpr Field<T, M> field(std::string_view name, M Base::* member, std::string_view meaning) {
  return field(name, static_cast<M T::*>(member), meaning);
}

template <class T, class Base, class M>
  requires std::derived_from<T, Base>
constexpr Field<T, M> field(std::string_view name, M Base::* member, double low, double high,
                            std::string_view meaning) {
  return field(name, static_cast<M T::*>(member), low, high, meaning);
}

/// Specialise with `static constexpr std::string_view name` and `static constexpr std::tuple
/// fields`.
template <class T>
struct RecordOf;

template <class T>
concept Record = requires { RecordOf<T>::fields; };

template <Record T, class Visit>
constexpr void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, RecordOf<T>::fields);
}

template <class T, class M, class N>
constexpr bool is_field_of(const Field<T, M>& field, N T::* member) {
  if constexpr (std::is_same_v<M, N>) {
    return field.member == member;
  } else {
    return false;
  }
}

/// Position of a member in its record's field table.
template <Record T, class M>
constexpr std::size_t field_index(M T::* member) {
  std::size_t index = 0, found = 0;
  for_each_field<T>([&](const auto& field) {
    if (is_field_of(field, member)) found = index;
    ++index;
  });
  return found;
}

}  // namespace scalemodel
