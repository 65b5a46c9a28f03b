// How engine types cross the border: quantities as floats in base units, enumerations as names.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/reason.hpp"

namespace pybind11::detail {

template <scalemodel::Dim D>
struct type_caster<scalemodel::Quantity<D>> {
  PYBIND11_TYPE_CASTER(scalemodel::Quantity<D>, const_name("float"));

  bool load(handle source, bool convert) {
    make_caster<double> number;
    if (!number.load(source, convert)) return false;
    value = scalemodel::Quantity<D>{cast_op<double>(number)};
    return true;
  }
  static handle cast(scalemodel::Quantity<D> quantity, return_value_policy, handle) {
    return PyFloat_FromDouble(quantity.base());
  }
};

/// Enumerations cross as their names, not as pybind11's own enumeration objects.
template <class E>
struct type_caster_enum_type_enabled<E, std::enable_if_t<scalemodel::NamedEnum<E>>>
    : std::false_type {};

template <scalemodel::NamedEnum E>
struct type_caster<E> {
  PYBIND11_TYPE_CASTER(E, const_name("str"));

  bool load(handle source, bool) {
    if (!isinstance<str>(source)) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (text == nullptr) {  // half of a surrogate pair is part of no name
      PyErr_Clear();
      return false;
    }
    const auto found = scalemodel::enum_from<E>({text, static_cast<std::size_t>(size)});
    if (!found) return false;
    value = *found;
    return true;
  }
  static handle cast(E item, return_value_policy, handle) {
    const std::string_view name = scalemodel::name_of(item);
    return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  }
};

}  // namespace pybind11::detail
