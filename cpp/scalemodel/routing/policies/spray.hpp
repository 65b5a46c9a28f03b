// Packet spraying: every flow over all of its paths at once.
#pragma once

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Shares in proportion to the narrowest link of each path. On a leaf-spine fabric whose failures
/// are whole spines this is the linear relaxation of single-path routing: a leaf with d flows of
/// equal size gives each capacity x links up / d, and no routing does better. Ignores what
/// reordering costs.
Routing spray(const RoutingInstance& instance);

}  // namespace scalemodel
