// Runs the passes of a pipeline in order, by any clock. Private to the schedules.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "scalemodel/base/index.hpp"
#include "scalemodel/schedule/pass_sequence.hpp"

namespace scalemodel::detail {

/// What a slot runs, one after the other.
inline std::span<const PassTime> kernels_of(Pass pass) {
  static constexpr std::array<PassTime, 1> forward{kForward};
  static constexpr std::array<PassTime, 2> backward{kInputGradient, kWeightGradient};
  static constexpr std::array<PassTime, 2> pair{kPairedForward, kPairedBackward};
  switch (pass) {
    case Pass::forward:
      return forward;
    case Pass::backward:
      return backward;
    case Pass::input_gradient:
      return std::span(backward).first(1);
    case Pass::weight_gradient:
      return std::span(backward).last(1);
    case Pass::pair:
      return pair;
  }
  return {};
}

/// When the passes of a sequence end. Nothing but sums and maxima of times, so that a step lasts as
/// long as the longest of its paths. A clock has a type of times, `start()`, `later(a, b)` and what
/// is later than a time by a share of a chunk's pass, by hops or, `early`, before it.
template <class Clock>
class PipelineRun {
 public:
  using Time = typename Clock::Time;

  PipelineRun(const PassSequence& sequence, Clock& clock, StepTrafficKind traffic)
      : sequence_(sequence),
        clock_(clock),
        sends_(traffic != StepTrafficKind::none),
        blocks_(traffic == StepTrafficKind::blocking),
        stages_(sequence.gather_order.size()),
        arrivals_(new Time[sequence.travelling]) {}

  /// The end of the last pass and of the traffic. Where stages flow on from step to step, how long
  /// the stage that takes longest takes: the next step reaches a stage as much later than the first
  /// stage as this one did.
  Time end() {
    for (std::size_t s = 0; s < stages_.size(); ++s) prepare(stages_[s], s);
    for (const Turn& turn : sequence_.turns) run(turn);
    Time last = clock_.start();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      Time end = stages_[s].free;
      if (sends_) end = clock_.later(end, stages_[s].traffic);
      if (blocks_) end = after_all(sequence_.held[s], end, kReductionAfter);
      if (traits_of(sequence_.shape.schedule).flows_on) end = since_first_input(s, end);
      last = clock_.later(last, end);
    }
    return last;
  }

 private:
  /// `traffic`: when the gradients and parameters under way have arrived, if nothing runs from now
  /// on: they advance at full rate while kernels wait and by the overlappable compute of the passes
  /// they run under. `gathers`: the same of each chunk's parameters, in the order in which chunks
  /// are used.
  struct Stage {
    Time free, next_channel, previous_channel, traffic;
    std::vector<Time> gathers;
    std::size_t used = 0;  ///< chunks that had their first pass
    bool reduces = false;  ///< gradients are under way
  };

  /// Parameters are gathered from the beginning, for the chunk that is used first at first.
  void prepare(Stage& stage, std::size_t s) {
    stage.free = stage.next_channel = stage.previous_channel = stage.traffic = clock_.start();
    if (!sends_) return;
    for (const int chunk : sequence_.gather_order[s]) {
      stage.traffic = clock_.add(stage.traffic, chunk, kGathering, 1);
      stage.gathers.push_back(stage.traffic);
    }
    if (blocks_) {
      stage.free = after_all(sequence_.gather_order[s], stage.free, kGatheringBefore);
    }
  }

  /// Without what passes until the first micro-batch reaches a stage of one chunk.
  Time since_first_input(std::size_t s, Time node) {
    for (std::size_t before = 0; before < s; ++before) {
      node = clock_.add(node, sequence_.held[before].front(), kForward, -1);
    }
    return s > 0 ? clock_.hop(node, -static_cast<double>(s)) : node;
  }

  /// After a time of every one of these chunks.
  Time after_all(const std::vector<int>& chunks, Time node, PassTime time) {
    for (const int chunk : chunks) node = clock_.add(node, chunk, time, 1);
    return node;
  }

  void run(const Turn& turn) {
    Stage& stage = stages_[at(turn.stage)];
    Time node = stage.free;
    if (sequence_.shape.transfers_serial && turn.receives) node = clock_.hop(node);
    if (turn.awaited_output != Turn::kNone) {
      node = clock_.later(node, arrivals_[at(turn.awaited_output)]);
    }
    if (turn.awaited_gradient != Turn::kNone) {
      node = clock_.later(node, arrivals_[at(turn.awaited_gradient)]);
    }
    stage.free = sends_ ? run_pass(turn, stage, node) : after_kernels(turn, node);
    send(turn, stage);
  }

  /// Adds the kernels of a slot or, of `kOverlappable` on, a share of what they can hide.
  Time add(const Turn& turn, Time node, std::size_t first, double times) {
    for (const PassTime kernel : kernels_of(turn.pass)) {
      const bool ahead = kernel == kForward || kernel == kPairedForward;
      node = clock_.add(node, ahead ? turn.ahead : turn.behind, first + kernel, times);
    }
    return node;
  }
  Time after_kernels(const Turn& turn, const Time& node) { return add(turn, node, 0, 1); }
  Time less_overlappable(const Turn& turn, const Time& node, double share) {
    return share > 0 ? add(turn, node, kOverlappable, -share) : node;
  }

  double buckets(int chunk) const {
    return std::max(1, sequence_.classes[at(chunk)].total_layers());
  }

  /// The end of a pass that may start at `node`. Its first bucket of parameters must be there, a
  /// bucket a layer; the others and all other traffic advance under its overlappable compute. What
  /// has arrived before the pass starts is never on the longest path.
  Time run_pass(const Turn& turn, Stage& stage, const Time& node) {
    Time end = after_kernels(turn, node);
    if (turn.gather != Turn::kNone) {
      const Time arrives = stage.gathers[stage.used++];
      const double others = 1 - 1 / buckets(turn.ahead);
      end = clock_.later(end, less_overlappable(turn, after_kernels(turn, arrives), others));
      end = clock_.later(end,
                         after_kernels(turn, clock_.add(arrives, turn.ahead, kGathering, -others)));
    }
    const auto advanced = [&](const Time& until) {
      return less_overlappable(turn, after_kernels(turn, until), 1);
    };
    for (std::size_t i = stage.used; i < stage.gathers.size(); ++i) {
      stage.gathers[i] = clock_.later(end, advanced(stage.gathers[i]));
    }
    // Once all are there, nothing is under way until the first gradients are.
    const bool under_way = stage.reduces || stage.used < stage.gathers.size();
    const Time older = under_way ? advanced(stage.traffic) : end;
    stage.traffic = under_way ? clock_.later(end, older) : end;
    if (!turn.last_gradient) return end;
    const double last = 1 / buckets(turn.behind);
    stage.traffic = clock_.later(
        clock_.add(end, turn.behind, kReduction, last),
        less_overlappable(turn, clock_.add(end, turn.behind, kReduction, 1), 1 - last));
    if (under_way) {
      stage.traffic = clock_.later(stage.traffic, clock_.add(older, turn.behind, kReduction, 1));
    }
    stage.reduces = true;
    return end;
  }

  void send(const Turn& turn, Stage& stage) {
    const Time done = stage.free;
    const bool early = turn.pass == Pass::pair && !sequence_.shape.transfers_block;
    const Time ready = early ? clock_.early(done) : done;
    if (turn.output != Turn::kNone) {
      arrivals_[at(turn.output)] =
          turn.output_stays ? done : transfer(stage, turn.output_to_next, ready);
    }
    if (turn.gradient != Turn::kNone) {
      arrivals_[at(turn.gradient)] =
          turn.gradient_stays ? done : transfer(stage, turn.gradient_to_next, ready);
    }
  }

  /// Transfers of one channel follow each other.
  Time transfer(Stage& stage, bool to_next, const Time& ready) {
    Time& channel = to_next ? stage.next_channel : stage.previous_channel;
    channel = clock_.hop(clock_.later(ready, channel));
    if (sequence_.shape.transfers_block) stage.free = clock_.later(stage.free, channel);
    return channel;
  }

  const PassSequence& sequence_;
  Clock& clock_;
  bool sends_, blocks_;
  std::vector<Stage> stages_;
  // NOLINTNEXTLINE(modernize-avoid-c-arrays): a vector would set them all before they are written
  std::unique_ptr<Time[]> arrivals_;  ///< each is written before it is read
};

}  // namespace scalemodel::detail
