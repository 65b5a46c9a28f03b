#include "scalemodel/economics/step.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

constexpr Watts kAccelerator{650}, kHost{1750};

TEST_CASE("energy is linear in time, in accelerators with their hosts, and in PUE") {
  const auto energy = [](double seconds, double nodes, double pue) {
    return facility_energy(Seconds{seconds}, kAccelerator, 8 * nodes, kHost, nodes, pue).base();
  };
  const double one = energy(1, 1, 1);
  CHECK(one == Approx(8 * 650 + 1750));
  for (const double factor : {0.0, 2.0, 12.5}) {
    CHECK(energy(factor, 1, 1) == Approx(factor * one));
    CHECK(energy(1, factor, 1) == Approx(factor * one));
    CHECK(energy(1, 1, factor) == Approx(factor * one));
  }
}

TEST_CASE("rent is linear in price, time and accelerators") {
  const DollarsPerSecond price{2.5 / 3600};
  const auto rent = [](double hours, double accelerators, DollarsPerSecond rate) {
    return rental_cost(Seconds{3600 * hours}, accelerators, rate).base();
  };
  CHECK(rent(1, 1, price) == Approx(2.5));
  CHECK(rent(24, 512, price) == Approx(24 * 512 * 2.5));
  CHECK(rent(24, 512, 2 * price) == Approx(2 * rent(24, 512, price)));
  CHECK(rent(24, 512, DollarsPerSecond{}) == 0);
}

}  // namespace
}  // namespace scalemodel
