#include "scalemodel/fleet/fleet.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>

#include "fleet/fleet_support.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/base/random.hpp"
#include "scalemodel/serving/decode_load.hpp"
#include "scalemodel/serving/simulation.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

constexpr std::array kRouters{Router::round_robin,    Router::random,          Router::least_loaded,
                              Router::power_of_two,   Router::prefix_aware,    Router::kv_cost,
                              Router::session_sticky, Router::weighted_scorers};

FleetResult run_fleet(const Instance& one, int count, const FleetTraffic& traffic, Router router,
                      bool caches = true, double store = 0) {
  const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, count};
  FleetOptions options;
  options.policy.router = router;
  if (caches) options.caching = {traffic.names.columns(), store};
  return simulate_fleet({&kind, 1}, traffic.requests, traffic.sessions, options);
}

}  // namespace

TEST_CASE("a fleet of one replica without a cache is the stream, bit for bit") {
  for (const bool mixes : {true, false}) {
    for (const Admission admission : {Admission::prompt, Admission::whole_output}) {
      Engine engine = reference_engine();
      engine.mixed_batches = mixes;
      engine.admission = admission;
      engine.memory_fraction = 0.35;  // Some are preempted.
      const Instance one(dense_7b_shape(), 1, engine, {}, {800, 150, 0, 0, 0});
      const FleetTraffic traffic = conversations(2000, 12, 3);
      const StreamResult stream =
          simulate_stream(one.times, one.blocks, one.capacity, one.mix, traffic.requests, {});
      for (const Router router : kRouters) {
        const FleetResult fleet = run_fleet(one, 1, traffic, router, false);
        CHECK(fleet.totals == stream.totals);
        CHECK(std::equal(fleet.served.begin(), fleet.served.end(), stream.served.begin(),
                         same_service));
      }
      for (const auto& [router, balance] : {std::pair{Router::random, Balance::random},
                                            std::pair{Router::round_robin, Balance::round_robin}}) {
        const StreamResult three = simulate_stream(one.times, one.blocks, one.capacity, one.mix,
                                                   traffic.requests, {3, balance});
        const FleetResult fleet = run_fleet(one, 3, traffic, router, false);
        CHECK(fleet.totals == three.totals);
        CHECK(std::equal(fleet.served.begin(), fleet.served.end(), three.served.begin(),
                         same_service));
      }
    }
  }
}

TEST_CASE("every router obeys Little's law, conserves tokens and lets no work wait") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  const FleetTraffic traffic = conversations(3000, 15, 5);
  for (const bool caches : {false, true}) {
    for (const Router router : kRouters) {
      CAPTURE(name_of(router));
      const FleetResult found = run_fleet(one, 3, traffic, router, caches);
      double in_system = 0, input = 0, output = 0, requests = 0, parts_in_system = 0;
      for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
        const Served& served = found.served[i];
        in_system += (served.finished - traffic.requests[i].arrival).base();
        CHECK(traffic.requests[i].arrival < served.started);
        CHECK(served.started <= served.first_token);
        CHECK(served.first_token <= served.finished);
        CHECK(served.cached_tokens < traffic.requests[i].input);
        CHECK(std::fmod(served.cached_tokens, one.engine.block_tokens) == 0);
        input += traffic.requests[i].input;
        output += traffic.requests[i].output;
      }
      CHECK(found.totals.in_system_s == Approx(in_system).epsilon(1e-9));
      double part_input = 0, part_output = 0, part_cached = 0;
      for (const ReplicaTotals& part : found.parts) {
        requests += part.requests;
        part_input += part.input_tokens;
        part_output += part.output_tokens;
        part_cached += part.cached_tokens;
        parts_in_system += part.stream.in_system_s;
        CHECK(part.stream.busy <= part.stream.makespan);
      }
      CHECK(requests == static_cast<double>(traffic.requests.size()));
      CHECK(part_input == input);
      CHECK(part_output == output);
      CHECK(part_cached == hit_tokens(found));
      CHECK(parts_in_system == Approx(in_system).epsilon(1e-9));
      CHECK((hit_tokens(found) > 0) == caches);
    }
  }
}

TEST_CASE("a replica works as long as anything waits for it") {
  // Idle time of one replica: the gaps between the last end and the next arrival.
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  const FleetTraffic traffic = conversations(2000, 1.2, 9);
  const FleetResult found = run_fleet(one, 1, traffic, Router::least_loaded);
  double idle = 0, until = traffic.requests.front().arrival.base();
  for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
    const double enters = (traffic.requests[i].arrival + one.engine.request_host).base();
    idle += std::max(0.0, enters - until);
    until = std::max(until, found.served[i].finished.base());
  }
  const StreamTotals& totals = found.totals;
  CHECK(idle > 0);
  CHECK((totals.busy + Seconds{idle}).base() == Approx(totals.makespan.base()).epsilon(1e-9));
}

namespace {

/// A server whose steps take one second whatever they hold: a queue of the textbook.
struct TextbookQueue {
  Engine engine;
  Instance one;
  CacheCapacity capacity;

  TextbookQueue(double output, int slots)
      : engine(engine_of_seconds()),
        one(dense_7b_shape(), 1, engine, {}, {1, output, 0, 0, 0}),
        capacity(one.capacity) {
    capacity.step_sequences = slots;
  }
  static Engine engine_of_seconds() {
    Engine e = reference_engine();
    e.step_host = Seconds{1000};  // Beside which nothing else of a step counts.
    e.sequence_host = e.request_host = e.collective_wait = Seconds{};
    return e;
  }
  /// Mean wait in service times.
  double wait(int count, double load, double output, bool exponential) const {
    SplitMix random(11);
    FleetTraffic traffic;
    double now = 0;
    const double service = 1000 * output;
    for (int i = 0; i < count; ++i) {
      now -= std::log(1 - random.unit()) * service / (load * capacity.step_sequences);
      const double length = exponential ? -std::log(1 - random.unit()) * output : output;
      traffic.requests.push_back({Seconds{now}, 1, std::max(1.0, std::round(length)), true});
    }
    const FleetKind kind{{one.times, one.blocks, capacity, one.mix}, 1};
    const FleetResult found = simulate_fleet({&kind, 1}, traffic.requests, {}, {});
    double sum = 0;
    for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
      sum += (found.served[i].started - traffic.requests[i].arrival).base();
    }
    return sum / count / service;
  }
};

/// Probability that an arrival waits in M/M/c (Erlang C).
double erlang_c(int servers, double load) {
  double term = 1, sum = 0;
  for (int k = 0; k < servers; ++k) {
    sum += term;
    term *= load * servers / (k + 1);
  }
  const double last = term / (1 - load);
  return last / (sum + last);
}

}  // namespace

TEST_CASE("the limits of queues: M/D/1, and M/M/c of the slots of a replica") {
  constexpr double kOutput = 400;
  const TextbookQueue single(kOutput, 1);
  for (const double load : {0.5, 0.7}) {
    CHECK(single.wait(400'000, load, kOutput, false) ==
          Approx(load / (2 * (1 - load))).epsilon(0.02));
  }
  for (const int slots : {1, 2, 4}) {
    const TextbookQueue queue(kOutput, slots);
    const double load = 0.7;
    CHECK(queue.wait(1'000'000, load, kOutput, true) ==
          Approx(erlang_c(slots, load) / (slots * (1 - load))).epsilon(0.02));
  }
}

TEST_CASE("a store of prefixes hits what an independent LRU list does") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 20, 0, 0, 0});
  FleetTraffic traffic = conversations(3000, 1, 17);
  // One at a time: what others use at the same moment never leaves.
  for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
    traffic.requests[i].arrival = Seconds{100.0 * static_cast<double>(i)};
    traffic.requests[i].output = 5;
  }
  const double size = traffic.names.block_tokens;
  for (const double blocks : {50.0, 200.0, 1000.0, 1e6}) {
    const FleetResult found = run_fleet(one, 1, traffic, Router::round_robin, true, blocks * size);
    std::list<BlockHash> held;  // The least recently used last.
    for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
      const std::span<const BlockHash> names = traffic.names.columns().of(i);
      std::size_t hits = 0;
      for (const BlockHash name : names) {
        if (std::find(held.begin(), held.end(), name) == held.end()) break;
        ++hits;
      }
      const double most = std::floor((traffic.requests[i].input - 1) / 16) * 16;
      REQUIRE(found.served[i].cached_tokens == std::min(static_cast<double>(hits) * size, most));
      // What was computed enters at the front; its start is the most recently used.
      for (auto name = names.rbegin(); name != names.rend(); ++name) {
        held.remove(*name);
        held.push_front(*name);
      }
      while (static_cast<double>(held.size()) > blocks) held.pop_back();
    }
  }
}

TEST_CASE("on shared prefixes the routers rank as published") {
  // Long prompts that share most of themselves, short answers: prefill decides.
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {2000, 20, 0, 0, 0});
  FleetTraffic traffic = conversations(6000, 14, 23, 8);
  SplitMix random(5);
  for (Request& request : traffic.requests) request.output = 1.0 + random.below(40);
  const FleetResult turn = run_fleet(one, 8, traffic, Router::round_robin);
  const FleetResult least = run_fleet(one, 8, traffic, Router::least_loaded);
  const FleetResult aware = run_fleet(one, 8, traffic, Router::prefix_aware);
  const FleetResult cost = run_fleet(one, 8, traffic, Router::kv_cost);
  CHECK(hit_tokens(aware) > 1.2 * hit_tokens(least));
  CHECK(hit_tokens(cost) > hit_tokens(least));
  CHECK(mean_ttft(traffic, aware) < mean_ttft(traffic, least));
  CHECK(mean_ttft(traffic, least) < mean_ttft(traffic, turn));
  CHECK(mean_ttft(traffic, cost) < mean_ttft(traffic, least));
}

TEST_CASE("a fleet stops when it is told to, and the same question has the same answer") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  const FleetTraffic traffic = conversations(5000, 15, 5);
  const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, 2};
  {
    const Listening listening([](std::uint64_t, std::uint64_t) { return false; });
    const auto forever = [&] {
      while (true) simulate_fleet({&kind, 1}, traffic.requests, {}, {});
    };
    CHECK_THROWS_AS(forever(), Stopped);
  }
  for (const Router router : {Router::prefix_aware, Router::power_of_two}) {
    CHECK(run_fleet(one, 3, traffic, router).totals == run_fleet(one, 3, traffic, router).totals);
  }
}

TEST_CASE("fairness is 1 for equal shares and 1/n for one that has everything") {
  CHECK(jain_index(std::array{3.0, 3.0, 3.0}) == Approx(1));
  CHECK(jain_index(std::array{0.0, 5.0, 0.0, 0.0}) == Approx(0.25));
}

TEST_CASE("a router that counts what it sent keeps a burst of one beginning together") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  FleetTraffic traffic = conversations(400, 15, 5);
  for (Request& request : traffic.requests) request.arrival = Seconds{1};
  const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, 4};
  FleetOptions options;
  options.policy.router = Router::prefix_aware;
  options.policy.balance_requests = 1e9;
  options.caching.prefixes = traffic.names.columns();
  const FleetResult blind = simulate_fleet({&kind, 1}, traffic.requests, {}, options);
  options.policy.counts_sent = true;
  const FleetResult sent = simulate_fleet({&kind, 1}, traffic.requests, {}, options);
  CHECK(hit_tokens(sent) > 1.2 * hit_tokens(blind));
  // Each session stays where its first prompt went.
  for (std::size_t i = 0; i < traffic.sessions.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (traffic.sessions[i] == traffic.sessions[j]) CHECK(sent.replicas[i] == sent.replicas[j]);
    }
  }
}

TEST_CASE("scorers choose by what they weigh, and by metrics as old as their scrape") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  const FleetTraffic traffic = conversations(3000, 100, 5);
  const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, 4};
  const auto served = [&](const RouterPolicy& policy) {
    FleetOptions options;
    options.policy = policy;
    if (policy.prefix_weight > 0) options.caching = {traffic.names.columns(), 0};
    return simulate_fleet({&kind, 1}, traffic.requests, traffic.sessions, options);
  };
  RouterPolicy none;
  none.router = Router::weighted_scorers;
  none.queue_weight = none.kv_cache_weight = none.prefix_weight = none.active_weight = 0;
  RouterPolicy prefix = none, active = none, old = none;
  prefix.prefix_weight = 1;
  active.active_weight = 1;
  RouterPolicy blind = prefix;
  blind.prefix_weight = 1e-300;  // It counts nothing beside the least load.
  blind.active_weight = 1;
  CHECK(hit_tokens(served(prefix)) > 1.2 * hit_tokens(served(blind)));
  CHECK(mean_ttft(traffic, served(active)) < mean_ttft(traffic, served(none)));
  // By the headers nothing is under way for long: nothing is known of loads.
  RouterPolicy headers = active;
  headers.active_until_end = false;
  CHECK(mean_ttft(traffic, served(active)) < mean_ttft(traffic, served(headers)));
  // Twice all weights is the same; what was never looked at is equal everywhere.
  RouterPolicy twice = prefix;
  twice.prefix_weight = 2;
  CHECK(served(twice).replicas == served(prefix).replicas);
  old.queue_weight = old.kv_cache_weight = 1;
  old.scrape_interval = Seconds{1e6};
  CHECK(served(old).replicas == served(none).replicas);
  RouterPolicy fresh = old;
  fresh.scrape_interval = Seconds{};
  old.scrape_interval = Seconds{5};
  CHECK(mean_ttft(traffic, served(fresh)) < mean_ttft(traffic, served(old)));
}

TEST_CASE("a replica draws working power in its steps, idle power while it is online") {
  ReplicaTotals part;
  part.online = 80 * unit::s;
  part.stream.busy = 60 * unit::s;
  const Watts mean = mean_power(part, 100 * unit::s, 500 * unit::W, 100 * unit::W);
  CHECK(mean.base() == Approx(320));
}

TEST_CASE("a decoding step reads its caches at the mean context, and weights once a replica") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  const auto load = [&](bool narrow, double sequences) {
    return decode_load(
        {one.model, one.cluster, one.layout, one.blocks, one.capacity, false, narrow}, one.mix,
        sequences);
  };
  const DecodeLoad wide = load(false, 32);
  CHECK(wide.sequences == 32);
  CHECK(wide.weight_bytes == Approx(2).epsilon(0.01));
  CHECK(wide.cache.base() == Approx(one.blocks.of(800 + 151 / 2.0) * one.capacity.block.base()));
  CHECK(wide.peak == one.cluster.accelerator.peak_of(Precision::bf16));
  const FlopPerSecond eight = one.cluster.accelerator.peak_of(Precision::fp8);
  CHECK(load(true, 32).peak == (eight > FlopPerSecond{} ? eight : wide.peak));
  CHECK(load(false, 0).sequences > 0);
}

}  // namespace scalemodel::testing
