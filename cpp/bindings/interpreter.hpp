// Long calls that report to Python and listen to it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "scalemodel/base/poll.hpp"

namespace scalemodel::bindings {

namespace py = pybind11;

/// Reports progress and listens for an interrupt; whatever Python raises stops the work and is
/// raised again by `rethrow`, with the interpreter's lock held.
class Interpreter {
 public:
  explicit Interpreter(py::object progress = py::none()) : progress_(std::move(progress)) {}

  Poll poll() {
    return [this](std::uint64_t done, std::uint64_t total) {
      const py::gil_scoped_acquire acquire;
      try {
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        if (!progress_.is_none() && total > 0) progress_(done, total);
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

/// What `work` returns, done without the interpreter's lock. Its loops report to `progress`, a
/// function of (done, total) or None, and hear an interrupt.
template <class Work>
std::invoke_result_t<Work> listening(py::object progress, Work&& work) {
  Interpreter interpreter(std::move(progress));
  std::optional<std::invoke_result_t<Work>> result;
  {
    const py::gil_scoped_release release;
    const Listening listening(interpreter.poll());
    try {
      result.emplace(std::forward<Work>(work)());
    } catch (const Stopped&) {  // NOLINT(bugprone-empty-catch) - what Python raised is raised below
    }
  }
  interpreter.rethrow();
  return *std::move(result);
}
template <class Work>
std::invoke_result_t<Work> listening(Work&& work) {
  return listening(py::none(), std::forward<Work>(work));
}

}  // namespace scalemodel::bindings
