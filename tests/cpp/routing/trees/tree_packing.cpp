// Plans beside paths: shifts in time, trees, graphs made for their traffic.
#include "scalemodel/routing/trees/tree_packing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/fabric/direct_connect.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"
#include "scalemodel/routing/simulation/time_shift.hpp"

namespace scalemodel {
namespace {

/// Jobs that send across the only spine, each for `busy` of its period of one second.
struct OneSpine {
  LinkGraph graph = testing::clos(2, 1, 8);
  Flows flows;
  std::vector<JobSchedule> schedules;

  explicit OneSpine(const std::vector<std::pair<double, double>>& busy_and_period) {
    for (const auto& [busy, period] : busy_and_period) {
      open_job(flows);
      ++flows.groups;
      const auto nic = static_cast<std::int32_t>(schedules.size());
      flows.add(nic, 8 + nic, Seconds{busy} * testing::kPort);
      schedules.push_back({1, 20, Seconds{}, Seconds{period - busy}});
    }
  }
  TimeShifts shifts(int finest = 40) const {
    const RoutingInstance instance(graph, flows);
    return time_shifts(instance, single_path(greedy(instance)), schedules, finest, 1);
  }
  /// Mean time of collectives when every job starts at its shift.
  double mean_time(std::span<const double> shift) const {
    std::vector<JobSchedule> shifted = schedules;
    for (std::size_t j = 0; j < shift.size(); ++j) shifted[j].start = Seconds{shift[j]};
    const RoutingInstance instance(graph, flows);
    const NetworkRun run =
        simulate_network(instance, single_path(greedy(instance)), shifted, Seconds{});
    double sum = 0;
    for (std::size_t i = 0; i < run.end.size(); ++i) sum += run.end[i] - run.start[i];
    return sum / static_cast<double>(run.end.size());
  }
};

TEST_CASE("two equal jobs that are busy half of the time do not notice each other once shifted") {
  for (const double busy : {0.1, 0.3, 0.5}) {
    const OneSpine question({{busy, 1}, {busy, 1}});
    const TimeShifts shifts = question.shifts();
    CHECK(shifts.score == doctest::Approx(1));
    CHECK(shifts.score_before < 1);
    CHECK(shifts.shift[0] == 0);
    const std::vector<double> none{0, 0};
    CHECK(question.mean_time(shifts.shift) == doctest::Approx(busy));
    CHECK(question.mean_time(none) > 1.9 * busy);
  }
}

TEST_CASE("what does not fit in the circle stays over, and shifts never make it worse") {
  SplitMix random(5);
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<std::pair<double, double>> jobs;
    const int count = 2 + random.below(3);
    double duty = 0;
    for (int j = 0; j < count; ++j) {
      const double period = 1 + random.below(2), busy = period * (0.1 + 0.5 * random.unit());
      jobs.emplace_back(busy, period);
      duty += busy / period;
    }
    const TimeShifts shifts = OneSpine(jobs).shifts();
    CHECK(shifts.score >= shifts.score_before);
    CHECK(shifts.score <= 1 + 1e-12);
    // The mean load of the circle is fixed; what is above capacity cannot be less than that.
    CHECK(shifts.score <= 1 - std::max(duty - 1, 0.0) + 1e-9);
    CHECK(shifts.slots <= 1024);
    for (int j = 0; j < count; ++j) {
      CHECK(shifts.shift[j] >= 0);
      CHECK(shifts.shift[j] < shifts.period[j] * (1 + shifts.period_error));
    }
  }
}

TEST_CASE("periods of one to two share a circle of the longer one") {
  const OneSpine question({{0.4, 1}, {0.4, 2}});
  const TimeShifts shifts = question.shifts();
  CHECK(shifts.score == doctest::Approx(1));
  CHECK(shifts.period_error < 1e-9);
  CHECK(shifts.slots * shifts.slot == doctest::Approx(2));
}

constexpr BytesPerSecond kLink{25e9};

/// GPUs 0 to 7 of a DGX-1 with V100: six links each, some of them double.
std::vector<Edge> cube_mesh() {
  constexpr std::array<std::array<int, 3>, 16> kLinks{{{0, 1, 1},
                                                       {0, 2, 1},
                                                       {0, 3, 2},
                                                       {0, 4, 2},
                                                       {1, 2, 2},
                                                       {1, 3, 1},
                                                       {1, 5, 2},
                                                       {2, 3, 2},
                                                       {2, 6, 1},
                                                       {3, 7, 1},
                                                       {4, 5, 1},
                                                       {4, 6, 1},
                                                       {4, 7, 2},
                                                       {5, 6, 2},
                                                       {5, 7, 1},
                                                       {6, 7, 2}}};
  std::vector<Edge> edges;
  for (const auto& [a, b, width] : kLinks) edges.push_back({a, b, width * kLink, {}});
  return edges;
}

LinkGraph allocation(const std::vector<int>& gpus) {
  std::vector<Edge> edges;
  for (Edge edge : cube_mesh()) {
    const auto a = std::ranges::find(gpus, edge.a), b = std::ranges::find(gpus, edge.b);
    if (a == gpus.end() || b == gpus.end()) continue;
    edge.a = static_cast<std::int32_t>(a - gpus.begin());
    edge.b = static_cast<std::int32_t>(b - gpus.begin());
    edges.push_back(edge);
  }
  return custom_fabric(static_cast<std::int32_t>(gpus.size()), 0, edges);
}

void check_packing(const LinkGraph& graph, const TreePacking& packing, std::int32_t root,
                   bool both_ways) {
  std::vector<double> load(graph.links(), 0.0);
  for (std::size_t t = 0; t < packing.rate.size(); ++t) {
    CHECK(packing.rate[t] > 0);
    std::vector<char> reached(graph.nodes(), 0);
    reached[root] = 1;
    REQUIRE(packing.first[t + 1] - packing.first[t] == graph.nodes() - 1);
    for (std::int32_t i = packing.first[t]; i < packing.first[t + 1]; ++i) {
      const std::int32_t link = packing.link[i];
      CHECK(reached[graph.from(link)] == 1);
      CHECK(reached[graph.to(link)] == 0);
      reached[graph.to(link)] = 1;
      load[link] += packing.rate[t];
      if (both_ways) load[LinkGraph::reverse(link)] += packing.rate[t];
    }
  }
  for (std::int32_t link = 0; link < graph.links(); ++link) {
    CHECK(load[link] <= graph.capacity(link).base() * (1 + 1e-9));
  }
}

TEST_CASE("broadcast trees carry the least maximum flow on random graphs") {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SplitMix random(seed);
    const int nics = 2 + random.below(7);
    std::vector<Edge> edges;
    for (int a = 1; a < nics; ++a) {
      edges.push_back({a, random.below(a), (1 + random.below(3)) * kLink, {}});
    }
    for (int extra = random.below(8); extra > 0; --extra) {
      const int a = random.below(nics), b = random.below(nics);
      if (a != b) edges.push_back({a, b, (1 + random.below(3)) * kLink, {}});
    }
    const LinkGraph graph = custom_fabric(nics, 0, edges);
    const std::int32_t root = random.below(nics);
    CAPTURE(seed);
    const TreePacking trees = pack_broadcast(graph, root);
    check_packing(graph, trees, root, false);
    CHECK(trees.total().base() == doctest::Approx(broadcast_bound(graph, root).base()));
    const TreePacking both = pack_all_reduce(graph, root, 0.05);
    check_packing(graph, both, root, true);
    CHECK(both.total() <= all_reduce_bound(graph) * (1 + 1e-9));
    CHECK(both.total() <= trees.total() * (1 + 1e-9));
  }
}

TEST_CASE("trees use all links of a DGX-1 where rings cannot") {
  const LinkGraph whole = allocation({0, 1, 2, 3, 4, 5, 6, 7});
  const TreePacking trees = pack_broadcast(whole, 0);
  check_packing(whole, trees, 0, false);
  // Six links of 25 GB/s leave the root, and as much reaches everyone.
  CHECK(trees.total().base() == doctest::Approx(150e9));
  CHECK(trees.rate.size() <= 6);
  // 24 links over 7: what three double rings reach, 150 GB/s of bus bandwidth over 2 (7 / 8).
  const TreePacking both = pack_all_reduce(whole, 0, 0.03);
  CHECK(both.total().base() == doctest::Approx(24.0 / 7 * 25e9).epsilon(0.03));
  CHECK(all_reduce_bound(whole).base() == doctest::Approx(24.0 / 7 * 25e9));
  // Without a ring over GPUs 0, 1 and 4, NCCL falls back to PCIe; trees still have links.
  const LinkGraph chain = allocation({1, 0, 4});
  CHECK(pack_broadcast(chain, 1).total().base() == doctest::Approx(25e9));
  CHECK(pack_broadcast(chain, 0).total().base() == doctest::Approx(25e9));
  // A whole half: every GPU has four links to the others.
  const LinkGraph half = allocation({0, 1, 2, 3});
  CHECK(pack_broadcast(half, 0).total().base() == doctest::Approx(100e9));
}

TEST_CASE("fabrics with switches, gaps or strange bandwidths are not packed") {
  CHECK_THROWS_AS(pack_broadcast(testing::clos(2, 2, 2), 0), MalformedQuestion);
  const LinkGraph gap = custom_fabric(3, 0, std::vector<Edge>{{0, 1, testing::kPort, {}}});
  CHECK_THROWS_AS(pack_broadcast(gap, 0), MalformedQuestion);
  CHECK_THROWS_AS(pack_all_reduce(gap, 0, 0.1), MalformedQuestion);
  const std::vector<Edge> strange{{0, 1, testing::kPort, {}},
                                  {1, 2, 1.23456789 * testing::kPort, {}}};
  CHECK_THROWS_AS(pack_broadcast(custom_fabric(3, 0, strange), 0), MalformedQuestion);
}

TEST_CASE("strides visit every NIC and differ") {
  for (const int nics : {2, 3, 8, 12, 16, 31, 128}) {
    const auto strides = ring_strides(nics, 3);
    CHECK_FALSE(strides.empty());
    CHECK(strides.front() == 1);
    for (std::size_t i = 0; i < strides.size(); ++i) {
      CHECK(std::gcd(strides[i], nics) == 1);
      CHECK(2 * strides[i] <= nics);
      CHECK(std::ranges::count(strides, strides[i]) == 1);
    }
  }
  CHECK(ring_strides(16, 4) == std::vector<std::int32_t>{1, 3, 5, 7});
}

TEST_CASE("a heavy matching joins nobody twice and is at least half of the best") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SplitMix random(seed);
    const std::int32_t nics = 6;
    std::vector<NicDemand> demands;
    std::array<std::array<double, 6>, 6> weight{};
    for (std::int32_t a = 0; a < nics; ++a) {
      for (std::int32_t b = a + 1; b < nics; ++b) {
        if (random.below(3) == 0) continue;
        demands.push_back({a, b, random.unit()});
        weight[a][b] = weight[b][a] = demands.back().bytes;
      }
    }
    double found = 0;
    std::array<int, 6> used{};
    for (const Edge& edge : heavy_matching(nics, demands)) {
      found += weight[edge.a][edge.b];
      CHECK(++used[edge.a] == 1);
      CHECK(++used[edge.b] == 1);
    }
    // The best of all perfect matchings of six: each is some order of them, two by two.
    std::array<int, 6> order{0, 1, 2, 3, 4, 5};
    double best = 0;
    do {
      best = std::max(best, weight[order[0]][order[1]] + weight[order[2]][order[3]] +
                                weight[order[4]][order[5]]);
    } while (std::ranges::next_permutation(order).found);
    CHECK(found >= 0.5 * best);
    CHECK(found <= best + 1e-12);
  }
}

TEST_CASE("a direct-connect fabric gives no NIC more cables than ports") {
  const std::vector<NicDemand> demands{{0, 5, 8}, {5, 0, 8}, {1, 2, 3}, {3, 6, 5}};
  const std::vector<std::int32_t> strides = ring_strides(8, 1);
  const LinkGraph graph = direct_connect(8, 4, strides, demands, {testing::kPort, {}});
  for (std::int32_t nic = 0; nic < 8; ++nic) {
    CHECK(graph.links_from(nic).size() <= 4);
    CHECK(graph.links_from(nic).size() >= 2);
  }
  // Half of the heaviest pair's demand is more than any other's.
  const auto joins = [&](std::int32_t a, std::int32_t b) {
    return std::ranges::count_if(graph.links_from(a),
                                 [&](std::int32_t l) { return graph.to(l) == b; });
  };
  CHECK(joins(0, 5) == 2);
  CHECK(joins(3, 6) == 2);
  CHECK_THROWS_AS(direct_connect(8, 1, strides, demands, {}), MalformedQuestion);
  const std::vector<std::int32_t> even{2};
  CHECK_THROWS_AS(direct_connect(8, 4, even, {}, {}), MalformedQuestion);
  const std::vector<NicDemand> nobody{{0, 8, 1}};
  CHECK_THROWS_AS(direct_connect(8, 4, strides, nobody, {}), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
