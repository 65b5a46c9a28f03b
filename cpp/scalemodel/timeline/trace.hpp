// A timeline in the Trace Event Format, which Chrome's tracing page and Perfetto read.
#pragma once

#include <string>
#include <vector>

#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/timeline/timeline.hpp"

namespace scalemodel {

/// JSON: a process per rank, a thread per stream, arrows along transfers, memory as a counter.
/// `operators`, when not empty, holds the operators of each layer kind, then of the head; every
/// pass is then broken down into them, scaled to what the pass takes.
std::string trace_json(const Timeline& timeline, const std::vector<OperatorList>& operators);

}  // namespace scalemodel
