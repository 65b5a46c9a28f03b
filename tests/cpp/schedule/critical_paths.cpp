#include "scalemodel/schedule/critical_paths.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using doctest::Approx;

/// Chunks of these layers in the order a micro-batch passes them, without ends.
PipelineShape shape_of(Schedule schedule, int pp, const std::vector<int>& in_order) {
  PipelineShape shape;
  shape.schedule = schedule;
  shape.pp = pp;
  shape.vpp = static_cast<int>(in_order.size()) / pp;
  shape.transfers_block = false;
  for (int stage = 0; stage < pp; ++stage) {
    for (int turn = 0; turn < shape.vpp; ++turn) {
      StageClass chunk;
      chunk.layers[0] = in_order[static_cast<std::size_t>(turn * pp + stage)];
      shape.chunks.push_back(chunk);
    }
  }
  return shape;
}

PipelineTimes layer_times(double forward, double input, double weight) {
  PipelineTimes times;
  times.parts[0] = {Seconds{forward}, Seconds{input}, Seconds{weight}, Seconds{forward},
                    Seconds{input + weight}};
  return times;
}

TEST_CASE("one micro-batch passes all layers one after the other, however chunks are cut") {
  const PipelineTimes times = layer_times(1, 1.2, 0.8);
  for (const auto& chunks : {std::vector{2, 1, 1, 2}, std::vector{3, 1, 1, 1}, std::vector{6, 0}}) {
    const PipelineShape shape = shape_of(Schedule::interleaved, 2, chunks);
    const CriticalPaths paths(shape, 1);
    CHECK(paths.duration(times, 1, Seconds{9}).base() == Approx(6 * 3));
  }
}

TEST_CASE("zero-bubble of two stages by hand") {
  // Stage 1 runs F, I, W per micro-batch; stage 0 starts one F earlier and ends with I and W.
  const PipelineShape shape = shape_of(Schedule::zero_bubble, 2, {1, 1});
  const CriticalPaths one(shape, 1);
  CHECK(one.duration(layer_times(1, 1, 1), 1, Seconds{3}).base() == Approx(5));
}

TEST_CASE("further groups last as long as the slowest stage works on them") {
  const PipelineTimes times = layer_times(1, 1, 1);
  for (const int m : {40, 41, 63}) {
    const PipelineShape shape = shape_of(Schedule::zero_bubble, 4, {1, 2, 1, 1});
    const CriticalPaths whole(shape, m);
    const CriticalPaths part(shape, CriticalPaths::representative(4, m));
    CHECK(part.duration(times, m, Seconds{6}).base() ==
          Approx(whole.duration(times, m, Seconds{6}).base()));
  }
}

TEST_CASE("slower parts and longer hops never shorten a pipeline") {
  testing::Random random(83);
  for (int i = 0; i < 50; ++i) {
    std::vector<int> chunks(8);
    for (int& layers : chunks) layers = 1 + random.below(3);
    const int m = 1 + random.below(30);
    const CriticalPaths paths(shape_of(Schedule::interleaved, 4, chunks),
                              CriticalPaths::representative(4, m));
    PipelineTimes times = layer_times(random.between(0.2, 1), random.between(0.2, 1), 0.3);
    const Seconds quick = paths.duration(times, m, Seconds{});
    times.hop = Seconds{random.between(0, 0.5)};
    const Seconds far = paths.duration(times, m, Seconds{});
    CHECK(far >= quick);
    times.parts[0].forward = 1.1 * times.parts[0].forward;
    CHECK(paths.duration(times, m, Seconds{}) > far);
  }
}

}  // namespace
}  // namespace scalemodel
