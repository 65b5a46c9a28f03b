// A fleet while it runs: replicas, what happens to them, and the router before them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/fleet/fleet.hpp"
#include "scalemodel/fleet/prefix_index.hpp"

namespace scalemodel {

/// Replicas and the router before them.
class RunningFleet {
 public:
  RunningFleet(std::span<const FleetKind> kinds, std::span<const Request> requests,
               std::span<const std::int64_t> sessions, const FleetOptions& options);

  FleetResult run();

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

  CacheTiers tiers_of(const CacheBlocks& blocks);

  // Failures and admission.
  void expect_failures(Seconds now);
  void expect_failure(std::size_t place, Seconds now);
  void pass_events(Seconds until);
  void happen(const Event& event);
  /// A replica that works loses what it has, and takes requests again after a restart from `end`.
  void fail(std::size_t place, Seconds now, Seconds end);
  void lose(std::size_t request, Seconds now);
  void refuse(std::size_t request, Seconds now, NotServed why);
  bool shed(std::size_t request);
  /// A request finds its replica, or waits until one is back.
  void send(std::size_t request, Seconds now);
  /// After the last arrival things go wrong as long as there is work.
  void drain();
  bool working() const;

  // Autoscaling.
  /// All replicas are online, or as many as the autoscaler starts with.
  void begin(Seconds now);
  /// The replicas that take requests, in order.
  void list_online(Seconds now);
  /// What the autoscaler does until a time.
  void scale(Seconds until);
  void finish_starts(Seconds now);
  void look(Seconds now);
  double signal_of(const Replica& replica) const;
  /// One that still works takes requests again at once; another one starts with an empty cache.
  void start_one(Seconds now);
  /// The last one that starts is given up; else the last one online takes no more requests.
  void stop_one(Seconds now);
  /// A replica that drains is off once its last request has ended.
  void close(std::size_t place, Seconds now);

  static std::size_t count_of(std::span<const FleetKind> kinds) {
    std::size_t count = 0;
    for (const FleetKind& kind : kinds) count += static_cast<std::size_t>(kind.count);
    return count;
  }

  // Routers.
  std::size_t drawn(std::size_t count) {
    return static_cast<std::size_t>(random_.below(static_cast<std::int32_t>(count)));
  }
  std::size_t route(std::size_t request, Seconds now);
  /// The first lowest of all online, from a place on that moves with the requests.
  std::size_t lowest(const std::vector<double>& values, std::size_t request) const;
  std::size_t of_two(Seconds now);
  void count_held(std::size_t request);
  std::size_t by_prefix(std::size_t request);
  std::size_t by_cost(std::size_t request);
  std::size_t by_session(std::size_t request, Seconds now);
  std::size_t by_scores(std::size_t request, Seconds now);
  /// Queue and KV cache of every replica as its metrics said when they were last looked at.
  void scrape(Seconds now);
  /// A cost that grows from 0, for the lowest value or for none at all, to `weight` for the
  /// highest.
  void add_scores(double weight, const std::vector<double>& values, bool from_lowest);
  /// One of those of the lowest cost, at random.
  std::size_t any_lowest();

  // Replicas over time.
  void bring_all(Seconds until);
  /// Replicas that share a tier read and write it in the order of their steps.
  void bring_in_order(Seconds until);
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
    if (in_order_ && next_event_[place] < kInfinity) agenda_.emplace(next_event_[place], place);
  }
  void hand_over(std::size_t request, std::size_t chosen, Seconds now);
  void sum();

  std::span<const Request> requests_;
  std::span<const std::int64_t> sessions_;
  const FleetOptions& options_;
  SplitMix random_;
  /// Of each replica's failures: by its kind and its place there, so that a replica more changes
  /// nothing of what befalls the others.
  std::vector<SplitMix> luck_;
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
  std::vector<std::int32_t> held_;            ///< blocks of the request at the router
  std::vector<double> queued_, utilisation_;  ///< of its metrics, when they were scraped
  std::vector<double> active_;
  std::vector<std::size_t> best_;  ///< replicas of the highest score
  Seconds scraped_{-kInfinity};
};

}  // namespace scalemodel
