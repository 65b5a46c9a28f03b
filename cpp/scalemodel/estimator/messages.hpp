// Every collective and transfer of a step, by pipeline stage.
#pragma once

#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/traffic/strategy_flows.hpp"

namespace scalemodel {

/// What the ranks of every pipeline stage send in one step, with the sizes and counts that an
/// estimate pays for. A transfer between stages is listed for the stage it leaves forwards; its
/// gradient comes back the same way. Empty for an illegal strategy.
std::vector<StageMessage> step_messages(Tables& tables, const Strategy& strategy);

/// What one rank of every pipeline stage writes of a checkpoint: weights as they are kept, master
/// weights and moments of all trained parameters, each written once by the ranks that hold it or a
/// copy of it, in equal parts. Empty for an illegal strategy.
std::vector<Bytes> checkpoint_bytes(Tables& tables, const Strategy& strategy);

/// Where the ranks of the strategy are; `rails` as in StrategyLayout.
StrategyLayout strategy_layout(const Tables& tables, const Strategy& strategy, bool rails);

/// Time of one message, as an estimate counts it.
Seconds message_time(const Message& message, const Cluster& cluster) noexcept;

}  // namespace scalemodel
