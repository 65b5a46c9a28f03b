// The number of requests in an instance where they arrive at random, of one rate or of several side
// by side.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/serving/prompt_steps.hpp"

namespace scalemodel::detail {

inline constexpr double kRarely = 1e-6, kMany = 64;
inline constexpr double kNever = 1e12;  ///< one over the probability that all slots are taken

/// The number of requests in the instance. The time of a step grows with their number in a straight
/// line, so that they share a processor whose speed depends on how many there are; then
///
///     P(n)/P(n - 1) = rate holding(n)/n
///
/// whatever the distribution of lengths (Cohen, Acta Informatica 12 (1979)), and beyond the last
/// slot P falls by rate holding(slots)/slots. A request shares with those that an arrival finds,
/// where there are slots for them.
template <class Of>
struct SlotOccupancyOf {
  using Number = Of;
  /// Other requests that one in its slot runs with, over the mean number in slots.
  Number others = 1;
  Number empty = 0;        ///< probability of an empty instance
  Number full = 0;         ///< probability that every slot is occupied
  SecondsOf<Number> wait;  ///< for a slot, requests being of one length

  static constexpr auto members() {
    using T = SlotOccupancyOf;
    return std::tuple{&T::others, &T::empty, &T::full, &T::wait};
  }
};
using SlotOccupancy = SlotOccupancyOf<double>;

/// What the occupancy depends on: how long a request holds its slot alone, beside `shared` - 1
/// others, and where the cache is full of whole sequences; straight lines between and beyond.
template <class Of>
struct SlotHoldingTimeOf {
  using Number = Of;
  HertzOf<Number> rate;
  SecondsOf<Number> lone, usual;
  Number shared = 1;
  Seconds most;
  double whole = 1, slots = 1;

  static constexpr auto members() {
    using T = SlotHoldingTimeOf;
    return std::tuple{&T::rate, &T::lone, &T::usual, &T::shared};
  }
  SlotHoldingTimeOf<double> at(std::size_t place) const noexcept {
    return {at_place(rate, place),
            at_place(lone, place),
            at_place(usual, place),
            at_place(shared, place),
            most,
            whole,
            slots};
  }
  SecondsOf<Number> slope() const noexcept {
    return select(shared > 1, max(SecondsOf<Number>{}, usual - lone) / (shared - 1), Seconds{});
  }
  Number crowding() const noexcept { return min(Number{0.99}, rate * slope()); }
  /// Eight standard deviations below the limit no request ever waits for a slot.
  MaskOf<Number> never_fills() const noexcept {
    const Number mean = rate * usual;
    return std::floor(slots) > mean + 8 * sqrt(1 + mean / (1 - crowding())) + 4;
  }
  Seconds of(double n) const noexcept {
    if (n <= shared || whole <= shared) return lone + (n - 1) * slope();
    return usual + (n - shared) / (whole - shared) * (most - usual);
  }
};
using SlotHoldingTime = SlotHoldingTimeOf<double>;

/// The wait for one of `slots` that are held equally long over that where holding times are
/// exponential: 1/2 when busy, more the sooner the first of few slots is free again (Cosmetatos,
/// INFOR 13 (1975)), at most that of a single arrival to full slots.
inline double equal_holding(double load, double slots) noexcept {
  const double rows =
      (1 - load) * (slots - 1) * (std::sqrt(4 + 5 * slots) - 2) / (16 * load * slots);
  return std::min(0.5 * (1 + rows), slots / (slots + 1));
}

/// Of a whole number of slots.
inline SlotOccupancy occupancy_of_whole_slots(const SlotHoldingTime& holding) noexcept {
  SlotOccupancy found;
  if (holding.never_fills()) return found;
  const double slots = holding.slots;
  const Seconds last = holding.of(slots);
  const double load = std::min(kMaxLoad, holding.rate * last / slots);
  // From the last slot down until what is left is nothing; only ratios of weights count. Among
  // many, four at a time fall by the ratio in their middle.
  double weight = 1, sum = 0, taken = 0, n = slots;
  const auto fewer = [&](double number) { return number / (holding.rate * holding.of(number)); };
  double ratio = 1;
  while (n > kMany && (ratio >= 1 || weight >= kRarely * sum)) {
    ratio = fewer(n - 1.5);
    const double squared = ratio * ratio, four = (ratio + squared) * (1 + squared);
    sum += weight * four;
    taken += weight * (n * four - (ratio + squared * (2 + ratio * (3 + 4 * ratio))));
    weight *= squared * squared;
    if (weight > kNever) return found;
    n -= 4;
  }
  for (; n >= 1 && (ratio >= 1 || weight >= kRarely * sum); --n) {
    ratio = fewer(n);
    weight *= ratio;
    if (weight > kNever) return found;
    sum += weight;
    taken += weight * (n - 1);
    if (n < 2) found.empty = weight;
  }
  const double waiting = 1 / (1 - load);
  sum += waiting;
  // A request that waits shares with all other slots in the end; until then all are occupied.
  const double all = taken + waiting * slots;
  found.others = all > 0 ? (taken + waiting * (slots - 1)) / all : 1;
  found.empty /= sum;
  found.full = waiting / sum;
  found.wait = found.full * equal_holding(load, slots) / (1 - load) * (last / slots);
  return found;
}

/// A fraction of a slot exists for that fraction of time.
inline SlotOccupancy occupancy_of_slots(SlotHoldingTime holding) noexcept {
  const double whole = std::floor(holding.slots), part = holding.slots - whole;
  holding.slots = whole;
  SlotOccupancy found = occupancy_of_whole_slots(holding);
  if (part <= 0) return found;
  holding.slots = whole + 1;
  const SlotOccupancy more = occupancy_of_whole_slots(holding);
  found.others += part * (more.others - found.others);
  found.empty += part * (more.empty - found.empty);
  found.full += part * (more.full - found.full);
  found.wait += part * (more.wait - found.wait);
  return found;
}

template <class Number>
SlotOccupancyOf<Number> slot_occupancy(const SlotHoldingTimeOf<Number>& holding) noexcept {
  if (all(holding.never_fills())) return {};
  if constexpr (std::is_same_v<Number, double>) {
    return occupancy_of_slots(holding);
  } else {
    SlotOccupancyOf<Number> found;
    for (std::size_t i = 0; i < Number::kSize; ++i) {
      const SlotOccupancy one = occupancy_of_slots(holding.at(i));
      found.others.set(i, one.others);
      found.empty.set(i, one.empty);
      found.full.set(i, one.full);
      found.wait = replaced(found.wait, i, one.wait);
    }
    return found;
  }
}

/// Probability of an empty instance where slots never fill: that of a negative binomial.
template <class Number>
Number probability_empty(const SlotHoldingTimeOf<Number>& holding) noexcept {
  const Number mean = holding.rate * holding.usual, crowding = holding.crowding();
  const auto alone = crowding < kRarely;
  Number empty = 0;
  if (any(alone)) empty = exp(-mean);
  if (all(alone)) return empty;
  return select(alone, empty, pow(1 - crowding, mean * (1 - crowding) / crowding));
}

}  // namespace scalemodel::detail
