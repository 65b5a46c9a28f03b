// Records as columns of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/record.hpp"

namespace scalemodel::bindings {

using Names = std::vector<std::string>;

/// One column per field of a record, those of `wanted` names only.
class RecordColumns {
 public:
  RecordColumns(const RecordTable& table, std::uint64_t rows, const std::optional<Names>& wanted,
                py::dict& into);

  /// Writes records from row `at` on; they are of the type of the table.
  template <Record T>
  void put(std::uint64_t at, std::span<const T> records) {
    put(at, {reinterpret_cast<const std::byte*>(records.data()), records.size(), sizeof(T)});
  }

 private:
  struct Records {
    const std::byte* first;
    std::size_t count;
    std::size_t size_bytes;  ///< of one
  };
  struct Column {
    const FieldRow* field;
    void* values;
  };

  void put(std::uint64_t at, const Records& records) const;

  std::vector<Column> columns_;
};

}  // namespace scalemodel::bindings
