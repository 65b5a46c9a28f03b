// Fleets whose replicas start and stop by an autoscaler.
#include <algorithm>
#include <vector>

#include "fleet/fleet_support.hpp"
#include "scalemodel/fleet/fleet.hpp"

namespace scalemodel::testing {
namespace {

constexpr int kReplicas = 6;

/// Quiet, busy and quiet again, a third of the requests each.
FleetTraffic waves() {
  FleetTraffic traffic = conversations(2400, 40, 11);
  const Seconds begin = traffic.requests[800].arrival, end = traffic.requests[1600].arrival;
  for (Request& request : traffic.requests) {
    const Seconds quiet = min(request.arrival, begin) + max(request.arrival - end, Seconds{});
    request.arrival += 9 * quiet;
  }
  return traffic;
}

FleetResult run_fleet(const FleetTraffic& traffic, const std::optional<Autoscaler>& autoscaler) {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {800, 150, 0, 0, 0});
  const FleetKind kind{{one.times, one.blocks, one.capacity, one.mix}, kReplicas};
  FleetOptions options;
  options.policy.router = Router::least_loaded;
  options.caching.prefixes = traffic.names.columns();
  options.autoscaler = autoscaler;
  return simulate_fleet({&kind, 1}, traffic.requests, traffic.sessions, options);
}

Autoscaler quick(ScaleSignal signal, double target) {
  Autoscaler scaler;
  scaler.signal = signal;
  scaler.target = target;
  scaler.interval = 5 * unit::s;
  scaler.startup = 10 * unit::s;
  scaler.down_window = 20 * unit::s;
  return scaler;
}

Seconds paid(const FleetResult& found) {
  Seconds sum;
  for (const ReplicaTotals& part : found.parts) sum += part.online;
  return sum;
}

TEST_CASE("replicas follow the load, by every signal, and are paid for while they run") {
  const FleetTraffic traffic = waves();
  const FleetResult fixed = run_fleet(traffic, {});
  CHECK(fixed.events.size() == 1);
  for (const auto& [signal, target] :
       {std::pair{ScaleSignal::requests, 2.0}, std::pair{ScaleSignal::queue, 0.05},
        std::pair{ScaleSignal::kv_cache, 0.02}}) {
    CAPTURE(name_of(signal));
    const FleetResult found = run_fleet(traffic, quick(signal, target));
    REQUIRE(found.events.size() > 3);
    CHECK(found.events.front().online == 1);
    double most = 0;
    for (std::size_t i = 0; i < found.events.size(); ++i) {
      const ScaleEvent& event = found.events[i];
      CHECK(event.online >= 1);
      CHECK(event.online + event.starting <= kReplicas);
      if (i > 0) CHECK(event.time >= found.events[i - 1].time);
      most = std::max(most, event.online);
    }
    CHECK(most > 2);
    CHECK(found.events.back().online < most);
    CHECK(paid(found) < paid(fixed));
    for (std::size_t i = 0; i < found.served.size(); ++i) {
      CHECK_FALSE(found.served[i].refused);
      CHECK(found.served[i].first_token > traffic.requests[i].arrival);
    }
    for (const ReplicaTotals& part : found.parts) CHECK(part.stream.busy <= part.online);
  }
}

TEST_CASE("an autoscaler that may not move changes nothing, and a slow one makes requests wait") {
  const FleetTraffic traffic = waves();
  Autoscaler pinned = quick(ScaleSignal::requests, 1e-3);
  pinned.min_replicas = kReplicas;
  const FleetResult fixed = run_fleet(traffic, {}), still = run_fleet(traffic, pinned);
  for (std::size_t i = 0; i < fixed.served.size(); ++i) {
    CHECK(same_service(fixed.served[i], still.served[i]));
  }
  Autoscaler slow = quick(ScaleSignal::requests, 2);
  slow.startup = 60 * unit::s;
  const double ready = mean_ttft(traffic, run_fleet(traffic, quick(ScaleSignal::requests, 2)));
  CHECK(mean_ttft(traffic, fixed) < ready);
  CHECK(ready < mean_ttft(traffic, run_fleet(traffic, slow)));
}

}  // namespace
}  // namespace scalemodel::testing
