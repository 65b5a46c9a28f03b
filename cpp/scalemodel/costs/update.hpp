// Bytes that updating parameters holds and moves.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// Bytes of master weight and moments of one parameter.
inline double state_bytes(const Task& task) {
  return task.master_bytes + moments(task.optimizer) * task.moment_bytes;
}

/// Adam reads the gradient and reads and writes master weight and moments; the stored weight is
/// written; clipping reads the gradient once more, and zeroing writes those of all `held`
/// parameters.
inline Bytes update_bytes(double updated, double held, double gradient_bytes, double states,
                          double stored_bytes) {
  return Bytes{updated * (2 * gradient_bytes + 2 * states + stored_bytes) + held * gradient_bytes};
}

}  // namespace scalemodel
