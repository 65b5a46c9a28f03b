// Event-driven simulation of one training step on one representative rank per pipeline stage.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/schedule/orders.hpp"
#include "scalemodel/timeline/step_costs.hpp"

namespace scalemodel {

/// Order of gradient traffic. `fifo`: as the backward pass makes it, all before the update.
/// `by_need`: what the next forward pass needs first goes first, the rest hides under that pass
/// too (TicTac, arXiv 1803.03288; P3, arXiv 1905.03960). It needs updates layer by layer, without
/// a norm over all gradients.
enum class Priority : std::uint8_t { fifo, by_need };

template <>
struct EnumNames<Priority> {
  static constexpr std::string_view what = "communication priority";
  static constexpr std::array<std::string_view, 2> names{"fifo", "by_need"};
};

struct TimelineOptions {
  Priority priority = Priority::fifo;
  int slices = 1;                   ///< buckets of gradients and parameters per layer
  double gradient_compression = 1;  ///< bytes of a reduced gradient over those of a plain one
  bool contention = true;           ///< hidden communication slows compute down

  bool operator==(const TimelineOptions&) const = default;
};

template <>
struct RecordOf<TimelineOptions> {
  static constexpr std::string_view name = "TimelineOptions";
  using T = TimelineOptions;
  static constexpr FieldTable fields{
      field("priority", &T::priority, "order of gradient traffic"),
      field("slices", &T::slices, 1, 1024, "buckets of gradients and parameters per layer"),
      field("gradient_compression", &T::gradient_compression, 1e-4, 1,
            "bytes of a reduced gradient over those of a plain one"),
      field("contention", &T::contention, "hidden communication slows compute down")};
};

/// What a pass waited for last.
enum class Wait : std::uint8_t {
  none,         ///< the step begins with it
  order,        ///< the pass before it on the same stage, and what that one sent
  activations,  ///< its input from another stage
  gradient      ///< the gradient of its output from another stage
};

/// A slot of a stage's order in time. From `start` on: kernels, slowed by what runs underneath,
/// then the communication they wait for. From `ready` to `start` it waits for parameters.
struct PassEvent {
  PassSlot slot;
  std::int32_t stage = 0;
  std::int32_t before = -1;  ///< the pass it waited for, as an index into Timeline::passes
  Wait wait = Wait::none;
  Seconds ready, start, end;
  Seconds compute;  ///< kernels, slowdown included
  Seconds stall;    ///< of the pass, waiting for parameters after its first layer
};

/// A boundary on its way to a neighbouring stage.
struct TransferEvent {
  std::int32_t from = 0, to = 0;
  bool gradient = false;
  bool to_next = true;
  ChunkBatch at;  ///< of the sender
  Seconds start, end;
};

/// Traffic of parameters or gradients outside the passes, from its first to its last byte.
struct TrafficEvent {
  std::int32_t stage = 0, chunk = 0;
  bool reduce = false;
  bool carried = false;  ///< left over from the step before
  Seconds start, end;
  Bytes bytes;
};

struct Timeline {
  StepCosts costs;
  TimelineOptions options;
  std::vector<double> slowdown;          ///< of each stage's kernels
  std::vector<PassEvent> passes;         ///< by stage, then in time
  std::vector<std::int32_t> first_pass;  ///< of each stage, and the number of passes
  std::vector<TransferEvent> transfers;
  std::vector<TrafficEvent> traffic;
  std::vector<Seconds> stage_end;  ///< passes, traffic and decoding done
  Seconds update;                  ///< all stages done: the optimizer starts
  Seconds overhead;                ///< all updates done: the fixed end of a step starts
  Seconds step_time;
  /// From the start of a step to that of the next one: less than a step where no stage waits for
  /// the others at its end, and else the same.
  Seconds period;
};

/// Most passes a timeline may hold.
inline constexpr double kMaxPasses = 4e6;

/// Runs the step. One sweep in order of dependencies: each stage works off its fixed order, a pass
/// starts when the stage is free and its input has arrived.
///
/// Gradient and parameter traffic advances at full rate while kernels wait and, underneath
/// kernels, by the overlap efficiency; each second hidden slows them by the overlap slowdown.
/// Precondition: `slowdown` is empty or has one factor > 0 per stage.
Timeline simulate(StepCosts costs, const TimelineOptions& options, std::vector<double> slowdown);

}  // namespace scalemodel
