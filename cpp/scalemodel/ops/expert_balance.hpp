// How much more than the mean the fullest of several ranks has to do, whose experts differ in load.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/base/order_statistics.hpp"

namespace scalemodel {

/// Where the experts of a layer lie, and how unevenly they are chosen.
struct ExpertBalance {
  double spread = 0;  ///< standard deviation of an expert's load over its mean
  double slots = 1;   ///< experts and their copies over all ranks, >= 1
  double ranks = 1;   ///< over which they are spread, >= 1
  double pairs = 0;   ///< (token, expert) pairs of a rank in the mean; 0: very many
};

/// Load of the fullest rank over the mean, at most the number of ranks:
///
///     1 + e(R) sqrt(spread^2 R/slots + 1/pairs)
///
/// with e(R) the expected largest of R normal draws. A rank holds slots/R of the experts, whose
/// deviations average out; `pairs` are drawn at random on top, so that few of them vary as
/// Poisson's law says. DeepSeek-R1 on 32 ranks: 2.56 (spread 2.1, 256 slots), 1.109 with 32
/// redundant experts (spread 0.158, 288 slots), and so 1.118 on 36 ranks, where 1.115 was measured
/// (NVIDIA TensorRT-LLM, tech blog 4).
inline double rank_imbalance(const ExpertBalance& b) noexcept {
  const double noise = b.pairs > 0 ? 1 / b.pairs : 0;
  const double deviation = std::sqrt(b.spread * b.spread * b.ranks / b.slots + noise);
  return std::min(std::max(b.ranks, 1.0), 1 + expected_maximum(b.ranks) * deviation);
}

}  // namespace scalemodel
