#include <algorithm>
#include <cmath>

#include "scalemodel/fleet/running_fleet.hpp"

namespace scalemodel {

std::size_t RunningFleet::route(std::size_t request, Seconds now) {
  const std::size_t count = online_.size();
  switch (options_.policy.router) {
    case Router::round_robin:
      return online_[request % count];
    case Router::random:
      return online_[drawn(count)];
    case Router::least_loaded:
      bring_all(now);
      return lowest(load_, request);
    case Router::power_of_two:
      return of_two(now);
    case Router::prefix_aware:
      bring_all(now);
      return by_prefix(request);
    case Router::kv_cost:
      bring_all(now);
      return by_cost(request);
    case Router::session_sticky:
      return by_session(request, now);
    case Router::weighted_scorers:
      return by_scores(request, now);
  }
  return 0;
}

std::size_t RunningFleet::lowest(const std::vector<double>& values, std::size_t request) const {
  const std::size_t count = online_.size(), first = request % count;
  std::size_t best = online_[first];
  const auto look_at = [&](std::size_t i) { best = values[i] < values[best] ? i : best; };
  for (std::size_t i = first + 1; i < count; ++i) look_at(online_[i]);
  for (std::size_t i = 0; i < first; ++i) look_at(online_[i]);
  return best;
}

std::size_t RunningFleet::of_two(Seconds now) {
  const std::size_t count = online_.size(), first = drawn(count);
  const std::size_t one = online_[first];
  if (count == 1) return one;
  const std::size_t other = online_[(first + 1 + drawn(count - 1)) % count];
  bring(one, now);
  bring(other, now);
  return load_[other] < load_[one] ? other : one;
}

void RunningFleet::count_held(std::size_t request) {
  if (options_.caching.enabled()) {
    index_.count_held(options_.caching.prefixes.of(request), held_);
  }
}

std::size_t RunningFleet::by_prefix(std::size_t request) {
  const RouterPolicy& policy = options_.policy;
  count_held(request);
  const std::size_t idle = lowest(load_, request);
  double most = 0;
  for (const std::size_t i : online_) most = std::max(most, load_[i]);
  const double least = load_[idle];
  if (most - least > policy.balance_requests && most > policy.balance_ratio * least) return idle;
  // Of those that hold as much, the least loaded.
  std::size_t best = idle;
  for (const std::size_t i : online_) {
    const bool less = held_[i] == held_[best] && load_[i] < load_[best];
    if (held_[i] > held_[best] || less) best = i;
  }
  const double hit = held_[best] * options_.caching.prefixes.block_tokens;
  return hit > policy.cache_threshold * requests_[request].input ? best : idle;
}

std::size_t RunningFleet::by_cost(std::size_t request) {
  count_held(request);
  const double size = options_.caching.prefixes.block_tokens, input = requests_[request].input;
  for (const std::size_t i : online_) {
    const Replica& replica = replicas_[i];
    const double uncached = std::max(1.0, input - held_[i] * size);
    cost_[i] = options_.policy.overlap_weight * (replica.prompt_backlog() + uncached) +
               replica.held_tokens();
  }
  return lowest(cost_, request);
}

std::size_t RunningFleet::by_session(std::size_t request, Seconds now) {
  if (sessions_.empty() || sessions_[request] < 0) {
    bring_all(now);
    return lowest(load_, request);
  }
  SplitMix hash(static_cast<std::uint64_t>(sessions_[request]) ^ options_.seed);
  return online_[static_cast<std::size_t>(hash.next() % online_.size())];
}

void RunningFleet::scrape(Seconds now) {
  const Seconds interval = options_.policy.scrape_interval;
  Seconds tick = now;
  if (interval > Seconds{}) {
    tick = std::floor(now / interval) * interval;
    if (tick <= scraped_) return;
  }
  scraped_ = tick;
  bring_all(tick);
  for (const std::size_t i : online_) {
    queued_[i] = replicas_[i].requests_queued();
    utilisation_[i] = replicas_[i].cache_utilisation();
  }
}

void RunningFleet::add_scores(double weight, const std::vector<double>& values, bool from_lowest) {
  if (weight <= 0) return;
  double low = values[online_.front()], high = low;
  for (const std::size_t i : online_) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  if (!from_lowest) low = 0;
  // Where all are equal they are told apart by other scores.
  if (high <= low) return;
  for (const std::size_t i : online_) cost_[i] += weight * (values[i] - low) / (high - low);
}

/// The lowest cost, which is all weights less the scores.
std::size_t RunningFleet::by_scores(std::size_t request, Seconds now) {
  const RouterPolicy& policy = options_.policy;
  scrape(now);
  std::ranges::fill(cost_, 0);
  add_scores(policy.queue_weight, queued_, true);
  for (const std::size_t i : online_) cost_[i] += policy.kv_cache_weight * utilisation_[i];
  if (policy.active_weight > 0) {
    bring_all(now);
    for (const std::size_t i : online_) {
      active_[i] = policy.active_until_end ? load_[i] : replicas_[i].requests_arriving(now);
    }
    add_scores(policy.active_weight, active_, false);
  }
  const PrefixCaching& caching = options_.caching;
  if (policy.prefix_weight > 0 && caching.enabled()) {
    count_held(request);
    const auto blocks = static_cast<double>(caching.prefixes.of(request).size());
    const double weight = policy.prefix_weight / std::max(1.0, blocks);
    for (const std::size_t i : online_) cost_[i] -= weight * held_[i];
  }
  return any_lowest();
}

std::size_t RunningFleet::any_lowest() {
  best_.clear();
  for (const std::size_t i : online_) {
    if (!best_.empty() && cost_[i] > cost_[best_.front()]) continue;
    if (!best_.empty() && cost_[i] < cost_[best_.front()]) best_.clear();
    best_.push_back(i);
  }
  return best_.size() == 1 ? best_.front() : best_[drawn(best_.size())];
}

}  // namespace scalemodel
