// Columns of numbers as Python hands them over.
#pragma once

#include <pybind11/numpy.h>

namespace scalemodel::bindings {

/// A contiguous column of doubles, converted where it is not one yet.
using NumberColumn =
    pybind11::array_t<double, pybind11::array::c_style | pybind11::array::forcecast>;

}  // namespace scalemodel::bindings
