// Local search for what colouring cannot do: unequal flows, unequal links, the second layer.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/objective.hpp"

namespace scalemodel {

struct SearchEffort {
  double budget = 1;  ///< 1 is up to 50 ms on one core; counted in moves, so that results repeat
  std::uint64_t seed = 0;
};

/// Lowers the longest time to drain a link (layer 1), then raises the sorted job values of the rate
/// model (both layers). Starts from the best of colouring and longest flow first, never worse than
/// either on layer 1 in the allocated model. Small instances are searched completely.
Choice local_search(const RoutingInstance& instance, RateModel model, const SearchEffort& effort);

/// Layer 1: the choice with the shortest longest time that it met, never longer than the given
/// one's. On two tiers: the one that fills links exactly where sums of sizes tell it, otherwise the
/// better of two runs that anneal flows from the largest to the smallest. Elsewhere: anneals, from
/// the given choice, the sum over links of the squared excess of their time to drain over the lower
/// bound of the instance; a flow of an overfull link takes another path or exchanges planes with a
/// flow that shares one of its end switches.
Choice lower_drain(const RoutingInstance& instance, Choice choice, const SearchEffort& effort);

/// Both layers from a given choice: a flow takes another path, or two flows exchange theirs; kept
/// where the sorted job values do not get worse, returning to the best choice after a while without
/// gain.
Choice raise_job_values(const RoutingInstance& instance, RateModel model, Choice choice,
                        const SearchEffort& effort);

}  // namespace scalemodel
