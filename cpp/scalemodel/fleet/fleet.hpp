// A stream of requests through a fleet: replicas of several kinds, prefix caches with state, and a
// router that hands each request to one of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/fleet/autoscaler.hpp"
#include "scalemodel/fleet/failures.hpp"
#include "scalemodel/serving/replica.hpp"

namespace scalemodel {

/// How a request finds its replica.
///
/// * round_robin and random know nothing of the replicas.
/// * least_loaded: the fewest requests between arrival and end, ties in turn.
/// * power_of_two: the less loaded of two drawn at random (Mitzenmacher, IEEE Trans. Parallel
///   Distrib. Syst. 12 (2001) 1094-1104).
/// * prefix_aware: the replica that holds most of the prompt, where that is more than
///   `cache_threshold` of it; else, and while loads are out of balance (max - min above
///   `balance_requests` and max above `balance_ratio` min), the least loaded. Source: SGLang's
///   model gateway, policy cache_aware; here by exact knowledge of the caches, and without a match
///   by load, as full caches are all of one size.
/// * kv_cost: the lowest cost w (prompt tokens still to compute there + uncached tokens of the
///   request) + tokens held there, ties in turn. Source: cost function of NVIDIA Dynamo's KV
///   router, in tokens for its blocks.
/// * weighted_scorers: the highest sum of weighted scores, ties at random. Scores are 1 for the
///   shortest queue and 0 for the longest; 1 - utilisation of the KV cache; 1 - requests under way
///   over the most of any replica; and the share of the prompt that is held. Queue and utilisation
///   are those that were last scraped. Source: Gateway API inference extension and llm-d, scorers
///   queue, kv-cache-utilization, active-request and prefix-cache, picker max-score; weights of its
///   usual profile 2, 2 and 3, active requests none.
/// * session_sticky: a hash of the session decides; a request without one goes to the least loaded
///   (vLLM production stack, session router).
enum class Router : std::uint8_t {
  round_robin,
  random,
  least_loaded,
  power_of_two,
  prefix_aware,
  kv_cost,
  session_sticky,
  weighted_scorers
};

template <>
struct EnumNames<Router> {
  static constexpr std::string_view what = "router";
  static constexpr std::array<std::string_view, 8> names{
      "round_robin",  "random",  "least_loaded",   "power_of_two",
      "prefix_aware", "kv_cost", "session_sticky", "weighted_scorers"};
};

/// A router and its settings.
struct RouterPolicy {
  Router router = Router::round_robin;
  double cache_threshold = 0.3;  ///< share of a prompt
  double balance_requests = 64;
  double balance_ratio = 1.5;
  double overlap_weight = 1;  ///< w of kv_cost
  /// Prompts count as held from the moment they are sent, as routers do that keep a tree of what
  /// they sent; else once they are computed, as events of the engines tell.
  bool counts_sent = false;
  // Of weighted_scorers.
  double queue_weight = 2, kv_cache_weight = 2, prefix_weight = 3, active_weight = 0;
  /// Between two looks at the metrics of a replica. Source: Gateway API inference extension,
  /// runserver.go, refresh-metrics-interval 50 ms.
  Seconds scrape_interval{0.05};
  /// A request is under way until its answer ends; else until the headers of its response, which
  /// streams send before the first token. Source: llm-d/llm-d-inference-scheduler#376 and
  /// kubernetes-sigs/gateway-api-inference-extension#1483.
  bool active_until_end = true;

  bool operator==(const RouterPolicy&) const = default;
};

template <>
struct RecordOf<RouterPolicy> {
  static constexpr std::string_view name = "RouterPolicy";
  using T = RouterPolicy;
  static constexpr FieldTable fields{
      field("router", &T::router, "how a request finds its replica"),
      field("cache_threshold", &T::cache_threshold, 0, 1,
            "prefix_aware: share of a prompt above which the replica that holds it is chosen"),
      field("balance_requests", &T::balance_requests, 0, 1e9,
            "prefix_aware: difference of loads above which the least loaded is chosen"),
      field("balance_ratio", &T::balance_ratio, 1, 1e9,
            "prefix_aware: and ratio of loads that it takes for it"),
      field("overlap_weight", &T::overlap_weight, 0, 1e6,
            "kv_cost: weight of prompt tokens to compute beside tokens held"),
      field("counts_sent", &T::counts_sent,
            "prompts count as held once they are sent, not once they are computed"),
      field("queue_weight", &T::queue_weight, 0, 1e6, "weighted_scorers: of the shortest queue"),
      field("kv_cache_weight", &T::kv_cache_weight, 0, 1e6,
            "weighted_scorers: of what is free of the KV cache"),
      field("prefix_weight", &T::prefix_weight, 0, 1e6,
            "weighted_scorers: of the share of the prompt that is held"),
      field("active_weight", &T::active_weight, 0, 1e6,
            "weighted_scorers: of few requests under way"),
      field("scrape_interval_s", &T::scrape_interval, 0, 1e6,
            "weighted_scorers: between two looks at queue and KV cache; 0: always current"),
      field("active_until_end", &T::active_until_end,
            "weighted_scorers: requests are under way until their end, not until the headers of "
            "their responses")};
};

/// Replicas of one kind.
struct FleetKind {
  ReplicaSetup setup;
  int count = 1;
};

struct FleetOptions {
  RouterPolicy policy;
  std::uint64_t seed = 0;  ///< of random choices and hashes
  PrefixCaching caching;
  /// Replicas start and stop by it, the first `min_replicas` running from the start; without it all
  /// of them run all the time.
  std::optional<Autoscaler> autoscaler;
  /// Below the KV cache of every replica, the nearest first. Where one is shared, replicas advance
  /// in order of time together.
  std::span<const CacheTier> tiers;
  std::span<const std::int32_t> priority;  ///< of each request, the lowest first; empty: equal
  Failures failures;
  std::span<const Outage> outages;
  std::optional<Shedding> shedding;
};

/// How many replicas took requests, and how many were starting, from a time on.
struct ScaleEvent {
  Seconds time;
  double online = 0, starting = 0;
};

/// What one replica did.
struct ReplicaTotals {
  double kind = 0;      ///< its place in the kinds of the fleet
  double requests = 0;  ///< finished
  double refused = 0;
  double input_tokens = 0, output_tokens = 0;  ///< of finished requests
  double cached_tokens = 0;                    ///< of their prompts, found in its prefix cache
  double max_in_system = 0;  ///< most requests between arrival and end, seen as one arrived
  Seconds online;            ///< from its start-up to the end of its last request, paid for
  StreamTotals stream;       ///< its steps, integrals and gaps; makespan: to its last token

  bool operator==(const ReplicaTotals&) const = default;
};

template <>
struct RecordOf<ReplicaTotals> {
  static constexpr std::string_view name = "ReplicaTotals";
  using T = ReplicaTotals;
  static constexpr FieldTable fields{
      field("kind", &T::kind, "its place in the kinds of the fleet"),
      field("requests", &T::requests, "finished requests"),
      field("refused", &T::refused, "requests longer than the whole cache"),
      field("input_tokens", &T::input_tokens, "prompt tokens of finished requests"),
      field("output_tokens", &T::output_tokens, "output tokens of finished requests"),
      field("cached_tokens", &T::cached_tokens, "prompt tokens found in its prefix cache"),
      field("max_in_system", &T::max_in_system, "most requests between arrival and end"),
      field("online_s", &T::online, "from start-up to the end of its last request, paid for"),
      field("stream", &T::stream, "its steps, integrals and gaps")};
};

struct FleetResult {
  std::vector<Served> served;          ///< in the order of the requests
  std::vector<std::int32_t> replicas;  ///< of each request
  std::vector<ReplicaTotals> parts;    ///< of each replica
  std::vector<ScaleEvent> events;      ///< of the autoscaler, and the beginning
  StreamTotals totals;
  std::vector<TierTotals> tiers;  ///< of all replicas
  double failures = 0;            ///< of replicas, outages included
};

/// Serves `requests` (ascending arrivals). `sessions`: one number per request, below 0 for none, or
/// empty. Replicas are advanced to an arrival only where the router looks at them, which changes
/// nothing of what they do: one replica of one kind gives what `simulate_stream` does, bit for bit.
/// Preconditions: at least one replica; sessions and prefixes are as long as the requests.
FleetResult simulate_fleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
                           std::span<const std::int64_t> sessions, const FleetOptions& options);

/// Fairness of shares x by Jain: (sum x)^2 / (n sum x^2), 1 where all are equal, 1/n where one has
/// everything. Source: Jain, Chiu and Hawe, DEC-TR-301 (1984).
double jain_index(std::span<const double> shares) noexcept;

/// Mean over `span` of a replica that draws `working` in its steps, `idle` while it is online and
/// has none, and nothing while it is off.
constexpr Watts mean_power(const ReplicaTotals& part, Seconds span, Watts working, Watts idle) {
  const Seconds busy = part.stream.busy;
  return busy / span * working + (part.online / span - busy / span) * idle;
}

}  // namespace scalemodel
