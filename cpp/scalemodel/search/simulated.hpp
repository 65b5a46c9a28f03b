// The best strategies of a search once more, event by event.
#pragma once

#include <span>
#include <vector>

#include "scalemodel/search/objective.hpp"

namespace scalemodel {

/// What the timeline says of a strategy that a search found.
struct Simulated {
  Seconds step_time{kInfinity};  ///< infinite: it was not simulated
  double score = 0;              ///< what it ranks by
};

/// What closed form and timeline may differ by before the timeline decides.
inline constexpr double kAgreement = 0.01;

/// Simulates strategies in their order, as far as all their passes take about a tenth of a second.
/// Where closed form and timeline agree about all of them, they rank by
/// the closed form, otherwise by the timeline. Precondition: every strategy is legal.
std::vector<Simulated> simulate_best(Tables& tables, std::span<const Strategy> strategies,
                                     const Objective& objective);

}  // namespace scalemodel
