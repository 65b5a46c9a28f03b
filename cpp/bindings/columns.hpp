// Columns of numbers handed to Python, and whole numbers taken from it.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "scalemodel/base/large_memory.hpp"

namespace scalemodel::bindings {

/// A contiguous column of whole numbers, converted where it is not one yet.
using IndexColumn =
    pybind11::array_t<std::int32_t, pybind11::array::c_style | pybind11::array::forcecast>;

template <class T>
pybind11::array_t<T> array_of(const std::vector<T>& values) {
  check_interrupt();
  return pybind11::array_t<T>(static_cast<pybind11::ssize_t>(values.size()), values.data());
}

/// The values themselves, which the array keeps: of millions a copy is what costs most.
template <class T>
pybind11::array_t<T> array_of(std::vector<T>&& values) {
  check_interrupt();
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  const T* data = kept->data();
  const auto size = static_cast<pybind11::ssize_t>(kept->size());
  const pybind11::capsule owner(kept.get(),
                                [](void* vector) { delete static_cast<std::vector<T>*>(vector); });
  (void)kept.release();
  return pybind11::array_t<T>(size, data, owner);
}

template <class T, class Column>
std::vector<T> vector_of(const Column& column) {
  std::vector<T> values;
  reserve_large(values, static_cast<std::size_t>(column.size()));
  values.assign(column.data(), column.data() + column.size());
  return values;
}

}  // namespace scalemodel::bindings
