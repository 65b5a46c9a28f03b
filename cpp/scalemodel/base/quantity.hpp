// Physical quantities whose dimension is part of the type, at no cost at run time.
#pragma once

#include <limits>

namespace scalemodel {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Exponents of the base units of a quantity: byte, flop, second, joule, US dollar.
struct Dim {
  int byte = 0, flop = 0, second = 0, joule = 0, usd = 0;

  constexpr bool operator==(const Dim&) const = default;
  friend constexpr Dim operator+(Dim a, Dim b) {
    return {a.byte + b.byte, a.flop + b.flop, a.second + b.second, a.joule + b.joule,
            a.usd + b.usd};
  }
  friend constexpr Dim operator-(Dim a, Dim b) {
    return {a.byte - b.byte, a.flop - b.flop, a.second - b.second, a.joule - b.joule,
            a.usd - b.usd};
  }
};

/// A number in base units of dimension D. A product or ratio carries the product or ratio of the
/// dimensions; a ratio of like quantities is a plain double.
template <Dim D>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double in_base_units) : value_(in_base_units) {}

  /// The number in base units; leaves the type system.
  constexpr double base() const { return value_; }

  constexpr bool operator==(const Quantity&) const = default;
  // One by one: a three-way comparison of numbers that may be none compiles to several jumps.
  friend constexpr bool operator<(Quantity a, Quantity b) { return a.value_ < b.value_; }
  friend constexpr bool operator>(Quantity a, Quantity b) { return a.value_ > b.value_; }
  friend constexpr bool operator<=(Quantity a, Quantity b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>=(Quantity a, Quantity b) { return a.value_ >= b.value_; }
  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity{a.value_ + b.value_};
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity{a.value_ - b.value_};
  }
  friend constexpr Quantity operator*(double factor, Quantity q) {
    return Quantity{factor * q.value_};
  }
  friend constexpr Quantity operator*(Quantity q, double factor) { return factor * q; }
  friend constexpr Quantity operator/(Quantity q, double divisor) {
    return Quantity{q.value_ / divisor};
  }

 private:
  double value_ = 0;
};

template <Dim A, Dim B>
constexpr auto operator*(Quantity<A> a, Quantity<B> b) {
  if constexpr (A + B == Dim{}) {
    return a.base() * b.base();
  } else {
    return Quantity<A + B>{a.base() * b.base()};
  }
}

template <Dim A, Dim B>
constexpr auto operator/(Quantity<A> a, Quantity<B> b) {
  if constexpr (A == B) {
    return a.base() / b.base();
  } else {
    return Quantity<A - B>{a.base() / b.base()};
  }
}

template <Dim D>
constexpr auto operator/(double numerator, Quantity<D> q) {
  return Quantity<Dim{} - D>{numerator / q.base()};
}

template <Dim D>
constexpr Quantity<D> max(Quantity<D> a, Quantity<D> b) {
  return a < b ? b : a;
}

template <Dim D>
constexpr Quantity<D> min(Quantity<D> a, Quantity<D> b) {
  return b < a ? b : a;
}

using Bytes = Quantity<Dim{.byte = 1}>;
using Flop = Quantity<Dim{.flop = 1}>;
using Seconds = Quantity<Dim{.second = 1}>;
using Joules = Quantity<Dim{.joule = 1}>;
using Dollars = Quantity<Dim{.usd = 1}>;
using Hertz = Quantity<Dim{.second = -1}>;
using BytesPerSecond = Quantity<Dim{.byte = 1, .second = -1}>;
using FlopPerSecond = Quantity<Dim{.flop = 1, .second = -1}>;
using Watts = Quantity<Dim{.second = -1, .joule = 1}>;
using DollarsPerSecond = Quantity<Dim{.second = -1, .usd = 1}>;

namespace unit {
inline constexpr Bytes B{1}, KB{1e3}, MB{1e6}, GB{1e9};
inline constexpr Bytes KiB{1024.0}, MiB{1024.0 * 1024}, GiB{1024.0 * 1024 * 1024};
inline constexpr Flop flop{1};
inline constexpr Seconds s{1}, ms{1e-3}, us{1e-6};
inline constexpr Watts W{1};
inline constexpr Dollars usd{1};
}  // namespace unit

static_assert((300 * unit::GB) / (150 * unit::GB / unit::s) == 2 * unit::s);
static_assert(Seconds{3} / unit::ms == 3000);

}  // namespace scalemodel
