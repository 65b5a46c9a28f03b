// A stream of requests through serving instances, step by step: queues, batches, preemptions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

/// One request of a stream.
struct Request {
  Seconds arrival;
  double input = 1, output = 1;  ///< tokens
  bool prefilled = false;        ///< its prompt was computed elsewhere
};

/// What became of it. Times are absolute, in the clock of the arrivals.
struct Served {
  Seconds started;  ///< first step that worked on it
  Seconds first_token;
  Seconds finished;
  std::int32_t preemptions = 0;
  bool refused = false;  ///< longer than the whole cache
};

/// Steps of an instance, and the time between tokens that its sequences saw.
struct StreamTotals {
  double steps = 0;
  double running_s = 0;    ///< integral of running sequences over time
  double in_system_s = 0;  ///< integral of all requests between arrival and end
  double preemptions = 0;
  Seconds busy;  ///< time inside steps
  Seconds makespan;
  Seconds itl_median, itl_p90, itl_p99;

  bool operator==(const StreamTotals&) const = default;
};

template <>
struct RecordOf<StreamTotals> {
  static constexpr std::string_view name = "StreamTotals";
  using T = StreamTotals;
  static constexpr std::tuple fields{
      field("steps", &T::steps, "steps of all instances"),
      field("running_s", &T::running_s, "integral of running sequences over time"),
      field("in_system_s", &T::in_system_s, "integral of requests between arrival and end"),
      field("preemptions", &T::preemptions,
            "preempted sequences: their KV cache blocks were evicted"),
      field("busy_s", &T::busy, "time inside steps, all instances"),
      field("makespan_s", &T::makespan, "from the first arrival to the last token"),
      field("itl_median_s", &T::itl_median, "between tokens, half of them"),
      field("itl_p90_s", &T::itl_p90, "between tokens, nine of ten"),
      field("itl_p99_s", &T::itl_p99, "between tokens, 99 of 100")};
};

/// How requests find their replica. At random, arrivals at each replica stay Poisson where those
/// of the stream are, as the closed form has it; in turn, they are more even.
enum class Balance : std::uint8_t { random, round_robin };

template <>
struct EnumNames<Balance> {
  static constexpr std::string_view what = "balance";
  static constexpr std::array<std::string_view, 2> names{"random", "round_robin"};
};

/// Copies of an instance, and the way requests are spread over them.
struct Replicas {
  int count = 1;
  Balance balance = Balance::random;
  std::uint64_t seed = 0;  ///< of the random choice
};

struct StreamResult {
  std::vector<Served> served;  ///< in the order of the requests
  StreamTotals totals;
};

/// Serves `requests` (ascending arrivals) on `replicas`. Steps are assembled as the engine does:
/// running sequences first, then prompts under way, then waiting requests in order of arrival, as
/// long as tokens, sequences and cache allow. Runs of steps without any prompt are taken together,
/// at their mean context: attention grows in a straight line with it, so that no time is lost.
/// Every sequence gains the mean tokens of a step.
StreamResult simulate_stream(const StepTimes& times, const CacheBlocks& blocks,
                             const CacheCapacity& capacity, const RequestMix& mix,
                             const std::vector<Request>& requests, const Replicas& replicas);

}  // namespace scalemodel
