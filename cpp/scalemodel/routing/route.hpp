// The entry of all routing policies: a policy in, a routing and its quality out.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/routing/instance.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {

enum class RoutingPolicy : std::uint8_t {
  ecmp,          // a hash of source and destination
  subflow_ecmp,  // one hash per part of every flow
  spray,         // packets of a flow over all of its paths
  greedy,        // the routing paper's: least loaded path, busiest switches first
  colouring,     // balanced edge colouring; two tiers whose leaves share their spines, fat trees
  modulo_colouring,  // the routing paper's: proper edge colouring, colour modulo spines
  balanced,          // colouring or greedy for equal flows, otherwise local search
  annealing,         // over destinations: the routing paper's on two tiers, Hedera's elsewhere
  hedera,            // Hedera's annealing over destinations: natural demands, excess capacity
  local_search,      // exact packing, annealing and exchanges for the two-layer objective
  exhaustive,        // every routing of a small instance
};

template <>
struct EnumNames<RoutingPolicy> {
  static constexpr std::string_view what = "policy";
  static constexpr std::array<std::string_view, 11> names{
      "ecmp",     "subflow_ecmp", "spray",  "greedy",       "colouring", "modulo_colouring",
      "balanced", "annealing",    "hedera", "local_search", "exhaustive"};
};

struct RouteOptions {
  RoutingPolicy policy = RoutingPolicy::balanced;
  RateModel model = RateModel::fair_share;  ///< rate model of the job values in searches
  int parts = 4;                            ///< parts of a flow, subflow_ecmp, >= 1
  double effort = 1;                        ///< effort of searches; 1 is about 50 ms
  bool keep_best = false;                   ///< annealing: the best state instead of the last
  int seed = 0;                             ///< seed of annealing and searches, >= 0

  bool operator==(const RouteOptions&) const = default;
};

template <>
struct RecordOf<RouteOptions> {
  static constexpr std::string_view name = "RouteOptions";
  using T = RouteOptions;
  static constexpr FieldTable fields{
      field("policy", &T::policy, "how paths are chosen"),
      field("model", &T::model, "rate model that searches improve"),
      field("parts", &T::parts, 1, 1024, "parts of a flow, subflow_ecmp"),
      field("effort", &T::effort, 0, 1e6, "of searches; 1 is about 50 ms"),
      field("keep_best", &T::keep_best, "annealing answers the best state met, not the last"),
      field("seed", &T::seed, 0, 2147483647.0, "of annealing and searches")};
};

/// Routes the flows by the policy. Throws MalformedQuestion where it does not apply to the fabric.
Routing route(const RoutingInstance& instance, const RouteOptions& options);

/// Whether all flows with a choice of paths have the same size.
bool has_equal_flows(const RoutingInstance& instance);

/// Rates, job values, loads and bounds of a routing.
struct RoutingQuality {
  std::vector<double> rates;      ///< by flow, bytes/s, fair share
  std::vector<double> carried;    ///< by link, bytes/s, fair share
  std::vector<double> fair;       ///< by job, steps/s
  std::vector<double> allocated;  ///< by job, steps/s
  std::vector<double> isolated;   ///< by job, steps/s, alone on its NICs
  FabricLoad load;
  LoadBound bound;
};

RoutingQuality quality(const RoutingInstance& instance, const Routing& routing);

}  // namespace scalemodel
