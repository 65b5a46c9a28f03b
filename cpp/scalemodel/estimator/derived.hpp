// What follows from the time of a step, for who asks for parts of it.
#pragma once

namespace scalemodel {

/// Fields of an estimate that are worked out from its time at the end: all of them unless said.
struct Derived {
  bool work = true;   ///< tokens a second and utilisation
  bool power = true;  ///< power, energy and price

  friend constexpr Derived operator|(const Derived& a, const Derived& b) {
    return {a.work || b.work, a.power || b.power};
  }
  bool operator==(const Derived&) const = default;
};

}  // namespace scalemodel
