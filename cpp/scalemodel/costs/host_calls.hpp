// What the CPU does for a layer beside launching its kernels one by one.
#pragma once

#include "scalemodel/costs/layer_builder.hpp"
#include "scalemodel/costs/layer_cost.hpp"

namespace scalemodel {

/// Loops over the documents of packs, and calls of the collectives among tensor ranks, which reduce
/// `blocks` sums each way, and among context ranks. Those of experts are part of what the CPU does
/// to route.
void add_host_calls(LayerBuilder& builder, const LayerKind& kind, const LayerLayout& layout,
                    const Conditions& conditions, double blocks);

}  // namespace scalemodel
