#include "scalemodel/search/simulated.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/estimator/step_timeline.hpp"

namespace scalemodel {
namespace {

/// Passes of one step and of all steps together: a pass takes about 0.1 us.
constexpr double kMaxPassesOfOne = 2e5, kMaxPassesOfAll = 2e6;

double passes_of(const Strategy& strategy, const Degrees& degrees) {
  const double chunks = chunks_per_stage(strategy.schedule, degrees.vpp);
  return 3 * degrees.pp * chunks * degrees.micro_batches;
}

}  // namespace

std::vector<Simulated> simulate_best(Tables& tables, std::span<const Strategy> strategies,
                                     const Objective& objective) {
  std::vector<Simulated> answers;
  answers.reserve(strategies.size());
  std::vector<double> simulated_scores;
  double left = kMaxPassesOfAll;
  bool agree = true;
  for (const Strategy& strategy : strategies) {
    tables.tabulate(strategy);
    const Estimate closed = evaluate(tables, strategy);
    Simulated& answer = answers.emplace_back();
    answer.score = simulated_scores.emplace_back(objective.score(closed));
    const double passes =
        passes_of(strategy, resolve_degrees(strategy, tables.cluster(), tables.task()));
    if (passes > std::min(kMaxPassesOfOne, left)) continue;
    left -= passes;
    answer.step_time = step_timeline(tables, strategy, {}).period;
    agree = agree && std::abs(answer.step_time / closed.step_time - 1) <= kAgreement;
    simulated_scores.back() =
        objective.score(at_step_time(tables, strategy, closed, answer.step_time));
  }
  if (agree) return answers;
  for (std::size_t i = 0; i < answers.size(); ++i) answers[i].score = simulated_scores[i];
  return answers;
}

}  // namespace scalemodel
