// Hedera's scheduler: natural demands, and simulated annealing over the cores of destinations.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Bytes per second that every flow would have on a network without contention: max-min fair rates
/// where only the ports of NICs bind. The result of Hedera's alternation between senders, which
/// share their port equally, and receivers, which cap what exceeds theirs. Zero for a flow without
/// a path.
std::vector<double> natural_demands(const RoutingInstance& instance);

struct HederaAnnealing {
  /// Initial temperature over the number of NICs. It falls by one per iteration.
  int iterations_per_nic = 500;
};

/// All flows to a destination take one core (a spine, or one of its cables). The NICs of a pod, as
/// many consecutive ones as there are cores, have different cores; a move exchanges the cores of
/// two of them. The energy is the excess of natural demands over the capacity, summed over links,
/// in capacities of a port. A state of higher energy is accepted with probability
/// exp(c (energy - new energy) / temperature), where c is half the initial temperature for up to 16
/// NICs and 1000 times the initial temperature for more. A flow with fewer paths than cores takes
/// the path at the same relative position: within a pod of a fat tree, the one over the spine below
/// its core. Flows of any size count as large.
///
/// Source: Al-Fares, Radhakrishnan, Raghavan, Huang and Vahdat, Hedera, NSDI 2010, sections 4.1 and
/// 4.3: 96 % of the optimal bisection bandwidth for 8,192 hosts, up to 113 % above hashing.
Choice hedera(const RoutingInstance& instance, const HederaAnnealing& parameters,
              std::uint64_t seed);

}  // namespace scalemodel
