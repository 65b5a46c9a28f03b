#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "routing/instances.hpp"
#include "scalemodel/routing/policies/colouring.hpp"
#include "scalemodel/routing/policies/ecmp.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/policies/spray.hpp"
#include "scalemodel/routing/rates/fair_update.hpp"
#include "scalemodel/routing/rates/objective.hpp"
#include "scalemodel/routing/rates/water_filling.hpp"
#include "scalemodel/routing/route.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

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

/// No link above capacity, and everyone has a full link on which nobody is faster: true of exactly
/// one vector of rates.
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

TEST_CASE("everyone has a full link on which nobody is faster") {
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

TEST_CASE("a link that is down stops its users and nobody else") {
  WaterFilling filling;
  Incidence uses;
  uses.link = {0, 1, 0};
  uses.first = {0, 1, 2, 3, 3};
  const std::vector<double> capacity{0, 10};
  std::vector<double> rate(4);
  filling.solve(capacity, uses, rate);
  CHECK(rate == std::vector<double>{0, 10, 0, std::numeric_limits<double>::infinity()});
}

TEST_CASE("updated rates equal rates solved afresh") {
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
      CHECK(q.fair[j] == doctest::Approx(q.allocated[j]));
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
    CHECK(*std::ranges::min_element(q.allocated) == doctest::Approx(kPort.base() / most));
    // Links carry what the flows of their routing move.
    for (std::int32_t link = 0; link < graph.links(); ++link) {
      CHECK(q.carried[link] <= graph.capacity(link).base() * (1 + 1e-9));
    }
  }
}

TEST_CASE("spraying over the spines that are left gives each flow its share of them") {
  const LinkGraph graph = testing::paper_fabric(8);
  // All 32 NICs of leaf 0 send to leaf 1.
  std::vector<std::pair<int, int>> pairs;
  for (int k = 0; k < 32; ++k) pairs.emplace_back(k, 32 + k);
  const Flows flows = testing::flows_of(pairs, 1 * unit::GB);
  const RoutingInstance instance(graph, flows);
  WaterFilling filling;
  for (const double rate : fair_rates(instance, spray(instance), filling)) {
    CHECK(rate == doctest::Approx(kPort.base() * 24 / 32));
  }
  for (const double rate : fair_rates(instance, single_path(*colouring(instance)), filling)) {
    CHECK((rate == doctest::Approx(kPort.base()) || rate == doctest::Approx(kPort.base() / 2)));
  }
}

// -------------------------------------------------------------------------------------- over time
struct Run {
  std::vector<RingJob> jobs;
  LinkGraph graph = clos(8, 8, 8);
  std::vector<JobSchedule> schedules;
  Flows flows;

  explicit Run(int count) {
    for (int j = 0; j < count; ++j) {
      jobs.push_back({1e9 * (1 + j), 1e9, 8, 2 + 2 * (j % 2)});
      schedules.push_back({ring_steps(jobs.back()), 4, Seconds{0.01 * j}, Seconds{0.05}});
    }
    const auto nics = place_jobs(graph, jobs, JobPlacement::random_leaves, 8, 3);
    flows = ring_flows(graph, jobs, nics, false);
  }
};

TEST_CASE("bytes are conserved over time, flow by flow and as rates") {
  const Run run(3);
  const RoutingInstance instance(run.graph, run.flows);
  for (const Routing& routing : {single_path(ecmp(instance)), single_path(greedy(instance)),
                                 subflow_ecmp(instance, 3), spray(instance)}) {
    const NetworkRun result = simulate_network(instance, routing, run.schedules, 1 * unit::us);
    CHECK(result.end.size() == 3 * 4);
    for (std::size_t j = 0; j < run.jobs.size(); ++j) {
      const RingJob& job = run.jobs[j];
      const double whole =
          4.0 * ring_steps(job) * job.copy * job.copies * ring_step_bytes(job).base();
      CHECK(result.delivered_bytes[j] == doctest::Approx(whole).epsilon(1e-12));
      CHECK(result.moved_bytes[j] == doctest::Approx(whole).epsilon(1e-9));
    }
  }
}

TEST_CASE("a job alone takes its ideal time") {
  Run run(1);
  const RoutingInstance instance(run.graph, run.flows);
  const Routing routing = single_path(*colouring(instance));
  const NetworkRun result = simulate_network(instance, routing, run.schedules, 1 * unit::us);
  const double step = (ring_step_bytes(run.jobs[0]) / kPort).base() + 1e-6;
  REQUIRE(result.end.size() == 4);
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    CHECK(result.end[epoch] - result.start[epoch] ==
          doctest::Approx(run.schedules[0].steps * step).epsilon(1e-12));
    if (epoch > 0) CHECK(result.start[epoch] == doctest::Approx(result.end[epoch - 1] + 0.05));
  }
}

TEST_CASE("a flow that ends early frees its share for those that remain") {
  // Two flows share the port of NIC 2; the shorter one ends first, then the other has it alone.
  const LinkGraph graph = clos(3, 4, 1);
  Flows flows = testing::flows_of({{0, 2}, {1, 2}}, 1 * unit::GB);
  flows.bytes = {1e9, 3e9};
  const RoutingInstance instance(graph, flows);
  const std::vector<JobSchedule> once(2, {1, 1, Seconds{}, Seconds{}});
  const NetworkRun result =
      simulate_network(instance, single_path(greedy(instance)), once, Seconds{});
  const double alone = 1e9 / kPort.base();
  CHECK(result.end[0] == doctest::Approx(2 * alone));
  CHECK(result.end[1] == doctest::Approx(4 * alone));
}

TEST_CASE("simultaneous jobs take the step times of the static rates") {
  const LinkGraph graph = testing::paper_fabric();
  const auto jobs = testing::paper_mix(2, 2);
  const auto nics = place_jobs(graph, jobs, JobPlacement::random_leaves, 8, 1);
  const Flows flows = ring_flows(graph, jobs, nics, true);
  const RoutingInstance instance(graph, flows);
  const Routing routing = single_path(*colouring(instance));
  std::vector<JobSchedule> schedules;
  for (const RingJob& job : jobs) schedules.push_back({ring_steps(job), 1, Seconds{}, Seconds{}});
  const NetworkRun result = simulate_network(instance, routing, schedules, Seconds{});
  const RoutingQuality q = quality(instance, routing);
  for (std::size_t i = 0; i < result.job.size(); ++i) {
    const std::int32_t j = result.job[i];
    CHECK(result.end[i] == doctest::Approx(schedules[j].steps / q.fair[j]));
  }
}

/// One job of random flows, each a group of its own, in `phases` phases in turn.
Flows phased_flows(const LinkGraph& graph, int count, int phases, std::uint64_t seed) {
  Flows flows = testing::random_flows(graph, count, seed);
  for (std::int32_t g = 0; g < flows.groups; ++g) flows.phase.push_back(g % phases);
  return flows;
}

TEST_CASE("phases of a job follow each other and conserve bytes") {
  const LinkGraph graph = testing::clos(6, 3, 4);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Flows flows = phased_flows(graph, 24, 3, seed);
    const RoutingInstance instance(graph, flows);
    const Routing routing = single_path(ecmp(instance));
    const std::vector<JobSchedule> schedules{{2, 3, Seconds{}, Seconds{0.1}}};
    const NetworkRun run = simulate_network(instance, routing, schedules, Seconds{});
    REQUIRE(run.end.size() == 3);
    REQUIRE(run.phase.size() == 9);
    for (std::size_t i = 0; i < run.phase.size(); ++i) {
      CHECK(run.phase[i] == static_cast<std::int32_t>(i % 3));
      CHECK(run.phase_epoch[i] == static_cast<std::int32_t>(i / 3));
      const double begin = i % 3 == 0 ? run.start[i / 3] : run.phase_end[i - 1];
      CHECK(run.phase_start[i] == begin);
      if (i % 3 == 2) CHECK(run.phase_end[i] == run.end[i / 3]);
    }
    CHECK(run.delivered_bytes[0] == doctest::Approx(3 * 2 * 24e6));
    CHECK(run.moved_bytes[0] == doctest::Approx(3 * 2 * 24e6));
    // Never faster than alone on its NICs; all at once is never slower than one after the other
    // where it is alone.
    const double alone = isolated_times(instance, schedules)[0];
    CHECK(run.end[0] - run.start[0] >= alone * (1 - 1e-9));
    Flows at_once = flows;
    at_once.phase.clear();
    const RoutingInstance together(graph, at_once);
    CHECK(isolated_times(together, schedules)[0] <= alone * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace scalemodel
