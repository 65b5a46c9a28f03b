#include <cmath>
#include <set>

#include "fleet/fleet_support.hpp"
#include "scalemodel/fleet/fleet.hpp"
#include "scalemodel/fleet/tier_reach.hpp"
#include "scalemodel/serving/simulation.hpp"

namespace scalemodel::testing {
namespace {

CacheTier fast_tier() {
  CacheTier tier;
  tier.capacity = 1e18 * unit::B;
  tier.read = tier.write = 1e15 * unit::B / unit::s;
  return tier;
}

/// A replica whose KV cache forgets between the turns of a conversation.
Instance small_replica() {
  Engine engine = reference_engine();
  engine.memory_fraction = 0.3;
  return Instance(dense_7b_shape(), 1, engine, {}, {800, 150, 0, 0, 0});
}

FleetResult with_tiers(const Instance& one, int count, const FleetTraffic& traffic,
                       const std::vector<CacheTier>& tiers, Router router = Router::round_robin) {
  const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, count};
  FleetOptions options;
  options.policy.router = router;
  options.caching.prefixes = traffic.names.columns();
  options.tiers = tiers;
  return simulate_fleet({&kind, 1}, traffic.requests, traffic.sessions, options);
}

bool all_same(const FleetResult& one, const FleetResult& other) {
  return one.totals == other.totals &&
         std::equal(one.served.begin(), one.served.end(), other.served.begin(), same_service);
}

}  // namespace

TEST_CASE("a tier that holds nothing, or whose hits are too short, is no tier, bit for bit") {
  const Instance one = small_replica();
  const FleetTraffic traffic = conversations(1500, 8, 3);
  const FleetResult plain = with_tiers(one, 3, traffic, {});
  for (const bool shared : {false, true}) {
    for (const bool layerwise : {false, true}) {
      CacheTier none = fast_tier(), short_hits = fast_tier();
      none.shared = short_hits.shared = shared;
      none.layerwise = short_hits.layerwise = layerwise;
      none.capacity = Bytes{};
      short_hits.threshold_tokens = 1e9;
      CHECK(all_same(with_tiers(one, 3, traffic, {none}), plain));
      CHECK(all_same(with_tiers(one, 3, traffic, {short_hits}), plain));
      CHECK(all_same(with_tiers(one, 3, traffic, {none, short_hits}), plain));
    }
  }
}

TEST_CASE("bytes of a tier are those of the tokens loaded, and pass at its bandwidth") {
  const Instance one = small_replica();
  const FleetTraffic traffic = conversations(1500, 8, 5);
  for (const TierWrites writes :
       {TierWrites::write_through, TierWrites::write_through_selective, TierWrites::write_back}) {
    for (const bool shared : {false, true}) {
      CacheTier tier = fast_tier();
      tier.read = 30e9 * unit::B / unit::s;
      tier.write = 20e9 * unit::B / unit::s;
      tier.latency = 100 * unit::us;
      tier.writes = writes;
      tier.shared = shared;
      const FleetResult found = with_tiers(one, 3, traffic, {tier});
      const TierTotals& totals = found.tiers.front();
      CAPTURE(name_of(writes));
      CHECK(totals.hit_tokens > 0);
      CHECK(totals.read.base() == Approx(totals.hit_tokens * one.blocks.token().base()));
      CHECK((totals.read_busy * tier.read).base() == Approx(totals.read.base()));
      CHECK((totals.write_busy * tier.write).base() == Approx(totals.written.base()));
      CHECK(totals.evicted == Bytes{});
      double deepest = 0;
      for (const Served& served : found.served) deepest += served.tier;
      CHECK(deepest <= totals.hits);
      CHECK(hit_tokens(found) >= hit_tokens(with_tiers(one, 3, traffic, {})));
    }
  }
}

TEST_CASE("a large pool that all share holds every block that was ever computed") {
  const Instance one = small_replica();
  FleetTraffic traffic = conversations(1200, 1, 7);  // Far apart: each ends before the next.
  for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
    traffic.requests[i].arrival = Seconds{100.0 * static_cast<double>(i)};
  }
  CacheTier pool = fast_tier();
  pool.shared = true;
  const FleetResult found = with_tiers(one, 3, traffic, {pool});
  std::set<BlockHash> seen;
  double expected = 0;
  for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
    const auto names = traffic.names.columns().of(i);
    double hit = 0;
    for (const BlockHash name : names) {
      if (!seen.contains(name)) break;
      hit += traffic.names.block_tokens;
    }
    seen.insert(names.begin(), names.end());
    const double last = std::floor((traffic.requests[i].input - 1) / one.engine.block_tokens);
    expected += std::min(hit, last * one.engine.block_tokens);
  }
  CHECK(hit_tokens(found) == expected);
}

TEST_CASE("a faster tier serves no request later on an idle replica") {
  const Instance one = small_replica();
  FleetTraffic traffic = conversations(600, 1, 9);
  for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
    traffic.requests[i].arrival = Seconds{100.0 * static_cast<double>(i)};
  }
  const auto ttft = [&](double bandwidth, bool layerwise) {
    CacheTier pool = fast_tier();
    pool.shared = true;
    pool.layerwise = layerwise;
    pool.read = bandwidth * unit::B / unit::s;
    return mean_ttft(traffic, with_tiers(one, 3, traffic, {pool}));
  };
  double before = kInfinity, layerwise_before = kInfinity;
  for (const double bandwidth : {1e8, 1e9, 1e10, 1e11, 1e13}) {
    const double now = ttft(bandwidth, false), layerwise = ttft(bandwidth, true);
    CHECK(now <= before);
    CHECK(layerwise <= layerwise_before);
    CHECK(layerwise <= now);  // To compute beside the load is faster still.
    before = now;
    layerwise_before = layerwise;
  }
  CHECK(before < mean_ttft(traffic, with_tiers(one, 3, traffic, {})));
  // The link of a replica is the limit of a pool that is faster.
  CacheTier slow = fast_tier(), linked = fast_tier();
  slow.shared = linked.shared = true;
  slow.read = linked.link = 1e9 * unit::B / unit::s;
  CHECK(mean_ttft(traffic, with_tiers(one, 3, traffic, {linked})) ==
        Approx(mean_ttft(traffic, with_tiers(one, 3, traffic, {slow}))));
}

TEST_CASE("what the upper tier evicts is found in the lower one") {
  const Instance one = small_replica();
  const FleetTraffic traffic = conversations(1500, 8, 5);
  CacheTier small = fast_tier(), large = fast_tier();
  small.capacity = 2000 * one.blocks.token();
  small.writes = large.writes = TierWrites::write_back;
  const FleetResult both = with_tiers(one, 1, traffic, {small, large});
  CHECK(both.tiers[0].evicted > Bytes{});
  CHECK(both.tiers[1].written > Bytes{});
  CHECK(both.tiers[1].written <= both.tiers[0].evicted);
  CHECK(both.tiers[1].hit_tokens > 0);
  CHECK(hit_tokens(both) > hit_tokens(with_tiers(one, 1, traffic, {small})));
}

TEST_CASE("a look at a replica with tiers changes nothing of what it does") {
  const Instance one = small_replica();
  const FleetTraffic traffic = conversations(800, 3, 13);
  for (const bool layerwise : {false, true}) {
    CacheTier tier = fast_tier();
    tier.read = 5e9 * unit::B / unit::s;
    tier.layerwise = layerwise;
    std::vector<std::vector<Served>> found;
    for (const double step : {0.0, 0.003}) {
      TierStore store(tier);
      std::vector<Served>& served = found.emplace_back(traffic.requests.size());
      Replica replica({one.times, one.blocks, one.capacity, one.mix}, traffic.requests, served,
                      {{traffic.names.columns(), 0}, {{&store}, one.blocks.token()}, {}});
      double now = 0;
      for (std::size_t i = 0; i < traffic.requests.size(); ++i) {
        const Seconds arrival = traffic.requests[i].arrival;
        for (; step > 0 && now < arrival.base(); now += step) replica.advance(Seconds{now});
        replica.advance(arrival);
        replica.offer(i, traffic.requests[i].input);
      }
      replica.advance(Seconds{kInfinity});
    }
    CHECK(std::equal(found[0].begin(), found[0].end(), found[1].begin(), same_service));
  }
}

TEST_CASE("a prefix is worth loading where its bytes come faster than its computation") {
  const Instance one = small_replica();
  const ReplicaSetup setup{one.times, one.blocks, one.capacity, one.mix};
  CacheTier tier = fast_tier();
  tier.read = 20e9 * unit::B / unit::s;
  tier.latency = 1 * unit::ms;
  const PrefixTimes times = prefix_times(setup, tier, 2000, 100);
  CHECK(times.load == load_time(tier, 2000 * one.blocks.token()));
  CHECK(times.exposed == times.load);
  const double whole[]{2100}, rest[]{100};
  const Request request{{}, 2100, 1, false};
  const Seconds computed = latencies_alone(setup, {&request, 1}, whole).front() -
                           latencies_alone(setup, {&request, 1}, rest).front();
  CHECK(times.compute.base() == Approx(computed.base()));
  tier.layerwise = true;
  const PrefixTimes hidden = prefix_times(setup, tier, 2000, 100);
  CHECK(hidden.exposed < hidden.load);
  CHECK(prefix_times(setup, tier, 16, 4000).exposed == Seconds{});
}

TEST_CASE("a tier is as fast as what its ranks reach it by") {
  CacheTier settings;
  settings.capacity = Bytes{};
  TierReach reach;
  reach.ranks = 4;
  reach.replicas = 3;
  reach.rank_capacity = 1e12 * unit::B;
  reach.link = 50e9 * unit::B / unit::s;
  reach.reached = 0.8;
  const CacheTier own = reached_tier(settings, reach);
  CHECK(own.read == 160e9 * unit::B / unit::s);
  CHECK(own.write == own.read);
  CHECK(own.link == BytesPerSecond{});
  CHECK(own.capacity == 4e12 * unit::B);
  settings.shared = true;
  const CacheTier shared = reached_tier(settings, reach);
  CHECK(shared.read == 3 * own.read);
  CHECK(shared.link == own.read);
  CHECK(shared.capacity == 3 * own.capacity);
  // Ranks share what a node reads; a replica of several nodes reads on all of them.
  reach.link = BytesPerSecond{};
  reach.node_accelerators = 8;
  reach.node_read = 40e9 * unit::B / unit::s;
  reach.node_write = 20e9 * unit::B / unit::s;
  settings.shared = false;
  settings.capacity = 7 * unit::B;
  const CacheTier node = reached_tier(settings, reach);
  CHECK(node.read == 20e9 * unit::B / unit::s);
  CHECK(node.write == 10e9 * unit::B / unit::s);
  CHECK(node.capacity == 7 * unit::B);
  CHECK(weights_bandwidth(reach) == reach.node_read);
  reach.ranks = 16;
  CHECK(weights_bandwidth(reach) == 2 * reach.node_read);
  reach.link = 50e9 * unit::B / unit::s;
  CHECK(weights_bandwidth(reach) == 640e9 * unit::B / unit::s);
}

}  // namespace scalemodel::testing
