// When jobs that share links should communicate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {

struct TimeShifts {
  std::vector<double> shift;           ///< by job, seconds after the start of the schedule
  std::vector<double> period, busy;    ///< by job, seconds: of its repetition; of its collective
  double slot = 0;                     ///< seconds
  std::int32_t slots = 0;              ///< of the circle that all periods divide
  double period_error = 0;             ///< largest relative change of a period rounded to slots
  double score_before = 1, score = 1;  ///< without and with the shifts; 1: nobody disturbs anybody
};

/// Shifts of periodic jobs on given paths. A job alone occupies its links at its own pace during
/// its collective and leaves them idle while it computes; rolled around a circle whose perimeter
/// is a common multiple of the periods, the jobs of a link turn against each other. Chosen are the
/// turns with the least
///
///     sum over links and slots of max(0, sum over jobs of demand - capacity)
///
/// by turning one job at a time to its best, from no turns and from random ones, until none helps;
/// all turns are tried, so that two jobs get the best there is. The score is one less the mean of
/// that excess over the capacity of the links that several jobs share. Periods are rounded to
/// slots, between 8 and `finest` in the shortest one, whichever gives the smallest error of a
/// circle of at most 1,024 slots. Source: CASSINI (NSDI 2024, arXiv 2308.00852), which turns the
/// jobs link by link and joins links where their graph has no loop; here all links count at once.
///
/// Shifts of equal periods last; those of periods that do not fit each other drift apart.
TimeShifts time_shifts(const RoutingInstance& instance, const Routing& routing,
                       std::span<const JobSchedule> schedules, int finest, std::uint64_t seed);

}  // namespace scalemodel
