// The two-layer objective of many routings of one instance, without allocations per routing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {

/// Evaluates choices of one path per flow over the links that some path of some flow uses.
class JobObjective {
 public:
  JobObjective(const RoutingInstance& instance, RateModel model);

  /// Sorted job values (steps per second, smallest first) of a choice; valid until the next call.
  std::span<double> sorted_values(std::span<const std::int32_t> choice);

 private:
  void set_flow_links(std::span<const std::int32_t> choice);
  void set_job_links();

  const RoutingInstance& instance_;
  RateModel model_;
  std::vector<std::int32_t> dense_;  ///< by link of the fabric: its number here, or kNone
  std::vector<double> capacity_;
  std::vector<std::int32_t> by_job_;  ///< flows, job by job
  Incidence flows_, jobs_;
  std::vector<double> rates_, values_, bytes_;
  WaterFilling filling_;
};

}  // namespace scalemodel
