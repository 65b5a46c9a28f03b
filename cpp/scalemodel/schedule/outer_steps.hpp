// Islands that train apart and meet every few steps.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/collectives/textbook.hpp"

namespace scalemodel {

/// Local updates with an outer optimizer. Each island takes `inner_steps` steps of its own, then
/// the differences of its parameters are averaged over all islands. Source: Douillard et al.,
/// DiLoCo, arXiv 2311.08105. In `fragments` that take turns, each of them while `overlap_steps`
/// inner steps go on: Streaming DiLoCo, arXiv 2501.18512.
struct OuterSteps {
  int islands = 2;
  int inner_steps = 100;
  int fragments = 1;
  int overlap_steps = 0;
  double value_bytes = 4;    ///< of a difference on the wire
  BytesPerSecond bandwidth;  ///< of an island to the others, one direction
  Seconds latency;

  bool operator==(const OuterSteps&) const = default;
};

template <>
struct RecordOf<OuterSteps> {
  static constexpr std::string_view name = "OuterSteps";
  using T = OuterSteps;
  static constexpr FieldTable fields{
      field("islands", &T::islands, 1, 1e6, "that train apart"),
      field("inner_steps", &T::inner_steps, 1, 1e9, "of an island between two meetings"),
      field("fragments", &T::fragments, 1, 1e5, "of the parameters, that take turns"),
      field("overlap_steps", &T::overlap_steps, 0, 1e9, "inner steps during an exchange"),
      field("value_bytes", &T::value_bytes, 0.25, 8, "of a difference on the wire"),
      field("bandwidth_bytes_per_s", &T::bandwidth, 1, 1e15, "of an island, one direction"),
      field("latency_s", &T::latency, 0, 10, "between islands")};
};

/// Exchange of one fragment: a ring all-reduce over islands.
constexpr Seconds fragment_time(const OuterSteps& outer, double parameters) {
  const Bytes size{outer.value_bytes * parameters / outer.fragments};
  return textbook_time(TextbookAlgorithm::ring_all_reduce, size, outer.islands,
                       {outer.latency, outer.bandwidth});
}

/// Time of a round of `inner_steps` steps: those, and what of every exchange outlasts the steps
/// that go on beneath it.
constexpr Seconds round_time(const OuterSteps& outer, double parameters, Seconds inner_step) {
  const Seconds exposed =
      max(Seconds{0}, fragment_time(outer, parameters) - outer.overlap_steps * inner_step);
  return outer.inner_steps * inner_step + outer.fragments * exposed;
}

struct OuterRound {
  Seconds exchange, round;  ///< of a fragment; from meeting to meeting
  Seconds step;             ///< with its share of the exchange
  double tokens_per_s = 0;  ///< of all islands
};

constexpr OuterRound outer_round(const OuterSteps& outer, double parameters, Seconds inner_step,
                                 double tokens_per_s) {
  const Seconds round = round_time(outer, parameters, inner_step);
  const double share = outer.inner_steps * inner_step / round;
  return {fragment_time(outer, parameters), round, round / outer.inner_steps,
          outer.islands * share * tokens_per_s};
}

/// Memory of an accelerator beside that of its steps: the parameters of the last meeting and the
/// momentum of the outer optimizer, FP32 both, sharded over the island.
constexpr Bytes outer_state_bytes(double parameters, int accelerators) {
  return Bytes{8 * parameters / accelerators};
}

}  // namespace scalemodel
