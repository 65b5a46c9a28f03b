#include "scalemodel/schedule/orders.hpp"

#include <map>
#include <string>
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
      for (const Schedule s : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble,
                               Schedule::zero_bubble_2p}) {
        all.push_back({s, pp, 1, m});
      }
      if (pp > 1) {
        for (const int v : {2, 3}) all.push_back({Schedule::interleaved, pp, v, m});
        all.push_back({Schedule::zero_bubble_v, pp, 2, m});
        if (m >= 2 * pp) all.push_back({Schedule::dualpipe_v, pp, 2, m});
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
      // Stages of a ZB-V pipeline that does not fill hold what the passes before them let in.
      if (shape.schedule == Schedule::zero_bubble_v && shape.pp > 1) {
        CHECK(peak == 2 * in_flight(shape.schedule, shape.pp, 2, stage, shape.micro_batches));
      }
    }
    const int m = shape.micro_batches;
    const int most = fullest_index(shape.schedule, shape.pp, 0, shape.pp - 1, m);
    const double closed =
        in_flight(shape.schedule, shape.pp, shape.vpp, most, m) * chunks_of(shape);
    CHECK(fullest <= closed + 1e-9);
    // A last, smaller group of an interleaved schedule, or an odd batch of DualPipe, fills less.
    const bool whole = shape.schedule == Schedule::interleaved ? m % shape.pp == 0
                       : shape.schedule == Schedule::dualpipe  ? m % 2 == 0
                                                               : true;
    if (whole) CHECK(fullest == testing::Approx(closed));
  }
}

TEST_CASE("neighbours of a chunk are each other's, and end where the layers do") {
  for (const Shape& shape : shapes()) {
    if (shape.pp == 1) continue;
    CAPTURE(name_of(shape.schedule));
    const int chunks = chunks_of(shape);
    int first = 0, last = 0, stay = 0;
    for (int stage = 0; stage < shape.pp; ++stage) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const ChunkNeighbour to = chunk_after(shape.schedule, shape.pp, chunks, stage, chunk);
        first += chunk_before(shape.schedule, shape.pp, stage, chunk).exists ? 0 : 1;
        last += to.exists ? 0 : 1;
        if (!to.exists) continue;
        const ChunkNeighbour back = chunk_before(shape.schedule, shape.pp, to.stage, to.chunk);
        CHECK(back.exists);
        CHECK(back.stage == stage);
        CHECK(back.chunk == chunk);
        CHECK(back.stays == to.stays);
        CHECK(to.stays == (to.stage == stage));
        stay += to.stays ? 1 : 0;
      }
    }
    // DualPipe's two directions begin and end apart; what turns back stays on the last stage.
    const int ends = traits_of(shape.schedule).two_directions ? 2 : 1;
    CHECK(first == ends);
    CHECK(last == ends);
    CHECK(stay == (traits_of(shape.schedule).v_shape ? 1 : 0));
  }
}

TEST_CASE("a V holds the first and the last layers on its first stage") {
  for (const Schedule schedule : {Schedule::zero_bubble_v, Schedule::dualpipe_v}) {
    CHECK_FALSE(chunk_before(schedule, 4, 0, 0).exists);
    CHECK_FALSE(chunk_after(schedule, 4, 2, 0, 1).exists);
    CHECK(virtual_stages(schedule, 4, 1) == 2);
    CHECK(virtual_stages(schedule, 1, 1) == 1);
  }
}

TEST_CASE("ZB-V on two stages in the published order") {
  std::string order;
  for (const PassSlot& slot : stage_order(Schedule::zero_bubble_v, 2, 2, 1, 3)) {
    order += "FBIW"[static_cast<std::size_t>(slot.pass)];
    order += static_cast<char>('0' + slot.at.chunk);
    order += static_cast<char>('0' + slot.at.micro_batch);
    order += ' ';
  }
  // PyTorch's ScheduleZBVZeroBubble, rank 1: its stages 1 and 2 are chunks 0 and 1 here.
  CHECK(order ==
        "F00 F10 F01 F11 I10 W10 F02 I00 W00 F12 I11 W11 I01 I12 "
        "I02 W01 W12 W02 ");
}

}  // namespace
}  // namespace scalemodel
