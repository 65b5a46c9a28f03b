#include "bindings/record_columns.hpp"

#include <pybind11/numpy.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace scalemodel::bindings {
namespace {

struct NewColumn {
  py::array array;
  void* values;
};

template <class Stored>
NewColumn new_column(std::uint64_t rows) {
  py::array_t<Stored> array(static_cast<py::ssize_t>(rows));
  void* const values = array.mutable_data();
  return {std::move(array), values};
}

NewColumn new_column(const FieldRow& field, std::uint64_t rows) {
  switch (field.type->column) {
    case ColumnKind::code:
      return new_column<std::int8_t>(rows);
    case ColumnKind::flag:
      return new_column<bool>(rows);
    case ColumnKind::byte:
    case ColumnKind::half:
    case ColumnKind::whole:
      return new_column<std::int32_t>(rows);
    case ColumnKind::number:
      return new_column<double>(rows);
    case ColumnKind::none:
      break;
  }
  throw std::logic_error(std::string(field.name) + ": stands in no column");
}

/// A quantity is read as the double that it holds, a code as the byte that it is, which may be read
/// as any type is.
template <class Stored, class Held = Stored>
void copy(const std::byte* member, std::size_t stride_bytes, std::size_t count, void* column,
          std::uint64_t at) {
  Stored* out = static_cast<Stored*>(column) + at;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<Stored>(*reinterpret_cast<const Held*>(member + i * stride_bytes));
  }
}

}  // namespace

RecordColumns::RecordColumns(const RecordTable& table, std::uint64_t rows,
                             const std::optional<Names>& wanted, py::dict& into) {
  for (const FieldRow& field : table.fields) {
    const std::string name(field.name);
    if (wanted && std::find(wanted->begin(), wanted->end(), name) == wanted->end()) continue;
    const NewColumn column = new_column(field, rows);
    columns_.push_back({&field, column.values});
    if (field.type->column == ColumnKind::code) {
      py::list names;
      for (const std::string_view text : field.type->names) {
        names.append(py::str(text.data(), text.size()));
      }
      into[py::str(name)] = py::make_tuple(column.array, names);
    } else {
      into[py::str(name)] = column.array;
    }
  }
}

void RecordColumns::put(std::uint64_t at, const Records& records) const {
  for (const auto& [field, values] : columns_) {
    const std::byte* const member = records.first + field->offset;
    const std::size_t stride_bytes = records.size_bytes;
    switch (field->type->column) {
      case ColumnKind::code:
        copy<unsigned char>(member, stride_bytes, records.count, values, at);
        break;
      case ColumnKind::flag:
        copy<bool>(member, stride_bytes, records.count, values, at);
        break;
      case ColumnKind::byte:
        copy<std::int32_t, std::uint8_t>(member, stride_bytes, records.count, values, at);
        break;
      case ColumnKind::half:
        copy<std::int32_t, std::uint16_t>(member, stride_bytes, records.count, values, at);
        break;
      case ColumnKind::whole:
        copy<std::int32_t>(member, stride_bytes, records.count, values, at);
        break;
      case ColumnKind::number:
        copy<double>(member, stride_bytes, records.count, values, at);
        break;
      case ColumnKind::none:
        break;
    }
  }
}

}  // namespace scalemodel::bindings
