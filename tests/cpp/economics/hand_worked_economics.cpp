// Intervals and prices worked out by hand on round numbers.
#include "scalemodel/economics/carbon.hpp"
#include "scalemodel/economics/reliability.hpp"
#include "scalemodel/economics/run.hpp"
#include "scalemodel/economics/scaling.hpp"
#include "scalemodel/economics/step.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("by hand: intervals of Young and Daly") {
  // Writes of a minute, a failure every 50 minutes: sqrt(2 x 60 x 3,000) = 600 s, and 600 - 60 s.
  // Young, CACM 17 (1974) 530; Daly, FGCS 22 (2006) 303.
  const Seconds write{60}, mttf{3000};
  CHECK(young_interval(write, mttf).base() == Approx(600));
  CHECK(daly_interval(write, mttf).base() == Approx(540));
  CHECK(daly_interval(Seconds{1600}, mttf) == mttf);  // writing takes longer than half of it
  // w + sqrt(w^2 + 2 (M + R) w) with R = 1,170: 60 + sqrt(3,600 + 500,400) = 769.93 s.
  CHECK(availability_interval(write, mttf, Seconds{1170}).base() == Approx(769.9296));
}

TEST_CASE("by hand: the productive share loses restarts, half an interval and the writes") {
  // One failure in 10,000 s; 500 s of restart, 100 s until a checkpoint counts, 900 s between two,
  // 100 s to write one: (1 - (500 + 100 + 450)/10,000) / (1 + 100/900) = 0.895 x 0.9.
  // Kokolis et al., arXiv 2410.21680.
  FailingJob job;
  job.nodes = 10;
  job.node_rate = Hertz{1e-5};
  job.restart = Seconds{500};
  job.background = Seconds{100};
  job.write = Seconds{100};
  CHECK(first_order_ettr(job, Seconds{900}) == Approx(0.8055));
}

TEST_CASE("by hand: a die, a server and the price of owning them") {
  // 8 cm2 x (1.5 kWh x 400 g + 300 g + 500 g) / 0.7 = 16 kg (Gupta et al., ISCA 2022).
  CHECK(die_kg(8, {1.5, 300, 500, 400, 0.7}) == Approx(16));
  // 20 kg of its own and an eighth of 100 + 50 + 150 + 40 + 60 + 400 = 800 kg.
  CHECK(accelerator_share_kg(20, {100, 50, 150, 40, 60, 400}, 8) == Approx(120));
  // 30,000 USD over 0.5 x 60,000 h, and 1 kW x 1.2 at 0.10 USD per kWh: 1.12 USD an hour.
  const DollarsPerSecond price =
      owned_price(Dollars{30000}, Seconds{60000 * 3600.0}, 0.5, Watts{1000}, 1.2, Dollars{0.1});
  CHECK((price * kHour).base() == Approx(1.12));
  // 10 s of two nodes, 8 x 600 + 1,200 W each, at a PUE of 1.25.
  CHECK(facility_energy(Seconds{10}, Watts{600}, 16, Watts{1200}, 2, 1.25).base() ==
        Approx(150000));
}

TEST_CASE("by hand: what added accelerators bring") {
  // From 800 tokens/s on 8 to 1,400 on 16: 75 tokens/s each, where one brought 100 before.
  CHECK(marginal_return(1400, 16, 800, 8) == Approx(0.75));
  CHECK(scaling_efficiency(1400, 16, 800, 8) == Approx(0.875));
}

}  // namespace
}  // namespace scalemodel
