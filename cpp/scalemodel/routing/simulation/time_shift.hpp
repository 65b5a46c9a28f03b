// Shifts in time that interleave the communication of jobs on shared links.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {

struct TimeShifts {
  std::vector<double> shift;         ///< by job, seconds after the start of the schedule
  std::vector<double> period, busy;  ///< by job, seconds: of an epoch; of its collective
  double slot = 0;                   ///< seconds
  std::int32_t slots = 0;            ///< slots of the unified circle that all periods divide
  double period_error = 0;           ///< largest relative change of a period rounded to slots
  /// Compatibility without and with the shifts, <= 1; 1: no link is ever overloaded.
  double score_before = 1, score = 1;
};

/// Shifts of periodic jobs on given paths. A job uses its links at its isolated rate during its
/// collective and not at all while it computes. On a unified circle, whose perimeter is a common
/// multiple of the periods, a shift is a rotation of a job. The rotations minimise the excess
///
///     sum over links and slots of max(0, sum over jobs of demand - capacity)
///
/// by coordinate descent: each job in turn takes its best rotation, from no rotations and from
/// random ones, until none lowers the excess. Every rotation of a job is evaluated, so the result
/// is optimal for two jobs. The score is one less the mean of the excess over the capacity of the
/// links that several jobs share. Periods are rounded to slots; the number of slots in the shortest
/// period, from 8 to `finest`, is the one with the smallest error among circles of at most 1,024
/// slots. Source: CASSINI (NSDI 2024, arXiv 2308.00852), which rotates the jobs link by link and
/// combines links whose affinity graph has no loop; this function counts all links together.
///
/// Shifts of jobs with equal periods persist; those of incommensurable periods drift apart.
TimeShifts time_shifts(const RoutingInstance& instance, const Routing& routing,
                       std::span<const JobSchedule> schedules, int finest, std::uint64_t seed);

}  // namespace scalemodel
