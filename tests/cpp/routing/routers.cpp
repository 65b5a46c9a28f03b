#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/routing/annealing.hpp"
#include "scalemodel/routing/colouring.hpp"
#include "scalemodel/routing/ecmp.hpp"
#include "scalemodel/routing/exact_filling.hpp"
#include "scalemodel/routing/exhaustive.hpp"
#include "scalemodel/routing/greedy.hpp"
#include "scalemodel/routing/job_objective.hpp"
#include "scalemodel/routing/local_search.hpp"
#include "scalemodel/routing/objective.hpp"
#include "scalemodel/routing/plane_annealing.hpp"
#include "scalemodel/routing/route.hpp"
#include "scalemodel/routing/set_colouring.hpp"
#include "scalemodel/routing/spray.hpp"

namespace scalemodel {
namespace {

using testing::clos;
using testing::paper_fabric;

int most_flows(const RoutingInstance& instance, const Choice& choice) {
  return fabric_load(instance, single_path(choice)).flows;
}

TEST_CASE("a balanced colouring gives every vertex floor or ceil of its degree in each colour") {
  SplitMix random(3);
  for (int trial = 0; trial < 400; ++trial) {
    const std::int32_t left = 1 + random.below(12), right = 1 + random.below(12);
    const std::int32_t colours = 1 + random.below(trial % 2 == 0 ? 9 : 40);
    const std::int32_t edges = random.below(300);
    std::vector<std::int32_t> from(edges), to(edges), colour(edges, -1);
    for (std::int32_t e = 0; e < edges; ++e) {
      from[e] = random.below(left);
      to[e] = random.below(right);
    }
    balanced_colouring(left, right, from, to, colours, colour);
    CAPTURE(trial);
    for (const auto& [end, count] : {std::pair{&from, left}, std::pair{&to, right}}) {
      std::vector<std::vector<int>> of(count, std::vector<int>(colours, 0));
      std::vector<int> degree(count, 0);
      for (std::int32_t e = 0; e < edges; ++e) {
        REQUIRE(colour[e] >= 0);
        REQUIRE(colour[e] < colours);
        ++of[(*end)[e]][colour[e]];
        ++degree[(*end)[e]];
      }
      for (std::int32_t v = 0; v < count; ++v) {
        const auto [low, high] = std::ranges::minmax(of[v]);
        CHECK(low >= degree[v] / colours);
        CHECK(high <= (degree[v] + colours - 1) / colours);
      }
    }
  }
}

TEST_CASE("colouring is optimal for equal flows, and greedy at most twice as bad") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SplitMix random(seed);
    const int leaves = 2 + random.below(10), spines = 1 + random.below(9);
    LinkGraph graph = clos(leaves, spines, 8);
    const int failed = random.below(spines);
    for (int s = 0; s < failed; ++s) graph.fail_node(leaves + s);
    const Flows flows = testing::random_flows(graph, 1 + random.below(400), seed);
    const RoutingInstance instance(graph, flows);
    const int optimum = load_bound(instance).flows;
    CAPTURE(seed);
    CHECK(most_flows(instance, *colouring(instance)) == optimum);
    const int of_greedy = most_flows(instance, greedy(instance));
    CHECK(of_greedy >= optimum);
    CHECK(of_greedy <= 2 * optimum);
    // The relaxation is below, and reached by spraying.
    const double sprayed = fabric_load(instance, spray(instance)).drain.base();
    CHECK(sprayed == doctest::Approx(load_bound(instance).spread.base()));
    CHECK(sprayed <=
          fabric_load(instance, single_path(*colouring(instance))).drain.base() * (1 + 1e-12));
  }
}

TEST_CASE("a fat tree carries any permutation without sharing a link") {
  for (const int ports : {4, 8, 12}) {
    FatTree spec;
    spec.ports = ports;
    spec.host.bandwidth = spec.fabric.bandwidth = testing::kPort;
    LinkGraph graph = fat_tree(spec);
    const Flows flows = testing::full_ring(graph, 3);
    const RoutingInstance instance(graph, flows);
    CHECK(most_flows(instance, *colouring(instance)) == 1);
    CHECK(load_bound(instance).flows == 1);
    CHECK(most_flows(instance, greedy(instance)) <= 4);
    graph.fail_cable(0);
    CHECK_FALSE(colouring(RoutingInstance(graph, flows)).has_value());
  }
}

TEST_CASE("four flows on which greedy is twice as bad as the best") {
  const LinkGraph graph = clos(3, 2, 2);
  Flows flows = testing::flows_of({{3, 5}, {2, 0}, {4, 2}, {5, 1}}, 1.25 * unit::GB);
  flows.jobs = 2;
  flows.job = {0, 1, 0, 1};
  const RoutingInstance instance(graph, flows);
  CHECK(greedy(instance) == Choice{0, 1, 0, 0});
  CHECK(most_flows(instance, greedy(instance)) == 2);
  CHECK(most_flows(instance, *colouring(instance)) == 1);
  CHECK(most_flows(instance, local_search(instance, RateModel::fair_share, {})) == 1);
}

TEST_CASE("colouring does not apply where leaves reach different spines") {
  LinkGraph graph = clos(4, 3, 2);
  graph.fail_cable(graph.two_tier().up[0]);
  const Flows flows = testing::random_flows(graph, 20, 1);
  const RoutingInstance instance(graph, flows);
  CHECK_FALSE(colouring(instance).has_value());
  RouteOptions options;
  options.policy = RoutingPolicy::colouring;
  CHECK_THROWS_AS(route(instance, options), MalformedQuestion);
  options.policy = RoutingPolicy::balanced;
  CHECK(fabric_load(instance, route(instance, options)).flows >= load_bound(instance).flows);
}

TEST_CASE("the hash mixes as the published simulator does") {
  // Identities of the definition: wrap-around, arithmetic shifts, absolute value.
  const auto reference = [](std::int32_t value) {
    std::int64_t a = value;
    const auto wrap = [](std::int64_t x) {
      return static_cast<std::int64_t>(static_cast<std::int32_t>(static_cast<std::uint32_t>(x)));
    };
    a = wrap(wrap(a + 0x7ed55d16) + wrap(a * 4096));
    a = wrap(a ^ wrap(0xc761c23c)) ^ (a >> 19);
    a = wrap(wrap(a + 0x165667b1) + wrap(a * 32));
    a = wrap(a + wrap(0xd3a2646c)) ^ wrap(a * 512);
    a = wrap(wrap(a + wrap(0xfd7046c5)) + wrap(a * 8));
    a = wrap(a ^ wrap(0xb55a4f09)) ^ (a >> 16);
    return static_cast<std::int32_t>(std::llabs(wrap(a)));
  };
  SplitMix random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto value = static_cast<std::int32_t>(random.next() >> 32U);
    CHECK(ecmp_hash(value) == reference(value));
  }
  CHECK(ecmp_hash(0) == reference(0));
}

TEST_CASE("parts of a flow spread the load more evenly than whole flows") {
  const LinkGraph graph = paper_fabric();
  const Flows flows = testing::full_ring(graph, 2);
  const RoutingInstance instance(graph, flows);
  const double whole = fabric_load(instance, single_path(ecmp(instance))).drain.base();
  const double parts = fabric_load(instance, subflow_ecmp(instance, 16)).drain.base();
  const double sprayed = fabric_load(instance, spray(instance)).drain.base();
  CHECK(parts < whole);
  CHECK(sprayed <= parts);
  const Routing routing = subflow_ecmp(instance, 16);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    double sum = 0;
    for (int p = routing.first[f]; p < routing.first[f + 1]; ++p) sum += routing.share[p];
    CHECK(sum == doctest::Approx(1));
  }
}

TEST_CASE("annealing repeats, and its best state is no worse than its last") {
  const LinkGraph graph = clos(8, 8, 8);
  const Flows flows = testing::full_ring(graph, 5);
  const RoutingInstance instance(graph, flows);
  Annealing best;
  best.keep_best = true;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Choice last = annealing(instance, {}, seed);
    CHECK(last == annealing(instance, {}, seed));
    CHECK(most_flows(instance, annealing(instance, best, seed)) <= most_flows(instance, last));
  }
}

TEST_CASE("local search finds the two-layer optimum of small instances") {
  for (const RateModel model : {RateModel::fair_share, RateModel::allocated}) {
    int found = 0;
    constexpr int kTrials = 40;
    for (std::uint64_t seed = 0; seed < kTrials; ++seed) {
      SplitMix random(seed);
      const LinkGraph graph = clos(3, 2, 4);
      Flows flows = testing::random_flows(graph, 9, seed);
      flows.jobs = 3;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        flows.job[f] = static_cast<std::int32_t>(f % 3);
        flows.bytes[f] = 1e8 * (1 + random.below(3));
      }
      const RoutingInstance instance(graph, flows);
      JobObjective objective(instance, model);
      const auto values = [&](const Choice& choice) {
        const auto sorted = objective.sorted_values(choice);
        return std::vector<double>(sorted.begin(), sorted.end());
      };
      std::vector<double> best = values(*exhaustive(instance, model));
      std::vector<double> climbed =
          values(raise_job_values(instance, model, longest_first(instance), {1, seed}));
      std::vector<double> complete = values(local_search(instance, model, {1, seed}));
      CHECK(compare_sorted(complete, best) == 0);
      CHECK(compare_sorted(climbed, best) <= 0);
      found += compare_sorted(climbed, best) == 0 ? 1 : 0;
    }
    // The climb alone, without complete search.
    CHECK(found >= kTrials * 9 / 10);
  }
}

TEST_CASE("local search never loses to the routers it starts from, and repeats") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    LinkGraph graph = clos(8, 5, 8);
    graph.fail_cable(graph.two_tier().up[7]);
    graph.scale_cable(graph.two_tier().up[12], 0.5);
    Flows flows = testing::random_flows(graph, 120, seed);
    SplitMix random(seed);
    for (double& bytes : flows.bytes) bytes = 1e6 * (1 + random.below(30));
    const RoutingInstance instance(graph, flows);
    const auto drain = [&](const Choice& choice) {
      return fabric_load(instance, single_path(choice)).drain.base();
    };
    const Choice found = local_search(instance, RateModel::allocated, {0.2, seed});
    CHECK(found == local_search(instance, RateModel::allocated, {0.2, seed}));
    CHECK(drain(found) <= drain(longest_first(instance)) * (1 + 1e-9));
    CHECK(drain(found) <= drain(greedy(instance)) * (1 + 1e-9));
    CHECK(drain(found) >= load_bound(instance).drain().base() * (1 - 1e-9));
  }
}

TEST_CASE("bounds hold for the best routing of small instances") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SplitMix random(seed);
    const LinkGraph graph = clos(3, 3, 4);
    Flows flows = testing::random_flows(graph, 8, seed);
    for (double& bytes : flows.bytes) bytes = 1e6 * (1 + random.below(9));
    const RoutingInstance instance(graph, flows);
    const Choice best = *exhaustive(instance, RateModel::allocated);
    CHECK(fabric_load(instance, single_path(best)).drain.base() >=
          load_bound(instance).drain().base() * (1 - 1e-12));
  }
}

TEST_CASE("planted routings meet the bound, and the search comes within five percent of them") {
  struct Size {
    int leaves, spines, active, layers;
  };
  const double planted = (1 * unit::GB / testing::kPort).base();
  const auto searched = [&](const LinkGraph& graph, const Flows& flows) {
    const RoutingInstance instance(graph, flows);
    CHECK(load_bound(instance).drain().base() == doctest::Approx(planted));
    const Choice found = lower_drain(instance, longest_first(instance), {1, 1});
    const double drain = fabric_load(instance, single_path(found)).drain.base() / planted;
    CHECK(drain >= 1 - 1e-9);
    return drain;
  };
  // 128 to 1,024 flows.
  for (const Size& size : {Size{16, 8, 16, 1}, Size{16, 8, 16, 3}, Size{16, 8, 16, 8},
                           Size{64, 32, 31, 1}, Size{64, 32, 10, 3}}) {
    const LinkGraph graph = clos(size.leaves, size.spines, 32);
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      const Flows flows =
          testing::layered_flows(graph, size.active, size.layers, 1 * unit::GB, seed);
      CHECK(searched(graph, flows) <= 1.05);
    }
  }
  // Where almost no two sizes are alike, sums of sizes tell which flows share a link, unless there
  // are too many of them; those leave searches by moves enough choice.
  const LinkGraph graph = clos(16, 8, 32);
  for (const int count : {128, 160, 200, 250, 300, 350, 400, 500, 600, 700}) {
    CAPTURE(count);
    CHECK(searched(graph, testing::planted_flows(graph, 16, count, 1 * unit::GB, 4)) <= 1 + 1e-9);
    CHECK(searched(graph, testing::cut_flows(graph, 16, count, 1 * unit::GB, 4)) <= 1.05);
  }
  for (const int count : {800, 900, 1000}) {
    CAPTURE(count);
    CHECK(searched(graph, testing::planted_flows(graph, 16, count, 1 * unit::GB, 4)) <= 1.05);
    CHECK(searched(graph, testing::cut_flows(graph, 16, count, 1 * unit::GB, 4)) <= 1.05);
  }
  const LinkGraph large = clos(64, 32, 32);
  for (const int active : {10, 20, 31}) {
    for (const int count : {700, 800, 1000}) {
      if (count < active * 32) continue;
      CAPTURE(active);
      CAPTURE(count);
      const Flows flows = testing::planted_flows(large, active, count, 1 * unit::GB, 4);
      CHECK(searched(large, flows) <= 1 + 1e-9);
    }
  }
}

/// A routing that fills links for as long as the bound, deduced from sums of sizes.
std::optional<Choice> exact_filling(const RoutingInstance& instance, double drain_s) {
  return place_sets(instance, deduce_sets(instance, drain_s, 0.5), drain_s, 1);
}

TEST_CASE("what fills links exactly meets the bound, whatever is planted") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SplitMix random(seed);
    const int leaves = 4 + random.below(6), spines = 2 + random.below(4);
    LinkGraph graph = clos(leaves, spines, 8);
    const Flows flows = testing::planted_flows(
        graph, leaves, leaves * spines * (2 + random.below(2)), 1 * unit::GB, seed);
    // A spine that nobody needs and that is not there does no harm.
    LinkGraph larger = clos(leaves, spines + 1, 8);
    larger.fail_node(leaves + random.below(spines + 1));
    for (const LinkGraph* on : {&graph, &larger}) {
      const RoutingInstance instance(*on, flows);
      const Seconds bound = load_bound(instance).drain();
      const std::optional<Choice> filled = exact_filling(instance, bound.base());
      CAPTURE(seed);
      if (!filled) continue;
      ++found;
      CHECK(fabric_load(instance, single_path(*filled)).drain.base() <= bound.base() * (1 + 1e-8));
      for (std::size_t f = 0; f < flows.size(); ++f) {
        CHECK((*filled)[f] >= 0);
        CHECK((*filled)[f] < instance.paths_of(f));
      }
    }
  }
  CHECK(found >= 60);
}

TEST_CASE("sums of sizes tell nothing where sizes repeat or links need not be full") {
  const LinkGraph graph = clos(8, 4, 8);
  const Flows ring = testing::full_ring(graph, 1);
  const RoutingInstance equal(graph, ring);
  const std::optional<Choice> filled = exact_filling(equal, load_bound(equal).drain().base());
  if (filled) CHECK(most_flows(equal, *filled) == load_bound(equal).flows);
  Flows random = testing::random_flows(graph, 50, 1);
  SplitMix sizes(2);
  for (double& bytes : random.bytes) bytes = 1e6 * (1 + sizes.unit());
  const RoutingInstance slack(graph, random);
  CHECK_FALSE(exact_filling(slack, 2 * load_bound(slack).drain().base()).has_value());
}

/// Sets of rows that fill planes exactly: random partitions of the rows, one per plane, shuffled.
std::vector<std::vector<RowLoad>> planted_sets(int rows, int planes, SplitMix& random) {
  std::vector<std::vector<RowLoad>> sets;
  for (int plane = 0; plane < planes; ++plane) {
    const std::size_t first = sets.size();
    for (std::int32_t row = 0; row < rows; ++row) {
      const auto have = static_cast<std::int32_t>(sets.size() - first);
      const std::int32_t set = random.below(have + 1);
      if (set == have) sets.emplace_back();
      sets[first + set].push_back({row, 1.0});
    }
  }
  return sets;
}

TEST_CASE("sets that can share planes without conflict are found planes") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix random(seed);
    const int rows = 6 + random.below(10), planes = 3 + random.below(6);
    const auto sets = planted_sets(rows, planes, random);
    // One more plane, closed to the first row, which every plane needs.
    std::vector<double> room(static_cast<std::size_t>(rows) * (planes + 1), 1.0);
    room[planes] = 0;
    SplitMix search(1);
    const auto placed = SetColouring(sets, room, planes + 1).solve(20'000'000, search);
    if (!placed) continue;
    ++found;
    for (std::size_t set = 0; set < sets.size(); ++set) {
      for (const auto& [row, load] : sets[set]) room[row * (planes + 1) + (*placed)[set]] -= load;
    }
    CHECK(std::ranges::min(room) == 0.0);
  }
  CHECK(found == 20);
}

/// Whether the sets from number `set` on find planes beside those that have one.
bool fits_somewhere(const std::vector<std::vector<RowLoad>>& sets, std::vector<double>& room,
                    int planes, std::size_t set = 0) {
  if (set == sets.size()) return true;
  for (int plane = 0; plane < planes; ++plane) {
    bool fits = true;
    for (const auto& [row, load] : sets[set]) fits &= room[row * planes + plane] >= load;
    if (!fits) continue;
    for (const auto& [row, load] : sets[set]) room[row * planes + plane] -= load;
    if (fits_somewhere(sets, room, planes, set + 1)) return true;
    for (const auto& [row, load] : sets[set]) room[row * planes + plane] += load;
  }
  return false;
}

TEST_CASE("sets find planes exactly where there are some") {
  int solvable = 0, closed_ones = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SplitMix random(seed);
    const int rows = 3 + random.below(3), planes = 1 + random.below(4);
    std::vector<double> room(static_cast<std::size_t>(rows) * planes, 1.0);
    if (seed % 3 == 0) room[random.below(rows * planes)] = 0;
    std::vector<std::vector<RowLoad>> sets(1 + random.below(2 * planes));
    for (auto& set : sets) {
      for (std::int32_t row = 0; row < rows; ++row) {
        if (random.below(2) == 0) set.push_back({row, 1.0});
      }
      if (set.empty()) set.push_back({random.below(rows), 1.0});
    }
    CAPTURE(seed);
    SplitMix search(seed);
    const auto placed = SetColouring(sets, room, planes).solve(1'000'000, search);
    std::vector<double> left = room;
    CHECK(placed.has_value() == fits_somewhere(sets, left, planes));
    if (!placed) continue;
    ++solvable;
    closed_ones += seed % 3 == 0 ? 1 : 0;
    for (std::size_t set = 0; set < sets.size(); ++set) {
      for (const auto& [row, load] : sets[set]) room[row * planes + (*placed)[set]] -= load;
    }
    CHECK(std::ranges::min(room) >= 0.0);
  }
  CHECK(solvable > 60);
  CHECK(solvable < 240);
  CHECK(closed_ones > 10);
}

TEST_CASE("two light sets share a plane of a row, a heavy one does not") {
  const std::vector<std::vector<RowLoad>> sets{{{0, 0.4}}, {{0, 0.5}}, {{0, 0.8}}};
  const std::vector<double> room(2, 1.0);
  SplitMix random(1);
  const auto placed = SetColouring(sets, room, 2).solve(10'000, random);
  REQUIRE(placed.has_value());
  CHECK((*placed)[0] == (*placed)[1]);
  CHECK((*placed)[2] != (*placed)[0]);
}

TEST_CASE("annealing by size tells the truth, keeps off closed planes and beats longest first") {
  constexpr std::int32_t kRows = 12, kPlanes = 5;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SplitMix random(seed);
    std::vector<std::vector<RowLoad>> sets(150);
    std::vector<char> allowed;
    for (auto& set : sets) {
      const double bytes = 1 + random.below(40);
      set = {{random.below(kRows / 2), bytes}, {kRows / 2 + random.below(kRows / 2), bytes}};
      const std::int32_t open = random.below(kPlanes);
      for (std::int32_t p = 0; p < kPlanes; ++p)
        allowed.push_back(p == open || random.below(4) > 0);
    }
    std::vector<double> sum(kRows, 0.0);
    for (const auto& set : sets) {
      for (const auto& [row, bytes] : set) sum[row] += bytes;
    }
    const double least = std::ranges::max(sum) / kPlanes;
    const std::vector<double> per_byte(kRows * kPlanes, 1 / least);
    const auto longest = [&](std::int64_t moves) {
      PlaneAnnealing annealing(sets, per_byte, allowed, kPlanes);
      SplitMix search(seed);
      annealing.run(moves, search);
      std::vector<double> load(per_byte.size(), 0.0);
      for (std::size_t set = 0; set < sets.size(); ++set) {
        const std::int32_t plane = annealing.planes()[set];
        CHECK(allowed[set * kPlanes + plane] != 0);
        for (const auto& [row, bytes] : sets[set]) load[row * kPlanes + plane] += bytes / least;
      }
      CHECK(annealing.longest() == doctest::Approx(std::ranges::max(load)));
      return annealing.longest();
    };
    const double searched = longest(100'000);
    CHECK(searched >= 1 - 1e-9);
    CHECK(searched <= longest(0) * (1 + 1e-9));  // where every set joins, and none moves
    CHECK(searched <= 1.05);
  }
}

TEST_CASE("without failures rings of the paper's jobs slow down under ECMP only") {
  for (const auto& [jobs, ring] : {std::pair{2, 2}, std::pair{3, 8}, std::pair{5, 4}}) {
    const LinkGraph graph = paper_fabric();
    const auto mix = testing::paper_mix(jobs, ring);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const auto nics = place_jobs(graph, mix, JobPlacement::random_leaves, 8, seed);
      const Flows flows = ring_flows(graph, mix, nics, true);
      const RoutingInstance instance(graph, flows);
      WaterFilling filling;
      const std::vector<double> alone = isolated_values(instance);
      const auto slowdown = [&](const Choice& choice) {
        const auto values = job_values(flows, fair_rates(instance, single_path(choice), filling));
        double sum = 0;
        for (std::size_t j = 0; j < values.size(); ++j) sum += alone[j] / values[j];
        return sum / static_cast<double>(values.size());
      };
      CHECK(slowdown(*colouring(instance)) == 1);
      CHECK(slowdown(greedy(instance)) <= 2);
      if (ring == 2) CHECK(slowdown(greedy(instance)) == 1);
      CHECK(slowdown(ecmp(instance)) > 3);
    }
  }
}

}  // namespace
}  // namespace scalemodel
