#include "scalemodel/schedule/pipeline.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using doctest::Approx;

/// Whole groups on every pipeline here.
constexpr double kMicroBatches = 64;
constexpr Seconds kForward{0.010}, kBackward{0.021}, kWeight{0.009};

StageTimes equal_stages(int pp) {
  StageTimes times;
  times.slowest = kForward + kBackward;
  times.sum = pp * (kForward + kBackward);
  times.mean_backward = kBackward;
  times.mean_weight = kWeight;
  return times;
}

TEST_CASE("bubbles of equal stages equal the published closed forms") {
  const double f = kForward.base(), b = kBackward.base(), w = kWeight.base();
  for (const int p : {2, 4, 8, 16}) {
    CAPTURE(p);
    const StageTimes times = equal_stages(p);
    const auto bubble = [&](Schedule schedule, int v = 1) {
      return pipeline_bubble(schedule, p, v, times, kMicroBatches).base();
    };
    CHECK(bubble(Schedule::gpipe) == Approx((p - 1) * (f + b)));
    CHECK(bubble(Schedule::one_f_one_b) == Approx((p - 1) * (f + b)));
    for (const int v : {2, 3, 6}) {
      CHECK(bubble(Schedule::interleaved, v) == Approx((p - 1) * (f + b) / v));
    }
    CHECK(bubble(Schedule::zero_bubble) == Approx((p - 1) * (f + b - 2 * w)));
    // The published form, with at most one forward pass less on the way back and forth.
    const double published = (p / 2 - 1) * (f + b + b - 3 * w);
    const double dual = bubble(Schedule::dualpipe);
    CHECK(dual == Approx(std::max((p / 2 - 1) * (2 * f + b - 2 * w), p > 2 ? published - f : 0)));
    CHECK(dual <= published);
  }
}

TEST_CASE("one stage has no bubble, and no bubble is negative") {
  StageTimes heavy_weights = equal_stages(8);
  heavy_weights.mean_weight = 2 * kBackward;
  for (std::size_t i = 0; i < EnumNames<Schedule>::names.size(); ++i) {
    const auto schedule = static_cast<Schedule>(i);
    CAPTURE(name_of(schedule));
    CHECK(pipeline_bubble(schedule, 1, 1, equal_stages(1), kMicroBatches) == Seconds{});
    CHECK(pipeline_bubble(schedule, 8, 2, heavy_weights, kMicroBatches) >= Seconds{});
  }
}

TEST_CASE("zero-bubble and DualPipe idle less than 1F1B") {
  for (const int p : {4, 8, 16}) {
    const StageTimes times = equal_stages(p);
    const Seconds plain = pipeline_bubble(Schedule::one_f_one_b, p, 1, times, kMicroBatches);
    CHECK(pipeline_bubble(Schedule::zero_bubble, p, 1, times, kMicroBatches) < plain);
    CHECK(pipeline_bubble(Schedule::dualpipe, p, 1, times, kMicroBatches) <
          pipeline_bubble(Schedule::zero_bubble, p, 1, times, kMicroBatches));
  }
}

TEST_CASE("unequal stages idle for the others: the slowest paces, the rest is its bubble") {
  StageTimes times = equal_stages(4);
  times.slowest = 2 * times.slowest;
  times.sum = times.sum + 0.5 * times.slowest;
  CHECK(pipeline_bubble(Schedule::one_f_one_b, 4, 1, times, kMicroBatches) ==
        times.sum - times.slowest);
}

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
  }
}

TEST_CASE("earlier stages never hold less") {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved,
                                  Schedule::zero_bubble, Schedule::dualpipe}) {
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
