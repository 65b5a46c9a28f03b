// Energy and price of a step.
#pragma once

#include "scalemodel/base/quantity.hpp"

namespace scalemodel {

/// Energy of a step at the meter of the facility.
///
///     E = pue time (accelerators P_accelerator + nodes P_host)
constexpr Joules facility_energy(Seconds time, Watts accelerator_power, double accelerators,
                                 Watts host_power, double nodes, double pue) {
  return pue * (time * (accelerators * accelerator_power + nodes * host_power));
}

/// Price of a step: every accelerator is paid for the whole time.
constexpr Dollars rental_cost(Seconds time, double accelerators, DollarsPerSecond price) {
  return accelerators * (time * price);
}

}  // namespace scalemodel
