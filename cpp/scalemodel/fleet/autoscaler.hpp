// How many replicas a fleet should have: the rule of an autoscaler, without the fleet.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// What an autoscaler looks at, of each replica: requests between arrival and end, those of them
/// before their first token, or the share of the KV cache that sequences use.
enum class ScaleSignal : std::uint8_t { requests, queue, kv_cache };

template <>
struct EnumNames<ScaleSignal> {
  static constexpr std::string_view what = "signal";
  static constexpr std::array<std::string_view, 3> names{"requests", "queue", "kv_cache"};
};

/// The rule of Kubernetes' horizontal autoscaler: desired = ceil(sum of the signal/target), none
/// where it is within `tolerance` of what there is, and down only to the most that was desired in
/// the last `down_window`. Source: kubernetes.io, Horizontal Pod Autoscaling, algorithm details.
struct Autoscaler {
  ScaleSignal signal = ScaleSignal::requests;
  double target = 16;    ///< of the signal, per replica
  int min_replicas = 1;  ///< >= 1
  Seconds interval{15};  ///< between two looks
  Seconds startup{60};   ///< from the decision to the first request: weights, graphs, warm-up
  Seconds down_window{300};
  double tolerance = 0.1;  ///< of signal over target, around 1

  bool operator==(const Autoscaler&) const = default;
};

template <>
struct RecordOf<Autoscaler> {
  static constexpr std::string_view name = "Autoscaler";
  using T = Autoscaler;
  static constexpr FieldTable fields{
      field("signal", &T::signal, "what is looked at, of each replica"),
      field("target", &T::target, 1e-3, 1e9, "of the signal, per replica"),
      field("min_replicas", &T::min_replicas, 1, 1e5, "replicas that always run"),
      field("interval_s", &T::interval, 0.1, 1e6, "between two looks"),
      field("startup_s", &T::startup, 0, 1e6, "from the decision to the first request"),
      field("down_window_s", &T::down_window, 0, 1e6,
            "replicas leave only beyond the most desired in this time"),
      field("tolerance", &T::tolerance, 0, 1, "of signal over target, around 1")};
};

/// The rule with what it remembers.
class ScaleRule {
 public:
  explicit ScaleRule(const Autoscaler& settings) : settings_(settings) {}

  /// Replicas wanted at `now`, from `current` (those that start included) and the sum of the
  /// signal over them. Calls are in order of time.
  double desired(Seconds now, double current, double sum);

 private:
  struct Past {
    Seconds time;
    double desired;
  };
  Autoscaler settings_;
  std::deque<Past> window_;  ///< of falling desires: the first is the most
};

}  // namespace scalemodel
