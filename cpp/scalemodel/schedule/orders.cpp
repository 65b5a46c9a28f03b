#include "scalemodel/schedule/orders.hpp"

#include <algorithm>
#include <cstddef>

namespace scalemodel {
namespace {

PassSlot slot(Pass pass, int chunk, int micro_batch) {
  return {pass, {chunk, micro_batch}, {chunk, micro_batch}};
}

StageOrder gpipe_order(int micro_batches) {
  StageOrder order;
  order.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int k = 0; k < micro_batches; ++k) order.push_back(slot(Pass::forward, 0, k));
  for (int k = 0; k < micro_batches; ++k) order.push_back(slot(Pass::backward, 0, k));
  return order;
}

StageOrder one_f_one_b_order(int pp, int stage, int micro_batches) {
  StageOrder order;
  order.reserve(2 * static_cast<std::size_t>(micro_batches));
  const int ahead = std::min(pp - stage - 1, micro_batches);
  for (int k = 0; k < ahead; ++k) order.push_back(slot(Pass::forward, 0, k));
  for (int k = 0; k < micro_batches; ++k) {
    if (k + ahead < micro_batches) order.push_back(slot(Pass::forward, 0, k + ahead));
    order.push_back(slot(Pass::backward, 0, k));
  }
  return order;
}

/// Stage i puts `depth` i weight gradients off and runs `depth` (pp - i - 1) forward passes ahead.
StageOrder zero_bubble_order(int pp, int stage, int micro_batches, int depth) {
  StageOrder order;
  order.reserve(3 * static_cast<std::size_t>(micro_batches));
  const int ahead = std::min(depth * (pp - stage - 1), micro_batches), put_off = depth * stage;
  for (int k = 0; k < ahead; ++k) order.push_back(slot(Pass::forward, 0, k));
  for (int k = 0; k < micro_batches; ++k) {
    if (k + ahead < micro_batches) order.push_back(slot(Pass::forward, 0, k + ahead));
    order.push_back(slot(Pass::input_gradient, 0, k));
    if (k >= put_off) order.push_back(slot(Pass::weight_gradient, 0, k - put_off));
  }
  for (int k = std::max(0, micro_batches - put_off); k < micro_batches; ++k) {
    order.push_back(slot(Pass::weight_gradient, 0, k));
  }
  return order;
}

/// Micro-batches in groups of pp: a group passes all chunks before the next group starts. A last,
/// smaller group leaves the slots of those it lacks empty, so that no stage waits in a circle.
StageOrder interleaved_order(int pp, int vpp, int stage, int micro_batches) {
  const int group = pp * vpp;
  const int slots = (micro_batches + pp - 1) / pp * group;
  StageOrder order;
  order.reserve(2 * static_cast<std::size_t>(vpp * micro_batches));
  const auto push = [&](Pass pass, int index) {
    const int turn = index % group / pp, micro_batch = index / group * pp + index % pp;
    if (micro_batch >= micro_batches) return;
    order.push_back(slot(pass, pass == Pass::forward ? turn : vpp - 1 - turn, micro_batch));
  };
  const int ahead = std::min(2 * (pp - stage - 1) + (vpp - 1) * pp, slots);
  for (int index = 0; index < ahead; ++index) push(Pass::forward, index);
  for (int index = 0; index < slots; ++index) {
    if (index + ahead < slots) push(Pass::forward, index + ahead);
    push(Pass::backward, index);
  }
  return order;
}

/// ZB-V: a forward pass of either chunk, then its gradients, once every stage has 2 pp chunks in
/// flight. Slots of micro-batches that there are not stay empty.
class ThereAndBackWriter {
 public:
  ThereAndBackWriter(int pp, int stage, int micro_batches) : micro_batches_(micro_batches) {
    const int all = std::max(2 * pp - 1, micro_batches), inward = pp - stage;
    for (int i = 0; i < 2 * inward - 1; ++i) push(Pass::forward, 0);
    for (int i = 0; i < stage; ++i) {
      push(Pass::forward, 1);
      push(Pass::forward, 0);
    }
    for (int i = 0; i < inward; ++i) round(1);
    while (done(Pass::forward, 1) < all) {
      if (done(Pass::forward, 0) < all) push(Pass::forward, 0);
      gradients(0);
      round(1);
    }
    for (int i = 0; i < stage; ++i) {
      push(Pass::input_gradient, 0);
      push(Pass::input_gradient, 1);
    }
    for (int i = 0; i < inward; ++i) gradients(0);
    for (const int chunk : {1, 0}) {
      while (done(Pass::weight_gradient, chunk) < all) push(Pass::weight_gradient, chunk);
    }
  }

  StageOrder take() { return std::move(order_); }

 private:
  void round(int chunk) {
    push(Pass::forward, chunk);
    gradients(chunk);
  }
  void gradients(int chunk) {
    push(Pass::input_gradient, chunk);
    push(Pass::weight_gradient, chunk);
  }
  int& done(Pass pass, int chunk) {
    return done_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(chunk)];
  }
  void push(Pass pass, int chunk) {
    const int k = done(pass, chunk)++;
    if (k < micro_batches_) order_.push_back(slot(pass, chunk, k));
  }

  int micro_batches_;
  std::array<std::array<int, 2>, EnumNames<Pass>::names.size()> done_{};
  StageOrder order_;
};

/// Writes down DualPipe's eight phases. "Near" is the direction that enters at the stage's own end
/// of the pipeline, "far" the other one. Folded, every stage is one of the first half of twice as
/// many, and what leaves the middle comes back: all micro-batches pass either chunk.
class DualPipeWriter {
 public:
  DualPipeWriter(int pp, int stage, int micro_batches, bool folded)
      : half_stages_(folded ? pp : pp / 2),
        distance_(folded ? stage : std::min(stage, pp - 1 - stage)),
        near_(stage < half_stages_ ? 0 : 1),
        first_far_(folded ? 0 : micro_batches - micro_batches / 2),
        batches_{folded ? micro_batches : first_far_, folded ? micro_batches : micro_batches / 2} {
    order_.reserve(3 * static_cast<std::size_t>(batches_[0] + batches_[1]));
    write();
  }

  StageOrder take() { return std::move(order_); }

 private:
  void write() {
    const int inward = half_stages_ - distance_ - 1, outward = distance_ + 1;
    const int near = near_, far = 1 - near_;
    for (int i = 0; i < 2 * inward; ++i) forward(near);
    for (int i = 0; i < outward; ++i) {
      forward(near);
      forward(far);
    }
    for (int i = 0; i < inward; ++i) {
      input_gradient(far);
      weight_gradient();
      forward(far);
    }
    const int steady = batches_[0] - 2 * half_stages_ + outward;
    for (int i = 0; i < steady; ++i) {
      // The middle stages start with both passes one after the other: it shortens the bubble.
      if (i == 0 && inward == 0) {
        forward(near);
        backward(far);
      } else {
        pair(near, far);
      }
      pair(far, near);
    }
    for (int i = 0; i < inward; ++i) {
      backward(far);
      pair(far, near);
    }
    bool split = false;
    for (int i = 0; i < outward; ++i) {
      const bool half = i == outward / 2;
      split = split || (half && distance_ % 2 == 1);
      split ? input_gradient(far) : backward(far);
      split = split || half;
      split ? input_gradient(near) : backward(near);
    }
    for (int i = 0; i < inward; ++i) {
      weight_gradient();
      input_gradient(near);
    }
    while (next_deferred_ < deferred_.size()) weight_gradient();
  }

  ChunkBatch next(std::array<int, 2>& counts, int direction) const {
    const auto d = static_cast<std::size_t>(direction);
    const int k = counts[d]++;
    // An odd number of micro-batches: the second direction has one less, its last slot stays empty.
    return {direction, k < batches_[d] ? k + (direction == 0 ? 0 : first_far_) : -1};
  }
  void push(Pass pass, ChunkBatch at) {
    if (at.micro_batch >= 0) order_.push_back({pass, at, at});
  }
  void forward(int direction) { push(Pass::forward, next(forwards_, direction)); }
  void backward(int direction) { push(Pass::backward, next(backwards_, direction)); }
  void input_gradient(int direction) {
    const ChunkBatch at = next(backwards_, direction);
    push(Pass::input_gradient, at);
    deferred_.push_back(at);
  }
  void weight_gradient() { push(Pass::weight_gradient, deferred_[next_deferred_++]); }
  void pair(int forward_direction, int backward_direction) {
    const ChunkBatch ahead = next(forwards_, forward_direction);
    const ChunkBatch back = next(backwards_, backward_direction);
    if (ahead.micro_batch >= 0 && back.micro_batch >= 0) {
      order_.push_back({Pass::pair, ahead, back});
      return;
    }
    push(Pass::forward, ahead);
    push(Pass::backward, back);
  }

  int half_stages_, distance_, near_;
  int first_far_;  ///< micro-batch of the second direction
  std::array<int, 2> batches_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::vector<ChunkBatch> deferred_;
  std::size_t next_deferred_ = 0;
  StageOrder order_;
};

}  // namespace

StageOrder stage_order(Schedule schedule, int pp, int vpp, int stage, int micro_batches) {
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe_order(micro_batches);
    case Schedule::one_f_one_b:
      if (vpp > 1) return interleaved_order(pp, vpp, stage, micro_batches);
      return one_f_one_b_order(pp, stage, micro_batches);
    case Schedule::interleaved:
      return interleaved_order(pp, vpp, stage, micro_batches);
    case Schedule::zero_bubble:
      // Without other stages there are no gaps to fill.
      if (pp == 1) return one_f_one_b_order(pp, stage, micro_batches);
      return zero_bubble_order(pp, stage, micro_batches, 1);
    case Schedule::zero_bubble_2p:
      if (pp == 1) return one_f_one_b_order(pp, stage, micro_batches);
      return zero_bubble_order(pp, stage, micro_batches, 2);
    case Schedule::zero_bubble_v:
      if (pp == 1) return one_f_one_b_order(pp, stage, micro_batches);
      return ThereAndBackWriter(pp, stage, micro_batches).take();
    case Schedule::dualpipe:
      return DualPipeWriter(pp, stage, micro_batches, false).take();
    case Schedule::dualpipe_v:
      if (pp == 1) return one_f_one_b_order(pp, stage, micro_batches);
      return DualPipeWriter(pp, stage, micro_batches, true).take();
  }
  return {};
}

ChunkNeighbour chunk_after(Schedule schedule, int pp, int chunks, int stage, int chunk) {
  const ScheduleTraits& traits = traits_of(schedule);
  const bool turned = chunk == 1 && (traits.two_directions || traits.v_shape);
  if (turned) return {stage - 1, chunk, false, stage > 0, false};
  if (stage + 1 < pp) return {stage + 1, chunk, true, true, false};
  if (traits.v_shape && chunks > 1) return {stage, 1, true, true, true};
  return {0, chunk + 1, true, !traits.two_directions && chunk + 1 < chunks, false};
}

ChunkNeighbour chunk_before(Schedule schedule, int pp, int stage, int chunk) {
  const ScheduleTraits& traits = traits_of(schedule);
  if (chunk == 1 && (traits.two_directions || traits.v_shape)) {
    if (stage + 1 < pp) return {stage + 1, chunk, true, true, false};
    return {stage, 0, true, traits.v_shape, traits.v_shape};
  }
  if (stage > 0) return {stage - 1, chunk, false, true, false};
  return {pp - 1, chunk - 1, false, !traits.two_directions && chunk > 0, false};
}

}  // namespace scalemodel
