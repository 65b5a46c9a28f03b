// The timeline of a strategy, with the costs that its estimate is made of.
#pragma once

#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/timeline/timeline.hpp"

namespace scalemodel {

/// Passes, transfers and buffers of one step. Preconditions: the strategy is legal and tabulated.
StepCosts step_costs(const Tables& tables, const Strategy& strategy,
                     const TimelineOptions& options);

/// Simulates one step. Throws MalformedQuestion where the strategy cannot run at all, `slowdown`
/// does not suit its stages, or the step has more passes than kMostPasses.
Timeline step_timeline(Tables& tables, const Strategy& strategy, const TimelineOptions& options,
                       std::vector<double> slowdown = {});

/// Operators of one layer of each kind, then of the head.
std::vector<OperatorList> operators_by_kind(const Tables& tables, const Strategy& strategy);

}  // namespace scalemodel
