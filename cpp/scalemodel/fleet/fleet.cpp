#include "scalemodel/fleet/fleet.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "scalemodel/base/random.hpp"
#include "scalemodel/fleet/prefix_index.hpp"

namespace scalemodel {
namespace {

constexpr std::size_t kPollEvery = 4096;  // requests between two looks at the caller

/// Replicas and the router before them.
class Fleet {
 public:
  Fleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
        std::span<const std::int64_t> sessions, const FleetOptions& options)
      : requests_(requests),
        sessions_(sessions),
        options_(options),
        random_(options.seed),
        index_(count_of(kinds)) {
    found_.served.resize(requests.size());
    found_.replicas.resize(requests.size());
    const Router router = options.policy.router;
    const bool asks = router == Router::prefix_aware || router == Router::kv_cost;
    const bool records = asks && options.caching.enabled();
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      for (int copy = 0; copy < kinds[kind].count; ++copy) {
        replicas_.emplace_back(kinds[kind].setup, requests, found_.served, options.caching);
        if (records) replicas_.back().prefix_cache().record_changes();
        found_.parts.emplace_back().kind = static_cast<double>(kind);
      }
    }
    next_event_.assign(replicas_.size(), kInfinity);
    load_.resize(replicas_.size());
    cost_.resize(replicas_.size());
    held_.resize(replicas_.size());
  }

  FleetResult run(const Poll& poll) {
    for (std::size_t request = 0; request < requests_.size(); ++request) {
      if (request % kPollEvery == 0 && !poll(request, requests_.size())) return {};
      const std::size_t chosen = route(request);
      bring(chosen, requests_[request].arrival);
      hand_over(request, chosen);
    }
    for (Replica& replica : replicas_) {
      replica.advance(Seconds{kInfinity});
      if (!poll(requests_.size(), requests_.size())) return {};
    }
    sum();
    found_.complete = true;
    return std::move(found_);
  }

 private:
  static std::size_t count_of(std::span<const FleetKind> kinds) {
    std::size_t count = 0;
    for (const FleetKind& kind : kinds) count += static_cast<std::size_t>(kind.count);
    return count;
  }

  std::size_t drawn(std::size_t count) {
    return static_cast<std::size_t>(random_.below(static_cast<std::int32_t>(count)));
  }

  std::size_t route(std::size_t request) {
    const std::size_t count = replicas_.size();
    switch (options_.policy.router) {
      case Router::round_robin:
        return request % count;
      case Router::random:
        return drawn(count);
      case Router::least_loaded:
        bring_all(requests_[request].arrival);
        return lowest(load_, request);
      case Router::power_of_two:
        return of_two(request);
      case Router::prefix_aware:
        bring_all(requests_[request].arrival);
        return by_prefix(request);
      case Router::kv_cost:
        bring_all(requests_[request].arrival);
        return by_cost(request);
      case Router::session_sticky:
        return by_session(request);
    }
    return 0;
  }

  /// The first lowest of all, from a place on that moves with the requests.
  std::size_t lowest(const std::vector<double>& values, std::size_t request) const {
    const std::size_t count = values.size(), first = request % count;
    std::size_t best = first;
    for (std::size_t i = first + 1; i < count; ++i) best = values[i] < values[best] ? i : best;
    for (std::size_t i = 0; i < first; ++i) best = values[i] < values[best] ? i : best;
    return best;
  }

  std::size_t of_two(std::size_t request) {
    const std::size_t count = replicas_.size();
    const std::size_t one = drawn(count);
    if (count == 1) return one;
    const std::size_t other = (one + 1 + drawn(count - 1)) % count;
    bring(one, requests_[request].arrival);
    bring(other, requests_[request].arrival);
    return load_[other] < load_[one] ? other : one;
  }

  void count_held(std::size_t request) {
    if (options_.caching.enabled()) {
      index_.count_held(options_.caching.prefixes.of(request), held_);
    }
  }

  std::size_t by_prefix(std::size_t request) {
    const RouterPolicy& policy = options_.policy;
    count_held(request);
    const std::size_t idle = lowest(load_, request);
    const double most = *std::max_element(load_.begin(), load_.end()), least = load_[idle];
    if (most - least > policy.balance_requests && most > policy.balance_ratio * least) return idle;
    // Of those that hold as much, the least loaded.
    std::size_t best = idle;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const bool less = held_[i] == held_[best] && load_[i] < load_[best];
      if (held_[i] > held_[best] || less) best = i;
    }
    const double hit = held_[best] * options_.caching.prefixes.block_tokens;
    return hit > policy.cache_threshold * requests_[request].input ? best : idle;
  }

  std::size_t by_cost(std::size_t request) {
    count_held(request);
    const double size = options_.caching.prefixes.block_tokens, input = requests_[request].input;
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      const Replica& replica = replicas_[i];
      const double uncached = std::max(1.0, input - held_[i] * size);
      cost_[i] = options_.policy.overlap_weight * (replica.prompt_backlog() + uncached) +
                 replica.held_tokens();
    }
    return lowest(cost_, request);
  }

  std::size_t by_session(std::size_t request) {
    if (sessions_.empty() || sessions_[request] < 0) {
      bring_all(requests_[request].arrival);
      return lowest(load_, request);
    }
    SplitMix hash(static_cast<std::uint64_t>(sessions_[request]) ^ options_.seed);
    return static_cast<std::size_t>(hash.next() % replicas_.size());
  }

  void bring_all(Seconds until) {
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      if (next_event_[i] < until.base()) bring(i, until);
    }
  }

  /// A replica as it is at a time, and what the router knows of it.
  void bring(std::size_t place, Seconds until) {
    if (!(next_event_[place] < until.base())) return;
    Replica& replica = replicas_[place];
    replica.advance(until);
    PrefixCache& cache = replica.prefix_cache();
    index_.apply(place, cache.changes());
    cache.forget_changes();
    note(place);
  }

  void note(std::size_t place) {
    next_event_[place] = replicas_[place].next_event().base();
    load_[place] = replicas_[place].requests_in_system();
  }

  void hand_over(std::size_t request, std::size_t chosen) {
    Replica& replica = replicas_[chosen];
    if (options_.caching.enabled()) {
      const double size = options_.caching.prefixes.block_tokens;
      replica.offer(request, std::max(1.0, requests_[request].input - held_[chosen] * size));
    } else {
      replica.offer(request);
    }
    note(chosen);
    found_.replicas[request] = static_cast<std::int32_t>(chosen);
    ReplicaTotals& part = found_.parts[chosen];
    part.max_in_system = std::max(part.max_in_system, load_[chosen]);
  }

  void sum() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      ReplicaTotals& part = found_.parts[static_cast<std::size_t>(found_.replicas[i])];
      const Served& served = found_.served[i];
      if (served.refused) {
        part.refused += 1;
        continue;
      }
      part.requests += 1;
      part.input_tokens += requests_[i].input;
      part.output_tokens += requests_[i].output;
      part.cached_tokens += served.cached_tokens;
    }
    const Seconds begin = requests_.empty() ? Seconds{} : requests_.front().arrival;
    TotalsOfReplicas all;
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      TotalsOfReplicas alone;
      alone.add(replicas_[i]);
      all.add(replicas_[i]);
      found_.parts[i].stream = alone.since(begin);
    }
    found_.totals = all.since(begin);
  }

  std::span<const Request> requests_;
  std::span<const std::int64_t> sessions_;
  const FleetOptions& options_;
  SplitMix random_;
  PrefixIndex index_;
  FleetResult found_;
  std::deque<Replica> replicas_;
  // By replica: what the router looks at, side by side.
  std::vector<double> next_event_;  ///< seconds
  std::vector<double> load_;        ///< requests between arrival and end
  std::vector<double> cost_;
  std::vector<std::int32_t> held_;  ///< blocks of the request at the router
};

}  // namespace

FleetResult simulate_fleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
                           std::span<const std::int64_t> sessions, const FleetOptions& options,
                           const Poll& poll) {
  return Fleet(kinds, requests, sessions, options).run(poll);
}

double jain_index(std::span<const double> shares) noexcept {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 1;
}

}  // namespace scalemodel
