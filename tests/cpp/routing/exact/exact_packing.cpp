#include "scalemodel/routing/exact/exact_packing.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/exact/spine_assignment.hpp"
#include "scalemodel/routing/exact/subset_sums.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/local_search.hpp"
#include "scalemodel/routing/policies/plane_annealing.hpp"
#include "scalemodel/routing/rates/objective.hpp"

namespace scalemodel {
namespace {

using testing::clos;

TEST_CASE("planted routings attain the bound, and the search is within five percent of them") {
  struct Size {
    int leaves, spines, active, layers;
  };
  const double planted = (1 * unit::GB / testing::kPort).base();
  const auto searched = [&](const LinkGraph& graph, const Flows& flows) {
    const RoutingInstance instance(graph, flows);
    CHECK(load_bound(instance).drain().base() == testing::Approx(planted));
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
  // Where almost no two sizes are equal, exact packing finds the flows of a link unless there are
  // too many of them; annealing finds good routings of many flows.
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

/// A routing by exact packing that fills links for the time of the bound.
std::optional<Choice> exact_packing(const RoutingInstance& instance, double drain_s) {
  return assign_spines(instance, deduce_flow_sets(instance, drain_s, 0.5), drain_s, 1);
}

TEST_CASE("an exact packing attains the bound of planted flows") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SplitMix random(seed);
    const int leaves = 4 + random.below(6), spines = 2 + random.below(4);
    LinkGraph graph = clos(leaves, spines, 8);
    const Flows flows = testing::planted_flows(
        graph, leaves, leaves * spines * (2 + random.below(2)), 1 * unit::GB, seed);
    // A further spine that is down changes nothing.
    LinkGraph larger = clos(leaves, spines + 1, 8);
    larger.fail_node(leaves + random.below(spines + 1));
    for (const LinkGraph* on : {&graph, &larger}) {
      const RoutingInstance instance(*on, flows);
      const Seconds bound = load_bound(instance).drain();
      const std::optional<Choice> packed = exact_packing(instance, bound.base());
      CAPTURE(seed);
      if (!packed) continue;
      ++found;
      CHECK(fabric_load(instance, single_path(*packed)).drain.base() <= bound.base() * (1 + 1e-8));
      for (std::size_t f = 0; f < flows.size(); ++f) {
        CHECK((*packed)[f] >= 0);
        CHECK((*packed)[f] < instance.paths_of(f));
      }
    }
  }
  CHECK(found >= 60);
}

TEST_CASE("where sizes repeat, the solver chooses among the packings of every link") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SplitMix random(seed);
    const int leaves = 4 + random.below(4), spines = 2 + random.below(4);
    const LinkGraph graph = clos(leaves, spines, 8);
    const int count = leaves * spines * (150 + random.below(150)) / 100;
    const Flows flows = testing::cut_flows(graph, leaves, count, 1 * unit::GB, seed, 16);
    const RoutingInstance instance(graph, flows);
    const Seconds bound = load_bound(instance).drain();
    const FlowSets sets = deduce_flow_sets(instance, bound.base(), 1);
    CAPTURE(seed);
    REQUIRE(sets.complete);
    const std::optional<Choice> packed = assign_spines(instance, sets, bound.base(), 10);
    REQUIRE(packed.has_value());
    CHECK(fabric_load(instance, single_path(*packed)).drain.base() <= bound.base() * (1 + 1e-8));
  }
  const LinkGraph graph = clos(16, 8, 32);
  for (const int count : {200, 300}) {
    const Flows flows = testing::cut_flows(graph, 16, count, 1 * unit::GB, 1, 1000);
    const RoutingInstance instance(graph, flows);
    const Choice found = lower_drain(instance, longest_first(instance), {1, 1});
    CHECK(fabric_load(instance, single_path(found)).drain.base() <=
          load_bound(instance).drain().base() * (1 + 1e-8));
  }
}

TEST_CASE("subsets of a sum are those of an enumeration of all subsets") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SplitMix random(seed);
    std::vector<double> sizes(1 + random.below(14));
    for (double& size : sizes) size = 1 + random.below(12);
    std::ranges::sort(sizes);
    const double sum = 5 + random.below(30);
    std::set<SubsetOfSizes> expected;
    for (std::uint32_t members = 1; members < 1U << sizes.size(); ++members) {
      SubsetOfSizes subset;
      double found = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if ((members >> i & 1U) == 0) continue;
        subset.push_back(static_cast<std::int32_t>(i));
        found += sizes[i];
      }
      if (found == sum) expected.insert(subset);
    }
    std::size_t halves = 0;
    const auto found = subsets_of_sum(sizes, sum, 1e-9, 1'000, 10'000, halves);
    REQUIRE(found.has_value());
    CHECK(std::set(found->begin(), found->end()) == expected);
    CHECK(found->size() == expected.size());
    CHECK(halves > 0);
    if (expected.size() > 1) {
      CHECK_FALSE(subsets_of_sum(sizes, sum, 1e-9, 1'000, expected.size() - 1, halves));
    }
  }
  std::size_t halves = 0;
  const std::vector<double> many(200, 1.0);
  CHECK_FALSE(subsets_of_sum(many, 3, 1e-9, 1'000'000, 1'000'000, halves));
  const std::vector<double> some(40, 1.0);
  CHECK_FALSE(subsets_of_sum(some, 20, 1e-9, 1'000, 1'000'000, halves));
}

TEST_CASE("equal sizes and links that need not be full have no wrong packing") {
  const LinkGraph graph = clos(8, 4, 8);
  const Flows ring = testing::full_ring(graph, 1);
  const RoutingInstance equal(graph, ring);
  const std::optional<Choice> packed = exact_packing(equal, load_bound(equal).drain().base());
  if (packed) CHECK(fabric_load(equal, single_path(*packed)).flows == load_bound(equal).flows);
  Flows random = testing::random_flows(graph, 50, 1);
  SplitMix sizes(2);
  for (double& bytes : random.bytes) bytes = 1e6 * (1 + sizes.unit());
  const RoutingInstance slack(graph, random);
  CHECK_FALSE(exact_packing(slack, 2 * load_bound(slack).drain().base()).has_value());
}

/// Sets of flows that fill all links exactly: one random partition of the sides per plane.
std::vector<std::vector<SideLoad>> planted_sets(int sides, int planes, SplitMix& random) {
  std::vector<std::vector<SideLoad>> sets;
  for (int plane = 0; plane < planes; ++plane) {
    const std::size_t first = sets.size();
    for (std::int32_t side = 0; side < sides; ++side) {
      const auto have = static_cast<std::int32_t>(sets.size() - first);
      const std::int32_t set = random.below(have + 1);
      if (set == have) sets.emplace_back();
      sets[first + set].push_back({side, 1.0});
    }
  }
  return sets;
}

TEST_CASE("the solver finds planted assignments of sets to spines") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix random(seed);
    const int sides = 6 + random.below(10), planes = 3 + random.below(6);
    const auto sets = planted_sets(sides, planes, random);
    // A further plane is closed to the first side, on which every plane has load.
    std::vector<double> capacity(static_cast<std::size_t>(sides) * (planes + 1), 1.0);
    capacity[planes] = 0;
    SplitMix search(1);
    const auto assigned = SpineAssignment(sets, capacity, planes + 1).solve(20'000'000, search);
    if (!assigned) continue;
    ++found;
    for (std::size_t set = 0; set < sets.size(); ++set) {
      for (const auto& [side, load] : sets[set]) {
        capacity[side * (planes + 1) + (*assigned)[set]] -= load;
      }
    }
    CHECK(std::ranges::min(capacity) == 0.0);
  }
  CHECK(found == 20);
}

/// Whether the sets from number `set` on have planes with enough capacity, by backtracking.
bool is_assignable(const std::vector<std::vector<SideLoad>>& sets, std::vector<double>& capacity,
                   int planes, std::size_t set = 0) {
  if (set == sets.size()) return true;
  for (int plane = 0; plane < planes; ++plane) {
    bool fits = true;
    for (const auto& [side, load] : sets[set]) fits &= capacity[side * planes + plane] >= load;
    if (!fits) continue;
    for (const auto& [side, load] : sets[set]) capacity[side * planes + plane] -= load;
    if (is_assignable(sets, capacity, planes, set + 1)) return true;
    for (const auto& [side, load] : sets[set]) capacity[side * planes + plane] += load;
  }
  return false;
}

TEST_CASE("the solver finds an assignment exactly where backtracking does") {
  int solvable = 0, closed_ones = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SplitMix random(seed);
    const int sides = 3 + random.below(3), planes = 1 + random.below(4);
    std::vector<double> capacity(static_cast<std::size_t>(sides) * planes, 1.0);
    if (seed % 3 == 0) capacity[random.below(sides * planes)] = 0;
    std::vector<std::vector<SideLoad>> sets(1 + random.below(2 * planes));
    for (auto& set : sets) {
      for (std::int32_t side = 0; side < sides; ++side) {
        if (random.below(2) == 0) set.push_back({side, 1.0});
      }
      if (set.empty()) set.push_back({random.below(sides), 1.0});
    }
    CAPTURE(seed);
    SplitMix search(seed);
    const auto assigned = SpineAssignment(sets, capacity, planes).solve(1'000'000, search);
    std::vector<double> left = capacity;
    CHECK(assigned.has_value() == is_assignable(sets, left, planes));
    if (!assigned) continue;
    ++solvable;
    closed_ones += seed % 3 == 0 ? 1 : 0;
    for (std::size_t set = 0; set < sets.size(); ++set) {
      for (const auto& [side, load] : sets[set]) capacity[side * planes + (*assigned)[set]] -= load;
    }
    CHECK(std::ranges::min(capacity) >= 0.0);
  }
  CHECK(solvable > 60);
  CHECK(solvable < 240);
  CHECK(closed_ones > 10);
}

TEST_CASE("two light sets share a link, a heavy one does not") {
  const std::vector<std::vector<SideLoad>> sets{{{0, 0.4}}, {{0, 0.5}}, {{0, 0.8}}};
  const std::vector<double> capacity(2, 1.0);
  SplitMix random(1);
  const auto assigned = SpineAssignment(sets, capacity, 2).solve(10'000, random);
  REQUIRE(assigned.has_value());
  CHECK((*assigned)[0] == (*assigned)[1]);
  CHECK((*assigned)[2] != (*assigned)[0]);
}

TEST_CASE("annealing over planes reports its load, avoids closed planes, beats longest first") {
  constexpr std::int32_t kSides = 12, kPlanes = 5;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SplitMix random(seed);
    std::vector<std::vector<SideLoad>> sets(150);
    std::vector<char> allowed;
    for (auto& set : sets) {
      const double bytes = 1 + random.below(40);
      set = {{random.below(kSides / 2), bytes}, {kSides / 2 + random.below(kSides / 2), bytes}};
      const std::int32_t open = random.below(kPlanes);
      for (std::int32_t p = 0; p < kPlanes; ++p) {
        allowed.push_back(p == open || random.below(4) > 0);
      }
    }
    std::vector<double> sum(kSides, 0.0);
    for (const auto& set : sets) {
      for (const auto& [side, bytes] : set) sum[side] += bytes;
    }
    const double least = std::ranges::max(sum) / kPlanes;
    const std::vector<double> per_byte(kSides * kPlanes, 1 / least);
    const auto longest = [&](std::int64_t moves) {
      PlaneAnnealing annealing(sets, per_byte, allowed, kPlanes);
      SplitMix search(seed);
      annealing.run(moves, search);
      std::vector<double> load(per_byte.size(), 0.0);
      for (std::size_t set = 0; set < sets.size(); ++set) {
        const std::int32_t plane = annealing.planes()[set];
        CHECK(allowed[set * kPlanes + plane] != 0);
        for (const auto& [side, bytes] : sets[set]) load[side * kPlanes + plane] += bytes / least;
      }
      CHECK(annealing.longest() == testing::Approx(std::ranges::max(load)));
      return annealing.longest();
    };
    const double searched = longest(100'000);
    CHECK(searched >= 1 - 1e-9);
    CHECK(searched <= longest(0) * (1 + 1e-9));  // zero moves: insertion alone
    CHECK(searched <= 1.05);
  }
}

}  // namespace
}  // namespace scalemodel
