// Pipeline schedules: what they overlap and how many micro-batches are in flight.
#pragma once

#include <algorithm>
#include <cmath>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// Whether kernels run on while their stage sends.
constexpr bool transfers_overlap(const OverlapPolicy& stack, Schedule schedule) {
  return stack.overlap_p2p && traits_of(schedule).overlaps_transfers;
}

/// Whether every transfer waits for the last. Between two stages, what one sends the other
/// receives: there is nothing to wait for.
constexpr bool transfers_serial(const OverlapPolicy& stack, Schedule schedule, int pp) {
  return stack.serial_p2p && pp > 2 && !transfers_overlap(stack, schedule);
}

/// Passes each way that the first stage of a DualPipe pipeline runs alone, to fill and drain it, in
/// units of what a micro-batch passes of the stage: one of its two chunks or, folded to a V, both.
constexpr double unpaired_passes(Schedule schedule, int pp) {
  const bool folded = traits_of(schedule).v_shape;
  const int stages = folded ? 2 * pp : pp;
  return (1.5 * stages - (stages > 2 ? 1 : 0)) / (folded ? 2 : 1);
}

/// Micro-batches whose activations stage `index` holds at its peak, in units of all its layers.
/// 1F1B: min(p - i, m). Interleaved: (2 (p-i-1) + (v-1) p + 1)/v (Megatron's warm-up). Zero-bubble
/// H1: p, because stage i puts i weight gradients off; H2: 2 p - 1. ZB-V: p, because 2 p of its
/// chunks, or the outward ones of all m and i + 1 of those that come back, where the first of them
/// is back before 2 p - 1 have set out. DualPipe: p + 1, over half of what the stage holds;
/// DualPipeV: 2 p + 1 of its chunks.
constexpr double in_flight(Schedule schedule, int pp, int vpp, int index, double micro_batches) {
  double held = micro_batches;
  switch (schedule) {
    case Schedule::gpipe:
      break;
    case Schedule::one_f_one_b:
      held = pp - index;
      break;
    case Schedule::zero_bubble:
      held = pp;
      break;
    case Schedule::interleaved:
      held = (2.0 * (pp - index - 1) + (vpp - 1.0) * pp + 1) / vpp;
      break;
    case Schedule::dualpipe:
      held = 0.5 * (pp + 1);
      break;
    case Schedule::zero_bubble_2p:
      held = 2.0 * pp - 1;
      break;
    case Schedule::zero_bubble_v:
      held = micro_batches + index + 1 < 2 * pp ? 0.5 * (micro_batches + index + 1) : pp;
      break;
    case Schedule::dualpipe_v:
      held = pp + 0.5;
      break;
  }
  return held < micro_batches ? held : micro_batches;
}

/// Of stages `first` to `last`, the earliest that holds as many as any of them: the first, for
/// later ones hold no more, but where a ZB-V pipeline does not fill.
constexpr int fullest_index(Schedule schedule, int pp, int first, int last, double micro_batches) {
  if (schedule != Schedule::zero_bubble_v) return first;
  const double full = std::min(2 * pp - 1 - micro_batches, micro_batches - 1);
  return static_cast<int>(std::clamp<double>(full, first, last));
}

/// The same of the head, on the last stage or, of layers that go there and back, on the first: what
/// it saves for its backward pass and, `logits`, what it saves only until it has passed the
/// gradient on. GPipe runs all forward passes first.
constexpr double head_in_flight(Schedule schedule, int pp, double micro_batches, bool logits) {
  const ScheduleTraits traits = traits_of(schedule);
  const bool defers = traits.splits_backward && !traits.two_directions && !traits.v_shape;
  const bool piles = traits.piles_up || (defers && !logits);
  return piles ? in_flight(schedule, pp, 1, pp - 1, micro_batches) : 1;
}

}  // namespace scalemodel
