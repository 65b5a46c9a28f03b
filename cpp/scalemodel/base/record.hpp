// Field tables: one list of (name, member, legal range, meaning) per value type. Bindings, reprs,
// hashes, pickles, stubs, command-line options and table columns are generated from it.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

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

/// The fields of a record in their order, each of its own type. Not a std::tuple: to choose among
/// the constructors of one with fifty members takes a compiler longer than all else in a header.
template <std::size_t I, class F>
struct FieldAt {
  F field;
};

template <class Indices, class... F>
struct FieldsInOrder;

template <std::size_t... I, class... F>
struct FieldsInOrder<std::index_sequence<I...>, F...> : FieldAt<I, F>... {
  constexpr explicit FieldsInOrder(const F&... fields) : FieldAt<I, F>{fields}... {}

  template <class Visit>
  constexpr void for_each(Visit&& visit) const {
    (visit(static_cast<const FieldAt<I, F>&>(*this).field), ...);
  }
};

template <class... F>
struct FieldTable : FieldsInOrder<std::index_sequence_for<F...>, F...> {
  static constexpr std::size_t size = sizeof...(F);

  constexpr explicit FieldTable(const F&... fields)
      : FieldsInOrder<std::index_sequence_for<F...>, F...>(fields...) {}
};

/// Specialise with `static constexpr std::string_view name` and `static constexpr FieldTable
/// fields`.
template <class T>
struct RecordOf;

template <class T>
concept Record = requires { RecordOf<T>::fields; };

template <Record T, class Visit>
constexpr void for_each_field(Visit&& visit) {
  RecordOf<T>::fields.for_each(visit);
}

template <Record T>
inline constexpr std::size_t field_count = decltype(RecordOf<T>::fields)::size;

/// The field of a table at this position.
template <std::size_t I, class F>
constexpr const F& field_at(const FieldAt<I, F>& at) {
  return at.field;
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
