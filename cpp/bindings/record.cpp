#include "bindings/record.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

namespace scalemodel::bindings {

std::string text_of(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.12g", number);
  return buffer;
}

std::string shown(const py::object& value) {
  std::string text = py::repr(value).cast<std::string>();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string name_in_signature(const py::type& type) {
  std::string name = type.attr("__module__").cast<std::string>();
  return name.append(".").append(type.attr("__qualname__").cast<std::string>());
}

void reject(const FieldText& field, const py::object& value, const std::string& legal) {
  std::string message(field.name);
  message.append("=").append(shown(value)).append(": must be ").append(legal);
  message.append(" (").append(field.meaning).append(")");
  throw MalformedQuestion(message);
}

double checked_number(const FieldText& field, const py::object& value, const char* noun) {
  const auto refuse = [&] {
    std::string legal(noun);
    legal.append(" from ").append(text_of(field.low)).append(" to ").append(text_of(field.high));
    reject(field, value, legal);
  };
  const bool numeric =
      PyFloat_Check(value.ptr()) || PyIndex_Check(value.ptr()) || py::hasattr(value, "__float__");
  if (PyBool_Check(value.ptr()) || PyUnicode_Check(value.ptr()) || !numeric) refuse();
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse();
  }
  if (!std::isfinite(number) || number < field.low || number > field.high) refuse();
  return number;
}

void unknown_field(const std::string& key, std::string_view record) {
  std::string message = key;
  message.append(": ").append(record).append(" has no such field");
  throw MalformedQuestion(message);
}

const FieldRow* field_of(const RecordTable& table, std::string_view name) {
  for (const FieldRow& field : table.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

namespace {

py::str python_text(std::string_view text) { return {text.data(), text.size()}; }

/// A record's table beside its class, which outlives all that is defined on it.
struct RecordClass {
  const RecordTable* table;
  PyObject* type;

  /// The record in `object`. Another object is a call that no signature fits, as elsewhere.
  void* in(py::handle object) const {
    const bool exactly = Py_IS_TYPE(object.ptr(), reinterpret_cast<PyTypeObject*>(type));
    if (!exactly && !py::isinstance(object, type)) throw py::reference_cast_error();
    return table->inside(object);
  }
};

py::dict record_dict(const RecordTable& table, const void* record) {
  py::dict dict;
  for (const FieldRow& field : table.fields) {
    dict[python_text(field.name)] = field.type->read(field.in(record));
  }
  return dict;
}

py::tuple record_tuple(const RecordTable& table, const void* record) {
  py::tuple values(table.fields.size());
  for (std::size_t i = 0; i < table.fields.size(); ++i) {
    const FieldRow& field = table.fields[i];
    values[i] = field.type->read(field.in(record));
  }
  return values;
}

/// `Name(field=value, ...)` with the fields that differ from their defaults.
std::string record_repr(const RecordTable& table, const void* record) {
  std::string text;
  for (const FieldRow& field : table.fields) {
    if (field.type->equal(field.in(record), field.in(table.defaults))) continue;
    if (!text.empty()) text.append(", ");
    text.append(field.name).append("=");
    text.append(py::repr(field.type->read(field.in(record))).cast<std::string>());
  }
  return std::string(table.name).append("(").append(text).append(")");
}

/// Rows (name, kind, default, low, high, choices, meaning) of the field table.
py::list field_rows(const RecordTable& table) {
  py::list rows;
  for (const FieldRow& field : table.fields) {
    py::list choices;
    for (const std::string_view name : field.type->names) choices.append(python_text(name));
    py::dict row;
    row["name"] = python_text(field.name);
    row["kind"] = field.type->kind;
    row["default"] = field.type->read(field.in(table.defaults));
    row["low"] = field.low;
    row["high"] = field.high;
    row["choices"] = choices;
    row["meaning"] = python_text(field.meaning);
    rows.append(row);
  }
  return rows;
}

/// A new record that an object being made takes over once `fill` has set its fields.
template <class Fill>
void fill_new(const RecordTable& table, py::detail::value_and_holder& object, Fill&& fill) {
  std::unique_ptr<void, void (*)(void*)> record(table.make(), table.drop);
  fill(record.get());
  object.value_ptr() = record.release();
}

/// The fields given by name. Any other call: the field that does not exist is named, with the one
/// it may mean.
void fill_by_name(const RecordClass& c, void* record, const py::args& positional,
                  const py::kwargs& given) {
  std::vector<std::pair<const FieldRow*, py::object>> values;
  for (const auto& [key, value] : given) {
    const FieldRow* const field = field_of(*c.table, key.cast<std::string>());
    if (field != nullptr) values.emplace_back(field, py::reinterpret_borrow<py::object>(value));
  }
  if (!positional.empty() || values.size() != given.size()) {
    const py::object refusal = py::module_::import("scalemodel.base.records").attr("refusal");
    const py::object text = refusal(py::handle(c.type), positional, given);
    throw MalformedQuestion(text.cast<std::string>());
  }
  // Of several wrong values the first of the table is named.
  std::ranges::sort(values, {}, [](const auto& given_one) { return given_one.first; });
  for (const auto& [field, value] : values) field->type->assign(*field, value, field->in(record));
}

std::string init_signature(const RecordTable& table, const std::string& self) {
  std::string text = "__init__(self: " + self + ", *";
  for (const FieldRow& field : table.fields) {
    text.append(", ").append(field.name).append(": ").append(field.type->as_argument());
    text.append(" = ");
    text.append(py::repr(field.type->read(field.in(table.defaults))).cast<std::string>());
  }
  return text.append(") -> None\n");
}

void define_attributes(py::object& type, const RecordClass& c, const std::string& self) {
  const py::handle property(reinterpret_cast<PyObject*>(&PyProperty_Type));
  for (const FieldRow& field : c.table->fields) {
    const std::string signature = "(arg0: " + self + ") -> " + field.type->as_attribute() + "\n";
    const py::cpp_function read(
        [c, row = &field](py::handle record) { return row->type->read(row->in(c.in(record))); },
        py::is_method(type), py::doc(signature.c_str()));
    type.attr(python_text(field.name)) =
        property(read, py::none(), py::none(), python_text(field.meaning));
  }
}

}  // namespace

void define_record(py::object& type, const RecordTable& table) {
  const RecordClass c{&table, type.ptr()};
  const std::string self = name_in_signature(py::reinterpret_borrow<py::type>(type));
  // What each function takes and returns is written here: their C++ types say `object`.
  py::options options;
  options.disable_function_signatures();
  const auto define = [&](const char* name, const auto& function, const std::string& text,
                          const auto&... how) {
    type.attr(name) = py::cpp_function(function, py::name(name), py::is_method(type),
                                       py::doc(text.c_str()), how...);
  };
  define(
      "__init__",
      [c](py::detail::value_and_holder& object, const py::args& positional,
          const py::kwargs& given) {
        fill_new(*c.table, object,
                 [&](void* record) { fill_by_name(c, record, positional, given); });
      },
      init_signature(table, self), py::detail::is_new_style_constructor());
  define_attributes(type, c, self);
  define(
      "__eq__", [c](py::handle a, py::handle b) { return c.table->equal(c.in(a), c.in(b)); },
      "__eq__(self: " + self + ", arg0: " + self + ") -> bool\n", py::is_operator());
  define(
      "__hash__", [c](py::handle record) { return py::hash(record_tuple(*c.table, c.in(record))); },
      "__hash__(self: " + self + ") -> int\n");
  define(
      "__repr__", [c](py::handle record) { return record_repr(*c.table, c.in(record)); },
      "__repr__(self: " + self + ") -> str\n");
  define(
      "replace",
      [c](py::handle record, const py::kwargs& changes) {
        py::object copy = c.table->copy(c.in(record));
        void* const changed = c.in(copy);
        for (const auto& [key, value] : changes) {
          const auto name = key.cast<std::string>();
          const FieldRow* const field = field_of(*c.table, name);
          if (field == nullptr) unknown_field(name, c.table->name);
          field->type->assign(*field, py::reinterpret_borrow<py::object>(value),
                              field->in(changed));
        }
        return copy;
      },
      "replace(self: " + self + ", **kwargs) -> " + self +
          "\n\nA copy with the given fields changed.\n");
  define(
      "to_dict", [c](py::handle record) { return record_dict(*c.table, c.in(record)); },
      "to_dict(self: " + self + ") -> dict\n\nField names and values.\n");
  type.attr("fields") = py::staticmethod(
      py::cpp_function([c] { return field_rows(*c.table); }, py::name("fields"), py::scope(type),
                       py::doc("fields() -> list\n\n"
                               "The field table: name, kind, default, range, meaning.\n")));
  define(
      "__getstate__", [c](py::handle record) { return record_tuple(*c.table, c.in(record)); },
      "__getstate__(self: " + self + ", /) -> tuple\n");
  define(
      "__setstate__",
      [c](py::detail::value_and_holder& object, const py::tuple& state) {
        fill_new(*c.table, object, [&](void* record) {
          std::size_t i = 0;
          for (const FieldRow& field : c.table->fields) {
            field.type->assign(field, state[i++], field.in(record));
          }
        });
      },
      "__setstate__(self: " + self + ", arg0: tuple) -> None\n",
      py::detail::is_new_style_constructor());
}

}  // namespace scalemodel::bindings
