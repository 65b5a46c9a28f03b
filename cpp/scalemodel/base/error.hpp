// Malformed questions: thrown once, at the boundary, never inside an evaluation.
#pragma once

#include <stdexcept>
#include <string>

namespace scalemodel {

/// The question itself is wrong: an argument out of range, an unknown name. Becomes
/// `ScaleModelError` (a ValueError) in Python.
class MalformedQuestion : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace scalemodel
