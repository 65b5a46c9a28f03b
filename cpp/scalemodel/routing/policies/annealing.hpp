// Simulated annealing over destinations, as in Hedera and the routing paper.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

struct Annealing {
  double start = 1000;     ///< temperature
  double end = 0.1;        ///< temperature at which it stops
  double cooling = 0.99;   ///< factor per iteration; with the others 917 iterations
  bool keep_best = false;  ///< the answer is the best state so far, not the last one
};

/// All flows to a destination take one plane, initially its position under its leaf modulo the
/// planes. A move exchanges the planes of two destinations, of the whole fabric or of one leaf with
/// equal probability. The energy is the sum of the loads (numbers of flows) of the links with the
/// largest load; a state of higher energy is accepted with probability
/// exp(-difference / temperature). A flow with fewer paths takes the plane modulo its paths.
///
/// Source: Hedera (Al-Fares et al., NSDI 2010) with the parameters of the public code of arXiv
/// 2503.05324.
Choice annealing(const RoutingInstance& instance, const Annealing& parameters, std::uint64_t seed);

}  // namespace scalemodel
