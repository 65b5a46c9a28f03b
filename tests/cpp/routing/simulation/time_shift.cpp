#include "scalemodel/routing/simulation/time_shift.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "approx.hpp"
#include "routing/instances.hpp"
#include "scalemodel/routing/policies/greedy.hpp"
#include "scalemodel/routing/simulation/simulate.hpp"

namespace scalemodel {
namespace {

/// Jobs that send over the only spine, each for `busy` seconds of its period.
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

TEST_CASE(
    "two equal jobs that communicate half of the time do not slow each other down once shifted") {
  for (const double busy : {0.1, 0.3, 0.5}) {
    const OneSpine question({{busy, 1}, {busy, 1}});
    const TimeShifts shifts = question.shifts();
    CHECK(shifts.score == testing::Approx(1));
    CHECK(shifts.score_before < 1);
    CHECK(shifts.shift[0] == 0);
    const std::vector<double> none{0, 0};
    CHECK(question.mean_time(shifts.shift) == testing::Approx(busy));
    CHECK(question.mean_time(none) > 1.9 * busy);
  }
}

TEST_CASE("load above capacity remains on the circle, and shifts never increase the excess") {
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
    // Shifts keep the mean load of the circle, a lower bound on the load above capacity.
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
  CHECK(shifts.score == testing::Approx(1));
  CHECK(shifts.period_error < 1e-9);
  CHECK(shifts.slots * shifts.slot == testing::Approx(2));
}

}  // namespace
}  // namespace scalemodel
