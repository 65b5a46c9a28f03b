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

StageOrder zero_bubble_order(int pp, int stage, int micro_batches) {
  StageOrder order;
  order.reserve(3 * static_cast<std::size_t>(micro_batches));
  const int ahead = std::min(pp - stage - 1, micro_batches);
  for (int k = 0; k < ahead; ++k) order.push_back(slot(Pass::forward, 0, k));
  for (int k = 0; k < micro_batches; ++k) {
    if (k + ahead < micro_batches) order.push_back(slot(Pass::forward, 0, k + ahead));
    order.push_back(slot(Pass::input_gradient, 0, k));
    if (k >= stage) order.push_back(slot(Pass::weight_gradient, 0, k - stage));
  }
  for (int k = std::max(0, micro_batches - stage); k < micro_batches; ++k) {
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

/// Writes down DualPipe's eight phases. "Near" is the direction that enters at the stage's own end
/// of the pipeline, "far" the other one.
class DualPipeWriter {
 public:
  DualPipeWriter(int pp, int stage, int micro_batches)
      : half_stages_(pp / 2),
        distance_(std::min(stage, pp - 1 - stage)),
        near_(stage < pp / 2 ? 0 : 1),
        batches_{micro_batches - micro_batches / 2, micro_batches / 2} {
    order_.reserve(3 * static_cast<std::size_t>(micro_batches));
    write(pp);
  }

  StageOrder take() { return std::move(order_); }

 private:
  void write(int pp) {
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
    const int steady = batches_[0] - pp + outward;
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
    return {direction, k < batches_[d] ? k + (direction == 0 ? 0 : batches_[0]) : -1};
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
      return zero_bubble_order(pp, stage, micro_batches);
    case Schedule::dualpipe:
      return DualPipeWriter(pp, stage, micro_batches).take();
  }
  return {};
}

}  // namespace scalemodel
