#include "scalemodel/routing/route.hpp"

#include <optional>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/routing/exact/exhaustive.hpp"
#include "scalemodel/routing/policies/annealing.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/hedera.hpp"
#include "scalemodel/routing/policies/local_search.hpp"
#include "scalemodel/routing/policies/spray.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"

namespace scalemodel {
namespace {

constexpr std::int64_t kMaxRoutings = 1 << 16;

Choice or_throw(std::optional<Choice> choice, RoutingPolicy policy, std::string_view why) {
  if (choice) return *std::move(choice);
  std::string message("policy='");
  message.append(name_of(policy)).append("': ").append(why);
  throw MalformedQuestion(message);
}

/// A colouring ignores the capacities of links and which jobs collide, so greedy may have a shorter
/// drain time or, at the same one, larger job values.
Choice balanced(const RoutingInstance& instance, RateModel model, const SearchEffort& effort) {
  if (has_equal_flows(instance)) {
    if (std::optional<Choice> choice = colouring(instance)) {
      Choice other = greedy(instance);
      const Seconds least = drain_of(instance, *choice), allowed = drain_of(instance, other);
      const bool tied = least == allowed;
      if (tied && has_larger_values(instance, model, other, *choice)) return other;
      if (least <= allowed) return *std::move(choice);
    }
  }
  return local_search(instance, model, effort);
}

}  // namespace

bool has_equal_flows(const RoutingInstance& instance) {
  double size = 0;
  for (std::size_t f = 0; f < instance.size(); ++f) {
    if (instance.paths_of(f) == 0) continue;
    if (size == 0) size = instance.flows.bytes[f];
    if (instance.flows.bytes[f] != size) return false;
  }
  return true;
}

Routing route(const RoutingInstance& instance, const RouteOptions& options) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const SearchEffort effort{options.effort, seed};
  switch (options.policy) {
    case RoutingPolicy::ecmp:
      return single_path(ecmp(instance));
    case RoutingPolicy::subflow_ecmp:
      return subflow_ecmp(instance, options.parts);
    case RoutingPolicy::spray:
      return spray(instance);
    case RoutingPolicy::greedy:
      return single_path(greedy(instance));
    case RoutingPolicy::colouring:
      return single_path(or_throw(colouring(instance), options.policy,
                                  "needs two tiers whose leaves share the same spines, or a "
                                  "fat tree without failures; balanced works on every fabric"));
    case RoutingPolicy::modulo_colouring:
      return single_path(or_throw(modulo_colouring(instance), options.policy,
                                  "needs two tiers whose leaves share the same spines"));
    case RoutingPolicy::balanced:
      return single_path(balanced(instance, options.model, effort));
    case RoutingPolicy::hedera:
      return single_path(hedera(instance, {}, seed));
    case RoutingPolicy::annealing: {
      // The routing paper's moves and energy are those of two tiers with spines as planes.
      if (instance.graph.two_tier().leaves == 0) return single_path(hedera(instance, {}, seed));
      Annealing parameters;
      parameters.keep_best = options.keep_best;
      return single_path(annealing(instance, parameters, seed));
    }
    case RoutingPolicy::local_search:
      return single_path(local_search(instance, options.model, effort));
    case RoutingPolicy::exhaustive:
      return single_path(or_throw(
          exhaustive(instance, options.model, kMaxRoutings, drain_of(instance, greedy(instance))),
          options.policy, "more than 65536 routings; local_search has no limit"));
  }
  return {};
}

RoutingQuality quality(const RoutingInstance& instance, const Routing& routing) {
  WaterFilling filling;
  RoutingQuality q;
  const FairParts parts = fair_parts(instance, routing, filling);
  q.rates = flow_rates(instance, routing, parts);
  q.carried = link_rates(instance, parts);
  q.fair = job_values(instance.flows, q.rates);
  q.allocated = allocated_values(instance, routing, filling);
  q.isolated = isolated_values(instance);
  q.load = fabric_load(instance, routing);
  q.bound = load_bound(instance);
  return q;
}

}  // namespace scalemodel
