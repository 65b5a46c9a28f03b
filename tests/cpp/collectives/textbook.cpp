#include "scalemodel/collectives/textbook.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using enum TextbookAlgorithm;

constexpr AlphaBeta kLink{2 * unit::us, 10 * unit::GB / unit::s};

double seconds(TextbookAlgorithm algorithm, double bytes, int ranks, int groups = 1) {
  return textbook_time(algorithm, Bytes{bytes}, ranks, kLink, groups).base();
}

TEST_CASE("textbook collectives: one rank and an empty buffer cost nothing") {
  for (std::size_t i = 0; i < EnumNames<TextbookAlgorithm>::names.size(); ++i) {
    CHECK(seconds(static_cast<TextbookAlgorithm>(i), 1e9, 1) == 0);
    CHECK(seconds(static_cast<TextbookAlgorithm>(i), 0, 8) == 0);
  }
}

TEST_CASE("textbook collectives: rounds of doubling") {
  CHECK(doubling_rounds(1) == 0);
  CHECK(doubling_rounds(2) == 1);
  CHECK(doubling_rounds(5) == 3);
  CHECK(doubling_rounds(64) == 6);
}

TEST_CASE("textbook collectives: an all-reduce is a reduce-scatter and an all-gather") {
  for (const int ranks : {2, 8, 64}) {
    CHECK(seconds(ring_all_reduce, 1e8, ranks) == Approx(2 * seconds(ring_all_gather, 1e8, ranks)));
    CHECK(seconds(rabenseifner_all_reduce, 1e8, ranks) ==
          Approx(seconds(recursive_halving_reduce_scatter, 1e8, ranks) +
                 seconds(recursive_doubling_all_gather, 1e8, ranks)));
  }
}

TEST_CASE("textbook collectives: by hand, 8 ranks, 80 MB, 2 us, 10 GB/s") {
  CHECK(seconds(ring_all_reduce, 8e7, 8) == Approx(28e-6 + 14e-3));
  CHECK(seconds(rabenseifner_all_reduce, 8e7, 8) == Approx(12e-6 + 14e-3));
  CHECK(seconds(recursive_doubling_all_reduce, 8e7, 8) == Approx(3 * 8.002e-3));
  CHECK(seconds(bruck_all_to_all, 8e7, 8) == Approx(3 * 4.002e-3));
  CHECK(seconds(pairwise_all_to_all, 8e7, 8) == Approx(14e-6 + 7e-3));
  // Two columns of four rows: half the buffer along rows of two, then shares along columns.
  CHECK(seconds(torus_all_reduce, 8e7, 8, 2) == Approx(16e-6 + 8e-3 + 6e-3));
  CHECK(seconds(parameter_server, 8e7, 8, 2) == Approx(2 * (2e-6 + 4 * 8e-3)));
}

TEST_CASE("textbook collectives: a torus sends a ring's bytes in fewer messages") {
  const double ring = seconds(ring_all_reduce, 1e8, 1024);
  const double torus = seconds(torus_all_reduce, 1e8, 1024, 32);
  CHECK(torus < ring);
  CHECK(ring - torus == Approx((2 * 1023 - 4 * 31) * 2e-6).epsilon(1e-6));
  CHECK(seconds(torus_all_reduce, 1e8, 1024, 1) == Approx(ring));
  CHECK(seconds(torus_all_reduce, 1e8, 1024, 1024) == Approx(ring));
}

TEST_CASE("textbook collectives: short buffers favour logarithms, long ones bandwidth") {
  CHECK(seconds(bruck_all_to_all, 1e3, 64) < seconds(pairwise_all_to_all, 1e3, 64));
  CHECK(seconds(bruck_all_to_all, 1e9, 64) > seconds(pairwise_all_to_all, 1e9, 64));
  CHECK(seconds(recursive_doubling_all_reduce, 1e3, 64) <
        seconds(rabenseifner_all_reduce, 1e3, 64));
  CHECK(seconds(recursive_doubling_all_reduce, 1e9, 64) >
        seconds(rabenseifner_all_reduce, 1e9, 64));
  // As many servers as workers carry a worker's buffer twice, which is what a long ring does.
  CHECK(seconds(parameter_server, 1e9, 64, 64) ==
        Approx(seconds(ring_all_reduce, 1e9, 64)).epsilon(0.02));
}

TEST_CASE("LogP: the broadcast of its paper ends at 24 cycles") {
  const LogGP p{6 * unit::us, 2 * unit::us, 4 * unit::us, {}};
  CHECK(logp_broadcast_time(8, p).base() == Approx(24e-6));
  CHECK(logp_broadcast_time(1, p).base() == 0);
  CHECK(logp_broadcast_time(2, p).base() == Approx(10e-6));
}

TEST_CASE("LogGP: by hand, and its alpha-beta link") {
  const LogGP p{5 * unit::us, 1 * unit::us, 3 * unit::us, Seconds{1e-9}};
  CHECK(loggp_time(Bytes{1}, 1, p).base() == Approx(7e-6));
  CHECK(loggp_time(Bytes{1}, 4, p).base() == Approx(7e-6 + 9e-6));
  CHECK(loggp_time(Bytes{100'001}, 1, p).base() == Approx(107e-6));
  CHECK(loggp_time(Bytes{100'001}, 2, p).base() == Approx(208e-6));
  const AlphaBeta link = alpha_beta_of(p);
  CHECK((link.latency + Bytes{1e6} / link.bandwidth).base() ==
        Approx(loggp_time(Bytes{1e6}, 1, p).base()).epsilon(1e-5));
}

}  // namespace
}  // namespace scalemodel
