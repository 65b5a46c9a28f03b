#include "scalemodel/routing/simulation/controller.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

struct Question {
  LinkGraph graph = testing::paper_fabric();
  Flows flows;
  std::vector<JobSchedule> schedules;

  explicit Question(std::uint64_t seed, int jobs = 3, int ring = 4) {
    const auto mix = testing::paper_mix(jobs, ring);
    const auto nics = place_jobs(graph, mix, JobPlacement::random_leaves, 8, seed);
    flows = ring_flows(graph, mix, nics, true);
    SplitMix random(seed);
    for (const RingJob& job : mix) {
      const Seconds compute = scaled_compute_time(job, FlopPerSecond{312e12});
      schedules.push_back({ring_steps(job), 3, Seconds{4 * random.unit()}, compute});
    }
  }
  ControlledRun run(RoutingPolicy policy, const Controller& controller,
                    std::span<const NetworkChange> changes = {}) const {
    RouteOptions options;
    options.policy = policy;
    return simulate_controlled(graph, flows, {}, options, schedules, Seconds{1e-9}, controller,
                               changes);
  }
  double mean_time(const NetworkRun& run) const {
    double sum = 0;
    for (std::size_t i = 0; i < run.end.size(); ++i) sum += run.end[i] - run.start[i];
    return sum / static_cast<double>(run.end.size());
  }
  std::size_t collectives() const { return 3 * schedules.size(); }
};

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST_CASE("a controller that never runs changes nothing") {
  for (const RoutingPolicy policy : {RoutingPolicy::ecmp, RoutingPolicy::greedy}) {
    const Question question(1);
    const RoutingInstance instance(question.graph, question.flows);
    RouteOptions options;
    options.policy = policy;
    const NetworkRun plain =
        simulate_network(instance, route(instance, options), question.schedules, Seconds{1e-9});
    const ControlledRun controlled = question.run(policy, {});
    CHECK(plain.end == controlled.network.end);
    CHECK(plain.start == controlled.network.start);
    CHECK(plain.delivered_bytes == controlled.network.delivered_bytes);
    CHECK(controlled.controller.moved == std::vector<std::int32_t>{0});
  }
}

TEST_CASE("a controller conserves bytes, and no collective is faster than alone") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Question question(seed);
    const std::vector<double> alone =
        isolated_values(RoutingInstance(question.graph, question.flows));
    for (const Forecast forecast : {Forecast::active, Forecast::announced, Forecast::admitted}) {
      const ControlledRun run =
          question.run(RoutingPolicy::greedy, {Seconds{0.3}, Seconds{0.1}, forecast});
      REQUIRE(run.network.end.size() == question.collectives());
      CHECK(sum_of(run.network.moved_bytes) ==
            testing::Approx(sum_of(run.network.delivered_bytes)).epsilon(1e-9));
      for (std::size_t i = 0; i < run.network.end.size(); ++i) {
        const std::int32_t job = run.network.job[i];
        const double least = question.schedules[job].steps / alone[job];
        CHECK(run.network.end[i] - run.network.start[i] >= least * (1 - 1e-9));
      }
      CHECK(std::ranges::is_sorted(run.controller.time));
      for (const double efficiency : run.controller.efficiency) {
        CHECK(efficiency >= 0);
        CHECK(efficiency <= 1);
      }
      CHECK(run.network.stalled_flows == 0);
    }
  }
}

TEST_CASE("equal flows that are announced in time run as if alone") {
  const Question question(2, 5, 4);
  const ControlledRun run =
      question.run(RoutingPolicy::balanced, {Seconds{0.5}, Seconds{}, Forecast::admitted});
  for (const double efficiency : run.controller.efficiency) {
    CHECK(efficiency == testing::Approx(1).epsilon(1e-6));
  }
  // A controller that knows only flows in flight reroutes them late.
  const ControlledRun late =
      question.run(RoutingPolicy::balanced, {Seconds{0.5}, Seconds{}, Forecast::active});
  CHECK(question.mean_time(late.network) > question.mean_time(run.network));
}

TEST_CASE("flows wait for the controller or for a repair, otherwise they stall") {
  const Question question(3);
  const LinkGraph damaged = testing::paper_fabric(8);
  const NetworkChange fails[] = {{Seconds{3}, &damaged}};
  const NetworkChange repaired[] = {{Seconds{3}, &damaged}, {Seconds{9}, &question.graph}};
  const ControlledRun lost = question.run(RoutingPolicy::balanced, {}, fails);
  CHECK(lost.network.stalled_flows > 0);
  CHECK(lost.network.end.size() < question.collectives());
  const ControlledRun waited = question.run(RoutingPolicy::balanced, {}, repaired);
  CHECK(waited.network.stalled_flows == 0);
  CHECK(waited.network.end.size() == question.collectives());
  const ControlledRun moved = question.run(
      RoutingPolicy::balanced, {Seconds{0.25}, Seconds{}, Forecast::admitted}, repaired);
  CHECK(moved.network.end.size() == question.collectives());
  CHECK(question.mean_time(moved.network) < question.mean_time(waited.network));
  // Hashed paths are hashed again at once.
  const ControlledRun hashed = question.run(RoutingPolicy::ecmp, {}, fails);
  CHECK(hashed.network.stalled_flows == 0);
  CHECK(hashed.network.end.size() == question.collectives());
}

TEST_CASE("a controller rejects split flows, long delays and other fabrics") {
  const Question question(1, 2, 2);
  CHECK_THROWS_AS(question.run(RoutingPolicy::spray, {}), MalformedQuestion);
  CHECK_THROWS_AS(question.run(RoutingPolicy::greedy, {Seconds{1}, Seconds{2}, {}}),
                  MalformedQuestion);
  const LinkGraph other = testing::clos(2, 2, 2);
  const NetworkChange changes[] = {{Seconds{1}, &other}};
  CHECK_THROWS_AS(question.run(RoutingPolicy::greedy, {}, changes), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
