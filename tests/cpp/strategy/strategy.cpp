#include "scalemodel/strategy/strategy.hpp"

#include <set>
#include <type_traits>

#include "support.hpp"

namespace scalemodel {
namespace {

// A search holds millions of strategies and copies them freely.
static_assert(sizeof(Strategy) <= 40 && std::is_trivially_copyable_v<Strategy>);

TEST_CASE("placements are the 24 orders of the four axes") {
  std::set<std::array<Axis, 4>> orders;
  for (std::size_t i = 0; i < EnumNames<Placement>::names.size(); ++i) {
    const std::array<Axis, 4> axes = axes_of(static_cast<Placement>(i));
    CHECK(std::set<Axis>(axes.begin(), axes.end()).size() == 4);
    orders.insert(axes);
  }
  CHECK(orders.size() == 24);
  CHECK(axes_of(Placement{}) == std::array{Axis::tp, Axis::cp, Axis::dp, Axis::pp});
}

TEST_CASE("strides are the products of the degrees inside, so that axes tile the cluster") {
  Degrees d;
  d.tp = 2;
  d.cp = 3;
  d.dp = 5;
  d.pp = 7;
  for (std::size_t i = 0; i < EnumNames<Placement>::names.size(); ++i) {
    const auto placement = static_cast<Placement>(i);
    CAPTURE(name_of(placement));
    const Strides strides = axis_strides(placement, d);
    // Every rank has its own address: the sum of coordinate times stride.
    std::set<int> addresses;
    for (int n = 0; n < 2 * 3 * 5 * 7; ++n) {
      addresses.insert(n % 2 * strides.tp + n / 2 % 3 * strides.cp + n / 6 % 5 * strides.dp +
                       n / 30 * strides.pp);
    }
    CHECK(addresses.size() == 2 * 3 * 5 * 7);
    CHECK(*addresses.rbegin() == 2 * 3 * 5 * 7 - 1);
  }
}

TEST_CASE("only ZeRO-3 and HSDP gather parameters layer by layer") {
  CHECK(gathers_parameters(Sharding::zero3));
  CHECK(gathers_parameters(Sharding::hsdp));
  CHECK(!gathers_parameters(Sharding::ddp));
  CHECK(!gathers_parameters(Sharding::zero1));
  CHECK(!gathers_parameters(Sharding::zero2));
}

}  // namespace
}  // namespace scalemodel
