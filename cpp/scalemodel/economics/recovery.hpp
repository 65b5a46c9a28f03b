// After a loss of nodes: the work that each way to go on has done by a time, and which is ahead.
#pragma once

#include <algorithm>
#include <array>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/economics/reliability.hpp"

namespace scalemodel {

/// One way to go on after a loss. Work is counted in seconds of the job as it was before.
struct Recovery {
  double rate_fraction = 0;  ///< tokens per second until the repair, over those before the loss
  Seconds begins;            ///< from the loss to the first step; detection, restart, reload
  Seconds repeated;          ///< work lost with the state
  Seconds returns;           ///< standstill to take the repaired nodes in again

  bool operator==(const Recovery&) const = default;
};

/// To read a state from storage: bytes over what the nodes that read, or the storage, deliver. Each
/// byte is read once; a faster network spreads it among the ranks that hold copies. `shared` is
/// that of the storage as a whole, 0 for one that any number of nodes does not exhaust.
constexpr Seconds reload_time(Bytes state, double nodes, BytesPerSecond of_node,
                              BytesPerSecond shared) {
  const BytesPerSecond read = nodes * of_node;
  return state / (shared > BytesPerSecond{} ? min(read, shared) : read);
}

/// The job waits for the repair and starts again, reading its state for `reload`.
constexpr Recovery waiting(const FailingJob& job, Seconds repeated, Seconds reload) {
  return {0, {}, repeated, job.restart + reload};
}

/// The whole job starts again at a rate, reading its state for `reload`; and once more when the
/// nodes are back, after a last checkpoint, for `reload_whole`.
constexpr Recovery restarting(const FailingJob& job, double rate_fraction, Seconds repeated,
                              Seconds reload, Seconds reload_whole) {
  return {rate_fraction, job.restart + reload, repeated, job.write + job.restart + reload_whole};
}

/// Replicas that kept the state go on after a stall and lose one step; a replica that comes back
/// costs them another. Source: a step is committed or repeated as a whole, the state of a replica
/// that comes back is copied beside the training of the others (torchft/manager.py).
constexpr Recovery without_replicas(double rate_fraction, Seconds stall, Seconds step) {
  return {rate_fraction, stall, step, step};
}

/// The same while spares take the places of lost nodes: the lost replicas, `lost_fraction` of all,
/// are away for a restart and copy the state of a peer for `reload`. Their work counts as repeated.
constexpr Recovery replicas_on_spares(const FailingJob& job, double lost_fraction, Seconds stall,
                                      Seconds step, Seconds reload) {
  const Seconds away = max(Seconds{}, job.restart + reload - stall);
  return {1, stall, step + lost_fraction * away, {}};
}

/// When the job has its nodes again and trains as before, should it take them in.
constexpr Seconds whole_again(const Recovery& way, Seconds repair) {
  return max(repair, way.begins) + way.returns;
}

/// Work done by `time` after the loss, less what is repeated: at its own rate until the repair, at
/// the former one after the return; or at its own to the end where that does more.
///
///     w(t) = max(f (min(t, r) - b)+ + (t - max(r, b) - u)+,  f (t - b)+) - lost
///
/// with rate f, begin b, return u and repair time r.
constexpr Seconds work_done(const Recovery& way, Seconds repair, Seconds time) {
  const Seconds none;
  const Seconds own = way.rate_fraction * max(none, min(time, repair) - way.begins);
  const Seconds former = max(none, time - whole_again(way, repair));
  const Seconds stayed = way.rate_fraction * max(none, time - way.begins);
  return max(own + former, stayed) - way.repeated;
}

/// Repair time from which on `way` has done more than `other` once the job is whole again; 0 where
/// it always has, infinite where it never has:
///
///     lost(r) = b + (r - b)(1 - f) + u + repeated,   r >= b
inline Seconds break_even_repair(const Recovery& way, const Recovery& other) {
  const auto fixed = [](const Recovery& w) {
    return w.rate_fraction * w.begins + w.returns + w.repeated;
  };
  const double faster = way.rate_fraction - other.rate_fraction;
  const Seconds behind = fixed(way) - fixed(other);
  if (faster > 0) return max(Seconds{}, behind / faster);
  return behind < Seconds{} ? Seconds{} : Seconds{kInfinity};
}

/// First time by `horizon` at which `way` has done more than `other` after it had done less, or
/// from the loss on where it is ahead at once; infinite where it is not ahead by then.
inline Seconds overtakes_at(const Recovery& way, const Recovery& other, Seconds repair,
                            Seconds horizon) {
  // Work is linear between these times.
  std::array<Seconds, 10> times{Seconds{}, repair, horizon};
  std::size_t count = 3;
  for (const Recovery& w : {way, other}) {
    const Seconds whole = whole_again(w, repair);
    times[count++] = w.begins;
    times[count++] = whole;
    // The former rate makes up for the standstill of the return.
    const double slower = 1 - w.rate_fraction;
    times[count++] =
        slower > 0 ? (whole - w.rate_fraction * max(repair, w.begins)) / slower : horizon;
  }
  for (Seconds& time : times) time = min(max(time, Seconds{}), horizon);
  std::sort(times.begin(), times.end());
  const auto lead = [&](Seconds time) {
    return work_done(way, repair, time) - work_done(other, repair, time);
  };
  Seconds from, before = lead(from);
  if (before > Seconds{}) return from;
  for (const Seconds to : times) {
    const Seconds after = lead(to);
    if (after > Seconds{}) return from + (before / (before - after)) * (to - from);
    from = to;
    before = after;
  }
  return Seconds{kInfinity};
}

template <>
struct RecordOf<Recovery> {
  static constexpr std::string_view name = "Recovery";
  using T = Recovery;
  static constexpr FieldTable fields{
      field("rate_fraction", &T::rate_fraction, 0, 1e3, "until the repair, over the rate before"),
      field("begins_s", &T::begins, 0, 1e12, "from the loss to the first step"),
      field("repeated_s", &T::repeated, 0, 1e12, "work lost with the state"),
      field("returns_s", &T::returns, 0, 1e12, "standstill to take repaired nodes in again")};
};

}  // namespace scalemodel
