// Equal-cost multipath routing by a hash of the end points.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// The 32-bit mixing hash of the flow-level simulator behind arXiv 2503.05324 (public code), with
/// wrap-around arithmetic, arithmetic right shifts and a final absolute value. After Jenkins' and
/// Wang's six-step integer hash.
std::int32_t ecmp_hash(std::int32_t value);

/// One hashed path per flow: position h(leaf + h(source + h(destination))) mod paths, in node
/// numbers. The path depends on the pair of NICs only, as with one connection per pair.
Choice ecmp(const RoutingInstance& instance);

/// Splits every flow into `parts` equal parts with different source ports and hashes each part;
/// parts may collide on one path. The hash of part q includes its port,
/// n = h(source + h(destination + h(q))), so a single part differs from `ecmp`.
Routing subflow_ecmp(const RoutingInstance& instance, std::int32_t parts);

}  // namespace scalemodel
