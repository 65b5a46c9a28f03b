#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "approx.hpp"
#include "draws.hpp"
#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/routing/exact/exhaustive.hpp"
#include "scalemodel/routing/policies/annealing.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/local_search.hpp"
#include "scalemodel/routing/policies/spray.hpp"
#include "scalemodel/routing/rates/job_objective.hpp"
#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/route.hpp"

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
    CHECK(sprayed == testing::Approx(load_bound(instance).spread.base()));
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
    CHECK(sum == testing::Approx(1));
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
    constexpr int kTrials = testing::draws(40);
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
      const Seconds any{std::numeric_limits<double>::infinity()};
      std::vector<double> climbed =
          values(raise_job_values(instance, model, longest_first(instance), {1, seed}, any));
      // No later than greedy drains.
      const Seconds allowed = fabric_load(instance, single_path(greedy(instance))).drain;
      const Choice found_completely = local_search(instance, model, {1, seed});
      CHECK(fabric_load(instance, single_path(found_completely)).drain <= allowed);
      std::vector<double> complete = values(found_completely);
      std::vector<double> best_allowed = values(*exhaustive(instance, model, 1 << 16, allowed));
      CHECK(compare_sorted(complete, best_allowed) == 0);
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
