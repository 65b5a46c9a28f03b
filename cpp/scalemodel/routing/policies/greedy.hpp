// The greedy router of the routing paper, and longest processing time first.
#pragma once

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Flows are taken in classes, what leaves a switch and what enters it, the largest class first
/// (equal ones by name: "a_<leaf>" for leaving, "b_<leaf>" for entering, as strings); within a
/// class in their order. Each goes where the fullest link of its path is least full, the first of
/// equals; sizes do not matter, only numbers of flows.
///
/// The fullest link carries at most twice the flows of the best routing where all leaves share the
/// same spines: a flow placed at load m found m flows on its up- or downlink of each of the S
/// spines, so m S <= 2 (d - 1) with d the flows of the busiest leaf, hence m + 1 <= 2 ceil(d / S).
///
/// Source: public simulation code of arXiv 2503.05324 (there "MCVLC"); its order of classes is that
/// of a hash table where the instances that it is tested with follow the order of the list.
Choice greedy(const RoutingInstance& instance);

/// Largest flow first, each where the longest time to drain a link of its path stays shortest.
/// Source: Graham, SIAM J. Appl. Math. 17 (1969) 416-429, on links in place of machines.
Choice longest_first(const RoutingInstance& instance);

}  // namespace scalemodel
