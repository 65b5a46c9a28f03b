#include "scalemodel/routing/exact/exhaustive.hpp"

#include <algorithm>
#include <vector>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/routing/rates/job_objective.hpp"

namespace scalemodel {

std::int64_t count_routings(const RoutingInstance& instance, std::int64_t limit) {
  std::int64_t count = 1;
  for (std::size_t f = 0; f < instance.size() && count <= limit; ++f) {
    count *= std::max(instance.paths_of(f), 1);
  }
  return std::min(count, limit + 1);
}

std::optional<Choice> exhaustive(const RoutingInstance& instance, RateModel model,
                                 std::int64_t limit, Seconds longest) {
  if (count_routings(instance, limit) > limit) return std::nullopt;
  Choice choice(instance.size(), PathSets::kNone);
  for (std::size_t f = 0; f < choice.size(); ++f) {
    if (instance.paths_of(f) > 0) choice[f] = 0;
  }
  JobObjective objective(instance, model);
  Choice best = choice;
  std::vector<double> best_values;
  Seconds least;
  bool found = false;
  for (bool more = true; more;) {
    poll_point(8);
    const auto values = objective.sorted_values(choice);
    const auto order = found ? compare_sorted(values, best_values) : std::weak_ordering::greater;
    if (order >= 0) {
      const Seconds drain = fabric_load(instance, single_path(choice)).drain;
      if (drain <= longest && (order > 0 || drain < least)) {
        best_values.assign(values.begin(), values.end());
        best = choice;
        least = drain;
        found = true;
      }
    }
    more = false;  // the next routing: a counter in which the last flow changes fastest
    for (std::size_t f = choice.size(); f-- > 0 && !more;) {
      if (instance.paths_of(f) == 0) continue;
      more = ++choice[f] < instance.paths_of(f);
      if (!more) choice[f] = 0;
    }
  }
  return best;
}

}  // namespace scalemodel
