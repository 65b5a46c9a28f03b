#include "scalemodel/economics/run.hpp"

#include "scalemodel/economics/scaling_law.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::Random;

TEST_CASE("published footprints imply the intensities of their grids") {
  CHECK(implied_grid_g_per_kwh(11390e3, Watts{700} * Seconds{39.3e6 * 3600}) ==
        Approx(414).epsilon(0.002));
  CHECK(implied_grid_g_per_kwh(539e3, Watts{400} * Seconds{3311616.0 * 3600}) ==
        Approx(407).epsilon(0.002));
  const Joules energy{7.2e9};
  CHECK(implied_grid_g_per_kwh(operational_kg(energy, 369.5), energy) == Approx(369.5));
}

TEST_CASE("a die costs carbon by its area and more at a worse yield") {
  const ChipProcess process{2.75, 430, 500, 642.4, 0.875};
  CHECK(die_kg(2, process) == Approx(2 * die_kg(1, process)));
  CHECK(die_kg(1, process) == Approx((2.75 * 0.6424 + 0.43 + 0.5) / 0.875));
  ChipProcess worse = process;
  worse.yield_fraction = 0.5;
  CHECK(die_kg(1, worse) > die_kg(1, process));
  CHECK(memory_kg(80 * unit::GB, 65) == Approx(5.2));
  const ServerParts server{150, 6.68, 66.1, 145.8, 60, 130};
  CHECK(8 * (accelerator_share_kg(30, server, 8) - 30) == Approx(150 + 6.68 + 66.1 + 145.8 + 190));
}

TEST_CASE("time and tokens are inverse, money and energy are linear in time") {
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    const double tokens = random.between(1e9, 1e13), rate = random.between(1e3, 1e8);
    const double ettr = random.between(0.1, 1);
    const Seconds time = training_time(tokens, rate, ettr);
    CHECK(tokens_in(time, rate, ettr) == Approx(tokens));
    CHECK(training_time(tokens, rate, 1) <= time);
    CHECK(over_run(Joules{5}, Seconds{2}, time).base() == Approx(2.5 * time.base()));
  }
}

TEST_CASE("an owned accelerator costs its capital over its hours, and its electricity") {
  const Seconds year{365.25 * 86400};
  const auto price = [&](double utilisation, double per_kwh) {
    return owned_price(Dollars{40e3}, 4 * year, utilisation, Watts{1000}, 1.2, Dollars{per_kwh}) *
           Seconds{3600};
  };
  CHECK(price(1, 0).base() == Approx(40e3 / (4 * 8766)));
  CHECK((price(1, 0.1) - price(1, 0)).base() == Approx(0.12));
  CHECK(price(0.5, 0.1) > price(1, 0.1));
}

TEST_CASE("the split of a budget spends it, and no other split loses less") {
  const LossLaw law{1.69, 406.4, 0.34, 410.7, 0.28};
  for (const double budget : {1e19, 5.76e23, 3.8e25}) {
    const ModelAndData best = least_loss_split(law, Flop{budget});
    CHECK(6 * best.parameters * best.tokens == Approx(budget));
    for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
      CHECK(loss(law, {factor * best.parameters, best.tokens / factor}) > loss(law, best));
    }
    const ModelAndData fixed = fixed_ratio_split(20, Flop{budget});
    CHECK(6 * fixed.parameters * fixed.tokens == Approx(budget));
    CHECK(fixed.tokens / fixed.parameters == Approx(20));
    CHECK(loss(law, fixed) >= loss(law, best));
  }
  const ModelAndData published = least_loss_split(law, Flop{5.76e23});
  CHECK(published.parameters == Approx(1.345 * std::pow(5.76e23 / 6, 0.4516)).epsilon(0.002));
  CHECK(fixed_ratio_split(20, Flop{5.76e23}).parameters == Approx(69e9).epsilon(0.01));
}

TEST_CASE("budgets of energy and money buy work at the rate of the cluster") {
  const FlopPerSecond rate{4e17};
  CHECK(flop_for_energy(Joules{1e6}, rate, Watts{1e6}) == Flop{4e17});
  CHECK(flop_for_money(Dollars{10}, rate, DollarsPerSecond{2}) == Flop{2e18});
  CHECK(joint_factor(1.1, 1) == Approx(1.1));
  CHECK(joint_factor(1.1, 1.2) > 1.2);
  CHECK(joint_factor(1.1, 1.2) < 1.1 * 1.2);
}

}  // namespace
}  // namespace scalemodel
