// Simulated annealing over destinations, as Hedera and the routing paper do it.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

struct Annealing {
  double start = 1000;     ///< temperature
  double end = 0.1;        ///< temperature at which it stops
  double cooling = 0.99;   ///< factor per iteration; with the others 917 iterations
  bool keep_best = false;  ///< answer the best state met, not the last one
};

/// All flows to a destination take one plane. At first its position under its leaf modulo the
/// planes; a neighbour exchanges the planes of two destinations, of the whole fabric or of one leaf
/// with equal probability. Energy: the sum of the loads (numbers of flows) of the links whose load
/// is the largest; a worse state is accepted with probability exp(-difference / temperature).
/// Destinations whose flows cannot use the same position fall back on it modulo their paths.
///
/// Source: Hedera (Al-Fares et al., NSDI 2010) with the parameters of the public code of arXiv
/// 2503.05324.
Choice annealing(const RoutingInstance& instance, const Annealing& parameters, std::uint64_t seed);

}  // namespace scalemodel
