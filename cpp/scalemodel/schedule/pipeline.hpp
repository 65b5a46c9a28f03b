// Pipeline schedules: how long a stage idles and how much it keeps in flight.
#pragma once

#include <cmath>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// The schedule that runs: interleaving turns 1F1B into its interleaved form.
constexpr Schedule effective_schedule(Schedule schedule, int vpp) {
  return schedule == Schedule::one_f_one_b && vpp > 1 ? Schedule::interleaved : schedule;
}

/// Whether kernels run on while their stage sends: schedules without interleaving wait.
constexpr bool transfers_overlap(const Stack& stack, Schedule schedule) {
  return stack.overlap_p2p && schedule != Schedule::gpipe && schedule != Schedule::one_f_one_b;
}

/// Whether every transfer waits for the last. Between two stages, what one sends the other
/// receives: there is nothing to wait for.
constexpr bool transfers_serial(const Stack& stack, Schedule schedule, int pp) {
  return stack.serial_p2p && pp > 2 && !transfers_overlap(stack, schedule);
}

/// Mean and extreme stage times of one micro-batch.
struct StageTimes {
  Seconds slowest;        ///< forward and backward of the slowest stage
  Seconds sum;            ///< over stages
  Seconds mean_backward;  ///< including recomputation
  Seconds mean_weight;    ///< weight gradients
  Seconds embedding;      ///< what it adds to the first stage
  Seconds head;           ///< and the head to the last
  Seconds lone_forward;   ///< what a pass of DualPipe takes longer where none runs beside it
  Seconds lone_backward;
  Seconds early;  ///< how long before its end a pair of DualPipe hands on what it made
};

/// Idle time of the slowest of interleaved stages that hold the same layers, c a chunk, but for the
/// embedding e on the first and the head h on the last. A lighter embedding slows the first group
/// of pp micro-batches on its way in and the last on its way out, each once; in between it runs
/// while the head does. A heavier one lets the first stage start early: it waits for a group of
/// heads, or the last stage for a group of embeddings, whichever lasts.
///
/// A last group with fewer micro-batches leaves slots empty: on every chunk but one, those of the
/// backward passes, or of both where no group is before it.
inline Seconds interleaved_bubble(int pp, int vpp, const StageTimes& times, double micro_batches) {
  const Seconds e = times.embedding, h = times.head;
  const Seconds chunk = (times.sum - e - h) / (static_cast<double>(pp) * vpp);
  const double group = pp;
  const double lacking = group * std::ceil(micro_batches / group) - micro_batches;
  const Seconds slot = micro_batches > group ? times.mean_backward / vpp : chunk;
  const Seconds last = (group - 1) * chunk + group * e + lacking * (vpp - 1.0) * slot;
  if (e <= h) return last;
  const Seconds first = (group - 2) * chunk - group * e + 2 * group * h;
  return max(first, last - micro_batches * (e - h));
}

/// Passes each way that the first stage of a DualPipe pipeline runs alone, to fill and drain it.
constexpr double lone_passes(int pp) { return 1.5 * pp - (pp > 2 ? 1 : 0); }

/// Idle time of the slowest stage in a step. B includes the weight gradients W, I = B - W is the
/// rest of it.
///
/// | schedule | bubble |
/// |---|---|
/// | GPipe, 1F1B | sum of the other stages, (p-1)(F+B) when equal (arXiv 1811.06965, 2104.04473) |
/// | interleaved | the same / v (arXiv 2104.04473), and what the two ends wait for each other |
/// | zero-bubble H1 | (p-1)(F+I-min(W,F,I)): a gap takes no more work than it is long |
/// | DualPipe | max((p/2-1)(2F+I-W) + 3p/2 f + (p+1) b, |
/// | | (p/2-1)(F+2I-W) - F + p f + 3p/2 b, |
/// | | (p-2) F + 3p/2 f + (p/2+2) b) - (p/2-1) min(u, F-b) - n (f+b) |
///
/// H1's published form (p-1)(F+I-W) (arXiv 2401.10241) assumes W <= F, I. DualPipe's,
/// (p/2-1)(F&B+B-3W) (arXiv 2412.19437), is (p/2-1)(F+2I-W) where pairs take as long as their
/// parts; the critical paths of its published order of passes are the three above. On them stand
/// lone passes, each way longer by f and b than as a part of a pair, and p/2-1 pairs that hand
/// their outputs on earlier than they end, by u; n lone passes are the stage's own work.
inline Seconds pipeline_bubble(Schedule schedule, int pp, int vpp, const StageTimes& times,
                               double micro_batches) {
  if (pp == 1) return Seconds{};
  const Seconds others = times.sum - times.slowest;
  const Seconds forward = max(Seconds{}, times.sum / pp - times.mean_backward);
  const Seconds input = max(Seconds{}, times.mean_backward - times.mean_weight);
  switch (schedule) {
    case Schedule::gpipe:
    case Schedule::one_f_one_b:
      return others;
    case Schedule::interleaved:
      return interleaved_bubble(pp, vpp, times, micro_batches);
    case Schedule::zero_bubble: {
      const Seconds filled = min(times.mean_weight, min(forward, input));
      return max(Seconds{}, others - (pp - 1.0) * (times.mean_weight + filled));
    }
    case Schedule::dualpipe: {
      const double pairs = 0.5 * pp - 1;
      const Seconds f = times.lone_forward, b = times.lone_backward;
      const double own = lone_passes(pp);
      const Seconds outward = pairs * (2 * forward + input - times.mean_weight) +
                              (1.5 * pp - own) * f + (pp + 1 - own) * b;
      const Seconds inward = pairs * (forward + 2 * input - times.mean_weight) - forward +
                             (pp - own) * f + (1.5 * pp - own) * b;
      const Seconds through = 2 * pairs * forward + (1.5 * pp - own) * f + (0.5 * pp + 2 - own) * b;
      const Seconds saved = pairs * max(Seconds{}, min(times.early, forward - b));
      return max(Seconds{}, max(max(outward, inward), through) - saved);
    }
  }
  return others;
}

/// Micro-batches whose activations stage `index` holds at its peak, in units of all its layers.
/// 1F1B: min(p - i, m). Interleaved: (2 (p-i-1) + (v-1) p + 1)/v (Megatron's warm-up). Zero-bubble
/// H1: p, because stage i puts i weight gradients off. DualPipe: p + 1, over half of what the stage
/// holds.
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
  }
  return held < micro_batches ? held : micro_batches;
}

/// The same of the head, on the last stage: what it keeps for its backward pass and, `logits`, what
/// it keeps only until it has passed the gradient on. GPipe runs all forward passes first.
constexpr double head_in_flight(Schedule schedule, int pp, double micro_batches, bool logits) {
  const bool piles = schedule == Schedule::gpipe || (schedule == Schedule::zero_bubble && !logits);
  return piles ? in_flight(schedule, pp, 1, pp - 1, micro_batches) : 1;
}

}  // namespace scalemodel
