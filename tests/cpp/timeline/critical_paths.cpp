// The closed forms of idle time against passes simulated one by one.
#include <algorithm>

#include "scalemodel/schedule/pipeline.hpp"
#include "scalemodel/timeline/timeline.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using doctest::Approx;

/// A pipeline of equal chunks that sends in no time.
StepCosts pipeline(Schedule schedule, int stages, int chunks, int micro_batches,
                   const ChunkCost& chunk) {
  StepCosts costs;
  costs.schedule = schedule;
  costs.stages = stages;
  costs.chunks_per_stage = chunks;
  costs.micro_batches = micro_batches;
  costs.chunks.assign(static_cast<std::size_t>(stages * chunks), chunk);
  costs.resources.resize(static_cast<std::size_t>(stages));
  return costs;
}

TEST_CASE("interleaved stages wait for the ends of the model as the closed form says") {
  testing::Random random(61);
  for (int i = 0; i < 200; ++i) {
    const int p = random.pick({2, 4, 8}), v = random.pick({2, 3, 5});
    const int m = p * random.pick({1, 2, 3, 8, 20});
    ChunkCost chunk;
    chunk.forward.compute = Seconds{1};
    chunk.backward.compute = Seconds{random.between(1, 3)};
    StepCosts costs = pipeline(Schedule::interleaved, p, v, m, chunk);
    const auto heavier = [&](ChunkCost& end) {
      const Seconds forward{random.between(0, 0.3)}, backward{random.between(0, 0.3)};
      end.forward.compute += forward;
      end.backward.compute += backward;
      return forward + backward;
    };
    StageTimes times;
    times.embedding = heavier(costs.chunks.front());
    times.head = heavier(costs.chunks.back());
    const Seconds both = chunk.forward.compute + chunk.backward.compute;
    times.slowest = v * both + max(times.embedding, times.head);
    times.sum = p * v * both + times.embedding + times.head;
    const Seconds step = simulate(costs, {}, {}).step_time;
    CAPTURE(p);
    CAPTURE(v);
    CAPTURE(m);
    CHECK((m * times.slowest + pipeline_bubble(Schedule::interleaved, p, v, times, m)) / step ==
          Approx(1).epsilon(0.012));
  }
}

TEST_CASE("DualPipe: lone passes and early hand-overs stand on the critical path") {
  testing::Random random(62);
  for (int i = 0; i < 200; ++i) {
    const int p = random.pick({2, 4, 8, 16});
    const int m = p * random.pick({2, 4, 9});
    const Seconds forward{1}, input{random.between(0.8, 2.5)}, weight{random.between(0.3, 2)};
    StageTimes times;
    times.lone_forward = Seconds{random.between(0, 0.5)};
    times.lone_backward = Seconds{random.between(0, 0.5)};
    ChunkCost chunk;
    chunk.layers[0] = random.pick({3, 12, 100});
    chunk.weight_gradient = weight;
    chunk.paired_forward.compute = chunk.forward.compute = forward;
    chunk.paired_backward.compute = chunk.backward.compute = input + weight;
    chunk.forward.on(Stream::ep).exposed = times.lone_forward;
    chunk.backward.on(Stream::ep).exposed = times.lone_backward;
    StepCosts costs = pipeline(Schedule::dualpipe, p, 2, m, chunk);
    costs.transfers_block = random.flip();
    if (!costs.transfers_block) times.early = (input + weight) / chunk.total_layers();
    times.slowest = forward + input + weight;
    times.sum = p * times.slowest;
    times.mean_backward = input + weight;
    times.mean_weight = weight;
    const Seconds step = simulate(costs, {}, {}).step_time;
    CAPTURE(p);
    CAPTURE(m);
    const Seconds alone = lone_passes(p) * (times.lone_forward + times.lone_backward);
    const Seconds idle = pipeline_bubble(Schedule::dualpipe, p, 1, times, m);
    CHECK((m * times.slowest + alone + idle) / step == Approx(1).epsilon(0.02));
  }
}

}  // namespace
}  // namespace scalemodel
