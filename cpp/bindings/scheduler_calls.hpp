// The scheduler over named blocks, as Python calls it: alone, or with the step times of an
// instance.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>

#include "bindings/arrays.hpp"
#include "scalemodel/serving/scheduler.hpp"

namespace scalemodel::bindings {

using CountColumn =
    pybind11::array_t<std::int64_t, pybind11::array::c_style | pybind11::array::forcecast>;
using NameColumn =
    pybind11::array_t<std::uint64_t, pybind11::array::c_style | pybind11::array::forcecast>;

/// Columns of a stream whose blocks have names. `names` of all requests follow one another;
/// `name_ends` says where those of each request end.
struct NamedColumns {
  NumberColumn arrival;
  CountColumn input, output;
  NameColumn names;
  CountColumn name_ends;
  int name_tokens;
  /// Images of every request; empty: none has any.
  NumberColumn images = {};
};

/// Two tables: one row per step, one per request. Without `times` a step takes 1.
pybind11::tuple schedule_columns(const SchedulerLimits& limits, const NamedColumns& columns,
                                 const StepTimes* times);

}  // namespace scalemodel::bindings
