// A timeline as tables: what ran when on which stream, what memory held when, and why the step took
// as long as it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/timeline/timeline.hpp"

namespace scalemodel {

enum class Activity : std::uint8_t {
  forward,
  recompute,
  backward,
  input_gradient,
  weight_gradient,
  tensor_parallel,
  context_parallel,
  expert_parallel,
  gather_parameters,
  reduce_gradients,
  send_activations,
  receive_activations,
  send_gradients,
  receive_gradients,
  offload,
  decode_gradients,
  optimizer,
  optimizer_transfer,
  overhead,
  wait
};

template <>
struct EnumNames<Activity> {
  static constexpr std::string_view what = "activity";
  static constexpr std::array<std::string_view, 20> names{
      "forward",           "recompute",          "backward",         "input_gradient",
      "weight_gradient",   "tensor_parallel",    "context_parallel", "expert_parallel",
      "gather_parameters", "reduce_gradients",   "send_activations", "receive_activations",
      "send_gradients",    "receive_gradients",  "offload",          "decode_gradients",
      "optimizer",         "optimizer_transfer", "overhead",         "wait"};
};

/// One bar on one stream of one rank. `micro_batch` and `chunk` are -1 where they mean nothing.
struct Event {
  std::int32_t rank = 0;
  Stream stream = Stream::compute;
  Activity activity = Activity::forward;
  std::int32_t chunk = -1, micro_batch = -1;
  Seconds start, duration;
  Bytes bytes;
};

/// Every event, by rank and stream, then in time; those of one stream never overlap. Kernels of a
/// pass come first, what they wait for after them; a stream's event ends where its exposed part
/// does and begins, hidden, under the kernels.
std::vector<Event> events(const Timeline& timeline);

/// Place of the first of `events` on each stream of each rank, by rank, and the number of all.
std::vector<std::size_t> event_places(const Timeline& timeline);

/// Memory for a value of every event in each column.
struct EventColumns {
  std::int32_t* rank = nullptr;
  std::int8_t *stream = nullptr, *activity = nullptr;
  std::int32_t *chunk = nullptr, *micro_batch = nullptr;
  double *start = nullptr, *duration = nullptr, *bytes = nullptr;  ///< seconds and bytes
};

/// Writes `events` column by column, so that millions of them stand in memory once. `places` are
/// those of the same timeline.
void write_events(const Timeline& timeline, const std::vector<std::size_t>& places,
                  const EventColumns& columns);

/// The same of events made already.
void write_records(const std::vector<Event>& events, const EventColumns& columns);

/// The chain of events that makes the step as long as it is, in time: each starts where the one
/// before it ends, and their durations sum to the step time.
std::vector<Event> critical_path(const Timeline& timeline);

/// What a rank holds from `time` on.
struct MemorySample {
  std::int32_t rank = 0;
  Seconds time;
  MemoryKinds allocated;
};

/// One sample per change, by rank, then in time; the last one is the resident level.
std::vector<MemorySample> memory_profile(const Timeline& timeline);

}  // namespace scalemodel
