// A whole training run: from the rate of one step to days, energy and money.
#pragma once

#include <cmath>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/economics/carbon.hpp"

namespace scalemodel {

inline constexpr Seconds kHour{3600}, kDay{86400};

/// Tokens that last, per second: what failures and checkpoints leave of the rate of a step.
constexpr double goodput(double tokens_per_s, double ettr_fraction) {
  return tokens_per_s * ettr_fraction;
}

/// Time to train on a number of tokens.  T = tokens / goodput.
constexpr Seconds training_time(double tokens, double tokens_per_s, double ettr_fraction) {
  return Seconds{tokens / goodput(tokens_per_s, ettr_fraction)};
}

/// Tokens seen in a time; the inverse of `training_time`.
constexpr double tokens_in(Seconds time, double tokens_per_s, double ettr_fraction) {
  return goodput(tokens_per_s, ettr_fraction) * (time / (1 * unit::s));
}

/// Joules or dollars of a run of so long, by those of one step.
template <Dim D>
constexpr Quantity<D> over_run(Quantity<D> step_total, Seconds step_time, Seconds time) {
  return (time / step_time) * step_total;
}

/// What an owned accelerator costs per second of use: its price over the hours it will work, and
/// its electricity.
///
///     price = capital / (lifetime utilisation) + power pue usd_per_kwh
///
/// `power` is that of one accelerator with its share of the node.
constexpr DollarsPerSecond owned_price(Dollars capital, Seconds lifetime,
                                       double utilisation_fraction, Watts power, double pue,
                                       Dollars per_kwh) {
  return capital / (utilisation_fraction * lifetime) + (pue * power / kKilowattHour) * per_kwh;
}

/// Model work that an energy pays for: flop = energy n F MFU / P, with P the facility's power.
constexpr Flop flop_for_energy(Joules energy, FlopPerSecond model_rate, Watts facility_power) {
  return model_rate * (energy / facility_power);
}

/// Model work that a sum of money pays for.
constexpr Flop flop_for_money(Dollars budget, FlopPerSecond model_rate, DollarsPerSecond price) {
  return model_rate * (budget / price);
}

/// Factor between the middle and one end of an interval of a product of independent uncertain
/// factors, each given by its own such factor: logarithms add in quadrature.
inline double joint_factor(double first, double second) {
  return std::exp(std::hypot(std::log(first), std::log(second)));
}

}  // namespace scalemodel
