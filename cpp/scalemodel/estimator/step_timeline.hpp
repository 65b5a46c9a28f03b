// The timeline of a strategy, with the costs that its estimate is made of.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/timeline/timeline.hpp"

namespace scalemodel {

/// Passes, transfers and buffers of one step. Preconditions: the strategy is legal and tabulated.
StepCosts step_costs(const Tables& tables, const Strategy& strategy,
                     const TimelineOptions& options);

/// The same of stages that hold other layers than those a layout would give them: `chunks` in the
/// order of `make_chunks`.
StepCosts step_costs(const Tables& tables, const Strategy& strategy, const TimelineOptions& options,
                     const std::vector<StageClass>& chunks);

/// Simulates one step. Throws MalformedQuestion where the strategy cannot run at all, `slowdown`
/// does not suit its stages, or the step has more passes than kMaxPasses.
Timeline step_timeline(Tables& tables, const Strategy& strategy, const TimelineOptions& options,
                       std::vector<double> slowdown = {});

/// Factors for `step_timeline` by which the stages of the slowest replica straggle, drawn from the
/// spread of the stack. Precondition: the strategy is legal.
std::vector<double> draw_slowdown(const Tables& tables, const Strategy& strategy,
                                  std::uint64_t seed);

/// Operators of one layer of each kind, then of the head.
std::vector<OperatorList> operators_by_kind(const Tables& tables, const Strategy& strategy);

}  // namespace scalemodel
