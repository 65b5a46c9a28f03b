// What a vision tower costs the rank that holds it.
#pragma once

#include "scalemodel/costs/end_cost.hpp"

namespace scalemodel {

/// Adds the tower that reads the images of a micro-batch to the cost of the embedding beside it.
/// Every context rank reads all images; tensor ranks shard the layers where they divide the
/// heads, else replicate them. Layers stay in the storage precision, as releases in narrower
/// formats leave them (their lists of modules that are not converted).
void add_vision(EndCost& cost, const VisionTower& tower, const LayerLayout& layout,
                const Conditions& conditions, const Cluster& cluster, const LayerTimers& timers,
                MessageList* messages = nullptr);

}  // namespace scalemodel
