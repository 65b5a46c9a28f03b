#include "scalemodel/schedule/pipeline.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("micro-batches in flight equal the published closed forms") {
  for (const int p : {1, 2, 4, 8}) {
    for (const double m : {1.0, 2.0, 4.0, 64.0}) {
      for (int i = 0; i < p; ++i) {
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(i);
        CHECK(in_flight(Schedule::gpipe, p, 1, i, m) == m);
        CHECK(in_flight(Schedule::one_f_one_b, p, 1, i, m) == std::min<double>(p - i, m));
        CHECK(in_flight(Schedule::zero_bubble, p, 1, i, m) == std::min<double>(p, m));
        CHECK(in_flight(Schedule::zero_bubble_2p, p, 1, i, m) == std::min<double>(2 * p - 1, m));
        CHECK(in_flight(Schedule::zero_bubble_v, p, 2, i, m) ==
              std::min({static_cast<double>(p), m, (m + i + 1) / 2}));
        for (const int v : {1, 2, 4}) {
          CHECK(in_flight(Schedule::interleaved, p, v, i, m) <= m);
        }
      }
    }
  }
  // Interleaving holds 1 + (p-1)/(p v) times what 1F1B holds on the first stage.
  for (const int p : {2, 4, 8}) {
    for (const int v : {2, 3, 8}) {
      CHECK(in_flight(Schedule::interleaved, p, v, 0, 1e6) ==
            Approx(p * (1 + (p - 1.0) / (p * v))));
    }
    // DualPipe holds p + 1 over half of its doubled stage.
    CHECK(2 * in_flight(Schedule::dualpipe, p, 1, 0, 1e6) == p + 1);
    // DualPipeV holds 2 p + 1 chunks, two of which are its stage.
    CHECK(2 * in_flight(Schedule::dualpipe_v, p, 2, 0, 1e6) == 2 * p + 1);
    // It is DualPipe on twice as many stages, of which it holds as many as DualPipe holds on one.
    CHECK(2 * unpaired_passes(Schedule::dualpipe_v, p) ==
          unpaired_passes(Schedule::dualpipe, 2 * p));
  }
}

TEST_CASE("no stage of a class holds more than its fullest, and none before it as much") {
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble_v}) {
    for (const double m : {1.0, 3.0, 8.0, 11.0, 15.0, 32.0}) {
      CAPTURE(m);
      for (int first = 0; first < 8; ++first) {
        const int most = fullest_index(schedule, 8, first, 7, m);
        const double held = in_flight(schedule, 8, 2, most, m);
        for (int i = first; i < 8; ++i) {
          CHECK(in_flight(schedule, 8, 2, i, m) <= held);
          if (i < most) CHECK(in_flight(schedule, 8, 2, i, m) < held);
        }
      }
    }
  }
}

TEST_CASE("earlier stages of a full pipeline never hold less") {
  for (const Schedule schedule :
       {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble,
        Schedule::dualpipe, Schedule::zero_bubble_2p, Schedule::zero_bubble_v,
        Schedule::dualpipe_v}) {
    for (int i = 1; i < 8; ++i) {
      CHECK(in_flight(schedule, 8, 2, i - 1, 32) >= in_flight(schedule, 8, 2, i, 32));
    }
  }
}

TEST_CASE("interleaving turns 1F1B into its interleaved form, and nothing else") {
  CHECK(effective_schedule(Schedule::one_f_one_b, 1) == Schedule::one_f_one_b);
  CHECK(effective_schedule(Schedule::one_f_one_b, 2) == Schedule::interleaved);
  CHECK(effective_schedule(Schedule::gpipe, 2) == Schedule::gpipe);
}

}  // namespace
}  // namespace scalemodel
