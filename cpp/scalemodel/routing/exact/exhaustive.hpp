// Exhaustive search over the routings of a small instance: the definition of the optimum.
#pragma once

#include <cstdint>
#include <optional>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {

/// Number of routings with one path per flow; `limit + 1` where there are more than `limit`.
std::int64_t count_routings(const RoutingInstance& instance, std::int64_t limit);

/// The routing with the lexicographically largest sorted job values among those whose links all
/// drain within `longest`. A tie goes to the routing with the shorter drain time, then to the first
/// one in the order of path positions. Nothing where there are more than `limit` routings.
std::optional<Choice> exhaustive(const RoutingInstance& instance, RateModel model,
                                 std::int64_t limit = 1 << 16,
                                 Seconds longest = Seconds{kInfinity});

}  // namespace scalemodel
