// Bytes that updating parameters holds and moves.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// A weight that is stored as wide as its master copy would be is its own master.
inline double separate_master_bytes(const Task& task, double stored_bytes) {
  return task.master_bytes > stored_bytes ? task.master_bytes : 0;
}

/// Bytes of master weight and moments of one parameter stored in `stored_bytes`.
inline double state_bytes(const Task& task, double stored_bytes) {
  return separate_master_bytes(task, stored_bytes) + moments(task.optimizer) * task.moment_bytes;
}

/// The optimizer reads the gradient and reads and writes master weight and moments; the stored
/// weight is written, and read where it is its own master; clipping reads the gradient once more,
/// and zeroing writes those of all `held` parameters.
inline Bytes update_bytes(double updated, double held, double gradient_bytes, const Task& task,
                          double stored_bytes) {
  const double own = separate_master_bytes(task, stored_bytes) > 0 ? 0 : stored_bytes;
  const double states = state_bytes(task, stored_bytes);
  return Bytes{updated * (2 * gradient_bytes + 2 * states + stored_bytes + own) +
               held * gradient_bytes};
}

}  // namespace scalemodel
