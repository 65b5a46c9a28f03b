// A stream of requests through serving instances, step by step: queues, batches, preemptions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/serving/capacity.hpp"
#include "scalemodel/serving/replica.hpp"
#include "scalemodel/serving/steady_state.hpp"
#include "scalemodel/serving/step_times.hpp"

namespace scalemodel {

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

/// Latency of each request on an instance that serves it alone. `uncached`: prompt tokens that are
/// computed, of each; empty: as the mix says.
std::vector<Seconds> latencies_alone(const ReplicaSetup& setup, std::span<const Request> requests,
                                     std::span<const double> uncached = {});

/// What a prefix in a tier saves the first request after it.
struct PrefixTimes {
  Seconds load;     ///< from an idle tier
  Seconds compute;  ///< of the prefix, of a prompt with `suffix` tokens behind it
  Seconds exposed;  ///< of the load, where layers are computed as they come: what the suffix leaves

  bool operator==(const PrefixTimes&) const = default;
};

template <>
struct RecordOf<PrefixTimes> {
  static constexpr std::string_view name = "PrefixTimes";
  using T = PrefixTimes;
  static constexpr FieldTable fields{field("load_s", &T::load, "from an idle tier"),
                                     field("compute_s", &T::compute, "of the prefix instead"),
                                     field("exposed_s", &T::exposed, "of the load")};
};

PrefixTimes prefix_times(const ReplicaSetup& setup, const CacheTier& tier, double prefix,
                         double suffix);

}  // namespace scalemodel
