// Bytes that updating parameters holds and moves.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// A weight that is stored as wide as its master copy would be is its own master.
inline double separate_master_bytes(const Task& task, double stored_bytes) {
  return task.master_bytes > stored_bytes ? task.master_bytes : 0;
}

/// Bytes of one moment. States of 8 bits share an FP32 scale in blocks of 256 (Dettmers et al.,
/// arXiv 2110.02861; bitsandbytes, optim/optimizer.py).
inline double moment_bytes(const Task& task) {
  return task.optimizer == Optimizer::adam_8bit ? 1 + 4.0 / 256 : task.moment_bytes;
}

/// Bytes of master weight and moments of one parameter stored in `stored_bytes`.
inline double state_bytes(const Task& task, double stored_bytes) {
  return separate_master_bytes(task, stored_bytes) + moments(task.optimizer) * moment_bytes(task);
}

/// What Muon keeps of a parameter that is no matrix of a layer, beyond the momentum of a matrix:
/// Adam's second moment.
inline double second_moment_bytes(const Task& task) {
  return task.optimizer == Optimizer::muon ? moment_bytes(task) : 0;
}

/// Bytes of one parameter that Adafactor moves beside the gradient and the weight, in FP32: the
/// squared gradient written and read for its rows and its columns, the update made of them, scaled
/// twice (huggingface/transformers, optimization.py).
inline constexpr double kFactoredBytes = 48;

/// The optimizer reads the gradient and reads and writes master weight and moments; the stored
/// weight is written, and read where it is its own master; clipping reads the gradient once more,
/// and zeroing writes those of all `held` parameters.
inline Bytes update_bytes(double updated, double held, double gradient_bytes, const Task& task,
                          double stored_bytes) {
  const double own = separate_master_bytes(task, stored_bytes) > 0 ? 0 : stored_bytes;
  const double states = state_bytes(task, stored_bytes) + second_moment_bytes(task);
  const double factors = task.optimizer == Optimizer::adafactor ? kFactoredBytes : 0;
  return Bytes{updated * (2 * gradient_bytes + 2 * states + stored_bytes + own + factors) +
               held * gradient_bytes};
}

/// Bytes that Muon moves of one parameter of a matrix beside the Newton-Schulz steps, a kernel
/// each: momentum and its look-ahead, cast to 16 bits, norm and division, weight decay, the step;
/// clipping reads the gradient once more. Source: torch/optim/_muon.py of PyTorch 2.11.
inline double momentum_update_bytes(const Task& task, double gradient_bytes, double stored_bytes) {
  const double g = gradient_bytes, s = moment_bytes(task);
  const double master = separate_master_bytes(task, stored_bytes);
  const double w = master > 0 ? master : stored_bytes;
  const double copied = master > 0 ? stored_bytes : 0;
  const double averages = (g + 2 * s) + (2 * g + s), scaled = (g + 2) + 2 + 4;
  return g + averages + scaled + 2 * w + (2 * w + 2) + copied;
}

/// The same of Shampoo, in FP32 between kernels: the gradient filtered and corrected, the second
/// moment, the root of it and the step it would give, both steps' norms, weight decay, learning
/// rate, the buffer that is gathered, the step. Source: facebookresearch/optimizers,
/// distributed_shampoo/distributed_shampoo.py.
inline double grafted_update_bytes(const Task& task, double gradient_bytes, double stored_bytes) {
  const double g = gradient_bytes, s = moment_bytes(task);
  const double master = separate_master_bytes(task, stored_bytes);
  const double w = master > 0 ? master : stored_bytes;
  const double copied = master > 0 ? stored_bytes : 0;
  const double averages = (g + 2 * s) + (s + 4) + 2 * s + (g + 2 * s);
  const double grafted = (s + 4) + 8 + 8 + 12, scaled = 4 + 4 + 8;
  return g + averages + grafted + scaled + (w + 8) + 8 + 8 + (2 * w + 4) + copied;
}

/// The same of SOAP, on what is in the eigenbasis: both moments, the root of the second, the step,
/// and weight decay. Source: nikhilvyas/SOAP, soap.py.
inline double eigenbasis_update_bytes(const Task& task, double gradient_bytes,
                                      double stored_bytes) {
  const double g = gradient_bytes, s = moment_bytes(task);
  const double master = separate_master_bytes(task, stored_bytes);
  const double w = master > 0 ? master : stored_bytes;
  const double copied = master > 0 ? stored_bytes : 0;
  const double averages = 2 * s + (2 * s + 4) + 8 + 2 * s + (2 * s + 4);
  const double step = (s + 4) + 8 + (s + 8);
  return g + averages + step + (2 * w + 4) + 2 * w + copied;
}

/// Bytes that an optimizer of whole matrices moves of one parameter beside its GEMMs.
inline double matrix_update_bytes(const Task& task, double gradient_bytes, double stored_bytes) {
  switch (task.optimizer) {
    case Optimizer::shampoo:
      return grafted_update_bytes(task, gradient_bytes, stored_bytes);
    case Optimizer::soap:
      return eigenbasis_update_bytes(task, gradient_bytes, stored_bytes);
    case Optimizer::muon:
    case Optimizer::adam:
    case Optimizer::sgd:
    case Optimizer::sgd_momentum:
    case Optimizer::lion:
    case Optimizer::adafactor:
    case Optimizer::adam_8bit:
      break;
  }
  return momentum_update_bytes(task, gradient_bytes, stored_bytes);
}

}  // namespace scalemodel
