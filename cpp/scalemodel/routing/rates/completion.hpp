// When jobs complete one step that they start together.
#pragma once

#include <vector>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Seconds until every job has moved all of its flows once, where all flows start at one instant,
/// rates are max-min fair at any time, and a flow that ends frees its share. Infinite for a job
/// with a flow without a path, zero without flows.
std::vector<double> step_completions(const RoutingInstance& instance, const Choice& choice);

}  // namespace scalemodel
