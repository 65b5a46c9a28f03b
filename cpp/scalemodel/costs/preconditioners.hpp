// What Shampoo and SOAP compute: Kronecker factors of a matrix, their inverse roots or eigenbases.
#pragma once

#include "scalemodel/costs/layer_cost.hpp"

namespace scalemodel {

/// Longest side of a block, and steps from one computation of inverse roots to the next. Sources:
/// facebookresearch/optimizers, distributed_shampoo/distributed_shampoo.py, the default of
/// max_preconditioner_dim; its README.md, precondition_frequency of every example.
inline constexpr double kShampooBlock = 1024, kShampooFrequency = 100;

/// Longest side that has a factor, and steps from one eigenbasis to the next. Source:
/// nikhilvyas/SOAP, soap.py, the defaults of max_precond_dim and precondition_frequency.
inline constexpr double kSoapLongest = 10'000, kSoapFrequency = 10;

/// Householder QR of n x n values and its orthogonal factor, 8/3 n^3 flop: columns one after the
/// other, two kernels each, and GEMMs with what is right of every panel of 32 columns. Measured
/// (torch.linalg.qr, FP32): 16.0 ms at n = 2048 on the A100 (pytorch/pytorch#151066); 1.8, 4.4 and
/// 31.3 ms at 512, 1024 and 4096 on an NVIDIA part without a name (flagos-ai/FlagGems#5586).
Seconds qr_time(double n, const GemmTimer& timer, const Cluster& cluster, const Stack& stack);

/// Eigendecomposition of a symmetric matrix of n x n values with its eigenvectors: tridiagonal
/// column by column, five kernels each, which read the lower half of what is left; then GEMMs,
/// 4 n^3 flop. Measured: 28.2 and 71.9 ms at n = 1024 and 2048 on the MI250X, half of that on the
/// A100 (ROCm/rocm-jax#278).
Seconds eigen_time(double n, const GemmTimer& timer, const Cluster& cluster, const Stack& stack);

/// One matrix of m x n values in blocks. Every step, and each `frequency` of them:
///
///     L += G G',   R += G' G,   U = L^-1/4 G R^-1/4:   4 (m^2 n + m n^2) flop in FP32
///     L^-1/4, R^-1/4 by eigendecomposition; both are kept: 2 (m^2 + n^2) values.
///
/// Sources: Gupta et al., arXiv 1802.09568; Shi et al., arXiv 2309.06497; facebookresearch/
/// optimizers, distributed_shampoo/preconditioner/matrix_functions.py.
MatrixUpdates shampoo_update(double rows, double columns, const GemmTimer& timer,
                             const Cluster& cluster, const Stack& stack,
                             double frequency = kShampooFrequency);

/// The same of a vector of `length` values, whose blocks have one factor each.
MatrixUpdates shampoo_vector_update(double length, const GemmTimer& timer, const Cluster& cluster,
                                    const Stack& stack, double frequency = kShampooFrequency);

/// One matrix of m x n values; a side that is too long has no factor. Every step, and each
/// `frequency` of them:
///
///     L += G G',   R += G' G,   Adam on Q_L' G Q_R,   its step and the momentum out of the
///     eigenbasis, the momentum back into it:   10 (m^2 n + m n^2) flop in FP32
///     Q = qr(L Q) after a look at Q' L Q for the order of columns:   6 n^3 + 8/3 n^3 flop a side
///
/// L, R, Q_L and Q_R are 2 (m^2 + n^2) values. Sources: Vyas et al., arXiv 2409.11321; soap.py.
MatrixUpdates soap_update(double rows, double columns, const GemmTimer& timer,
                          const Cluster& cluster, const Stack& stack,
                          double frequency = kSoapFrequency);

}  // namespace scalemodel
