#include "scalemodel/schedule/orders.hpp"

#include <map>
#include <utility>

#include "scalemodel/schedule/pipeline.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

struct Shape {
  Schedule schedule;
  int pp, vpp, micro_batches;
};

/// Every schedule on pipelines of several lengths, more and fewer micro-batches than stages.
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int pp : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, 3, 7, 8, 16, 19, 32}) {
      for (const Schedule s : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
        all.push_back({s, pp, 1, m});
      }
      if (pp > 1) {
        for (const int v : {2, 3}) all.push_back({Schedule::interleaved, pp, v, m});
      }
      if (pp % 2 == 0 && m >= 2 * pp) all.push_back({Schedule::dualpipe, pp, 1, m});
    }
  }
  return all;
}

int chunks_of(const Shape& shape) { return shape.schedule == Schedule::dualpipe ? 2 : shape.vpp; }

TEST_CASE("every micro-batch passes every chunk once each way") {
  for (const Shape& shape : shapes()) {
    CAPTURE(name_of(shape.schedule));
    CAPTURE(shape.pp);
    CAPTURE(shape.micro_batches);
    for (int stage = 0; stage < shape.pp; ++stage) {
      std::map<std::pair<int, int>, std::array<int, 3>> seen;
      for (const PassSlot& slot :
           stage_order(shape.schedule, shape.pp, shape.vpp, stage, shape.micro_batches)) {
        const auto count = [&](ChunkBatch at, std::size_t which) {
          ++seen[{at.chunk, at.micro_batch}][which];
        };
        if (runs_forward(slot.pass)) count(slot.at, 0);
        if (makes_input_gradient(slot.pass)) count(slot.backward_at(), 1);
        if (makes_weight_gradient(slot.pass)) count(slot.backward_at(), 2);
      }
      // DualPipe splits the micro-batches between its two directions.
      const int each = shape.schedule == Schedule::dualpipe ? 1 : chunks_of(shape);
      CHECK(seen.size() == static_cast<std::size_t>(each * shape.micro_batches));
      for (const auto& [at, counts] : seen) {
        CHECK(at.first < chunks_of(shape));
        CHECK(at.second < shape.micro_batches);
        CHECK(counts == std::array<int, 3>{1, 1, 1});
      }
    }
  }
}

TEST_CASE(
    "a backward pass follows its forward pass, a weight gradient the gradient it belongs to") {
  for (const Shape& shape : shapes()) {
    for (int stage = 0; stage < shape.pp; ++stage) {
      std::map<std::pair<int, int>, int> state;
      for (const PassSlot& slot :
           stage_order(shape.schedule, shape.pp, shape.vpp, stage, shape.micro_batches)) {
        const ChunkBatch back = slot.backward_at();
        const auto key = [](ChunkBatch at) { return std::pair(at.chunk, at.micro_batch); };
        if (makes_input_gradient(slot.pass)) CHECK(state[key(back)]++ == 1);
        if (makes_weight_gradient(slot.pass)) CHECK(state[key(back)]++ == 2);
        if (runs_forward(slot.pass)) CHECK(state[key(slot.at)]++ == 0);
      }
    }
  }
}

TEST_CASE("no stage keeps more micro-batches than the closed form says of the first") {
  for (const Shape& shape : shapes()) {
    CAPTURE(name_of(shape.schedule));
    CAPTURE(shape.pp);
    CAPTURE(shape.vpp);
    CAPTURE(shape.micro_batches);
    int fullest = 0;
    for (int stage = 0; stage < shape.pp; ++stage) {
      int held = 0, peak = 0;
      for (const PassSlot& slot :
           stage_order(shape.schedule, shape.pp, shape.vpp, stage, shape.micro_batches)) {
        if (runs_forward(slot.pass)) peak = std::max(peak, ++held);
        if (makes_weight_gradient(slot.pass)) --held;
      }
      CHECK(held == 0);
      fullest = std::max(fullest, peak);
      if (stage > 0 && shape.schedule != Schedule::zero_bubble &&
          shape.schedule != Schedule::dualpipe) {
        CHECK(peak <= fullest);
      }
    }
    const double closed =
        in_flight(shape.schedule, shape.pp, shape.vpp, 0, shape.micro_batches) * chunks_of(shape);
    CHECK(fullest <= closed + 1e-9);
    // A last, smaller group of an interleaved schedule, or an odd batch of DualPipe, fills less.
    const bool whole = shape.schedule == Schedule::interleaved
                           ? shape.micro_batches % shape.pp == 0
                           : shape.schedule != Schedule::dualpipe || shape.micro_batches % 2 == 0;
    if (whole) CHECK(fullest == testing::Approx(closed));
  }
}

}  // namespace
}  // namespace scalemodel
