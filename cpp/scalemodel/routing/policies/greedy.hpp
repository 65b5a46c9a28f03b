// The greedy router of the routing paper, and longest processing time first.
#pragma once

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Routes flows class by class: a class holds the flows that leave, or that enter, one switch. The
/// largest class comes first; equal ones are ordered by name as strings, "a_<leaf>" for leaving and
/// "b_<leaf>" for entering. The flows of a class keep their order. A flow takes the path whose most
/// loaded link has the least load, the first one of a tie; a load is a number of flows, whatever
/// their sizes.
///
/// Where all leaves share the same spines, the most loaded link carries at most twice the flows of
/// an optimal routing: a flow placed at load m found m flows on its up- or downlink of each of the
/// S spines, so m S <= 2 (d - 1) with d the flows of the busiest leaf, and m + 1 <= 2 ceil(d / S).
///
/// Source: public simulation code of arXiv 2503.05324 (there "MCVLC"). That code orders classes by
/// a hash table; its test instances follow the order of the list.
Choice greedy(const RoutingInstance& instance);

/// Routes the largest flow first; a flow takes the path with the shortest maximum drain time.
/// Source: Graham, SIAM J. Appl. Math. 17 (1969) 416-429, on links in place of machines.
Choice longest_first(const RoutingInstance& instance);

}  // namespace scalemodel
