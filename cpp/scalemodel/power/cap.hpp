// A power limit below an accelerator's own: lower clocks, longer kernels, fewer watts.
#pragma once

#include <algorithm>
#include <cmath>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"

namespace scalemodel {

/// How power follows the clock of the multiprocessors.
struct ClockPower {
  double static_fraction = 0;  ///< of the limit: drawn at any clock (leakage, memory, links)
  double exponent = 1;         ///< of the clock in the rest: voltage falls with the clock
  double least_clock = 1;      ///< lowest clock, of the highest

  bool operator==(const ClockPower&) const = default;
};

/// Where the time of a step goes, by what limits it.
struct StepPhases {
  Seconds compute;       ///< kernels that the clock limits
  Seconds memory_bound;  ///< kernels that the memory limits; its clock is its own
  Seconds exposed;       ///< waiting inside collectives
  Seconds idle;          ///< bubbles, CPU overhead

  constexpr Seconds total() const { return compute + memory_bound + exposed + idle; }
  bool operator==(const StepPhases&) const = default;
};

/// A step under a power limit.
struct CappedStep {
  StepPhases phases;
  Seconds time;               ///< sum of the phases
  Watts power;                ///< mean of one accelerator
  double clock_fraction = 1;  ///< of the highest clock, while computing
  bool met = true;            ///< whether any clock keeps to the limit

  bool operator==(const CappedStep&) const = default;
};

/// Highest clock, as a fraction, at which a phase that draws `full` at the highest one keeps to
/// `cap`:
///
///     P(f) = P_static + (P_full - P_static) f^exponent,  least_clock <= f <= 1
///
/// Precondition: static <= full.
inline double clock_under(Watts cap, Watts full, Watts lowest, const ClockPower& clock) {
  if (full <= cap) return 1;
  const double dynamic = std::max(0.0, (cap - lowest) / (full - lowest));
  return std::max(clock.least_clock, std::pow(dynamic, 1 / clock.exponent));
}

/// Power of a phase at a fraction of the highest clock; the inverse of `clock_under`.
inline Watts power_at(double clock_fraction, Watts full, Watts lowest, const ClockPower& clock) {
  return lowest + std::pow(clock_fraction, clock.exponent) * (full - lowest);
}

/// The step under a limit of `cap` watts per accelerator. Each phase runs at the highest clock that
/// keeps to it; kernels limited by the clock take 1/f of their time, all else takes what it took.
/// What an idle accelerator draws is drawn at any clock.
///
/// Mean power never rises, although computing takes a larger share of the longer step: the share
/// grows by dP / (exponent (P - P_static)), which loses against dP itself as long as
/// P - P_idle < exponent (P - P_static): with the catalogue's constants for every clock down to
/// `least_clock`. Source of the form: P = P_static + c V^2 f, the voltage following the clock; Mei,
/// Wang and Chu, Digital Communications and Networks 3 (2017) 89.
inline CappedStep step_under_cap(const PowerPhases& power, const ClockPower& clock,
                                 const StepPhases& phases, Watts cap) {
  const Watts lowest = max(clock.static_fraction * power.limit, power.idle);
  const Watts computing = power.compute_fraction * power.limit;
  const Watts waiting = power.exposed_fraction * power.limit;
  const double computing_clock = clock_under(cap, computing, lowest, clock);
  const double waiting_clock = clock_under(cap, waiting, lowest, clock);
  const Watts computing_power = power_at(computing_clock, computing, lowest, clock);
  const Watts waiting_power = power_at(waiting_clock, waiting, lowest, clock);
  CappedStep capped{phases, {}, {}, computing_clock, true};
  capped.phases.compute = phases.compute / computing_clock;
  const Joules energy = computing_power * (capped.phases.compute + phases.memory_bound) +
                        waiting_power * phases.exposed + power.idle * phases.idle;
  capped.time = capped.phases.total();
  capped.power = capped.time > Seconds{} ? energy / capped.time : power.idle;
  // Rounding of pow and its inverse must not turn a limit that is met into one that is not.
  capped.met = max(power.idle, max(computing_power, waiting_power)) <= (1 + 1e-9) * cap;
  return capped;
}

template <>
struct RecordOf<ClockPower> {
  static constexpr std::string_view name = "ClockPower";
  using T = ClockPower;
  static constexpr FieldTable fields{
      field("static_fraction", &T::static_fraction, 0, 1, "of the limit, drawn at any clock"),
      field("exponent", &T::exponent, 1, 4, "of the clock in the rest"),
      field("least_clock", &T::least_clock, 0.1, 1, "lowest clock, of the highest")};
};

template <>
struct RecordOf<StepPhases> {
  static constexpr std::string_view name = "StepPhases";
  using T = StepPhases;
  static constexpr FieldTable fields{
      field("compute_s", &T::compute, 0, 1e9, "kernels that the clock limits"),
      field("memory_bound_s", &T::memory_bound, 0, 1e9, "kernels that the memory limits"),
      field("exposed_s", &T::exposed, 0, 1e9, "waiting inside collectives"),
      field("idle_s", &T::idle, 0, 1e9, "bubbles, CPU overhead")};
};

template <>
struct RecordOf<CappedStep> {
  static constexpr std::string_view name = "CappedStep";
  using T = CappedStep;
  static constexpr FieldTable fields{
      field("phases", &T::phases, "of the longer step"),
      field("time_s", &T::time, 0, 1e9, "sum of the phases"),
      field("power_w", &T::power, 0, 1e6, "mean of one accelerator"),
      field("clock_fraction", &T::clock_fraction, 0, 1, "of the highest clock, computing"),
      field("met", &T::met, "whether any clock keeps to the limit")};
};

}  // namespace scalemodel
