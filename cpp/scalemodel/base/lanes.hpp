// Numbers side by side, of which one instruction computes the same formula, and the functions that
// formulas of one number or of several are written with.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numbers>
#include <type_traits>

#include "scalemodel/base/quantity.hpp"

// None are passed between files, whatever registers their functions are compiled for.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

// Functions for processors whose registers hold four numbers, with all that they call inside: a
// call would hand numbers over in other registers. Where every access is checked, for any
// processor: such a function then takes minutes to compile. So, too, where nothing is inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SCALEMODEL_LANES
#endif
#if defined(SCALEMODEL_LANES) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define SCALEMODEL_WIDE __attribute__((target("avx2"), flatten, hot))
#else
#define SCALEMODEL_WIDE
#endif

namespace scalemodel {

namespace detail {
template <class T, std::size_t N>
struct VectorOf {
  using Type [[gnu::vector_size(N * sizeof(T))]] = T;
};

/// Halves are laid over each other until two places are left.
template <class Bits>
bool any_bit(const Bits& bits) {
  if constexpr (sizeof(Bits) == 2 * sizeof(std::int64_t)) {
    return (bits[0] | bits[1]) != 0;
  } else {
    using Half = typename VectorOf<std::int64_t, sizeof(Bits) / sizeof(std::int64_t) / 2>::Type;
    const auto halves = std::bit_cast<std::array<Half, 2>>(bits);
    return any_bit(Half{halves[0] | halves[1]});
  }
}
}  // namespace detail

/// In two registers: a processor computes with one while the other waits for its result. Of GCC and
/// Clang: arithmetic place by place, where a processor has narrower registers in parts.
template <std::size_t N>
class Lanes {
 public:
  static constexpr std::size_t kSize = N, kRegister = N / 2;
  using Register = typename detail::VectorOf<double, kRegister>::Type;
  using Bits = typename detail::VectorOf<std::int64_t, kRegister>::Type;

  Lanes() = default;
  Lanes(double all) : low_(Register{} + all), high_(low_) {}
  Lanes(const Register& low, const Register& high) : low_(low), high_(high) {}
  // Register by register: of more bytes than one holds compilers copy words.
  // NOLINTNEXTLINE(modernize-use-equals-default)
  Lanes(const Lanes& from) : low_(from.low_), high_(from.high_) {}
  // NOLINTNEXTLINE(modernize-use-equals-default)
  Lanes& operator=(const Lanes& from) {
    low_ = from.low_;
    high_ = from.high_;
    return *this;
  }

  const Register& low() const { return low_; }
  const Register& high() const { return high_; }
  double operator[](std::size_t lane) const {
    return lane < kRegister ? low_[lane] : high_[lane - kRegister];
  }
  void set(std::size_t lane, double value) {
    if (lane < kRegister) {
      low_[lane] = value;
    } else {
      high_[lane - kRegister] = value;
    }
  }

  /// Yes or no in each lane: all bits of it or none.
  class Mask {
   public:
    Mask(const Bits& low, const Bits& high) : low_(low), high_(high) {}
    Mask(bool all) : low_(Bits{} - static_cast<std::int64_t>(all)), high_(low_) {}

    bool operator[](std::size_t lane) const {
      return (lane < kRegister ? low_[lane] : high_[lane - kRegister]) != 0;
    }
    friend Mask operator&(Mask a, Mask b) { return {a.low_ & b.low_, a.high_ & b.high_}; }
    friend Mask operator|(Mask a, Mask b) { return {a.low_ | b.low_, a.high_ | b.high_}; }
    friend Mask operator!(Mask a) { return {~a.low_, ~a.high_}; }
    friend bool any(Mask mask) { return detail::any_bit(Bits{mask.low_ | mask.high_}); }
    friend bool all(Mask mask) { return !any(!mask); }
    friend bool at_place(Mask mask, std::size_t lane) { return mask[lane]; }
    // Processors choose by the sign.
    friend Lanes select(Mask yes, Lanes a, Lanes b) {
      return {yes.low_ < 0 ? a.low() : b.low(), yes.high_ < 0 ? a.high() : b.high()};
    }

   private:
    Bits low_, high_;
  };

  friend Lanes operator+(Lanes a, Lanes b) { return {a.low_ + b.low_, a.high_ + b.high_}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {a.low_ - b.low_, a.high_ - b.high_}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {a.low_ * b.low_, a.high_ * b.high_}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {a.low_ / b.low_, a.high_ / b.high_}; }
  friend Lanes operator-(Lanes a) { return {-a.low_, -a.high_}; }
  Lanes& operator+=(Lanes b) { return *this = *this + b; }
  Lanes& operator*=(Lanes b) { return *this = *this * b; }
  friend Mask operator<(Lanes a, Lanes b) {
    return {std::bit_cast<Bits>(a.low_ < b.low_), std::bit_cast<Bits>(a.high_ < b.high_)};
  }
  friend Mask operator<=(Lanes a, Lanes b) {
    return {std::bit_cast<Bits>(a.low_ <= b.low_), std::bit_cast<Bits>(a.high_ <= b.high_)};
  }
  friend Mask operator==(Lanes a, Lanes b) {
    return {std::bit_cast<Bits>(a.low_ == b.low_), std::bit_cast<Bits>(a.high_ == b.high_)};
  }
  friend Mask operator>(Lanes a, Lanes b) { return b < a; }
  friend Mask operator>=(Lanes a, Lanes b) { return b <= a; }

  friend Lanes max(Lanes a, Lanes b) {
    return {a.low_ < b.low_ ? b.low_ : a.low_, a.high_ < b.high_ ? b.high_ : a.high_};
  }
  friend Lanes min(Lanes a, Lanes b) {
    return {b.low_ < a.low_ ? b.low_ : a.low_, b.high_ < a.high_ ? b.high_ : a.high_};
  }
  friend Lanes abs(Lanes x) { return max(x, -x); }
  friend Lanes sqrt(Lanes x) {
    return each(x, [](double one) { return std::sqrt(one); });
  }
  friend Lanes floor(Lanes x) {
    return each(x, [](double one) { return std::floor(one); });
  }
  friend Lanes ceil(Lanes x) {
    return each(x, [](double one) { return std::ceil(one); });
  }

 private:
  template <class Of>
  static Lanes each(Lanes x, const Of& of) {
    for (std::size_t i = 0; i < kRegister; ++i) x.low_[i] = of(x.low_[i]);
    for (std::size_t i = 0; i < kRegister; ++i) x.high_[i] = of(x.high_[i]);
    return x;
  }

  Register low_{}, high_{};
};

/// Like quantities side by side.
template <Dim D, std::size_t N>
class QuantityLanes {
 public:
  QuantityLanes() = default;
  explicit QuantityLanes(Lanes<N> in_base_units) : value_(in_base_units) {}
  QuantityLanes(Quantity<D> all) : value_(all.base()) {}

  Lanes<N> base() const { return value_; }

  using Mask = typename Lanes<N>::Mask;
  friend Mask operator<(QuantityLanes a, QuantityLanes b) { return a.value_ < b.value_; }
  friend Mask operator>(QuantityLanes a, QuantityLanes b) { return a.value_ > b.value_; }
  friend Mask operator<=(QuantityLanes a, QuantityLanes b) { return a.value_ <= b.value_; }
  QuantityLanes& operator+=(QuantityLanes other) { return *this = *this + other; }
  friend QuantityLanes operator+(QuantityLanes a, QuantityLanes b) {
    return QuantityLanes{a.value_ + b.value_};
  }
  friend QuantityLanes operator-(QuantityLanes a, QuantityLanes b) {
    return QuantityLanes{a.value_ - b.value_};
  }
  friend QuantityLanes operator*(Lanes<N> factor, QuantityLanes q) {
    return QuantityLanes{factor * q.value_};
  }
  friend QuantityLanes operator*(QuantityLanes q, Lanes<N> factor) { return factor * q; }
  friend QuantityLanes operator/(QuantityLanes q, Lanes<N> divisor) {
    return QuantityLanes{q.value_ / divisor};
  }
  friend QuantityLanes<Dim{} - D, N> operator/(Lanes<N> numerator, QuantityLanes q) {
    return QuantityLanes<Dim{} - D, N>{numerator / q.value_};
  }
  friend QuantityLanes select(Mask yes, QuantityLanes a, QuantityLanes b) {
    return QuantityLanes{select(yes, a.value_, b.value_)};
  }
  friend QuantityLanes max(QuantityLanes a, QuantityLanes b) {
    return QuantityLanes{max(a.value_, b.value_)};
  }
  friend QuantityLanes min(QuantityLanes a, QuantityLanes b) {
    return QuantityLanes{min(a.value_, b.value_)};
  }

 private:
  Lanes<N> value_;
};

template <Dim D, std::size_t N>
QuantityLanes<D, N> operator*(Lanes<N> a, Quantity<D> b) {
  return a * QuantityLanes<D, N>{b};
}
template <Dim D, std::size_t N>
QuantityLanes<D, N> operator*(Quantity<D> a, Lanes<N> b) {
  return b * QuantityLanes<D, N>{a};
}
template <Dim D, std::size_t N>
QuantityLanes<D, N> operator/(Quantity<D> a, Lanes<N> b) {
  return QuantityLanes<D, N>{a} / b;
}

namespace detail {
template <Dim D, std::size_t N>
auto quantity_of(Lanes<N> value) {
  if constexpr (D == Dim{}) {
    return value;
  } else {
    return QuantityLanes<D, N>{value};
  }
}
}  // namespace detail

template <Dim A, Dim B, std::size_t N>
auto operator*(QuantityLanes<A, N> a, QuantityLanes<B, N> b) {
  return detail::quantity_of<A + B>(a.base() * b.base());
}
template <Dim A, Dim B, std::size_t N>
auto operator*(QuantityLanes<A, N> a, Quantity<B> b) {
  return a * QuantityLanes<B, N>{b};
}
template <Dim A, Dim B, std::size_t N>
auto operator*(Quantity<A> a, QuantityLanes<B, N> b) {
  return QuantityLanes<A, N>{a} * b;
}
template <Dim A, Dim B, std::size_t N>
auto operator/(QuantityLanes<A, N> a, QuantityLanes<B, N> b) {
  return detail::quantity_of<A - B>(a.base() / b.base());
}
template <Dim A, Dim B, std::size_t N>
auto operator/(QuantityLanes<A, N> a, Quantity<B> b) {
  return a / QuantityLanes<B, N>{b};
}
template <Dim A, Dim B, std::size_t N>
auto operator/(Quantity<A> a, QuantityLanes<B, N> b) {
  return QuantityLanes<A, N>{a} / b;
}

namespace detail {
template <Dim D, class Number>
struct QuantitiesOf {
  using type = Quantity<D>;
};
template <Dim D, std::size_t N>
struct QuantitiesOf<D, Lanes<N>> {
  using type = QuantityLanes<D, N>;
};
}  // namespace detail

/// Quantities of as many numbers as a formula is computed of at once.
template <Dim D, class Number>
using QuantityOf = typename detail::QuantitiesOf<D, Number>::type;
template <class Number>
using SecondsOf = QuantityOf<Dim{.second = 1}, Number>;
template <class Number>
using HertzOf = QuantityOf<Dim{.second = -1}, Number>;
template <class Number>
using BytesOf = QuantityOf<Dim{.byte = 1}, Number>;
template <class Number>
using BytesPerSecondOf = QuantityOf<Dim{.byte = 1, .second = -1}, Number>;

/// What comparisons of numbers say.
template <class Number>
using MaskOf = decltype(Number{} < Number{});

constexpr bool any(bool yes) { return yes; }
constexpr bool all(bool yes) { return yes; }

constexpr double select(bool yes, double a, double b) { return yes ? a : b; }
template <Dim D>
constexpr Quantity<D> select(bool yes, Quantity<D> a, Quantity<D> b) {
  return yes ? a : b;
}

constexpr double max(double a, double b) { return a < b ? b : a; }
constexpr double min(double a, double b) { return b < a ? b : a; }
template <class Number>
constexpr Number clamp(Number value, std::type_identity_t<Number> low,
                       std::type_identity_t<Number> high) {
  return min(max(value, low), high);
}

inline double floor(double x) { return std::floor(x); }
inline double ceil(double x) { return std::ceil(x); }
inline double sqrt(double x) { return std::sqrt(x); }
inline double abs(double x) { return std::abs(x); }

inline double exp(double x) { return std::exp(x); }
inline double pow(double x, double y) { return std::pow(x, y); }
inline double log2(double x) { return std::log2(x); }

namespace detail {

// NOLINTNEXTLINE(modernize-use-std-numbers): ln 2 in two parts, products with the first are exact
inline constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr int kFractionBits = 52;
inline constexpr std::int64_t kFraction = (std::int64_t{1} << kFractionBits) - 1;
inline constexpr std::int64_t kOne = std::bit_cast<std::int64_t>(1.0);

template <std::size_t N, class Of>
Lanes<N> each_register(const Lanes<N>& x, const Of& of) {
  return {of(x.low()), of(x.high())};
}
/// Fractions with the exponent of one: in [1, 2) of positive numbers.
template <std::size_t N>
Lanes<N> fraction(Lanes<N> x) {
  using Register = typename Lanes<N>::Register;
  using Bits = typename Lanes<N>::Bits;
  return each_register(x, [](const Register& part) {
    return std::bit_cast<Register>((std::bit_cast<Bits>(part) & kFraction) | kOne);
  });
}
/// Exponents of positive numbers.
template <std::size_t N>
Lanes<N> exponent(Lanes<N> x) {
  static constexpr double kWhole = 0x1p52;  // adds an integer of 52 bits to a whole number
  using Register = typename Lanes<N>::Register;
  using Bits = typename Lanes<N>::Bits;
  using Unsigned = typename VectorOf<std::uint64_t, Lanes<N>::kRegister>::Type;
  const Lanes<N> biased = each_register(x, [](const Register& part) {
    const auto shifted = std::bit_cast<Bits>(std::bit_cast<Unsigned>(part) >> kFractionBits);
    return std::bit_cast<Register>(shifted | std::bit_cast<std::int64_t>(kWhole));
  });
  return biased - (kWhole + 1023);
}
/// A number near one times two to the power in the low bits of another.
template <class Bits, class Register>
Register scaled(const Register& number, const Register& power) {
  return std::bit_cast<Register>(std::bit_cast<Bits>(number) +
                                 (std::bit_cast<Bits>(power) << kFractionBits));
}

}  // namespace detail

/// e^x to a few units of the last bit, x at the ends of what a double holds where it is beyond:
/// x = n ln 2 + r, |r| <= ln 2/2, and Taylor's series of e^r to r^13.
template <std::size_t N>
Lanes<N> exp(Lanes<N> x) {
  constexpr double kWhole = 0x1.8p52;  // rounds to whole numbers, in the low bits of the sum
  x = clamp(x, -708.0, 709.0);
  const Lanes<N> shifted = x * std::numbers::log2e + kWhole, n = shifted - kWhole;
  const Lanes<N> r = (x - n * detail::kLn2High) - n * detail::kLn2Low, s = r * r;
  Lanes<N> sum = 1.0 / 479001600 + r * (1.0 / 6227020800);
  sum = (1.0 / 3628800 + r * (1.0 / 39916800)) + s * sum;
  sum = (1.0 / 40320 + r * (1.0 / 362880)) + s * sum;
  sum = (1.0 / 720 + r * (1.0 / 5040)) + s * sum;
  sum = (1.0 / 24 + r * (1.0 / 120)) + s * sum;
  sum = (0.5 + r * (1.0 / 6)) + s * sum;
  const Lanes<N> power = 1.0 + (r + s * sum);
  using Bits = typename Lanes<N>::Bits;
  return {detail::scaled<Bits>(power.low(), shifted.low()),
          detail::scaled<Bits>(power.high(), shifted.high())};
}

/// ln x of a normal x > 0, to a few units of the last bit: x = 2^n m, m from 0.7 to 1.4, and
/// ln m = 2 (s + s^3/3 + s^5/5 ...), s = (m - 1)/(m + 1), to s^21.
template <std::size_t N>
Lanes<N> log(Lanes<N> x) {
  Lanes<N> m = detail::fraction(x), n = detail::exponent(x);
  const typename Lanes<N>::Mask large = m > std::numbers::sqrt2;
  m = select(large, 0.5 * m, m);
  n = select(large, n + 1.0, n);
  const Lanes<N> s = (m - 1.0) / (m + 1.0), z = s * s, zz = z * z;
  // Two terms a step: half as many wait for one another.
  Lanes<N> sum = 2.0 / 19 + z * (2.0 / 21);
  for (int odd = 15; odd >= 3; odd -= 4) sum = (2.0 / odd + z * (2.0 / (odd + 2))) + zz * sum;
  return n * detail::kLn2High + (2.0 * s + (s * z * sum + n * detail::kLn2Low));
}
template <std::size_t N>
Lanes<N> log2(Lanes<N> x) {
  return log(x) * std::numbers::log2e;
}
/// x^y of a normal x > 0.
template <std::size_t N>
Lanes<N> pow(Lanes<N> x, Lanes<N> y) {
  return exp(y * log(x));
}

constexpr double at_place(double x, std::size_t /*place*/) { return x; }
template <std::size_t N>
double at_place(Lanes<N> x, std::size_t place) {
  return x[place];
}
template <Dim D>
constexpr Quantity<D> at_place(Quantity<D> x, std::size_t /*place*/) {
  return x;
}
template <Dim D, std::size_t N>
Quantity<D> at_place(QuantityLanes<D, N> x, std::size_t place) {
  return Quantity<D>{x.base()[place]};
}
constexpr bool at_place(bool yes, std::size_t /*place*/) { return yes; }
template <std::size_t N>
Lanes<N> replaced(Lanes<N> all, std::size_t place, double value) {
  all.set(place, value);
  return all;
}
template <Dim D, std::size_t N>
QuantityLanes<D, N> replaced(QuantityLanes<D, N> all, std::size_t place, Quantity<D> value) {
  return QuantityLanes<D, N>{replaced(all.base(), place, value.base())};
}
template <std::size_t N>
Lanes<N> side_by_side(const std::array<double, N>& values) {
  using Register = typename Lanes<N>::Register;
  const auto registers = std::bit_cast<std::array<Register, 2>>(values);
  return {registers[0], registers[1]};
}
template <Dim D, std::size_t N>
QuantityLanes<D, N> side_by_side(const std::array<Quantity<D>, N>& values) {
  Lanes<N> all;
  for (std::size_t i = 0; i < N; ++i) all.set(i, values[i].base());
  return QuantityLanes<D, N>{all};
}

/// What is made place by place, where a formula is of one number alone.
template <class Number, class Make>
auto by_place(const Make& make) {
  if constexpr (std::is_same_v<Number, double>) {
    return make(std::size_t{0});
  } else {
    std::array<decltype(make(std::size_t{0})), Number::kSize> values;
    for (std::size_t i = 0; i < Number::kSize; ++i) values[i] = make(i);
    return side_by_side(values);
  }
}

namespace detail {
template <class Made, class Make>
SCALEMODEL_WIDE [[gnu::noinline]] void make_at(Made* place, const Make& make) {
  new (place) Made(make());
}
}  // namespace detail

/// What `make` makes, in a function of its own that all callers have in common: what is computed of
/// several numbers then fits in the cache of instructions. Of one the compiler decides.
template <class Number, class Make>
auto outlined(const Make& make) {
  if constexpr (std::is_same_v<Number, double>) {
    return make();
  } else {
    using Made = decltype(make());
    static_assert(std::is_trivially_destructible_v<Made>);
    union Later {
      Later() {}
      Made made;
    } later;
    detail::make_at(&later.made, make);
    return later.made;
  }
}

}  // namespace scalemodel
