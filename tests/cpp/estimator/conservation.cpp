// What must add up, stay finite or stay the same in every estimate.
#include <cmath>
#include <type_traits>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;
using testing::degrees;
using testing::Question;

static_assert(noexcept(evaluate(std::declval<const Tables&>(), Strategy{})));
static_assert(std::is_trivially_copyable_v<Estimate>);

constexpr int kStrategies = 4000;

/// Every number of an estimate.
template <class Visit>
void for_each_number(const Estimate& e, Visit&& visit) {
  for_each_field<Estimate>([&](const auto& field) {
    using Member = std::decay_t<decltype(e.*field.member)>;
    if constexpr (std::is_enum_v<Member>) {
      return;
    } else if constexpr (std::is_arithmetic_v<Member>) {
      visit(field.name, static_cast<double>(e.*field.member));
    } else {
      visit(field.name, (e.*field.member).base());
    }
  });
}

TEST_CASE("times sum to the step and kinds of memory to the peak") {
  testing::for_random_estimates(
      kStrategies, 1, [](const Question&, const Strategy&, const Estimate& e) {
        CHECK(about_equal(testing::sum_of_times(e), e.step_time, 1e-12));
        CHECK(about_equal(testing::sum_of_memory(e), e.memory, 1e-12));
        CHECK(about_equal(e.memory_allocated + e.memory_reserve, e.memory, 1e-12));
      });
}

TEST_CASE("no number is negative, infinite or undefined") {
  testing::for_random_estimates(kStrategies, 2,
                                [](const Question& question, const Strategy&, const Estimate& e) {
                                  int wrong = 0;
                                  for_each_number(e, [&](std::string_view, double number) {
                                    wrong += std::isfinite(number) && number >= 0 ? 0 : 1;
                                  });
                                  CAPTURE(question.name);
                                  CHECK(wrong == 0);
                                  CHECK(e.step_time > Seconds{});
                                  CHECK(e.compute > Seconds{});
                                  CHECK(e.memory_weights > Bytes{});
                                });
}

TEST_CASE("tokens per second times the step are the tokens of the batch") {
  testing::for_random_estimates(
      kStrategies, 3, [](const Question& question, const Strategy& s, const Estimate& e) {
        const Task& task = question.tables.task();
        const double tokens = static_cast<double>(task.global_batch) * task.sequence;
        CHECK(e.tokens_per_s * e.step_time.base() == Approx(tokens));
        CHECK(e.micro_batches * e.dp * s.micro_batch == Approx(task.global_batch));
      });
}

TEST_CASE("model flop do not depend on the strategy, and recomputation only adds to them") {
  testing::for_random_estimates(
      kStrategies, 4, [](const Question& question, const Strategy& s, const Estimate& e) {
        const Tables& tables = question.tables;
        const Cluster& cluster = tables.cluster();
        const double done =
            e.mfu_fraction * e.step_time.base() * cluster.accelerators *
            cluster.accelerator.peak_of(s.linear_precision.value_or(tables.task().precision))
                .base();
        const bool frozen = tables.task().method == Method::lora;
        const Flop products = tables.flop().forward - tables.flop().attention;
        const double wanted = tables.task().global_batch *
                              ((frozen ? 2 : 3) * products + 3 * tables.flop().attention).base();
        CHECK(done == Approx(wanted));
        if (s.recompute == Recompute::none) {
          CHECK(e.hfu_fraction == e.mfu_fraction);
        } else {
          CHECK(e.hfu_fraction > e.mfu_fraction);
        }
      });
}

TEST_CASE("no step beats the peak of the accelerators") {
  testing::for_random_estimates(kStrategies, 5,
                                [](const Question& question, const Strategy&, const Estimate& e) {
                                  CAPTURE(question.name);
                                  CHECK(e.mfu_fraction > 0);
                                  CHECK(e.mfu_fraction < 1);
                                });
}

TEST_CASE("energy lies between idle and the limit, and counts hosts and facility") {
  testing::for_random_estimates(
      kStrategies, 6, [](const Question& question, const Strategy&, const Estimate& e) {
        const Cluster& c = question.tables.cluster();
        CHECK(at_most(c.accelerator.power.idle, e.power));
        CHECK(at_most(e.power, c.accelerator.power.limit));
        const double nodes = static_cast<double>(c.accelerators) / c.node_accelerators;
        const Watts all =
            c.pue * (static_cast<double>(c.accelerators) * e.power + nodes * c.host_power);
        CHECK(about_equal(e.energy, all * e.step_time));
        CHECK(about_equal(e.cost, static_cast<double>(c.accelerators) * (c.price * e.step_time)));
      });
}

TEST_CASE("too big is a verdict, not a missing answer") {
  int fits = 0, too_big = 0;
  testing::for_random_estimates(kStrategies, 7,
                                [&](const Question&, const Strategy&, const Estimate& e) {
                                  const bool over = e.memory > e.memory_capacity;
                                  CHECK(e.verdict == (over ? Reason::out_of_memory : Reason::ok));
                                  ++(over ? too_big : fits);
                                });
  CHECK(fits > kStrategies / 20);
  CHECK(too_big > kStrategies / 20);
}

TEST_CASE("the same question has the same answer") {
  testing::for_random_estimates(500, 8,
                                [](const Question& question, const Strategy& s, const Estimate& e) {
                                  CHECK(evaluate(question.tables, s) == e);
                                  Tables copy = question.tables;
                                  CHECK(evaluate(copy, s) == e);
                                });
}

TEST_CASE("a fully visible stack: nothing hidden, nothing slowed") {
  Stack stack = testing::reference_stack();
  stack.overlap_efficiency = 0;
  for (const int tp : {1, 8}) {
    for (const Sharding sharding : {Sharding::zero1, Sharding::zero3}) {
      Strategy s = degrees(tp, 1);
      s.sharding = sharding;
      s.overlap_grad_reduce = s.overlap_param_gather = OnOff::on;
      s.overlap_tp = TensorOverlap::ring;
      const Estimate e =
          testing::estimate(testing::dense_7b_shape(), testing::reference_cluster(64),
                            testing::training(64, 4096), s, stack);
      CHECK(at_most(e.hidden, 1e-6 * e.step_time));
    }
  }
}

TEST_CASE("hidden communication slows compute by the stated factor; zero is ideal overlap") {
  Strategy s = degrees(1);
  s.sharding = Sharding::zero3;
  Stack stack = testing::reference_stack();
  const auto with = [&](double contention) {
    stack.contention = contention;
    return testing::estimate(testing::dense_7b_shape(), testing::reference_cluster(64),
                             testing::training(256, 4096), s, stack);
  };
  const Estimate ideal = with(0);
  REQUIRE(ideal.hidden > Seconds{});
  for (const double contention : {0.05, 0.1, 0.5}) {
    const Estimate slowed = with(contention);
    CHECK(about_equal(slowed.compute, ideal.compute + contention * ideal.hidden));
    CHECK(about_equal(slowed.step_time, ideal.step_time + contention * ideal.hidden));
  }
}

TEST_CASE("hidden and exposed communication add up to the same whole") {
  for (const Sharding sharding :
       {Sharding::ddp, Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::hsdp}) {
    CAPTURE(name_of(sharding));
    Strategy s = degrees(4);
    s.sharding = sharding;
    const auto with = [&](OnOff overlap) {
      s.overlap_grad_reduce = s.overlap_param_gather = overlap;
      s.overlap_tp = overlap == OnOff::on ? TensorOverlap::ring : TensorOverlap::off;
      return testing::estimate(testing::dense_7b_shape(), testing::reference_cluster(64),
                               testing::training(256, 4096), s);
    };
    const Estimate open = with(OnOff::off), covered = with(OnOff::on);
    CHECK(open.hidden == Seconds{});
    CHECK(covered.hidden > Seconds{});
    CHECK(covered.step_time < open.step_time);
    CHECK(at_most(testing::exposed(covered), testing::exposed(open)));
    CHECK(about_equal(testing::exposed(covered) + covered.hidden, testing::exposed(open)));
  }
}

/// The cluster and stack with every rate a thousand times higher and every latency a thousand
/// times shorter.
Cluster accelerated(Cluster c) {
  constexpr double k = 1000;
  Accelerator& a = c.accelerator;
  for (FlopPerSecond& peak : a.peak) peak = k * peak;
  a.clock = k * a.clock;
  a.memory_bandwidth = k * a.memory_bandwidth;
  a.host_bandwidth = k * a.host_bandwidth;
  for (TileGemm* tile : {&a.gemm.dense16, &a.gemm.fp8, &a.gemm.fp4}) {
    tile->launch = tile->launch / k;
    tile->throttle = tile->throttle / k;
    tile->split = tile->split / k;
    tile->memory_ramp = tile->memory_ramp / k;
  }
  a.gemm.reference_peak = k * a.gemm.reference_peak;
  a.gemm.roofline_launch = a.gemm.roofline_launch / k;
  a.attention.launch = a.attention.launch / k;
  a.elementwise.launch = a.elementwise.launch / k;
  ScaleUp& up = c.scale_up;
  up.bandwidth = k * up.bandwidth;
  for (CollectiveFit* fit : {&up.all_reduce, &up.all_gather, &up.reduce_scatter, &up.all_to_all}) {
    for (Seconds* time :
         {&fit->start1, &fit->per_rank1, &fit->start2, &fit->per_rank2, &fit->pipeline_fill}) {
      *time = *time / k;
    }
  }
  up.p2p_latency = up.p2p_latency / k;
  c.fabric.bandwidth = k * c.fabric.bandwidth;
  c.fabric.latency_factor /= k;
  c.fabric.p2p_latency = c.fabric.p2p_latency / k;
  return c;
}

Stack accelerated(Stack stack) {
  stack.host_launch = stack.host_launch / 1000;
  stack.step_overhead = stack.step_overhead / 1000;
  return stack;
}

TEST_CASE("all rates times 1000 and all latencies over 1000 divide the step by 1000") {
  testing::for_random_estimates(
      300, 9, [](const Question& question, const Strategy& s, const Estimate& e) {
        const Tables& t = question.tables;
        Tables quick(t.model(), accelerated(t.cluster()), t.task(), accelerated(t.stack()));
        quick.tabulate(s);
        const Estimate q = evaluate(quick, s);
        CAPTURE(question.name);
        CHECK(about_equal(1000 * q.step_time, e.step_time));
        CHECK(about_equal(1000 * q.bubble, e.bubble, 1e-7));
        CHECK(about_equal(1000 * q.energy, e.energy));
        CHECK(q.memory == e.memory);
        CHECK(q.mfu_fraction == Approx(e.mfu_fraction));
      });
}

}  // namespace
}  // namespace scalemodel
