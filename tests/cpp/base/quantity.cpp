#include "scalemodel/base/quantity.hpp"

#include <concepts>
#include <type_traits>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

// What must not compile is asked as a question of the compiler.
template <class A, class B>
concept Addable = requires(A a, B b) { a + b; };
template <class A, class B>
concept Subtractable = requires(A a, B b) { a - b; };
template <class A, class B>
concept Comparable = requires(A a, B b) { a < b; };
template <class A, class B>
concept HasMaximum = requires(A a, B b) { max(a, b); };

static_assert(Addable<Bytes, Bytes> && Subtractable<Seconds, Seconds> && Comparable<Flop, Flop>);
static_assert(!Addable<Bytes, Seconds> && !Addable<Seconds, double> && !Addable<double, Flop>);
static_assert(!Subtractable<BytesPerSecond, Bytes> && !Comparable<Bytes, Flop>);
static_assert(!Comparable<Seconds, double> && !std::equality_comparable_with<Bytes, double>);
static_assert(HasMaximum<Seconds, Seconds> && !HasMaximum<Seconds, Bytes>);

// A plain number enters only by naming the unit, and leaves only through base().
static_assert(std::constructible_from<Bytes, double> && !std::convertible_to<double, Bytes>);
static_assert(!std::convertible_to<Bytes, double> && !std::constructible_from<double, Bytes>);
static_assert(!std::convertible_to<Bytes, Seconds> && !std::constructible_from<Bytes, Seconds>);

// A link with bandwidth and latency swapped is a compile error.
struct Link {
  BytesPerSecond bandwidth;
  Seconds latency;
};
template <class A, class B>
concept MakesLink = requires(A a, B b) { Link{a, b}; };
static_assert(MakesLink<BytesPerSecond, Seconds>);
static_assert(!MakesLink<Seconds, BytesPerSecond> && !MakesLink<double, double>);

// A function that takes quantities rejects them in the wrong order.
constexpr Seconds transfer(Bytes size, BytesPerSecond rate) { return size / rate; }
static_assert(std::invocable<decltype(transfer), Bytes, BytesPerSecond>);
static_assert(!std::invocable<decltype(transfer), BytesPerSecond, Bytes>);

// Dimensions follow the arithmetic.
static_assert(std::same_as<decltype(unit::GB / unit::s), BytesPerSecond>);
static_assert(std::same_as<decltype(Flop{} / FlopPerSecond{1}), Seconds>);
static_assert(std::same_as<decltype(Watts{} * Seconds{}), Joules>);
static_assert(std::same_as<decltype(DollarsPerSecond{} * Seconds{}), Dollars>);
static_assert(std::same_as<decltype(1.0 / Seconds{1}), Hertz>);
static_assert(std::same_as<decltype(Seconds{} / Seconds{1}), double>);
static_assert(std::same_as<decltype(Seconds{} * Hertz{}), double>);

// The type costs nothing.
static_assert(sizeof(Bytes) == sizeof(double) && std::is_trivially_copyable_v<Bytes>);

TEST_CASE("quantities add, scale and compare like the numbers they hold") {
  for (const double a : {0.0, 1.0, 2.5, 1e12}) {
    for (const double b : {0.0, 3.0, 7e9}) {
      const Bytes x{a}, y{b};
      CHECK((x + y).base() == a + b);
      CHECK((x - y).base() == a - b);
      CHECK((b * x).base() == b * a);
      CHECK((x * b).base() == (b * x).base());
      CHECK((x < y) == (a < b));
      CHECK((x == y) == (a == b));
      CHECK(max(x, y).base() == (a < b ? b : a));
      CHECK(min(x, y).base() == (b < a ? b : a));
      Bytes sum = x;
      sum += y;
      CHECK(sum == x + y);
    }
  }
}

TEST_CASE("a product divided by one factor is the other") {
  const BytesPerSecond rate = 450 * (unit::GB / unit::s);
  const Seconds time = 3 * unit::ms;
  CHECK((rate * time).base() == Approx(1.35e9));
  CHECK((rate * time / rate).base() == Approx(time.base()));
  CHECK((1 / time).base() == Approx(1000.0 / 3));
}

TEST_CASE("decimal and binary units differ as they are defined") {
  CHECK(unit::GB / unit::MB == 1000);
  CHECK(unit::MB / unit::KB == 1000);
  CHECK(unit::GiB / unit::MiB == 1024);
  CHECK(unit::MiB / unit::KiB == 1024);
  CHECK(unit::GiB / unit::GB == Approx(1.073741824));
  CHECK(unit::s / unit::ms == Approx(1000));
  CHECK(unit::ms / unit::us == Approx(1000));
}

}  // namespace
}  // namespace scalemodel
