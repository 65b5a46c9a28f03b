// One binding for every value type with a field table: keyword constructor with checks that name
// the argument, read-only attributes, equality, hash, repr, pickle, replace.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <type_traits>

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

/// Whatever the caller passed for a field of type M; judged where the field's name is known.
template <class M>
struct Argument {
  py::object value;
};

inline std::string text_of(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.12g", number);
  return buffer;
}

inline std::string shown(const py::object& value) {
  std::string text = py::repr(value).cast<std::string>();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

[[noreturn]] inline void reject_value(std::string_view name, const py::object& value,
                                      const std::string& legal, std::string_view meaning) {
  std::string message(name);
  message.append("=").append(shown(value)).append(": must be ").append(legal);
  message.append(" (").append(meaning).append(")");
  throw MalformedQuestion(message);
}

template <class F>
[[noreturn]] void reject(const F& field, const py::object& value, const std::string& legal) {
  reject_value(field.name, value, legal, field.meaning);
}

inline double checked_number_in(std::string_view name, std::string_view meaning, double low,
                                double high, const py::object& value, const char* noun) {
  const auto refuse = [&] {
    std::string legal(noun);
    legal.append(" from ").append(text_of(low)).append(" to ").append(text_of(high));
    reject_value(name, value, legal, meaning);
  };
  const bool numeric =
      PyFloat_Check(value.ptr()) || PyIndex_Check(value.ptr()) || py::hasattr(value, "__float__");
  if (PyBool_Check(value.ptr()) || PyUnicode_Check(value.ptr()) || !numeric) refuse();
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse();
  }
  if (!std::isfinite(number) || number < low || number > high) refuse();
  return number;
}

template <class F>
double checked_number(const F& field, const py::object& value, const char* noun) {
  return checked_number_in(field.name, field.meaning, field.low, field.high, value, noun);
}

/// The member value of `field` that `value` stands for, or MalformedQuestion.
template <class T, class M>
M convert(const Field<T, M>& field, const py::object& value) {
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
      const Field<T, typename M::value_type> element{field.name, nullptr, field.low, field.high,
                                                     field.meaning};
      items[i++] = convert(element, py::reinterpret_borrow<py::object>(item));
    }
    return items;
  }
}

/// A member as Python sees it; sequences as tuples, so that records stay hashable.
template <class M>
py::object as_python(const M& member) {
  py::object value = py::cast(member);
  if (py::isinstance<py::list>(value)) return py::tuple(value);
  return value;
}

template <class T>
py::dict to_dict(const T& record) {
  py::dict dict;
  for_each_field<T>([&](const auto& field) {
    dict[py::str(field.name.data(), field.name.size())] = as_python(record.*(field.member));
  });
  return dict;
}

template <class T>
py::tuple to_tuple(const T& record) {
  return std::apply(
      [&](const auto&... fields) { return py::make_tuple(as_python(record.*(fields.member))...); },
      RecordOf<T>::fields);
}

inline void append_field(std::string& text, std::string_view name, const py::object& value) {
  if (!text.empty()) text.append(", ");
  text.append(name).append("=").append(py::repr(value).cast<std::string>());
}

/// `Name(field=value, ...)` with the fields that differ from their defaults.
template <class T>
std::string repr(const T& record) {
  const T defaults{};
  std::string text;
  for_each_field<T>([&](const auto& field) {
    if (record.*(field.member) == defaults.*(field.member)) return;
    append_field(text, field.name, as_python(record.*(field.member)));
  });
  std::string whole(RecordOf<T>::name);
  return whole.append("(").append(text).append(")");
}

[[noreturn]] inline void unknown_field(const std::string& key, std::string_view record) {
  std::string message = key;
  message.append(": ").append(record).append(" has no such field");
  throw MalformedQuestion(message);
}

template <class T>
T replaced(const T& record, const py::kwargs& changes) {
  T copy = record;
  for (const auto& [key, value] : changes) {
    const auto name = key.template cast<std::string>();
    bool known = false;
    for_each_field<T>([&](const auto& field) {
      if (name != field.name) return;
      copy.*(field.member) = convert(field, py::reinterpret_borrow<py::object>(value));
      known = true;
    });
    if (!known) unknown_field(name, RecordOf<T>::name);
  }
  return copy;
}

/// Rows (name, kind, default, low, high, choices, meaning) of the field table.
template <class T>
py::list field_rows() {
  const T defaults{};
  py::list rows;
  for_each_field<T>([&](const auto& field) {
    using M = typename std::remove_cvref_t<decltype(field)>::Member;
    const char* kind = "record";
    py::list choices;
    if constexpr (NamedEnum<M>) {
      kind = "choice";
      for (const std::string_view name : EnumNames<M>::names) {
        choices.append(py::str(name.data(), name.size()));
      }
    } else if constexpr (std::is_same_v<M, bool>) {
      kind = "bool";
    } else if constexpr (std::is_integral_v<M>) {
      kind = "int";
    } else if constexpr (std::is_same_v<M, double> || IsQuantity<M>::value) {
      kind = "float";
    } else if constexpr (std::is_same_v<M, std::string>) {
      kind = "text";
    }
    py::dict row;
    row["name"] = py::str(field.name.data(), field.name.size());
    row["kind"] = kind;
    row["default"] = as_python(defaults.*(field.member));
    row["low"] = field.low;
    row["high"] = field.high;
    row["choices"] = choices;
    row["meaning"] = py::str(field.meaning.data(), field.meaning.size());
    rows.append(row);
  });
  return rows;
}

/// Any other call: the field that does not exist is named, with the one it may mean, in place of
/// the whole signature. The docstring stays that of the fields.
template <class T>
void define_refusal(py::class_<T>& c) {
  const auto signature = c.attr("__init__").attr("__doc__").template cast<std::string>();
  py::options options;
  options.disable_function_signatures();
  c.def(py::init([](const py::args& positional, const py::kwargs& given) -> T {
          const py::object refusal = py::module_::import("scalemodel.base.records").attr("refusal");
          const auto text = refusal(py::type::of<T>(), positional, given);
          throw MalformedQuestion(text.template cast<std::string>());
        }),
        signature.c_str());
}

template <class T, class... M>
void define_init(py::class_<T>& c, const std::tuple<Field<T, M>...>& fields) {
  const T defaults{};
  std::apply(
      [&](const Field<T, M>&... field) {
        c.def(py::init([](const Argument<M>&... values) {
                T record{};
                const auto assign = [&](const auto&... f) {
                  ((record.*(f.member) = convert(f, values.value)), ...);
                };
                std::apply(assign, RecordOf<T>::fields);
                return record;
              }),
              py::kw_only(), py::arg_v(field.name.data(), as_python(defaults.*(field.member)))...);
      },
      fields);
  define_refusal(c);
}

/// Binds a record. Its attributes are read-only; `replace` makes changed copies.
template <Record T>
py::class_<T> bind_record(py::module_& m, const char* meaning) {
  const std::string name(RecordOf<T>::name);
  py::class_<T> c(m, name.c_str(), meaning);
  define_init(c, RecordOf<T>::fields);
  for_each_field<T>([&](const auto& field) {
    using M = typename std::remove_cvref_t<decltype(field)>::Member;
    const auto member = field.member;
    const auto get = [member](const T& record) {
      if constexpr (IsArray<M>::value) {
        return py::tuple(as_python(record.*member));
      } else {
        return record.*member;
      }
    };
    c.def_property_readonly(field.name.data(), get, std::string(field.meaning).c_str());
  });
  c.def("__eq__", [](const T& a, const T& b) { return a == b; }, py::is_operator());
  c.def("__hash__", [](const T& record) { return py::hash(to_tuple(record)); });
  c.def("__repr__", &repr<T>);
  c.def("replace", &replaced<T>, "A copy with the given fields changed.");
  c.def("to_dict", &to_dict<T>, "Field names and values.");
  c.def_static("fields", &field_rows<T>, "The field table: name, kind, default, range, meaning.");
  c.def(py::pickle([](const T& record) { return to_tuple(record); },
                   [](const py::tuple& state) {
                     T record{};
                     std::size_t i = 0;
                     for_each_field<T>([&](const auto& field) {
                       record.*(field.member) =
                           convert(field, py::reinterpret_borrow<py::object>(state[i++]));
                     });
                     return record;
                   }));
  return c;
}

}  // namespace scalemodel::bindings

namespace pybind11::detail {

template <class M>
struct type_caster<scalemodel::bindings::Argument<M>> {
  static constexpr auto type_name() {
    if constexpr (std::is_same_v<M, scalemodel::OrDefault<scalemodel::OnOff>>) {
      return const_name("str | bool | None");
    } else if constexpr (scalemodel::NamedEnum<M>) {
      return const_name("str");
    } else if constexpr (std::is_same_v<M, bool>) {
      return const_name("bool");
    } else if constexpr (std::is_integral_v<M>) {
      return const_name("int");
    } else if constexpr (std::is_same_v<M, double> || scalemodel::bindings::IsQuantity<M>::value) {
      return const_name("float");
    } else if constexpr (std::is_same_v<M, std::string>) {
      return const_name("str");
    } else if constexpr (scalemodel::Record<M>) {
      return make_caster<M>::name;
    } else if constexpr (requires { requires scalemodel::Record<typename M::value_type>; }) {
      return const_name("collections.abc.Sequence[") + make_caster<typename M::value_type>::name +
             const_name("]");
    } else {
      return const_name("collections.abc.Sequence[float]");
    }
  }
  PYBIND11_TYPE_CASTER(scalemodel::bindings::Argument<M>, type_name());

  bool load(handle source, bool) {
    value.value = reinterpret_borrow<object>(source);
    return true;
  }
  static handle cast(const scalemodel::bindings::Argument<M>& argument, return_value_policy,
                     handle) {
    return argument.value.inc_ref();
  }
};

}  // namespace pybind11::detail
