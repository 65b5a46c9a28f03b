// One entry for all routers: policy in, routing and its quality out.
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
  subflow_ecmp,  // the same for several parts of every flow
  spray,         // packets over all paths
  greedy,        // the routing paper's: least full path, busiest switches first
  colouring,     // balanced edge colouring; two tiers whose leaves share their spines, fat trees
  balanced,      // colouring for equal flows, otherwise local search
  annealing,     // over destinations, the routing paper's parameters
  local_search,  // moves, exchanges and chains towards the two-layer objective
  exhaustive,    // every routing; small instances
};

template <>
struct EnumNames<RoutingPolicy> {
  static constexpr std::string_view what = "policy";
  static constexpr std::array<std::string_view, 9> names{"ecmp",      "subflow_ecmp", "spray",
                                                         "greedy",    "colouring",    "balanced",
                                                         "annealing", "local_search", "exhaustive"};
};

struct RouteOptions {
  RoutingPolicy policy = RoutingPolicy::balanced;
  RateModel model = RateModel::fair_share;  ///< that searches improve
  int parts = 4;                            ///< of a flow, subflow_ecmp
  double effort = 1;                        ///< of searches; 1 is about 50 ms
  bool keep_best = false;                   ///< annealing: best state met instead of the last
  int seed = 0;                             ///< of annealing and searches

  bool operator==(const RouteOptions&) const = default;
};

template <>
struct RecordOf<RouteOptions> {
  static constexpr std::string_view name = "RouteOptions";
  using T = RouteOptions;
  static constexpr std::tuple fields{
      field("policy", &T::policy, "how paths are chosen"),
      field("model", &T::model, "rate model that searches improve"),
      field("parts", &T::parts, 1, 1024, "parts of a flow, subflow_ecmp"),
      field("effort", &T::effort, 0, 1e6, "of searches; 1 is about 50 ms"),
      field("keep_best", &T::keep_best, "annealing answers the best state met, not the last"),
      field("seed", &T::seed, 0, 2147483647.0, "of annealing and searches")};
};

/// Throws MalformedQuestion where the policy does not apply to the fabric.
Routing route(const RoutingInstance& instance, const RouteOptions& options);

/// All flows that need a path have the same size.
bool has_equal_flows(const RoutingInstance& instance);

/// What a routing is worth.
struct RoutingQuality {
  std::vector<double> rates;      ///< by flow, bytes/s, fair share
  std::vector<double> carried;    ///< by link, bytes/s, fair share
  std::vector<double> fair;       ///< by job, steps/s
  std::vector<double> allocated;  ///< by job, steps/s
  std::vector<double> isolated;   ///< by job, steps/s, alone and bounded by its NICs only
  FabricLoad load;
  LoadBound bound;
};

RoutingQuality quality(const RoutingInstance& instance, const Routing& routing);

}  // namespace scalemodel
