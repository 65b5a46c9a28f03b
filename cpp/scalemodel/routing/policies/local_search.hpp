// Local search for what colouring cannot do: unequal flows, unequal links, the second layer.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {

struct SearchEffort {
  double budget = 1;  ///< 1 is up to 50 ms on one core; counted in moves, so that results repeat
  std::uint64_t seed = 0;
};

/// Lowers the longest time to drain a link (layer 1), then raises the sorted job values of the rate
/// model (both layers) without draining longer. Never drains longer than greedy and never has worse
/// job values: where the shortest drain costs job values that greedy has, it may take greedy's
/// time. Small instances are searched completely: the largest job values that drain no later than
/// greedy.
Choice local_search(const RoutingInstance& instance, RateModel model, const SearchEffort& effort);

/// Layer 1: the choice with the shortest longest time that it met, never longer than the given
/// one's. On two tiers: the one that fills links exactly where sums of sizes tell it, otherwise the
/// better of two runs that anneal flows from the largest to the smallest. Elsewhere: anneals, from
/// the given choice, the sum over links of the squared excess of their time to drain over the lower
/// bound of the instance; a flow of an overfull link takes another path or exchanges planes with a
/// flow that shares one of its end switches.
Choice lower_drain(const RoutingInstance& instance, Choice choice, const SearchEffort& effort);

/// Both layers from a given choice: a flow takes another path, or two flows exchange theirs; kept
/// where no link drains after `longest` (or, if that is later, after the given choice) and the
/// sorted job values do not get worse, returning to the best choice after a while without gain.
Choice raise_job_values(const RoutingInstance& instance, RateModel model, Choice choice,
                        const SearchEffort& effort, Seconds longest = {});

/// The sorted job values of `choice` are larger than those of `other`.
bool has_larger_values(const RoutingInstance& instance, RateModel model, const Choice& choice,
                       const Choice& other);

}  // namespace scalemodel
