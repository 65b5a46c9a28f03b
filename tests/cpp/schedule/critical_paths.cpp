#include "scalemodel/schedule/critical_paths.hpp"

#include <algorithm>

#include "draws.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// Chunks of these layers in the order a micro-batch passes them, without ends, on stages as the
/// schedule places them.
PipelineShape shape_of(Schedule schedule, int pp, const std::vector<int>& in_order) {
  PipelineShape shape;
  shape.schedule = schedule;
  shape.pp = pp;
  shape.vpp = static_cast<int>(in_order.size()) / pp;
  shape.transfers_block = false;
  for (int stage = 0; stage < pp; ++stage) {
    for (int turn = 0; turn < shape.vpp; ++turn) {
      StageClass chunk;
      const bool back = traits_of(schedule).v_shape && turn == 1;
      chunk.layers[0] =
          in_order[static_cast<std::size_t>(back ? 2 * pp - 1 - stage : turn * pp + stage)];
      shape.chunks.push_back(chunk);
    }
  }
  return shape;
}

PipelineTimes layer_times(double forward, double input, double weight) {
  PipelineTimes times;
  PartTimes& layer = times.parts[0];
  layer[kForward] = layer[kPairedForward] = Seconds{forward};
  layer[kInputGradient] = Seconds{input};
  layer[kWeightGradient] = Seconds{weight};
  layer[kPairedBackward] = Seconds{input + weight};
  return times;
}

/// Idle time of a stage of equal stages: whole groups on every pipeline here.
double bubble(Schedule schedule, int pp, int vpp, const PipelineTimes& times, Seconds busy) {
  constexpr int kMicroBatches = 64;
  std::vector<int> chunks(static_cast<std::size_t>(pp * vpp), 1);
  PipelineShape shape = shape_of(schedule, pp, chunks);
  // DualPipe runs half of the micro-batches through each of two chunks, of half the stage each.
  if (schedule == Schedule::dualpipe) {
    shape = shape_of(schedule, pp, std::vector<int>(static_cast<std::size_t>(2 * pp), 1));
  }
  const int m = CriticalPaths::representative(pp, kMicroBatches);
  const Seconds step = CriticalPaths(shape, m).duration(times, kMicroBatches, busy).total();
  return (step - kMicroBatches * busy).base();
}

TEST_CASE("bubbles of equal stages equal the published closed forms") {
  const double f = 0.010, w = 0.009, b = 0.012 + w;
  const PipelineTimes times = layer_times(f, b - w, w);
  for (const int p : {2, 4, 8, 16}) {
    CAPTURE(p);
    const auto idle = [&](Schedule schedule, int v = 1) {
      return bubble(schedule, p, v, times, Seconds{v * (f + b)});
    };
    CHECK(idle(Schedule::gpipe) == Approx((p - 1) * (f + b)));
    CHECK(idle(Schedule::one_f_one_b) == Approx((p - 1) * (f + b)));
    // A chunk has a share 1/v of the stage: in units of a chunk the bubble stays the same.
    for (const int v : {2, 3, 6}) {
      CHECK(idle(Schedule::interleaved, v) == Approx((p - 1) * (f + b)));
    }
    CHECK(idle(Schedule::zero_bubble) == Approx((p - 1) * (f + b - 2 * w)));
    // The published form, with at most one forward pass less on the way back and forth.
    const double published = (p / 2 - 1) * (f + b + b - 3 * w);
    const double dual = idle(Schedule::dualpipe);
    CHECK(dual == Approx(std::max((p / 2 - 1) * (2 * f + b - 2 * w), p > 2 ? published - f : 0)));
    CHECK(dual <= published + 1e-12);
    // Folded to a V it is DualPipe of twice as many stages, one of which is a chunk of it.
    const double folded = (p - 1) * (f + b + b - 3 * w);
    CHECK(idle(Schedule::dualpipe_v, 2) ==
          Approx(std::max((p - 1) * (2 * f + b - 2 * w), folded - f)));
    if (p == 2) continue;
    CHECK(dual < idle(Schedule::zero_bubble));
    CHECK(idle(Schedule::zero_bubble) < idle(Schedule::one_f_one_b));
  }
}

TEST_CASE("no bubble is negative") {
  const PipelineTimes heavy_weights = layer_times(1, 0.1, 3);
  for (std::size_t i = 0; i < EnumNames<Schedule>::names.size(); ++i) {
    const auto schedule = static_cast<Schedule>(i);
    CAPTURE(name_of(schedule));
    const bool two = schedule == Schedule::interleaved || traits_of(schedule).v_shape;
    const int chunks = two ? 2 : 1;
    CHECK(bubble(schedule, 8, chunks, heavy_weights, Seconds{4.1 * chunks}) >= -1e-9);
  }
}

TEST_CASE("with passes of equal length, twice the memory or a V leaves no bubble inside a stage") {
  const PipelineTimes times = layer_times(1, 1, 1);
  for (const int p : {2, 4, 8, 16}) {
    CAPTURE(p);
    // ZB-2p: from step to step none at all. ZB-V: stages end as late as they start, chunk by chunk,
    // and a step ends with the last of them.
    CHECK(bubble(Schedule::zero_bubble_2p, p, 1, times, Seconds{3}) == Approx(0.0).epsilon(1e-9));
    CHECK(bubble(Schedule::zero_bubble_v, p, 2, times, Seconds{6}) == Approx(p - 1.0));
    CHECK(bubble(Schedule::zero_bubble, p, 1, times, Seconds{3}) == Approx(p - 1.0));
  }
}

TEST_CASE("twice the memory never lengthens a zero-bubble step of equal stages") {
  testing::Random random(97);
  for (int i = 0; i < testing::draws(60); ++i) {
    const int p = random.pick({2, 3, 4, 8});
    const std::vector<int> chunks(static_cast<std::size_t>(p), 2);
    const int m = 1 + random.below(40);
    PipelineTimes times =
        layer_times(random.between(0.2, 1), random.between(0.2, 1), random.between(0.1, 1));
    times.hop = Seconds{random.between(0, 0.2)};
    const auto step = [&](Schedule schedule) {
      const PipelineShape shape = shape_of(schedule, p, chunks);
      return CriticalPaths(shape, m).duration(times, m, Seconds{}).total();
    };
    CHECK(step(Schedule::zero_bubble_2p) <= (1 + 1e-3) * step(Schedule::zero_bubble));
  }
}

TEST_CASE("unequal stages idle for the others: the slowest paces, the rest is its bubble") {
  const PipelineTimes times = layer_times(1, 1, 1);
  const PipelineShape shape = shape_of(Schedule::one_f_one_b, 2, {1, 2});
  const int m = CriticalPaths::representative(2, 64);
  const Seconds step = CriticalPaths(shape, m).duration(times, 64, Seconds{6}).total();
  CHECK((step - 64 * Seconds{6}).base() == Approx(3));
}

TEST_CASE("traffic that hides under nothing stands before all passes of a stage and after them") {
  PipelineTimes times = layer_times(1, 1, 1);
  times.parts[0][kGatheringBefore] = Seconds{5};
  times.parts[0][kReductionAfter] = Seconds{7};
  // Two chunks a stage: both are gathered, whichever runs first.
  const CriticalPaths paths(shape_of(Schedule::interleaved, 2, {1, 1, 1, 1}), 4);
  const PipelineDuration lasts = paths.duration(times, 4, Seconds{6});
  CHECK(lasts.traffic.base() == Approx(2 * 5 + 2 * 7));
}

TEST_CASE("traffic that hides leaves its first and its last bucket") {
  PipelineTimes times = layer_times(10, 10, 10);
  PartTimes& layer = times.parts[0];
  for (std::size_t pass = 0; pass < kOverlappable; ++pass)
    layer[kOverlappable + pass] = 0.5 * layer[pass];
  layer[kGathering] = layer[kReduction] = Seconds{1};
  const CriticalPaths paths(shape_of(Schedule::one_f_one_b, 2, {4, 4}), 6);
  // Stage 1 waits for activations anyway; stage 0 gathers and reduces a bucket of four in front of
  // and behind its passes.
  CHECK(paths.duration(times, 6, Seconds{120}).traffic.base() == Approx(1 + 1));
}

TEST_CASE("the paths of a pipeline are found once") {
  const PipelineShape shape = shape_of(Schedule::one_f_one_b, 2, {3, 4});
  CHECK(critical_paths(shape, 3) == critical_paths(shape, 3));
  CHECK(critical_paths(shape, 3) != critical_paths(shape, 2));
}

TEST_CASE("what passes say without traffic serves every traffic") {
  const CriticalPaths paths(shape_of(Schedule::one_f_one_b, 2, {3, 4}), 6);
  PipelineTimes times = layer_times(1, 1, 1.5);
  times.hop = Seconds{1e-3};
  const QuietTimes quiet = paths.quiet(times, 8, Seconds{15});
  const Seconds silent = paths.duration(quiet, times).total();
  CHECK(paths.duration(times, 8, Seconds{15}).total() == silent);
  for (const std::size_t traffic : {kGathering, kReduction, kGatheringBefore, kReductionAfter}) {
    PipelineTimes sends = times;
    sends.parts[0][traffic] = Seconds{2};
    const Seconds lasts = paths.duration(quiet, sends).total();
    CHECK(paths.duration(sends, 8, Seconds{15}).total() == lasts);
    CHECK(lasts > silent);
  }
}

TEST_CASE("sums that were begun tell of every traffic what whole ones do") {
  testing::Random random(72);
  const CriticalPaths paths(shape_of(Schedule::interleaved, 4, {3, 4, 3, 4, 3, 4, 4, 3}), 9);
  for (int i = 0; i < 20; ++i) {
    PipelineTimes times = layer_times(random.between(1, 2), random.between(1, 2), 1.5);
    for (std::size_t pass = 0; pass < kOverlappable; ++pass) {
      times.parts[0][kOverlappable + pass] = random.between(0, 1) * times.parts[0][pass];
    }
    times.hop = Seconds{random.between(0, 0.1)};
    const QuietTimes quiet = paths.quiet(times, 9, Seconds{80});
    for (const StepTrafficKind kind : {StepTrafficKind::hiding, StepTrafficKind::blocking}) {
      LongestPath::Begun begun = paths.begin(kind, times);
      for (int k = 0; k < 10; ++k) {
        for (const std::size_t part : {std::size_t{0}, kEmbeddingPart, kHeadPart}) {
          PartTimes& sent = times.parts[part];
          sent[kGathering] = Seconds{random.flip() ? random.between(0, 3) : 0};
          sent[kReduction] = Seconds{random.between(0.1, 3)};
          const bool blocks = kind == StepTrafficKind::blocking;
          sent[kGatheringBefore] = Seconds{blocks ? random.between(0.1, 3) : 0};
          sent[kReductionAfter] = Seconds{blocks && random.flip() ? 1.0 : 0};
        }
        REQUIRE(traffic_of(times) == kind);
        const PipelineDuration whole = paths.duration(quiet, times);
        const PipelineDuration lasts = paths.duration(quiet, times, kind, begun);
        CHECK(lasts.total() == whole.total());
        CHECK(lasts.traffic == whole.traffic);
      }
    }
  }
}

TEST_CASE("one micro-batch passes all layers one after the other, however chunks are cut") {
  const PipelineTimes times = layer_times(1, 1.2, 0.8);
  for (const auto& chunks : {std::vector{2, 1, 1, 2}, std::vector{3, 1, 1, 1}, std::vector{6, 0}}) {
    const PipelineShape shape = shape_of(Schedule::interleaved, 2, chunks);
    const CriticalPaths paths(shape, 1);
    CHECK(paths.duration(times, 1, Seconds{9}).total().base() == Approx(6 * 3));
  }
}

TEST_CASE("zero-bubble of two stages by hand") {
  // Stage 1 runs F, I, W per micro-batch; stage 0 starts one F earlier and ends with I and W.
  const PipelineShape shape = shape_of(Schedule::zero_bubble, 2, {1, 1});
  const CriticalPaths one(shape, 1);
  CHECK(one.duration(layer_times(1, 1, 1), 1, Seconds{3}).total().base() == Approx(5));
}

TEST_CASE("further groups last as long as the slowest stage works on them") {
  const PipelineTimes times = layer_times(1, 1, 1);
  for (const int m : {40, 41, 63}) {
    const PipelineShape shape = shape_of(Schedule::zero_bubble, 4, {1, 2, 1, 1});
    const CriticalPaths whole(shape, m);
    const CriticalPaths part(shape, CriticalPaths::representative(4, m));
    CHECK(part.duration(times, m, Seconds{6}).total().base() ==
          Approx(whole.duration(times, m, Seconds{6}).total().base()));
  }
}

TEST_CASE("slower parts and longer hops never shorten a pipeline") {
  testing::Random random(83);
  for (int i = 0; i < testing::draws(50); ++i) {
    std::vector<int> chunks(8);
    for (int& layers : chunks) layers = 1 + random.below(3);
    const int m = 1 + random.below(30);
    const CriticalPaths paths(shape_of(Schedule::interleaved, 4, chunks),
                              CriticalPaths::representative(4, m));
    PipelineTimes times = layer_times(random.between(0.2, 1), random.between(0.2, 1), 0.3);
    const Seconds quick = paths.duration(times, m, Seconds{}).total();
    times.hop = Seconds{random.between(0, 0.5)};
    const Seconds far = paths.duration(times, m, Seconds{}).total();
    CHECK(far >= quick);
    times.parts[0][kForward] = 1.1 * times.parts[0][kForward];
    CHECK(paths.duration(times, m, Seconds{}).total() > far);
  }
}

}  // namespace
}  // namespace scalemodel
