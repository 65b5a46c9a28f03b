// Long calls that report to Python and listen to it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "scalemodel/search/thread_pool.hpp"

namespace scalemodel::bindings {

namespace py = pybind11;

/// Reports progress and listens for an interrupt; whatever Python raises stops the work and is
/// raised again by `rethrow`, with the interpreter's lock held.
class Interpreter {
 public:
  explicit Interpreter(py::object progress) : progress_(std::move(progress)) {}

  Poll poll() {
    return [this](std::uint64_t done, std::uint64_t total) {
      const py::gil_scoped_acquire acquire;
      try {
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        if (!progress_.is_none()) progress_(done, total);
      } catch (py::error_already_set& error) {
        error_.emplace(std::move(error));
        return false;
      }
      return true;
    };
  }
  void rethrow() {
    if (error_) throw std::move(*error_);
  }

 private:
  py::object progress_;
  std::optional<py::error_already_set> error_;
};

}  // namespace scalemodel::bindings
