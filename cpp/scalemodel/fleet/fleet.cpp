#include "scalemodel/fleet/fleet.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/fleet/prefix_index.hpp"

namespace scalemodel {
namespace {

/// Replicas and the router before them.
class Fleet {
 public:
  Fleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
        std::span<const std::int64_t> sessions, const FleetOptions& options)
      : requests_(requests),
        sessions_(sessions),
        options_(options),
        random_(options.seed),
        luck_(~options.seed),
        index_(count_of(kinds)),
        by_tier_(options.tiers.size()),
        shared_(options.tiers.size(), nullptr) {
    found_.served.resize(requests.size());
    found_.replicas.resize(requests.size());
    const Router router = options.policy.router;
    const bool asks = router == Router::prefix_aware || router == Router::kv_cost;
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
      }
    }
    begin(requests.empty() ? Seconds{} : requests.front().arrival);
    next_event_.assign(replicas_.size(), kInfinity);
    load_.resize(replicas_.size());
    cost_.resize(replicas_.size());
    held_.resize(replicas_.size());
    in_order_ =
        options.caching.enabled() && std::any_of(options.tiers.begin(), options.tiers.end(),
                                                 [](const CacheTier& tier) { return tier.shared; });
    expect_failures(requests.empty() ? Seconds{} : requests.front().arrival);
  }

  FleetResult run() {
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

 private:
  enum class State : std::uint8_t { off, starting, online, draining, failed };
  enum class Happening : std::uint8_t { repaired, outage, failure, retry };
  /// What happens between arrivals; `which` is a replica, an outage or a request.
  struct Event {
    Seconds time;
    Happening what;
    std::size_t which;

    bool operator>(const Event& other) const {
      return std::tie(time, what, which) > std::tie(other.time, other.what, other.which);
    }
  };

  CacheTiers tiers_of(const CacheBlocks& blocks) {
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

  // ------------------------------------------------------------------- failures and admission

  void expect_failures(Seconds now) {
    for (std::size_t i = 0; i < options_.outages.size(); ++i) {
      happenings_.push({options_.outages[i].begin, Happening::outage, i});
    }
    if (!(options_.failures.mtbf > Seconds{})) return;
    for (std::size_t i = 0; i < replicas_.size(); ++i) expect_failure(i, now);
  }

  void expect_failure(std::size_t place, Seconds now) {
    const double gap = -std::log(1 - luck_.unit());
    happenings_.push({now + gap * options_.failures.mtbf, Happening::failure, place});
  }

  void pass_events(Seconds until) {
    while (!happenings_.empty() && happenings_.top().time <= until) {
      const Event event = happenings_.top();
      happenings_.pop();
      poll_point();
      happen(event);
    }
  }

  void happen(const Event& event) {
    switch (event.what) {
      case Happening::repaired:
        if (state_[event.which] != State::failed) return;
        if (event.time < until_[event.which]) return;  // Another outage came meanwhile.
        state_[event.which] = State::online;
        list_online(event.time);
        for (const std::size_t request : std::exchange(stranded_, {})) send(request, event.time);
        return;
      case Happening::failure:
        fail(event.which, event.time, event.time);
        expect_failure(event.which, event.time);
        return;
      case Happening::outage: {
        const Outage& outage = options_.outages[event.which];
        const auto first = static_cast<std::size_t>(outage.first);
        const std::size_t end =
            std::min(replicas_.size(), first + static_cast<std::size_t>(outage.count));
        for (std::size_t i = first; i < end; ++i) fail(i, event.time, max(outage.end, event.time));
        return;
      }
      case Happening::retry:
        --retrying_;
        send(event.which, event.time);
        return;
    }
  }

  /// A replica that works loses what it has, and takes requests again after a restart from `end`.
  void fail(std::size_t place, Seconds now, Seconds end) {
    const Seconds back = end + options_.failures.restart;
    if (state_[place] == State::failed && until_[place] < back) {
      until_[place] = back;
      happenings_.push({back, Happening::repaired, place});
    }
    if (state_[place] != State::online && state_[place] != State::draining) return;
    if (in_order_) bring_all(now);
    bring(place, now);
    Replica& replica = replicas_[place];
    const std::vector<std::size_t> lost = replica.fail(now);
    index_.apply(place, replica.prefix_cache().changes());
    replica.prefix_cache().forget_changes();
    note(place);
    found_.failures += 1;
    if (state_[place] == State::draining) {
      state_[place] = State::off;
      found_.parts[place].online += now - since_[place];
    } else {
      state_[place] = State::failed;
      until_[place] = back;
      happenings_.push({back, Happening::repaired, place});
    }
    list_online(now);
    for (const std::size_t request : lost) {
      if (counts_sent_) {
        for (const BlockHash name : options_.caching.prefixes.of(request)) {
          index_.remove(name, place);
        }
      }
      lose(request, now);
    }
  }

  void lose(std::size_t request, Seconds now) {
    Served& served = found_.served[request];
    const std::uint8_t retries = served.retries;
    served = {};
    served.retries = retries;
    if (retries >= options_.failures.max_retries) {
      refuse(request, now, NotServed::lost);
      return;
    }
    ++served.retries;
    ++retrying_;
    happenings_.push({now + options_.failures.retry_delay, Happening::retry, request});
  }

  void refuse(std::size_t request, Seconds now, NotServed why) {
    Served& served = found_.served[request];
    served.refused = true;
    served.why = why;
    served.started = served.first_token = served.finished = now;
  }

  bool shed(std::size_t request) {
    if (!options_.shedding || online_.empty()) return false;
    const std::int32_t own = options_.priority.empty() ? 0 : options_.priority[request];
    if (own < options_.shedding->priority) return false;
    const Seconds now = requests_[request].arrival;
    bring_all(now);
    double waiting = 0;
    for (const std::size_t i : online_) waiting += replicas_[i].requests_waiting();
    if (waiting <= options_.shedding->queue * static_cast<double>(online_.size())) return false;
    refuse(request, now, NotServed::shed);
    return true;
  }

  /// A request finds its replica, or waits until one is back.
  void send(std::size_t request, Seconds now) {
    if (online_.empty()) {
      stranded_.push_back(request);
      return;
    }
    const std::size_t chosen = route(request, now);
    bring(chosen, now);
    hand_over(request, chosen, now);
  }

  /// After the last arrival things go wrong as long as there is work.
  void drain() {
    while (!happenings_.empty()) {
      const Seconds next = happenings_.top().time;
      bring_all(next);
      if (!working()) break;
      pass_events(next);
    }
    if (in_order_) bring_in_order(Seconds{kInfinity});
    for (Replica& replica : replicas_) replica.advance(Seconds{kInfinity});
    const Seconds end = requests_.empty() ? Seconds{} : requests_.back().arrival;
    for (const std::size_t request : stranded_) refuse(request, end, NotServed::lost);
  }

  bool working() const {
    if (!stranded_.empty() || retrying_ > 0) return true;
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      if (state_[i] == State::draining || state_[i] == State::online) {
        if (replicas_[i].requests_in_system() > 0) return true;
      }
    }
    return false;
  }

  // ------------------------------------------------------------------------------ autoscaling

  /// All replicas are online, or as many as the autoscaler starts with.
  void begin(Seconds now) {
    std::size_t running = replicas_.size();
    if (options_.autoscaler) {
      rule_.emplace(*options_.autoscaler);
      running = std::min(running, static_cast<std::size_t>(options_.autoscaler->min_replicas));
      next_look_ = now + options_.autoscaler->interval;
    }
    state_.assign(replicas_.size(), State::off);
    since_.assign(replicas_.size(), now);
    until_.assign(replicas_.size(), now);
    for (std::size_t i = 0; i < running; ++i) state_[i] = State::online;
    list_online(now);
  }

  /// The replicas that take requests, in order.
  void list_online(Seconds now) {
    online_.clear();
    ScaleEvent event{now};
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (state_[i] == State::online) online_.push_back(i);
      event.starting += state_[i] == State::starting ? 1 : 0;
    }
    event.online = static_cast<double>(online_.size());
    if (!found_.events.empty()) {
      const ScaleEvent& last = found_.events.back();
      if (last.online == event.online && last.starting == event.starting) return;
    }
    found_.events.push_back(event);
  }

  /// What the autoscaler does until a time.
  void scale(Seconds until) {
    for (; next_look_ <= until; next_look_ += options_.autoscaler->interval) {
      pass_events(next_look_);
      finish_starts(next_look_);
      look(next_look_);
    }
    finish_starts(until);
  }

  void finish_starts(Seconds now) {
    if (starts_.empty() || now < starts_.front()) return;
    while (!starts_.empty() && starts_.front() <= now) {
      const Seconds ready = starts_.front();
      starts_.pop_front();
      for (std::size_t i = 0; i < state_.size(); ++i) {
        if (state_[i] == State::starting && until_[i] == ready) state_[i] = State::online;
      }
      list_online(ready);
    }
  }

  void look(Seconds now) {
    bring_all(now);
    double sum = 0, current = static_cast<double>(online_.size());
    for (const std::size_t i : online_) sum += signal_of(replicas_[i]);
    for (const State state : state_) current += state == State::starting ? 1 : 0;
    const double wanted =
        std::min(rule_->desired(now, current, sum), static_cast<double>(replicas_.size()));
    for (double more = wanted - current; more > 0; --more) start_one(now);
    for (double less = current - wanted; less > 0; --less) stop_one(now);
    list_online(now);
  }

  double signal_of(const Replica& replica) const {
    switch (options_.autoscaler->signal) {
      case ScaleSignal::requests:
        return replica.requests_in_system();
      case ScaleSignal::queue:
        return replica.requests_waiting();
      case ScaleSignal::kv_cache:
        return replica.cache_utilisation();
    }
    return 0;
  }

  /// One that still works takes requests again at once; another one starts with an empty cache.
  void start_one(Seconds now) {
    std::size_t chosen = replicas_.size();
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      if (state_[i] == State::draining) close(i, now);
      if (state_[i] == State::draining) {
        state_[i] = State::online;
        return;
      }
      if (state_[i] == State::off && chosen == replicas_.size()) chosen = i;
    }
    if (chosen == replicas_.size()) return;
    state_[chosen] = State::starting;
    since_[chosen] = now;
    until_[chosen] = now + options_.autoscaler->startup;
    if (starts_.empty() || starts_.back() < until_[chosen]) starts_.push_back(until_[chosen]);
  }

  /// The last one that starts is given up; else the last one online takes no more requests.
  void stop_one(Seconds now) {
    for (const State from : {State::starting, State::online}) {
      for (std::size_t i = replicas_.size(); i-- > 0;) {
        if (state_[i] != from) continue;
        until_[i] = now;
        state_[i] = from == State::starting ? State::off : State::draining;
        if (from == State::starting) found_.parts[i].online += now - since_[i];
        return;
      }
    }
  }

  /// A replica that drains is off once its last request has ended.
  void close(std::size_t place, Seconds now) {
    bring(place, now);
    if (load_[place] > 0) return;
    Replica& replica = replicas_[place];
    state_[place] = State::off;
    found_.parts[place].online += max(until_[place], replica.now()) - since_[place];
    while (replica.prefix_cache().idle_tokens() > 0) replica.prefix_cache().forget_oldest();
    index_.apply(place, replica.prefix_cache().changes());
    replica.prefix_cache().forget_changes();
  }

  static std::size_t count_of(std::span<const FleetKind> kinds) {
    std::size_t count = 0;
    for (const FleetKind& kind : kinds) count += static_cast<std::size_t>(kind.count);
    return count;
  }

  std::size_t drawn(std::size_t count) {
    return static_cast<std::size_t>(random_.below(static_cast<std::int32_t>(count)));
  }

  std::size_t route(std::size_t request, Seconds now) {
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
    }
    return 0;
  }

  /// The first lowest of all online, from a place on that moves with the requests.
  std::size_t lowest(const std::vector<double>& values, std::size_t request) const {
    const std::size_t count = online_.size(), first = request % count;
    std::size_t best = online_[first];
    const auto look_at = [&](std::size_t i) { best = values[i] < values[best] ? i : best; };
    for (std::size_t i = first + 1; i < count; ++i) look_at(online_[i]);
    for (std::size_t i = 0; i < first; ++i) look_at(online_[i]);
    return best;
  }

  std::size_t of_two(Seconds now) {
    const std::size_t count = online_.size(), first = drawn(count);
    const std::size_t one = online_[first];
    if (count == 1) return one;
    const std::size_t other = online_[(first + 1 + drawn(count - 1)) % count];
    bring(one, now);
    bring(other, now);
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

  std::size_t by_cost(std::size_t request) {
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

  std::size_t by_session(std::size_t request, Seconds now) {
    if (sessions_.empty() || sessions_[request] < 0) {
      bring_all(now);
      return lowest(load_, request);
    }
    SplitMix hash(static_cast<std::uint64_t>(sessions_[request]) ^ options_.seed);
    return online_[static_cast<std::size_t>(hash.next() % online_.size())];
  }

  void bring_all(Seconds until) {
    if (in_order_) {
      bring_in_order(until);
      return;
    }
    for (const std::size_t i : online_) {
      if (next_event_[i] < until.base()) bring(i, until);
    }
  }

  /// Replicas that share a tier read and write it in the order of their steps.
  void bring_in_order(Seconds until) {
    while (!agenda_.empty() && agenda_.top().first < until.base()) {
      const auto [time, place] = agenda_.top();
      agenda_.pop();
      if (next_event_[place] != time) continue;
      bring(place, Seconds{std::nextafter(time, kInfinity)});
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
    if (in_order_ && next_event_[place] < kInfinity) agenda_.push({next_event_[place], place});
  }

  void hand_over(std::size_t request, std::size_t chosen, Seconds now) {
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

  std::span<const Request> requests_;
  std::span<const std::int64_t> sessions_;
  const FleetOptions& options_;
  SplitMix random_;
  SplitMix luck_;  ///< of failures: whatever the router draws
  PrefixIndex index_;
  FleetResult found_;
  std::deque<TierStore> stores_;
  std::vector<std::set<const TierStore*>> by_tier_;
  std::vector<TierStore*> shared_;  ///< of each tier; none: every replica has its own
  bool counts_sent_ = false;        ///< prompts that were sent are in the index
  bool in_order_ = false;           ///< replicas advance together
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>,
                      std::greater<>>
      agenda_;  ///< then: next events of replicas, some of them out of date
  std::priority_queue<Event, std::vector<Event>, std::greater<>> happenings_;
  std::size_t retrying_ = 0;           ///< lost requests that are to be sent again
  std::vector<std::size_t> stranded_;  ///< requests that came while no replica was online
  std::deque<Replica> replicas_;
  std::optional<ScaleRule> rule_;
  Seconds next_look_;
  std::deque<Seconds> starts_;  ///< when replicas that start are ready
  std::vector<std::size_t> online_;
  std::vector<State> state_;
  std::vector<Seconds> since_;  ///< paid for since
  std::vector<Seconds> until_;  ///< ready at, back at, or takes no more requests since
  // By replica: what the router looks at, side by side.
  std::vector<double> next_event_;  ///< seconds
  std::vector<double> load_;        ///< requests between arrival and end
  std::vector<double> cost_;
  std::vector<std::int32_t> held_;  ///< blocks of the request at the router
};

}  // namespace

FleetResult simulate_fleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
                           std::span<const std::int64_t> sessions, const FleetOptions& options) {
  return Fleet(kinds, requests, sessions, options).run();
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
