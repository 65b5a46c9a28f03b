// Equal-cost multipath: a hash of the end points decides.
#pragma once

#include <cstdint>

#include "scalemodel/routing/instance.hpp"

namespace scalemodel {

/// The 32-bit mixing hash of the flow-level simulator behind arXiv 2503.05324 (public code), with
/// wrap-around arithmetic, arithmetic right shifts and a final absolute value. After Jenkins' and
/// Wang's six-step integer hash.
std::int32_t ecmp_hash(std::int32_t value);

/// One hashed path per flow: position h(leaf + h(source + h(destination))) mod paths, in node
/// numbers. Depends on the pair of NICs only, as with one connection per pair.
Choice ecmp(const RoutingInstance& instance);

/// Every flow in `parts` equal parts with different source ports, each hashed for itself; parts may
/// meet on one path. Part q hashes its source port in place of nothing:
/// n = h(source + h(destination + h(q))), so that one part is not `ecmp`.
Routing subflow_ecmp(const RoutingInstance& instance, std::int32_t parts);

}  // namespace scalemodel
