#include "scalemodel/estimator/fit_stack.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace scalemodel {
namespace {

constexpr double kLeastPull = 0.01;  ///< keeps a constant in place that no run can see

Stack with_constants(Stack stack, std::span<const double> constants) {
  stack.gemm_efficiency = constants[0];
  stack.memory_efficiency = constants[1];
  stack.host_launch = Seconds{constants[2]};
  stack.overlap_efficiency = constants[3];
  return stack;
}

Stack stack_of(const MeasuredRun& run, const Stack& start, std::span<const double> constants) {
  Stack stack = with_constants(run.facts.value_or(start), constants);
  if (run.own_launch && run.facts) stack.host_launch = run.facts->host_launch;
  return stack;
}

Seconds predicted_time(const MeasuredRun& run, const Stack& stack) {
  Tables tables(run.model, run.cluster, run.task, stack);
  Estimate estimate;
  for (const Strategy& strategy : run.strategies) {
    tables.tabulate(strategy);
    estimate = evaluate(tables, strategy);
    if (estimate.verdict == Reason::ok) break;
  }
  return estimate.step_time;
}

}  // namespace

StackFit fit_stack(const Stack& start, const std::vector<MeasuredRun>& runs, double pull) {
  const std::array<FreeConstant, 4> constants{
      FreeConstant{.low = 0.5, .high = 1.1, .prior = start.gemm_efficiency},
      FreeConstant{.low = 0.35, .high = 1.1, .prior = start.memory_efficiency},
      FreeConstant{.low = 0, .high = 12e-6, .prior = start.host_launch.base()},
      FreeConstant{.low = 0, .high = 1, .prior = start.overlap_efficiency}};
  double total_weight = 0;
  for (const MeasuredRun& run : runs) total_weight += run.weight;
  const auto residuals = [&](std::span<const double> values, std::span<double> out) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const Stack stack = stack_of(runs[i], start, values);
      const double ratio = predicted_time(runs[i], stack) / runs[i].step_time;
      out[i] = std::sqrt(runs[i].weight / total_weight) * std::log(ratio);
    }
  };
  FitOptions options;
  options.robust_scale = 0.03 / std::sqrt(static_cast<double>(runs.size()));
  options.prior_weight = std::max(kLeastPull, pull / std::sqrt(static_cast<double>(runs.size())));
  const FitResult fit = fit_bounded(residuals, runs.size(), constants, options);
  StackFit result{with_constants(start, fit.values), fit.standard_errors, {}};
  for (const MeasuredRun& run : runs) {
    result.predicted.push_back(predicted_time(run, stack_of(run, start, fit.values)));
  }
  return result;
}

}  // namespace scalemodel
