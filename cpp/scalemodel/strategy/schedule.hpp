// Pipeline schedules, and what the rest of the engine has to know of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scalemodel/base/enum_names.hpp"

namespace scalemodel {

enum class Schedule : std::uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zero_bubble,
  dualpipe,
  zero_bubble_2p,
  zero_bubble_v,
  dualpipe_v
};

template <>
struct EnumNames<Schedule> {
  static constexpr std::string_view what = "pipeline schedule";
  static constexpr std::array<std::string_view, 8> names{
      "gpipe",    "1f1b",           "interleaved",   "zero_bubble",
      "dualpipe", "zero_bubble_2p", "zero_bubble_v", "dualpipe_v"};
};

struct ScheduleTraits {
  bool piles_up = false;         ///< all forward passes come before the first backward pass
  bool splits_backward = false;  ///< input and weight gradients are passes of their own
  bool two_directions = false;   ///< every stage holds a chunk of either direction
  bool v_shape = false;   ///< and here one of the way through the stages and one of the way back
  bool pairs = false;     ///< a forward and a backward pass run under each other
  bool flows_on = false;  ///< a stage starts its next step without waiting for the others
  bool allows_chunks = false, needs_chunks = false;  ///< several virtual stages on a stage
  bool overlaps_transfers = false;                   ///< kernels may run on while their stage sends
};

/// In the order of the enumeration.
inline constexpr std::array<ScheduleTraits, EnumNames<Schedule>::names.size()> kScheduleTraits{{
    {.piles_up = true},
    {.allows_chunks = true},
    {.allows_chunks = true, .needs_chunks = true, .overlaps_transfers = true},
    {.splits_backward = true, .overlaps_transfers = true},
    {.splits_backward = true, .two_directions = true, .pairs = true, .overlaps_transfers = true},
    {.splits_backward = true, .flows_on = true, .overlaps_transfers = true},
    {.splits_backward = true, .v_shape = true, .overlaps_transfers = true},
    {.splits_backward = true, .v_shape = true, .pairs = true, .overlaps_transfers = true},
}};

constexpr const ScheduleTraits& traits_of(Schedule schedule) {
  return kScheduleTraits[static_cast<std::size_t>(schedule)];
}

/// How the chunks of layers, in the order a micro-batch passes them, go to stages: round by round,
/// in either direction, each on two stages, or there and back, so that the first and the last are
/// on one stage.
enum class ChunkPlacement : std::uint8_t { rounds, both_ways, there_and_back };

constexpr ChunkPlacement chunk_placement(Schedule schedule) {
  const ScheduleTraits& traits = traits_of(schedule);
  if (traits.two_directions) return ChunkPlacement::both_ways;
  return traits.v_shape ? ChunkPlacement::there_and_back : ChunkPlacement::rounds;
}

/// Virtual stages of a stage: two by themselves where the layers go there and back.
constexpr int virtual_stages(Schedule schedule, int pp, int vpp) {
  return traits_of(schedule).v_shape && pp > 1 && vpp == 1 ? 2 : vpp;
}

/// Chunks of layers that a stage holds; `vpp`: its virtual stages.
constexpr int chunks_per_stage(Schedule schedule, int vpp) {
  return traits_of(schedule).two_directions ? 2 : vpp;
}

/// The schedule that runs: interleaving turns 1F1B into its interleaved form.
constexpr Schedule effective_schedule(Schedule schedule, int vpp) {
  return schedule == Schedule::one_f_one_b && vpp > 1 ? Schedule::interleaved : schedule;
}

/// The same of a pipeline: one stage alone has no order of stages.
constexpr Schedule running_schedule(Schedule schedule, int pp, int vpp) {
  return pp == 1 ? Schedule::one_f_one_b : effective_schedule(schedule, vpp);
}

/// The same as it is written: 1F1B with virtual stages means the interleaved form.
constexpr Schedule written_schedule(Schedule schedule) {
  return schedule == Schedule::interleaved ? Schedule::one_f_one_b : schedule;
}

}  // namespace scalemodel
