// One binding for every value type with a field table: keyword constructor with checks that name
// the argument, read-only attributes, equality, hash, repr, pickle, replace.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bindings/casters.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel::bindings {

namespace py = pybind11;

template <class M>
struct IsQuantity : std::false_type {};
template <Dim D>
struct IsQuantity<Quantity<D>> : std::true_type {};

template <class M>
struct IsArray : std::false_type {};
template <class E, std::size_t N>
struct IsArray<std::array<E, N>> : std::true_type {};

std::string text_of(double number);
std::string shown(const py::object& value);
/// A record's or another class's name as signatures write it, with its module.
std::string name_in_signature(const py::type& type);

/// What messages say of a field, and the numbers that it takes.
struct FieldText {
  std::string_view name;
  double low;
  double high;
  std::string_view meaning;
};

[[noreturn]] void reject(const FieldText& field, const py::object& value, const std::string& legal);
double checked_number(const FieldText& field, const py::object& value, const char* noun);
[[noreturn]] void unknown_field(const std::string& key, std::string_view record);

/// The value of type M that `value` stands for in this field, or MalformedQuestion.
template <class M>
M converted(const FieldText& field, const py::object& value) {
  if constexpr (std::is_same_v<M, OrDefault<OnOff>>) {
    if (value.is_none()) return {};
    if (PyBool_Check(value.ptr())) return value.ptr() == Py_True ? OnOff::on : OnOff::off;
  }
  if constexpr (std::is_same_v<M, OrDefault<TensorOverlap>>) {
    if (value.is_none()) return {};
    if (PyBool_Check(value.ptr())) {
      return value.ptr() == Py_True ? TensorOverlap::ring : TensorOverlap::off;
    }
  }
  if constexpr (NamedEnum<M>) {
    py::detail::make_caster<M> caster;
    if (!caster.load(value, false)) reject(field, value, "one of " + all_names<M>());
    return py::detail::cast_op<M>(caster);
  } else if constexpr (std::is_same_v<M, bool>) {
    if (!PyBool_Check(value.ptr())) reject(field, value, "True or False");
    return value.ptr() == Py_True;
  } else if constexpr (std::is_integral_v<M>) {
    const double number = checked_number(field, value, "a whole number");
    if (number != std::floor(number)) reject(field, value, "a whole number");
    return static_cast<M>(number);
  } else if constexpr (std::is_same_v<M, double>) {
    return checked_number(field, value, "a number");
  } else if constexpr (IsQuantity<M>::value) {
    return M{checked_number(field, value, "a number")};
  } else if constexpr (std::is_same_v<M, std::string>) {
    if (!PyUnicode_Check(value.ptr())) reject(field, value, "a text");
    return value.cast<std::string>();
  } else if constexpr (Record<M>) {
    if (!py::isinstance<M>(value)) reject(field, value, "a " + std::string(RecordOf<M>::name));
    return value.cast<M>();
  } else {
    M items{};
    const std::string legal = "a sequence of " + std::to_string(items.size()) + " numbers";
    if (!py::isinstance<py::sequence>(value) || py::len(value) != items.size()) {
      reject(field, value, legal);
    }
    std::size_t i = 0;
    for (const py::handle item : value) {
      items[i++] =
          converted<typename M::value_type>(field, py::reinterpret_borrow<py::object>(item));
    }
    return items;
  }
}

/// How members of one type stand in a column of a table, if they do: choices as small codes, the
/// rest as plain numbers. Whole numbers of all widths become the same.
enum class ColumnKind : std::uint8_t { none, code, flag, byte, half, whole, number };

/// What the bindings do with members of one type. A table of functions rather than templates over
/// records and fields: the same few serve a thousand fields, which compiled one by one were most
/// of the time and the memory of a build.
struct MemberType {
  const char* kind;  ///< as the rows of `fields()` say it
  ColumnKind column;
  std::vector<std::string_view> names;  ///< of a choice
  std::string (*as_argument)();         ///< its type in the signature of the constructor
  std::string (*as_attribute)();        ///< its type as it is read
  void (*assign)(const FieldText& field, const py::object& value, void* member);
  py::object (*read)(const void* member);
  bool (*equal)(const void* a, const void* b);
};

template <class M>
const char* kind_of() {
  if constexpr (NamedEnum<M>) return "choice";
  if constexpr (std::is_same_v<M, bool>) return "bool";
  if constexpr (std::is_integral_v<M>) return "int";
  if constexpr (std::is_same_v<M, double> || IsQuantity<M>::value) return "float";
  if constexpr (std::is_same_v<M, std::string>) return "text";
  return "record";
}

template <class M>
constexpr ColumnKind column_kind() {
  if constexpr (NamedEnum<M>) {
    static_assert(sizeof(M) == 1, "codes are bytes");
    return ColumnKind::code;
  }
  if constexpr (std::is_same_v<M, bool>) return ColumnKind::flag;
  if constexpr (std::is_same_v<M, std::uint8_t>) return ColumnKind::byte;
  if constexpr (std::is_same_v<M, std::uint16_t>) return ColumnKind::half;
  if constexpr (std::is_same_v<M, std::int32_t> || std::is_same_v<M, std::uint32_t>) {
    return ColumnKind::whole;
  }
  if constexpr (std::is_same_v<M, double> || IsQuantity<M>::value) return ColumnKind::number;
  return ColumnKind::none;
}

template <class M>
std::string attribute_text() {
  if constexpr (NamedEnum<M> || std::is_same_v<M, std::string>) {
    return "str";
  } else if constexpr (Record<M>) {
    return name_in_signature(py::type::of<M>());
  } else if constexpr (IsArray<M>::value) {
    return "tuple";
  } else {
    return kind_of<M>();
  }
}

template <class M>
std::string argument_text() {
  if constexpr (std::is_same_v<M, OrDefault<OnOff>>) {
    return "str | bool | None";
  } else if constexpr (!IsArray<M>::value) {
    return attribute_text<M>();
  } else if constexpr (Record<typename M::value_type>) {
    return "collections.abc.Sequence[" + attribute_text<typename M::value_type>() + "]";
  } else {
    return "collections.abc.Sequence[float]";
  }
}

template <class M>
const MemberType& member_type() {
  static const MemberType type{kind_of<M>(),
                               column_kind<M>(),
                               [] {
                                 std::vector<std::string_view> names;
                                 if constexpr (NamedEnum<M>) {
                                   names.assign(EnumNames<M>::names.begin(),
                                                EnumNames<M>::names.end());
                                 }
                                 return names;
                               }(),
                               &argument_text<M>,
                               &attribute_text<M>,
                               [](const FieldText& field, const py::object& value, void* member) {
                                 *static_cast<M*>(member) = converted<M>(field, value);
                               },
                               [](const void* member) -> py::object {
                                 py::object value = py::cast(M(*static_cast<const M*>(member)));
                                 // Sequences as tuples, so that records stay hashable.
                                 if constexpr (IsArray<M>::value) return py::tuple(value);
                                 return value;
                               },
                               [](const void* a, const void* b) {
                                 return *static_cast<const M*>(a) == *static_cast<const M*>(b);
                               }};
  return type;
}

/// A field of a record as the bindings use it, whatever their types.
struct FieldRow : FieldText {
  std::ptrdiff_t offset;  ///< of the member in the record, bytes
  const MemberType* type;

  void* in(void* record) const { return static_cast<std::byte*>(record) + offset; }
  const void* in(const void* record) const {
    return static_cast<const std::byte*>(record) + offset;
  }
};

/// A record as the bindings use it, whatever its type.
struct RecordTable {
  std::string_view name;
  std::vector<FieldRow> fields;
  const void* defaults;
  void* (*inside)(py::handle object);  ///< the record that an object of this class holds
  py::object (*copy)(const void* record);
  void* (*make)();  ///< by new
  void (*drop)(void* made);
  bool (*equal)(const void* a, const void* b);
};

template <Record T>
const RecordTable& table_of() {
  static const T defaults{};
  static const RecordTable table{
      RecordOf<T>::name,
      [] {
        std::vector<FieldRow> rows;
        for_each_field<T>([&]<class M>(const Field<T, M>& field) {
          const auto offset = reinterpret_cast<const std::byte*>(&(defaults.*(field.member))) -
                              reinterpret_cast<const std::byte*>(&defaults);
          rows.push_back(
              {{field.name, field.low, field.high, field.meaning}, offset, &member_type<M>()});
        });
        return rows;
      }(),
      &defaults,
      [](py::handle object) -> void* { return &object.cast<T&>(); },
      [](const void* record) -> py::object {
        // Of a temporary: for one that Python holds it would be the same object, and no copy.
        return py::cast(T(*static_cast<const T*>(record)));
      },
      []() -> void* { return new T{}; },
      [](void* made) { delete static_cast<T*>(made); },
      [](const void* a, const void* b) {
        return *static_cast<const T*>(a) == *static_cast<const T*>(b);
      }};
  return table;
}

/// The field of this name, or none.
const FieldRow* field_of(const RecordTable& table, std::string_view name);

/// Defines on `c`, the class of this record, all that every record has.
void define_record(py::object& c, const RecordTable& table);

/// Binds a record. Its attributes are read-only; `replace` makes changed copies.
template <Record T>
py::class_<T> bind_record(py::module_& m, const char* meaning) {
  const std::string name(RecordOf<T>::name);
  py::class_<T> c(m, name.c_str(), meaning);
  define_record(c, table_of<T>());
  return c;
}

}  // namespace scalemodel::bindings
