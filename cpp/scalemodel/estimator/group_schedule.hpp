// The schedule of a step of layer groups: one compute stream, collectives on one queue or two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "scalemodel/costs/group_tables.hpp"

namespace scalemodel {

/// What compute waits for.
enum class WaitCause : std::uint8_t { tp, cp, ep, dp, exchange, reshard };
inline constexpr std::size_t kWaitCauses = 6;

/// Time that compute waited, by cause.
using Waits = std::array<Seconds, kWaitCauses>;

/// Moments of a pass. Plain members: a loop over units keeps them in registers.
struct GroupClocks {
  Seconds compute, queue0, queue1;  ///< queue0: the only one, or that of the scale-up domain
  Seconds last, before_last;        ///< ends of the last two units' compute
  Seconds done;                     ///< when the output of the last unit is whole
  Seconds gathered;                 ///< when the parameters of the next unit are there
  WaitCause done_cause = WaitCause::dp, cause0 = WaitCause::dp, cause1 = WaitCause::dp;
  Waits* waits = nullptr;  ///< not copied with the clocks
};

/// How the transfers of a pass are issued, and which take part.
struct GroupOrder {
  bool one_queue = false;
  bool recompute = false;
  Prefetch prefetch = Prefetch::one;
  bool last_pass = true;  ///< of the micro-batches of a step
  bool one_bucket = false;
  Parts forward = 0, backward = 0;  ///< of units
  Parts ahead = 0;                  ///< of the next unit, before this unit's gradients

  bool operator==(const GroupOrder&) const = default;
};

GroupOrder order_of(const GroupStrategy& strategy, bool last_pass);

/// The forward passes of a strategy, group by group: what the next strategy shares with it up to
/// some group need not run again.
struct ForwardPass {
  struct Output {
    Seconds time;
    WaitCause cause = WaitCause::dp;
  };
  std::array<GroupClocks, kMaxGroups> clocks;  ///< behind each group
  std::array<Waits, kMaxGroups> waits;
  std::array<Output, kMaxGroups> outputs;  ///< when the output of each group is there
};

/// One micro-batch.
struct GroupPass {
  Seconds time, forward;  ///< of the whole; of its forward pass
  Waits waits{};
};

using GroupCosts = std::array<const GroupCost*, kMaxGroups>;

/// Completes `kept`, of which the groups before `from` are those of the costs. What compute waits
/// in the forward pass, its end left out.
Seconds run_forward_pass(const GroupTables& tables, const GroupCosts& costs,
                         const GroupOrder& order, std::size_t from, ForwardPass& kept) noexcept;

/// Runs a pass of all groups; `learns`: a backward pass follows. Given `kept`, the forward passes
/// of the groups before `from` are taken from it, and it is completed.
GroupPass run_pass(const GroupTables& tables, const GroupCosts& costs, const GroupOrder& order,
                   bool learns, std::size_t from = 0, ForwardPass* kept = nullptr) noexcept;

}  // namespace scalemodel
