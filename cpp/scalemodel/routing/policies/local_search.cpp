#include "scalemodel/routing/policies/local_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/routing/exact/belief_propagation.hpp"
#include "scalemodel/routing/exact/exact_packing.hpp"
#include "scalemodel/routing/exact/exhaustive.hpp"
#include "scalemodel/routing/exact/few_sizes.hpp"
#include "scalemodel/routing/exact/plane_extraction.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/plane_annealing.hpp"
#include "scalemodel/routing/rates/completion.hpp"
#include "scalemodel/routing/rates/drain_state.hpp"
#include "scalemodel/routing/rates/job_objective.hpp"

namespace scalemodel {
namespace {

/// Work of a budget of one: flows times moves of layer 1, flows times evaluations of layer 2.
constexpr double kMovesPerBudget = 7.5e6, kFlowsPerBudget = 150'000;
/// On two tiers: moves of single flows in a budget of one; shares of the budget for the deduction
/// of sets and for their assignment to spines. Annealing of single flows takes the rest.
constexpr double kPlaneMovesPerBudget = 450'000, kDeductionShare = 0.3, kAssignmentShare = 0.5;
constexpr double kLeastAnnealing = 0.3;  ///< share of the budget, whatever the deduction took
/// Annealing runs: one run in a hundred ends far from the others.
constexpr int kRuns = 2;
/// Drain time over the bound above which few sizes are worth belief propagation, and the share of
/// a budget of one that it has. All that a larger budget adds is its own where sizes are few:
/// annealing and packing of single links gain nothing more there.
constexpr double kNearBound = 1.05, kSooner = 1e-6, kBeliefShare = 0.2;
/// Limits of exhaustive search: routings, and routings times flows.
constexpr std::int64_t kMaxExhaustiveRoutings = 4096, kMaxExhaustiveFlows = 100'000;
/// Drain time over the shortest one that job values may cost: what the bounds leave open.
constexpr double kLongerDrain = 1.03;
/// Moves without gain, per movable flow, before the search restarts from the best choice.
constexpr std::size_t kPatiencePerFlow = 16;
/// One in this many decreases of job values is accepted, to leave local optima.
constexpr std::int32_t kDecreaseOdds = 32;

/// Flows that share an end switch, as partners of exchanges.
class Neighbours {
 public:
  explicit Neighbours(const RoutingInstance& instance) : instance_(instance) {
    leaving_.resize(instance.graph.nodes());
    entering_.resize(instance.graph.nodes());
    for (std::size_t f = 0; f < instance.size(); ++f) {
      if (instance.paths_of(f) < 2) continue;
      leaving_[from(f)].push_back(static_cast<std::int32_t>(f));
      entering_[to(f)].push_back(static_cast<std::int32_t>(f));
    }
  }

  /// A random flow that leaves or enters the same switch as `flow`; possibly the flow itself.
  std::int32_t random_one(std::int32_t flow, SplitMix& random) const {
    const bool leaves = (random.next() & 1U) != 0;
    const auto& flows = leaves ? leaving_[from(flow)] : entering_[to(flow)];
    return flows[random.below(static_cast<std::int32_t>(flows.size()))];
  }

 private:
  std::int32_t from(std::size_t flow) const {
    return instance_.graph.end_switch(instance_.flows.source[flow]);
  }
  std::int32_t to(std::size_t flow) const {
    return instance_.graph.end_switch(instance_.flows.destination[flow]);
  }

  const RoutingInstance& instance_;
  std::vector<std::vector<std::int32_t>> leaving_, entering_;
};

/// Position, among the paths of `own`, of the plane at position `choice` of `partner`; kNone where
/// `own` cannot use that plane.
std::int32_t same_plane(const RoutingInstance& instance, std::int32_t own, std::int32_t partner,
                        std::int32_t choice) {
  const PathSets& paths = instance.paths;
  const std::int32_t mine = paths.set[own], theirs = paths.set[partner];
  if (mine == theirs) return choice;
  return instance.position_of_plane(own, paths.via[paths.path_first[theirs] + choice]);
}

/// The routings of the constructive policies.
std::vector<Choice> starts(const RoutingInstance& instance) {
  std::vector<Choice> all{longest_first(instance), greedy(instance)};
  if (std::optional<Choice> coloured = colouring(instance)) all.push_back(*std::move(coloured));
  return all;
}

/// The choice with the largest sorted job values among those that drain within `longest`; the last
/// one of a tie. Precondition: at least one drains within `longest`.
Choice best_of(const RoutingInstance& instance, RateModel model, const std::vector<Choice>& all,
               double longest) {
  JobObjective objective(instance, model);
  std::vector<double> best_values;
  const Choice* best = nullptr;
  for (const Choice& choice : all) {
    if (drain_of(instance, choice).base() > longest * (1 + kRounding)) continue;
    const auto values = objective.sorted_values(choice);
    if (best != nullptr && compare_sorted(values, best_values) < 0) continue;
    best_values.assign(values.begin(), values.end());
    best = &choice;
  }
  return *best;
}

/// The choice whose slowest jobs complete a step first where all jobs start one at once and flows
/// that end free their share; the first one of a tie.
Choice first_to_complete(const RoutingInstance& instance, const std::vector<Choice>& all) {
  std::vector<double> least;
  const Choice* best = nullptr;
  for (const Choice& choice : all) {
    std::vector<double> ends = step_completions(instance, choice);
    std::ranges::sort(ends, std::greater{});
    const bool sooner = std::ranges::lexicographical_compare(
        ends, least, [](double a, double b) { return a < b * (1 - kRounding); });
    if (best != nullptr && !sooner) continue;
    least = std::move(ends);
    best = &choice;
  }
  return *best;
}

/// Annealing moves of flows on overloaded links.
class PathAnnealing {
 public:
  PathAnnealing(const RoutingInstance& instance, DrainState& state, const Neighbours& neighbours,
                SplitMix& random)
      : instance_(instance), state_(state), neighbours_(neighbours), random_(random) {}

  void try_move(double temperature) {
    const auto overloaded = state_.overloaded();
    const std::int32_t link =
        overloaded[random_.below(static_cast<std::int32_t>(overloaded.size()))];
    const auto users = state_.flows_on(link);
    const std::int32_t flow = users[random_.below(static_cast<std::int32_t>(users.size()))];
    if (instance_.paths_of(flow) < 2) return;
    const std::int32_t old = state_.choice()[flow];
    std::int32_t to = PathSets::kNone, other = PathSets::kNone, other_to = PathSets::kNone;
    if (random_.below(4) == 0) {
      to = random_.below(instance_.paths_of(flow));
    } else {
      other = neighbours_.random_one(flow, random_);
      to = same_plane(instance_, flow, other, state_.choice()[other]);
      other_to = same_plane(instance_, other, flow, old);
      if (to == PathSets::kNone || other_to == PathSets::kNone) return;
    }
    if (to == old) return;
    const double increase = state_.change_of(flow, to, other, other_to);
    if (increase > 0 && random_.unit() >= std::exp(-increase / temperature)) return;
    state_.move(flow, to);
    if (other != PathSets::kNone) state_.move(other, other_to);
  }

 private:
  const RoutingInstance& instance_;
  DrainState& state_;
  const Neighbours& neighbours_;
  SplitMix& random_;
};

/// Layer 1 on any fabric: annealing over the paths of flows.
Choice lower_on_paths(const RoutingInstance& instance, const Choice& start, double bound,
                      const SearchEffort& effort) {
  DrainState state(instance, start, bound * (1 + kRounding));
  const Neighbours neighbours(instance);
  SplitMix random(effort.seed);
  PathAnnealing annealing(instance, state, neighbours, random);
  constexpr double kFirstTemperature = 3e-4, kLastTemperature = 3e-6;  // squared bounds
  constexpr std::int64_t kMovesPerCheck = 64;  // moves between two checks of the longest time
  const auto moves = static_cast<std::int64_t>(kMovesPerBudget * effort.budget /
                                               static_cast<double>(instance.size()));
  Choice best = start;
  double least = state.longest(), temperature = 0;
  for (std::int64_t i = 0; i < moves && !state.fits(); ++i) {
    poll_point();
    if (i % kMovesPerCheck == 0) {
      const double progress = static_cast<double>(i) / static_cast<double>(moves);
      temperature = bound * bound * kFirstTemperature *
                    std::pow(kLastTemperature / kFirstTemperature, progress);
      if (const double longest = state.longest(); longest < least) {
        least = longest;
        best = state.choice();
      }
    }
    annealing.try_move(temperature);
  }
  return state.longest() < least ? state.choice() : best;
}

/// Layer 1 on two tiers: planes filled one after the other for few sizes, an exact packing,
/// otherwise annealing over the planes of flows, and messages between links where few sizes leave
/// annealing far from the bound.
Choice lower_on_planes(const RoutingInstance& instance, double bound, const SearchEffort& effort) {
  if (auto extracted = extract_planes(instance, bound, effort.seed)) return *std::move(extracted);
  const bool has_few_sizes = few_sizes(instance, bound).has_value();
  const double budget = has_few_sizes ? std::min(effort.budget, 1.0) : effort.budget;
  const FlowSets deduced = deduce_flow_sets(instance, bound, kDeductionShare * budget);
  double left = std::max(budget - deduced.effort, kLeastAnnealing * budget);
  if (deduced.complete) {
    // Where the packing of every link is certain, annealing finds nothing that the solver misses.
    const double share = deduced.packings.empty() ? left : kAssignmentShare * budget;
    if (auto packed = assign_spines(instance, deduced, bound, share)) return *std::move(packed);
    left -= share;
  }
  const FlowSets sets = single_flow_sets(instance);
  const std::int32_t planes = instance.graph.two_tier().planes;
  const std::int32_t sides = 2 * instance.graph.two_tier().leaves;
  std::vector<double> per_byte;
  for (std::int32_t side = 0; side < sides; ++side) {
    for (std::int32_t plane = 0; plane < planes; ++plane) {
      per_byte.push_back(1 / (side_capacity(instance.graph, side, plane) * bound));
    }
  }
  std::vector<char> allowed;
  for (const auto& flows : sets.members) {
    for (std::int32_t plane = 0; plane < planes; ++plane) {
      const bool open = std::ranges::all_of(flows, [&](std::int32_t flow) {
        return instance.position_of_plane(flow, plane) != PathSets::kNone;
      });
      allowed.push_back(open ? 1 : 0);
    }
  }
  SplitMix random(effort.seed);
  const auto moves = static_cast<std::int64_t>(left / kRuns * kPlaneMovesPerBudget);
  const PlaneAnnealing initial(sets.loads, std::move(per_byte), std::move(allowed), planes);
  PlaneAnnealing best = initial;
  best.run(moves, random);
  for (int run = 1; run < kRuns && best.longest() > PlaneAnnealing::kNearEnough; ++run) {
    PlaneAnnealing other = initial;
    other.run(moves, random);
    if (other.longest() < best.longest()) best = std::move(other);
  }
  if (has_few_sizes && best.longest() > kNearBound * (1 + kRounding)) {
    const double beliefs = kBeliefShare * budget + effort.budget - budget;
    if (auto found = propagate_beliefs(instance, kNearBound * bound, beliefs, effort.seed)) {
      return *std::move(found);
    }
    // Links a little emptier than annealing leaves them are easier to find.
    const double sooner = (1 - kSooner) * best.longest() * bound;
    if (auto found = propagate_beliefs(instance, sooner, beliefs / 4, effort.seed)) {
      return *std::move(found);
    }
  }
  return choice_of_planes(instance, sets, best.planes());
}

}  // namespace

Choice lower_drain(const RoutingInstance& instance, Choice choice, const SearchEffort& effort) {
  const double bound = load_bound(instance).drain().base();
  const double least = drain_of(instance, choice).base();
  if (least <= bound * (1 + kRounding) || bound == 0 || effort.budget <= 0) return choice;
  const bool two_tiers = instance.graph.two_tier().leaves > 0;
  Choice found = two_tiers ? lower_on_planes(instance, bound, effort)
                           : lower_on_paths(instance, choice, bound, effort);
  return drain_of(instance, found).base() < least ? found : choice;
}

Choice raise_job_values(const RoutingInstance& instance, RateModel model, Choice choice,
                        const SearchEffort& effort, Seconds longest) {
  std::vector<std::int32_t> movable;
  for (std::size_t f = 0; f < instance.size(); ++f) {
    if (instance.paths_of(f) > 1) movable.push_back(static_cast<std::int32_t>(f));
  }
  if (movable.empty()) return choice;
  JobObjective objective(instance, model);
  const auto values_of = [&](const Choice& c) {
    const auto values = objective.sorted_values(c);
    return std::vector<double>(values.begin(), values.end());
  };
  std::vector<double> current = values_of(choice), best_values = current;
  Choice best = choice;
  std::vector<double> alone = isolated_values(instance);
  if (compare_sorted(alone, best_values) <= 0) return choice;  // no job slows another one down
  SplitMix random(effort.seed + 1);
  const Neighbours neighbours(instance);
  const double limit =
      std::max(drain_of(instance, choice).base(), longest.base()) * (1 + kRounding);
  DrainState drain(instance, choice, limit);
  const auto moves = static_cast<std::int64_t>(kFlowsPerBudget * effort.budget /
                                               static_cast<double>(instance.size()));
  const auto patience = static_cast<std::int64_t>(kPatiencePerFlow * movable.size());
  const auto accepts = [&] {
    if (!drain.fits()) return false;
    const auto values = objective.sorted_values(drain.choice());
    const bool accepts_decrease = random.below(kDecreaseOdds) == 0;
    if (compare_sorted(values, current) < 0 && !accepts_decrease) return false;
    current.assign(values.begin(), values.end());
    return true;
  };
  std::int64_t without_gain = 0;
  for (std::int64_t i = 0; i < moves; ++i) {
    poll_point();
    const std::int32_t flow = movable[random.below(static_cast<std::int32_t>(movable.size()))];
    const std::int32_t old = drain.choice()[flow];
    std::int32_t other = PathSets::kNone, other_old = PathSets::kNone;
    if ((random.next() & 1U) == 0) {
      drain.move(flow, random.below(instance.paths_of(flow)));
    } else {
      other = neighbours.random_one(flow, random);
      other_old = drain.choice()[other];
      const std::int32_t mine = same_plane(instance, flow, other, other_old);
      const std::int32_t theirs = same_plane(instance, other, flow, old);
      if (mine == PathSets::kNone || theirs == PathSets::kNone) continue;
      drain.move(flow, mine);
      drain.move(other, theirs);
    }
    ++without_gain;
    if (accepts()) {
      if (compare_sorted(current, best_values) > 0) {
        best = drain.choice();
        best_values = current;
        without_gain = 0;
      }
    } else {
      if (other != PathSets::kNone) drain.move(other, other_old);
      drain.move(flow, old);
    }
    if (without_gain > patience) {
      for (const std::int32_t f : movable) {
        if (drain.choice()[f] != best[f]) drain.move(f, best[f]);
      }
      current = best_values;
      without_gain = 0;
    }
  }
  return best;
}

Choice local_search(const RoutingInstance& instance, RateModel model, const SearchEffort& effort) {
  const std::int64_t flows = static_cast<std::int64_t>(instance.size()) + 1;
  const std::int64_t limit = std::min(kMaxExhaustiveRoutings, kMaxExhaustiveFlows / flows);
  const Choice simple = greedy(instance);
  const double allowed = drain_of(instance, simple).base();
  if (effort.budget > 0 && count_routings(instance, limit) <= limit) {
    if (auto best = exhaustive(instance, model, limit, Seconds{allowed})) return *std::move(best);
  }
  std::vector<Choice> all = starts(instance);
  const auto shortest = std::ranges::min_element(
      all, {}, [&](const Choice& choice) { return drain_of(instance, choice).base(); });
  all.push_back(lower_drain(instance, *shortest, effort));
  const double least = drain_of(instance, all.back()).base();
  Choice found = raise_job_values(instance, model, best_of(instance, model, all, least), effort);
  if (!has_larger_values(instance, model, simple, found)) return found;
  // The shortest drain time costs job values that greedy reaches: a little more of it may not.
  const double longest = std::min(allowed, least * kLongerDrain);
  all.push_back(found);
  Choice other = raise_job_values(instance, model, best_of(instance, model, all, longest),
                                  {effort.budget / 2, effort.seed}, Seconds{longest});
  if (!has_larger_values(instance, model, simple, other)) return other;
  // Values are rates of an instant; what counts is when the jobs complete their steps.
  std::vector<Choice> candidates{std::move(found), std::move(other)};
  if (allowed <= longest * (1 + kRounding)) candidates.push_back(simple);
  return first_to_complete(instance, candidates);
}

bool has_larger_values(const RoutingInstance& instance, RateModel model, const Choice& choice,
                       const Choice& other) {
  JobObjective objective(instance, model);
  const auto values = objective.sorted_values(choice);
  std::vector<double> own(values.begin(), values.end());
  return compare_sorted(own, objective.sorted_values(other)) > 0;
}

}  // namespace scalemodel
