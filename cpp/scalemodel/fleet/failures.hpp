// What goes wrong in a fleet, and what it turns away: failures, outages, start-up, shed requests.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// How a replica comes up: a place is found, its weights are read, graphs are captured.
struct StartUp {
  Seconds schedule;        ///< a machine, its image, the process
  BytesPerSecond read{1};  ///< of weights, by all ranks of a replica together
  Seconds warm_up;         ///< CUDA graphs, tuning, the first requests

  bool operator==(const StartUp&) const = default;
};

template <>
struct RecordOf<StartUp> {
  static constexpr std::string_view name = "StartUp";
  using T = StartUp;
  static constexpr FieldTable fields{
      field("schedule_s", &T::schedule, 0, 1e6, "until its process runs"),
      field("read_bytes_per_s", &T::read, 1, 1e18, "of weights, by all ranks of a replica"),
      field("warm_up_s", &T::warm_up, 0, 1e6, "graphs, tuning, the first requests")};
};

/// schedule + weights/bandwidth + warm-up.
constexpr Seconds startup_time(const StartUp& start, Bytes weights) {
  return start.schedule + weights / start.read + start.warm_up;
}

/// Replicas fail at random, independently, and come back with empty caches. A request that was on
/// one is sent to another, from its first token on, as a client or a router does that has seen the
/// connection break.
struct Failures {
  Seconds mtbf;         ///< mean time between failures of a replica; 0: none fails by itself
  Seconds restart{60};  ///< from the failure to the first request
  // NOLINTNEXTLINE(readability-redundant-member-init): one that is named may be left out
  Seconds retry_delay{};  ///< until a lost request is sent again
  int max_retries = 3;    ///< then it is lost

  bool operator==(const Failures&) const = default;
};

template <>
struct RecordOf<Failures> {
  static constexpr std::string_view name = "Failures";
  using T = Failures;
  static constexpr FieldTable fields{
      field("mtbf_s", &T::mtbf, 0, 1e12, "mean time between failures of a replica; 0: none"),
      field("restart_s", &T::restart, 0, 1e9, "from the failure to the first request"),
      field("retry_delay_s", &T::retry_delay, 0, 1e6, "until a lost request is sent again"),
      field("max_retries", &T::max_retries, 0, 255, "of a request; then it is lost")};
};

/// An outage that ends then does not end.
inline constexpr Seconds kNever{1e12};

/// Replicas that are down for a time, such as those of a rack; they come back after a restart, or
/// never. Requests that no replica is left for are lost.
struct Outage {
  Seconds begin, end;
  int first = 0, count = 1;  ///< places among the replicas of the fleet

  bool operator==(const Outage&) const = default;
};

template <>
struct RecordOf<Outage> {
  static constexpr std::string_view name = "Outage";
  using T = Outage;
  static constexpr FieldTable fields{
      field("begin_s", &T::begin, 0, 1e9, "in the clock of the arrivals"),
      field("end_s", &T::end, 0, kNever.base(), "when restarts begin; 1e12: never"),
      field("first", &T::first, 0, 1e5, "the first of the replicas that are down"),
      field("count", &T::count, 1, 1e5, "of these replicas")};
};

/// A request that comes while more than `queue` wait per replica, of a priority number of at least
/// `priority`, is turned away. Source: Gateway API inference extension, saturation detector (queue
/// depth threshold 5) and sheddable requests.
struct Shedding {
  double queue = 5;  ///< requests before their first token, mean over the replicas online
  std::int32_t priority = 0;

  bool operator==(const Shedding&) const = default;
};

template <>
struct RecordOf<Shedding> {
  static constexpr std::string_view name = "Shedding";
  using T = Shedding;
  static constexpr FieldTable fields{
      field("queue", &T::queue, 0, 1e9, "waiting requests of a replica, on average"),
      field("priority", &T::priority, -1e9, 1e9, "the least number that may be turned away")};
};

}  // namespace scalemodel
