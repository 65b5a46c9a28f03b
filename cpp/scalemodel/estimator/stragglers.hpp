// Ranks whose kernels take longer than those of others, and who waits for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scalemodel/base/order_statistics.hpp"
#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// Ranks that wait for each other in every layer: those that share a layer's tokens or weights, and
/// where parameters are gathered layer by layer all that hold a part of them.
inline double ranks_in_step(const Degrees& degrees, bool gathered) {
  const double inside = static_cast<double>(degrees.tp) * degrees.cp;
  if (gathered) return inside * degrees.dp;
  return std::max(inside, static_cast<double>(degrees.ep) * degrees.etp);
}

/// By how much kernels take longer than those of a mean rank, if the times of ranks spread normally
/// around it by `spread` of it and stay as they are: where the slowest of all sets the pace, and
/// where only those of one stage do, while a pipeline fills and drains.
struct Straggling {
  double anywhere = 0, stage = 0;
};
inline Straggling expected_straggling(double spread, const Degrees& degrees, bool gathered) {
  if (spread <= 0) return {};
  const double ranks = static_cast<double>(degrees.tp) * degrees.cp * degrees.pp * degrees.dp;
  return {spread * expected_maximum(ranks),
          spread * expected_maximum(ranks_in_step(degrees, gathered))};
}

/// Factors of the stages of the replica with the slowest rank, every rank drawn from the same
/// distribution. They are above zero.
std::vector<double> draw_slowdown(double spread, const Degrees& degrees, bool gathered,
                                  std::uint64_t seed);

}  // namespace scalemodel
