#include "scalemodel/fleet/fleet.hpp"

#include "scalemodel/fleet/running_fleet.hpp"

namespace scalemodel {

FleetResult simulate_fleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
                           std::span<const std::int64_t> sessions, const FleetOptions& options) {
  return RunningFleet(kinds, requests, sessions, options).run();
}

double jain_index(std::span<const double> shares) noexcept {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 1;
}

}  // namespace scalemodel
