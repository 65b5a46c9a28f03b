#include "scalemodel/fleet/running_fleet.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {

RunningFleet::RunningFleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
                           std::span<const std::int64_t> sessions, const FleetOptions& options)
    : requests_(requests),
      sessions_(sessions),
      options_(options),
      random_(options.seed),
      index_(count_of(kinds)),
      by_tier_(options.tiers.size()),
      shared_(options.tiers.size(), nullptr) {
  found_.served.resize(requests.size());
  found_.replicas.resize(requests.size());
  const Router router = options.policy.router;
  const bool scores = router == Router::weighted_scorers && options.policy.prefix_weight > 0;
  const bool asks = router == Router::prefix_aware || router == Router::kv_cost || scores;
  const bool records = asks && options.caching.enabled();
  counts_sent_ = records && options.policy.counts_sent;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (int copy = 0; copy < kinds[kind].count; ++copy) {
      const ReplicaSetup& setup = kinds[kind].setup;
      CacheTiers tiers;
      if (options.caching.enabled()) tiers = tiers_of(setup.blocks);
      replicas_.emplace_back(setup, requests, found_.served,
                             ReplicaExtras{options.caching, std::move(tiers), options.priority});
      if (records) replicas_.back().prefix_cache().record_changes();
      found_.parts.emplace_back().kind = static_cast<double>(kind);
      const auto place = static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint64_t>(copy);
      luck_.emplace_back(SplitMix(~options.seed).next() ^ SplitMix(place).next());
    }
  }
  begin(requests.empty() ? Seconds{} : requests.front().arrival);
  next_event_.assign(replicas_.size(), kInfinity);
  load_.resize(replicas_.size());
  cost_.resize(replicas_.size());
  held_.resize(replicas_.size());
  queued_.resize(replicas_.size());
  utilisation_.resize(replicas_.size());
  active_.resize(replicas_.size());
  in_order_ = options.caching.enabled() && std::ranges::any_of(options.tiers, &CacheTier::shared);
  expect_failures(requests.empty() ? Seconds{} : requests.front().arrival);
}

FleetResult RunningFleet::run() {
  for (std::size_t request = 0; request < requests_.size(); ++request) {
    report_progress(request, requests_.size());
    poll_point();
    const Seconds now = requests_[request].arrival;
    if (rule_) scale(now);
    pass_events(now);
    if (in_order_) bring_all(now);
    if (!shed(request)) send(request, now);
  }
  drain();
  sum();
  return std::move(found_);
}

CacheTiers RunningFleet::tiers_of(const CacheBlocks& blocks) {
  std::vector<TierStore*> stores;
  for (std::size_t tier = 0; tier < options_.tiers.size(); ++tier) {
    const CacheTier& settings = options_.tiers[tier];
    if (settings.shared) {
      if (shared_[tier] == nullptr) shared_[tier] = &stores_.emplace_back(settings);
      stores.push_back(shared_[tier]);
    } else {
      stores.push_back(&stores_.emplace_back(settings));
    }
  }
  for (std::size_t tier = 0; tier < stores.size(); ++tier) by_tier_[tier].insert(stores[tier]);
  return {std::move(stores), blocks.token()};
}

void RunningFleet::bring_all(Seconds until) {
  if (in_order_) {
    bring_in_order(until);
    return;
  }
  for (const std::size_t i : online_) {
    if (next_event_[i] < until.base()) bring(i, until);
  }
}

void RunningFleet::bring_in_order(Seconds until) {
  while (!agenda_.empty() && agenda_.top().first < until.base()) {
    const auto [time, place] = agenda_.top();
    agenda_.pop();
    if (next_event_[place] != time) continue;
    bring(place, Seconds{std::nextafter(time, kInfinity)});
  }
}

void RunningFleet::hand_over(std::size_t request, std::size_t chosen, Seconds now) {
  Replica& replica = replicas_[chosen];
  if (options_.caching.enabled()) {
    const double size = options_.caching.prefixes.block_tokens;
    const double held = held_[chosen] * size;
    replica.offer_again(request, std::max(1.0, requests_[request].input - held), now);
    if (counts_sent_) {
      for (const BlockHash name : options_.caching.prefixes.of(request)) {
        index_.add(name, chosen);
      }
    }
  } else {
    replica.offer_again(request, now);
  }
  note(chosen);
  found_.replicas[request] = static_cast<std::int32_t>(chosen);
  ReplicaTotals& part = found_.parts[chosen];
  part.max_in_system = std::max(part.max_in_system, load_[chosen]);
}

void RunningFleet::sum() {
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
  for (const std::set<const TierStore*>& stores : by_tier_) {
    TierTotals& tier = found_.tiers.emplace_back();
    for (const TierStore* store : stores) tier = sum_of(tier, store->totals());
  }
  const Seconds end = begin + found_.totals.makespan;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (state_[i] == State::off) continue;
    const bool drains = state_[i] == State::draining;
    const Seconds last = drains ? max(until_[i], replicas_[i].now()) : max(end, since_[i]);
    found_.parts[i].online += last - since_[i];
  }
}

}  // namespace scalemodel
