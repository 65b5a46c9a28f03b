#include "scalemodel/estimator/fit_stack.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;
using testing::degrees;

/// Runs as a stack would time them: short and long kernels, hidden and open communication.
std::vector<MeasuredRun> runs_of(const Stack& stack) {
  std::vector<MeasuredRun> runs;
  const auto add = [&](const DecoderShape& shape, int accelerators, const Task& task,
                       const Strategy& strategy) {
    MeasuredRun run{make_decoder(shape),
                    testing::reference_cluster(accelerators),
                    task,
                    {strategy},
                    Seconds{},
                    1,
                    {}};
    run.step_time = testing::estimate(shape, run.cluster, task, strategy, stack).step_time;
    runs.push_back(run);
  };
  Strategy sharded = degrees(1);
  sharded.sharding = Sharding::zero3;
  sharded.recompute = Recompute::full;
  for (const int sequence : {1024, 4096, 16384}) {
    add(testing::dense_7b_shape(), 64, testing::training(256, sequence), sharded);
    add(testing::dense_7b_shape(), 512, testing::training(512, sequence), sharded);
    add(testing::grouped_70b_shape(), 64, testing::training(128, sequence), degrees(8, 4));
    add(testing::experts_8x7b_shape(), 64, testing::training(128, sequence), degrees(4, 4, 1, 4));
  }
  return runs;
}

TEST_CASE("a fit finds the constants of the stack that timed the runs") {
  Stack planted = testing::reference_stack();
  planted.gemm_efficiency = 0.8;
  planted.memory_efficiency = 0.7;
  planted.overlap_efficiency = 0.5;
  const std::vector<MeasuredRun> runs = runs_of(planted);
  const Stack start = testing::reference_stack();
  const StackFit fit = fit_stack(start, runs);
  REQUIRE(fit.predicted.size() == runs.size());
  REQUIRE(fit.standard_errors.size() == 4);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CAPTURE(i);
    CHECK(fit.predicted[i] / runs[i].step_time == Approx(1).epsilon(0.01));
  }
  CHECK(fit.stack.gemm_efficiency == Approx(0.8).epsilon(0.03));
  CHECK(fit.stack.memory_efficiency == Approx(0.7).epsilon(0.1));
  CHECK(fit.stack.overlap_efficiency == Approx(0.5).epsilon(0.15));
  // Facts about the stack are no constants to fit.
  CHECK(fit.stack.attention == start.attention);
  CHECK(fit.stack.contention == start.contention);
  CHECK(fit.stack.step_overhead == start.step_overhead);
}

TEST_CASE("a stack that fits already stays as it is") {
  const Stack start = testing::reference_stack();
  const StackFit fit = fit_stack(start, runs_of(start));
  CHECK(fit.stack.gemm_efficiency == Approx(start.gemm_efficiency).epsilon(1e-3));
  CHECK(fit.stack.memory_efficiency == Approx(start.memory_efficiency).epsilon(1e-3));
}

TEST_CASE("a run keeps the facts that it has of its own") {
  Stack planted = testing::reference_stack();
  planted.gemm_efficiency = 0.8;
  Stack unfused = planted;
  unfused.fused_norm = unfused.fused_activation = false;
  std::vector<MeasuredRun> runs = runs_of(planted);
  for (MeasuredRun run : runs_of(unfused)) {
    run.facts = unfused;
    runs.push_back(run);
  }
  const StackFit fit = fit_stack(testing::reference_stack(), runs);
  CHECK(fit.stack.gemm_efficiency == Approx(0.8).epsilon(0.03));
  CHECK(fit.stack.fused_norm == testing::reference_stack().fused_norm);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CAPTURE(i);
    CHECK(fit.predicted[i] / runs[i].step_time == Approx(1).epsilon(0.01));
  }
}

TEST_CASE("a run that launches at a pace of its own says nothing of the fitted one") {
  Stack planted = testing::reference_stack();
  planted.host_launch = Seconds{4e-6};
  Stack slow = planted;
  slow.host_launch = Seconds{90e-6};
  std::vector<MeasuredRun> runs = runs_of(planted);
  const std::size_t quick = runs.size();
  for (MeasuredRun run : runs_of(slow)) {
    run.facts = slow;
    run.own_launch = true;
    runs.push_back(run);
  }
  const StackFit fit = fit_stack(testing::reference_stack(), runs);
  const StackFit alone = fit_stack(testing::reference_stack(),
                                   {runs.begin(), runs.begin() + static_cast<long>(quick)});
  CHECK(fit.stack.host_launch / alone.stack.host_launch == Approx(1).epsilon(0.05));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CAPTURE(i);
    CHECK(fit.predicted[i] / runs[i].step_time == Approx(1).epsilon(0.01));
  }
}

TEST_CASE("the fewer the runs, the closer a pulled fit stays to where it starts") {
  Stack planted = testing::reference_stack();
  planted.gemm_efficiency = 0.7;
  const std::vector<MeasuredRun> runs = runs_of(planted);
  const Stack start = testing::reference_stack();
  const auto fitted = [&](std::size_t count, double pull) {
    const std::vector<MeasuredRun> some(runs.begin(), runs.begin() + static_cast<long>(count));
    return fit_stack(start, some, pull).stack.gemm_efficiency;
  };
  CHECK(fitted(runs.size(), 0.5) > fitted(runs.size(), 0));
  CHECK(fitted(4, 0.5) > fitted(runs.size(), 0.5));
  CHECK(fitted(4, 1e4) == Approx(start.gemm_efficiency).epsilon(1e-3));
}

TEST_CASE("of several strategies the first that fits in memory is taken") {
  MeasuredRun run = runs_of(testing::reference_stack()).front();
  Strategy too_big = degrees(1);
  too_big.sharding = Sharding::ddp;
  too_big.micro_batch = 4;
  const Strategy fits = run.strategies.front();
  run.strategies = {too_big, fits, degrees(8)};
  const StackFit fit = fit_stack(testing::reference_stack(), {run});
  CHECK(fit.predicted.front() / run.step_time == Approx(1).epsilon(0.01));
}

}  // namespace
}  // namespace scalemodel
