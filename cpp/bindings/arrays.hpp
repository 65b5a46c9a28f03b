// Columns of numbers as Python hands them over.
#pragma once

#include <pybind11/numpy.h>

namespace scalemodel::bindings {

/// Between two long columns: raises what an interrupt raises.
inline void check_interrupt() {
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

/// A contiguous column of doubles, converted where it is not one yet.
using NumberColumn =
    pybind11::array_t<double, pybind11::array::c_style | pybind11::array::forcecast>;

}  // namespace scalemodel::bindings
