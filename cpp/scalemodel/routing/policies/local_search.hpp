// Local search for unequal flows, unequal links and both layers of the objective.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {

struct SearchEffort {
  double budget = 1;  ///< 1 is up to 50 ms on one core; a number of moves, so results repeat
  std::uint64_t seed = 0;
};

/// Lowers the longest time to drain a link (layer 1), then raises the sorted job values of the rate
/// model (both layers) without a longer drain time. The result never has a longer drain time than
/// `greedy`. Where the shortest drain time costs job values that greedy reaches, the drain time may
/// grow by 3 %, never above greedy's; where that does not suffice, the choice whose jobs complete
/// their steps first is the answer. So lower job values than greedy's come with a shorter drain
/// time only. A small instance is searched exhaustively for the largest job values within greedy's
/// drain time.
Choice local_search(const RoutingInstance& instance, RateModel model, const SearchEffort& effort);

/// Layer 1: the choice with the shortest drain time of the search, never longer than that of the
/// given choice. On two tiers: an exact packing where one is found, otherwise the better of two
/// annealing runs that insert flows from the largest to the smallest, and belief propagation where
/// few sizes leave both more than 5 % above the bound: there all that a budget above one adds is
/// its own, since links that two or three flows must fill exactly take seconds (a budget of 256
/// for 16 x 8 switches). On other fabrics: annealing from the given choice. Its energy is the sum
/// over links of the squared excess of their drain time over the lower bound of the instance; a
/// flow of an overloaded link takes another path or exchanges planes with a flow that shares one of
/// its end switches.
Choice lower_drain(const RoutingInstance& instance, Choice choice, const SearchEffort& effort);

/// Both layers, from a given choice: a flow takes another path, or two flows exchange theirs. A
/// move is accepted where every link drains within `longest` (or within the drain time of the given
/// choice, if longer) and the sorted job values do not decrease. The search restarts from the best
/// choice after a number of moves without gain.
Choice raise_job_values(const RoutingInstance& instance, RateModel model, Choice choice,
                        const SearchEffort& effort, Seconds longest = {});

/// Whether the sorted job values of `choice` are larger than those of `other`.
bool has_larger_values(const RoutingInstance& instance, RateModel model, const Choice& choice,
                       const Choice& other);

}  // namespace scalemodel
