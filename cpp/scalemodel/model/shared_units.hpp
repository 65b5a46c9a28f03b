// A recurrent layer behind a block of attention and feed-forward that other layers use too.
#pragma once

#include <vector>

#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {

/// The shared block over the stream and the token embedding side by side, a projection of its own
/// back to the stream, and the recurrent mixer that reads their sum (Zyphra, Zamba2,
/// arXiv 2411.15242).
std::vector<Unit> shared_block_units(const LayerShape& layer);

}  // namespace scalemodel
