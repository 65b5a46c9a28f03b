// Packet spraying: every flow uses all of its paths at the same time.
#pragma once

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// Splits every flow in proportion to the narrowest link of each path. On a leaf-spine fabric whose
/// failures are whole spines this is the linear relaxation of single-path routing: a leaf with d
/// flows of equal size gives each one capacity x links up / d, and no routing is better. The cost
/// of packet reordering is ignored.
Routing spray(const RoutingInstance& instance);

}  // namespace scalemodel
