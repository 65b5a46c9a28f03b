#include "scalemodel/fleet/failures.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fleet/fleet_support.hpp"
#include "scalemodel/fleet/fleet.hpp"

namespace scalemodel::testing {
namespace {

struct Run {
  FleetTraffic traffic;
  FleetOptions options;

  FleetResult on(const Instance& one, int count) {
    const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, count};
    options.caching.prefixes = traffic.names.columns();
    return simulate_fleet({&kind, 1}, traffic.requests, traffic.sessions, options);
  }
};

Instance usual_replica() {
  return Instance(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
}

}  // namespace

TEST_CASE("a start takes its schedule, its weights and its warm-up") {
  const StartUp start{10 * unit::s, 5e9 * unit::B / unit::s, 30 * unit::s};
  CHECK(startup_time(start, 700e9 * unit::B) == 180 * unit::s);
}

TEST_CASE("requests outlive failures, or are lost as often as they were tried") {
  const Instance one = usual_replica();
  for (const Router router :
       {Router::round_robin, Router::least_loaded, Router::power_of_two, Router::prefix_aware,
        Router::kv_cost, Router::session_sticky, Router::weighted_scorers}) {
    for (const int retries : {0, 1, 100}) {
      Run run{conversations(2000, 20, 3), {}};
      run.options.policy.router = router;
      run.options.failures = {40 * unit::s, 5 * unit::s, 0 * unit::s, retries};
      const FleetResult found = run.on(one, 4);
      CAPTURE(name_of(router));
      CHECK(found.failures > 0);
      double in_system = 0, lost = 0, retried = 0, finished = 0;
      for (std::size_t i = 0; i < found.served.size(); ++i) {
        const Served& served = found.served[i];
        CHECK(served.finished >= run.traffic.requests[i].arrival);
        CHECK(served.retries <= retries);
        in_system += (served.finished - run.traffic.requests[i].arrival).base();
        lost += served.why == NotServed::lost ? 1 : 0;
        retried += served.retries > 0 ? 1 : 0;
        finished += served.refused ? 0 : 1;
        if (served.why == NotServed::lost) CHECK(served.retries == retries);
      }
      // One of them may be lost twice, none a hundred times.
      if (retries != 1) CHECK((lost > 0) == (retries == 0));
      CHECK((retried > 0) == (retries > 0));
      CHECK(lost + finished == static_cast<double>(found.served.size()));
      // Little's law: a request is in the system of one replica or another until it ends.
      CHECK(found.totals.in_system_s == Approx(in_system).epsilon(1e-9));
    }
  }
}

TEST_CASE("failures come as often as their mean time says") {
  const Instance one = usual_replica();
  Run run{conversations(4000, 10, 5), {}};
  run.options.failures = {20 * unit::s, 0 * unit::s, 0 * unit::s, 255};
  const FleetResult found = run.on(one, 8);
  const double expected = 8 * found.totals.makespan / (20 * unit::s);
  CHECK(std::abs(found.failures - expected) < 4 * std::sqrt(expected));
}

TEST_CASE("replicas that are down take no request, and those that wait are served after it") {
  const Instance one = usual_replica();
  Run run{conversations(1000, 20, 7), {}};
  run.options.failures.restart = 3 * unit::s;
  const std::array<Outage, 1> rack{{{10 * unit::s, 20 * unit::s, 0, 2}}};
  run.options.outages = rack;
  for (const int count : {2, 3}) {
    const FleetResult found = run.on(one, count);
    CHECK(found.failures == 2);
    for (std::size_t i = 0; i < found.served.size(); ++i) {
      const Served& served = found.served[i];
      CHECK(!served.refused);
      const Seconds arrival = run.traffic.requests[i].arrival;
      const bool down = arrival >= 10 * unit::s && arrival < 23 * unit::s;
      if (!down) continue;
      if (count == 2) CHECK(served.started >= 23 * unit::s);
      if (count == 3) CHECK(found.replicas[i] == 2);
    }
  }
}

TEST_CASE("the urgent wait less, and equal priorities are none") {
  Engine engine = reference_engine();
  engine.memory_fraction = 0.3;  // Some are preempted.
  const Instance one(dense_7b_shape(), 1, engine, {}, {800, 150, 0, 0, 0});
  Run run{conversations(1500, 14, 3), {}};
  const FleetResult plain = run.on(one, 1);
  std::vector<std::int32_t> priority(run.traffic.requests.size(), 7);
  run.options.priority = priority;
  const FleetResult equal = run.on(one, 1);
  CHECK(plain.totals == equal.totals);
  CHECK(plain.totals.preemptions > 0);
  for (std::size_t i = 0; i < priority.size(); ++i) priority[i] = i % 3 == 0 ? 0 : 1;
  const FleetResult ordered = run.on(one, 1);
  double urgent = 0, urgent_before = 0, rest = 0, count = 0;
  double preempted = 0;
  for (std::size_t i = 0; i < priority.size(); ++i) {
    const Seconds arrival = run.traffic.requests[i].arrival;
    const double ttft = (ordered.served[i].first_token - arrival).base();
    if (priority[i] == 0) {
      urgent += ttft;
      urgent_before += (plain.served[i].first_token - arrival).base();
      preempted += ordered.served[i].preemptions;
      ++count;
    } else {
      rest += ttft;
    }
  }
  CHECK(urgent < 0.8 * urgent_before);
  CHECK(urgent / count < rest / (static_cast<double>(priority.size()) - count));
  CHECK(preempted < 0.1 * ordered.totals.preemptions);
}

TEST_CASE("only what may be shed is shed, and the queue keeps its length") {
  const Instance one = usual_replica();
  Run run{conversations(3000, 60, 3), {}};
  std::vector<std::int32_t> priority(run.traffic.requests.size());
  for (std::size_t i = 0; i < priority.size(); ++i) priority[i] = static_cast<int>(i % 2);
  run.options.priority = priority;
  const FleetResult open = run.on(one, 1);
  run.options.shedding = Shedding{5, 1};
  const FleetResult closed = run.on(one, 1);
  double shed = 0;
  for (std::size_t i = 0; i < priority.size(); ++i) {
    if (closed.served[i].why != NotServed::shed) continue;
    CHECK(priority[i] == 1);
    ++shed;
  }
  CHECK(shed > 0);
  CHECK(closed.totals.makespan < open.totals.makespan);
  run.options.shedding = Shedding{5, 0};
  CHECK(run.on(one, 1).parts.front().max_in_system <= open.parts.front().max_in_system);
}

TEST_CASE("a replica more changes nothing of what befalls the others") {
  const Instance one = usual_replica();
  for (const int count : {2, 5}) {
    Run run{conversations(400, 5, 3), {}};
    run.options.failures = {30 * unit::s, 5 * unit::s, 0 * unit::s, 100};
    const FleetResult found = run.on(one, count);
    std::vector<double> first;
    double before = 0;
    for (const ScaleEvent& event : found.events) {
      if (event.online < before) first.push_back(event.time.base());
      before = event.online;
    }
    // What fails in the small fleet fails at the same time in the large one.
    static std::vector<double> small;
    if (count == 2) small = first;
    CHECK(small.size() > 3);
    for (const double time : small) {
      if (time > run.traffic.requests.back().arrival.base()) continue;
      CHECK(std::find(first.begin(), first.end(), time) != first.end());
    }
  }
}

TEST_CASE("a fleet that never comes back loses what it has and what still comes") {
  const Instance one = usual_replica();
  for (const Router router : {Router::round_robin, Router::weighted_scorers}) {
    Run run{conversations(1000, 20, 3), {}};
    run.options.policy.router = router;
    const Seconds half = run.traffic.requests[500].arrival;
    const std::vector<Outage> outages{{half, kNever, 0, 3}};
    run.options.outages = outages;
    const FleetResult found = run.on(one, 3);
    for (std::size_t i = 0; i < found.served.size(); ++i) {
      const Served& served = found.served[i];
      if (i > 500) CHECK(served.why == NotServed::lost);
      if (!served.refused) CHECK(served.finished <= half);
    }
    CHECK(found.totals.makespan < 1e4 * unit::s);
  }
}

}  // namespace scalemodel::testing
