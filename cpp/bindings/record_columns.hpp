// Records as columns of a table.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "bindings/record.hpp"

namespace scalemodel::bindings {

using Names = std::vector<std::string>;

/// What a member is in a column: enumerations as small codes, the rest as plain numbers.
template <class M>
struct Stored {
  using type = std::conditional_t<
      NamedEnum<M>, std::int8_t,
      std::conditional_t<std::is_same_v<M, bool>, bool,
                         std::conditional_t<std::is_integral_v<M>, std::int32_t, double>>>;
};

template <class M>
typename Stored<M>::type stored(const M& member) {
  if constexpr (IsQuantity<M>::value) {
    return member.base();
  } else {
    return static_cast<typename Stored<M>::type>(member);
  }
}

template <class Fields>
struct PointersOf;
template <class T, class... M>
struct PointersOf<const FieldTable<Field<T, M>...>> {
  using type = std::tuple<typename Stored<M>::type*...>;
};

/// One column per field of a record, those of `wanted` names only.
template <class T>
class RecordColumns {
 public:
  using Pointers = typename PointersOf<decltype(RecordOf<T>::fields)>::type;

  RecordColumns(std::uint64_t rows, const std::optional<Names>& wanted, py::dict& into) {
    add(rows, wanted, into, std::make_index_sequence<std::tuple_size_v<Pointers>>());
  }
  void put(std::uint64_t at, std::span<const T> records) {
    put(at, records, std::make_index_sequence<std::tuple_size_v<Pointers>>());
  }

 private:
  template <std::size_t... I>
  void add(std::uint64_t rows, const std::optional<Names>& wanted, py::dict& into,
           std::index_sequence<I...>) {
    (add_one<I>(rows, wanted, into), ...);
  }
  template <std::size_t I>
  void add_one(std::uint64_t rows, const std::optional<Names>& wanted, py::dict& into) {
    const auto& field = field_at<I>(RecordOf<T>::fields);
    using M = typename std::remove_cvref_t<decltype(field)>::Member;
    const std::string name(field.name);
    if (wanted && std::find(wanted->begin(), wanted->end(), name) == wanted->end()) return;
    py::array_t<typename Stored<M>::type> column(static_cast<py::ssize_t>(rows));
    std::get<I>(pointers_) = column.mutable_data();
    if constexpr (NamedEnum<M>) {
      py::list names;
      for (const std::string_view text : EnumNames<M>::names) {
        names.append(py::str(text.data(), text.size()));
      }
      into[py::str(name)] = py::make_tuple(column, names);
    } else {
      into[py::str(name)] = column;
    }
  }
  template <std::size_t... I>
  void put(std::uint64_t at, std::span<const T> records, std::index_sequence<I...>) {
    const auto write = [&](auto* column, auto member) {
      if (column == nullptr) return;
      for (std::size_t i = 0; i < records.size(); ++i) column[at + i] = stored(records[i].*member);
    };
    (write(std::get<I>(pointers_), field_at<I>(RecordOf<T>::fields).member), ...);
  }

  Pointers pointers_{};
};

}  // namespace scalemodel::bindings
