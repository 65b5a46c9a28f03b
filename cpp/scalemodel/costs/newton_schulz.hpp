// What Muon computes: the momentum of a matrix made orthogonal by Newton-Schulz steps.
#pragma once

#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/ops/gemm.hpp"
#include "scalemodel/strategy/stack.hpp"

namespace scalemodel {

/// One matrix of m x n values, m <= n: five steps of the quintic polynomial,
///
///     A = X X',   B = b A + c A A,   X = a X + B X:   5 (4 m^2 n + 2 m^3) flop in 16 bits,
///
/// where both sums start from copies of A and X. Sources: Jordan et al., "Muon: an optimizer for
/// hidden layers", 2024; Liu et al., arXiv 2502.16982; torch/optim/_muon.py.
Seconds newton_schulz_time(double rows, double columns, const GemmTimer& timer,
                           const Cluster& cluster, const Stack& stack);

}  // namespace scalemodel
