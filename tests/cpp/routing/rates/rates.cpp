#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/policies/spray.hpp"
#include "scalemodel/routing/rates/fair_update.hpp"
#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"
#include "scalemodel/routing/route.hpp"

namespace scalemodel {
namespace {

using testing::clos;
using testing::kPort;

struct RandomProblem {
  std::vector<double> capacity;
  Incidence uses;
};

RandomProblem random_problem(std::uint64_t seed, bool weighted) {
  SplitMix random(seed);
  RandomProblem problem;
  const std::int32_t links = 2 + random.below(20), entities = 1 + random.below(60);
  for (std::int32_t e = 0; e < links; ++e) {
    problem.capacity.push_back(seed % 3 == 0 ? 100.0 : 1 + 99 * random.unit());
  }
  for (std::int32_t i = 0; i < entities; ++i) {
    for (std::int32_t e = 0; e < links; ++e) {
      if (random.below(6) != 0) continue;
      problem.uses.link.push_back(e);
      if (weighted) problem.uses.weight.push_back(0.1 + random.unit());
    }
    problem.uses.first.push_back(static_cast<std::int32_t>(problem.uses.link.size()));
  }
  return problem;
}

/// No link exceeds its capacity, and every entity has a bottleneck link, a saturated one on which
/// no other is faster: this holds for exactly one vector of rates.
template <class IsActive>
void check_max_min(const RandomProblem& problem, const std::vector<double>& rate,
                   const IsActive& active) {
  const std::size_t links = problem.capacity.size();
  std::vector<double> used(links, 0.0), fastest(links, 0.0);
  const auto each = [&](const auto& visit) {
    for (std::size_t i = 0; i < problem.uses.size(); ++i) {
      if (!active(static_cast<std::int32_t>(i))) continue;
      for (int k = problem.uses.first[i]; k < problem.uses.first[i + 1]; ++k) {
        visit(i, problem.uses.link[k], problem.uses.weight.empty() ? 1.0 : problem.uses.weight[k]);
      }
    }
  };
  each([&](std::size_t i, std::int32_t link, double weight) {
    used[link] += weight * rate[i];
    fastest[link] = std::max(fastest[link], rate[i]);
  });
  for (std::size_t e = 0; e < links; ++e) CHECK(used[e] <= problem.capacity[e] * (1 + 1e-9));
  std::vector<char> held(problem.uses.size(), 0);
  each([&](std::size_t i, std::int32_t link, double) {
    const bool full = used[link] >= problem.capacity[link] * (1 - 1e-7);
    if (full && rate[i] >= fastest[link] * (1 - 1e-7)) held[i] = 1;
  });
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool free = problem.uses.first[i] == problem.uses.first[i + 1];
    if (active(static_cast<std::int32_t>(i)) && !free) CHECK(held[i] == 1);
  }
}

TEST_CASE("every entity has a bottleneck link on which no other is faster") {
  WaterFilling filling;
  for (const bool weighted : {false, true}) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      CAPTURE(seed);
      const RandomProblem problem = random_problem(seed, weighted);
      std::vector<double> rate(problem.uses.size());
      filling.solve(problem.capacity, problem.uses, rate);
      check_max_min(problem, rate, [](std::int32_t) { return true; });
    }
  }
}

TEST_CASE("entities on links of their own, however many, leave the rates of others as they are") {
  constexpr std::int32_t kMore = 70'000;
  WaterFilling filling;
  for (const bool weighted : {false, true}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(seed);
      RandomProblem problem = random_problem(seed, weighted);
      const std::size_t few = problem.uses.size();
      std::vector<double> rate(few);
      filling.solve(problem.capacity, problem.uses, rate);
      for (std::int32_t i = 0; i < kMore; ++i) {  // alone, in pairs, or without any link
        if (i % 4 < 2) problem.capacity.push_back(1e6 + i);
        if (i % 4 < 3) {
          problem.uses.link.push_back(static_cast<std::int32_t>(problem.capacity.size()) - 1);
          if (weighted) problem.uses.weight.push_back(1);
        }
        problem.uses.first.push_back(static_cast<std::int32_t>(problem.uses.link.size()));
      }
      std::vector<double> all(problem.uses.size());
      filling.solve(problem.capacity, problem.uses, all);
      CHECK(std::equal(rate.begin(), rate.end(), all.begin()));
      check_max_min(problem, all, [](std::int32_t) { return true; });
    }
  }
}

TEST_CASE("many entities of up to four links have the rates that they have beside one of five") {
  WaterFilling filling;
  SplitMix random(7);
  RandomProblem problem;
  for (int e = 0; e < 500; ++e) problem.capacity.push_back(1e6 * (1 + random.unit()));
  for (int i = 0; i < 70'000; ++i) {
    const std::int32_t first = random.below(400);
    for (std::int32_t k = 0; k < i % 5; ++k) problem.uses.link.push_back(first + 20 * k);
    problem.uses.first.push_back(static_cast<std::int32_t>(problem.uses.link.size()));
  }
  std::vector<double> rate(problem.uses.size());
  filling.solve(problem.capacity, problem.uses, rate);
  check_max_min(problem, rate, [](std::int32_t) { return true; });
  for (int k = 0; k < 5; ++k) {
    problem.uses.link.push_back(static_cast<std::int32_t>(problem.capacity.size()));
    problem.capacity.push_back(1);
  }
  problem.uses.first.push_back(static_cast<std::int32_t>(problem.uses.link.size()));
  std::vector<double> all(problem.uses.size());
  filling.solve(problem.capacity, problem.uses, all);
  CHECK(std::equal(rate.begin(), rate.end(), all.begin()));
}

TEST_CASE("jobs without flows, however many, leave the values of others as they are") {
  const LinkGraph graph = clos(5, 3, 4);
  Flows flows = testing::random_flows(graph, 1000, 1);
  SplitMix random(1);
  flows.jobs = 6;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    flows.job[f] = random.below(6);
    flows.bytes[f] = 1e6 * (1 + random.unit());
  }
  const auto values_of = [&](const Flows& of) {
    const RoutingInstance instance(graph, of);
    RoutingQuality q = quality(instance, single_path(ecmp(instance)));
    q.allocated.resize(6);
    q.isolated.resize(6);
    return std::vector{q.allocated, q.isolated};
  };
  Flows more = flows;
  more.jobs = 100;
  REQUIRE(fits_by_job(flows, graph.links()));
  REQUIRE_FALSE(fits_by_job(more, graph.nics()));
  CHECK(values_of(flows) == values_of(more));
}

TEST_CASE("capacity times c gives rates times c") {
  WaterFilling filling;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomProblem problem = random_problem(seed, seed % 2 == 0);
    std::vector<double> rate(problem.uses.size()), scaled(problem.uses.size());
    filling.solve(problem.capacity, problem.uses, rate);
    for (double& capacity : problem.capacity) capacity *= 4;
    filling.solve(problem.capacity, problem.uses, scaled);
    for (std::size_t i = 0; i < rate.size(); ++i) CHECK(scaled[i] == 4 * rate[i]);
  }
}

TEST_CASE("a link that is down stops its users and no others") {
  WaterFilling filling;
  Incidence uses;
  uses.link = {0, 1, 0};
  uses.first = {0, 1, 2, 3, 3};
  const std::vector<double> capacity{0, 10};
  std::vector<double> rate(4);
  filling.solve(capacity, uses, rate);
  CHECK(rate == std::vector<double>{0, 10, 0, std::numeric_limits<double>::infinity()});
}

TEST_CASE("incremental rates satisfy the max-min condition") {
  for (const bool weighted : {false, true}) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      CAPTURE(seed);
      const RandomProblem problem = random_problem(seed, weighted);
      const auto count = static_cast<std::int32_t>(problem.uses.size());
      FairUpdate update(problem.capacity, problem.uses);
      SplitMix random(seed);
      for (int event = 0; event < 40; ++event) {
        for (int change = 1 + random.below(3); change > 0; --change) {
          const std::int32_t who = random.below(count);
          if (problem.uses.first[who] == problem.uses.first[who + 1]) continue;
          if (update.active(who)) {
            update.stop(who);
          } else {
            update.start(who);
          }
        }
        update.solve();
        std::vector<double> rate(count);
        for (std::int32_t i = 0; i < count; ++i) rate[i] = update.rate(i);
        check_max_min(problem, rate, [&](std::int32_t i) { return update.active(i); });
      }
    }
  }
}

TEST_CASE("both rate models agree when every job is one flow of the same size") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const LinkGraph graph = clos(5, 3, 4);
    Flows flows = testing::random_flows(graph, 40, seed);
    flows.jobs = 40;
    for (std::int32_t f = 0; f < 40; ++f) flows.job[f] = f;
    const RoutingInstance instance(graph, flows);
    const RoutingQuality q = quality(instance, single_path(ecmp(instance)));
    for (std::size_t j = 0; j < q.fair.size(); ++j) {
      CHECK(q.fair[j] == testing::Approx(q.allocated[j]));
    }
  }
}

TEST_CASE("the slowest allocated job is bound by the link with the most bytes") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const LinkGraph graph = clos(5, 3, 4);
    Flows flows = testing::random_flows(graph, 40, seed);
    SplitMix random(seed);
    flows.jobs = 6;
    for (std::size_t f = 0; f < 40; ++f) {
      flows.job[f] = static_cast<std::int32_t>(f % 6);
      flows.bytes[f] = 1e6 * (1 + random.below(9));
    }
    const RoutingInstance instance(graph, flows);
    const Routing routing = single_path(ecmp(instance));
    const RoutingQuality q = quality(instance, routing);
    const std::vector<double> bytes = link_bytes(instance, routing);
    const double most = *std::ranges::max_element(bytes);
    CHECK(*std::ranges::min_element(q.allocated) == testing::Approx(kPort.base() / most));
    // No link carries more than its capacity.
    for (std::int32_t link = 0; link < graph.links(); ++link) {
      CHECK(q.carried[link] <= graph.capacity(link).base() * (1 + 1e-9));
    }
  }
}

TEST_CASE("spraying gives each flow its share of the spines that are up") {
  const LinkGraph graph = testing::paper_fabric(8);
  // All 32 NICs of leaf 0 send to leaf 1.
  std::vector<std::pair<int, int>> pairs;
  for (int k = 0; k < 32; ++k) pairs.emplace_back(k, 32 + k);
  const Flows flows = testing::flows_of(pairs, 1 * unit::GB);
  const RoutingInstance instance(graph, flows);
  WaterFilling filling;
  for (const double rate : fair_rates(instance, spray(instance), filling)) {
    CHECK(rate == testing::Approx(kPort.base() * 24 / 32));
  }
  for (const double rate : fair_rates(instance, single_path(*colouring(instance)), filling)) {
    CHECK((rate == testing::Approx(kPort.base()) || rate == testing::Approx(kPort.base() / 2)));
  }
}

}  // namespace
}  // namespace scalemodel
