// ZeRO++: second copies, quantised gathers and reductions. Bytes counted by hand, degenerate cases.
#include <map>
#include <vector>

#include "scalemodel/estimator/messages.hpp"
#include "scalemodel/estimator/quantized_traffic.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::degrees;
using testing::estimate;
using testing::Question;

Strategy sharded() {
  Strategy s = degrees(1);
  s.sharding = Sharding::zero3;
  return s;
}

/// All of ZeRO++ over nodes of eight.
Strategy quantized() {
  Strategy s = sharded();
  s.secondary_degree = 8;
  s.quantized_gather = s.quantized_reduce = true;
  return s;
}

/// A model without token embedding and LM head to speak of: layers are all of its parameters.
DecoderShape layers_alone() {
  DecoderShape shape = testing::dense_7b_shape();
  shape.vocab = 8;
  return shape;
}

/// Gradients as wide as weights.
Task narrow_training(int batch) {
  Task task = testing::training(batch, 2048);
  task.gradient_precision = GradientPrecision::bf16;
  return task;
}

/// Bytes that one node sends to the others in a step.
double between_nodes(const DecoderShape& shape, const Cluster& cluster, const Task& task,
                     const Strategy& s) {
  Tables tables(make_decoder(shape), cluster, task, testing::reference_stack());
  const std::vector<StageMessage> messages = step_messages(tables, s);
  REQUIRE(!messages.empty());
  const StrategyFlows all = strategy_flows(strategy_layout(tables, s, false), messages);
  double sum = 0;
  for (std::size_t f = 0; f < all.flows.size(); ++f) {
    if (all.flows.source[f] < 8) sum += all.flows.bytes[f] * all.periods[f];
  }
  return sum;
}

TEST_CASE("a second copy takes two bytes of a parameter over the ranks that share it") {
  const double parameters = make_decoder(testing::dense_7b_shape()).parameters();
  const Task task = testing::training(64, 2048);
  const auto weights = [&](int degree) {
    Strategy s = sharded();
    s.secondary_degree = static_cast<std::uint16_t>(degree);
    return estimate(testing::dense_7b_shape(), testing::reference_cluster(64), task, s)
        .memory_weights;
  };
  const Bytes plain = weights(0);
  CHECK(about_equal(plain, Bytes{2 * parameters / 64}));
  for (const int degree : {1, 2, 8, 32}) {
    CHECK(about_equal(weights(degree) - plain, Bytes{2 * parameters / degree}));
  }
  CHECK(weights(64) == plain);
}

TEST_CASE("a second copy waits where the weights do, and quantised traffic takes no memory") {
  const Task task = testing::training(64, 2048);
  const auto of = [&](const Strategy& s) {
    return estimate(testing::dense_7b_shape(), testing::reference_cluster(64), task, s);
  };
  Strategy copied = sharded();
  copied.secondary_degree = 8;
  Strategy narrow = sharded();
  narrow.quantized_gather = narrow.quantized_reduce = true;
  CHECK(of(narrow).memory == of(sharded()).memory);
  Strategy there = copied;
  there.offload_weights = true;
  CHECK(of(there).memory_weights < of(copied).memory_weights);
  CHECK(of(there).host_memory > Bytes{});
}

TEST_CASE("between nodes three times the parameters become three quarters (arXiv 2306.10209)") {
  const Cluster cluster = testing::reference_cluster(64);
  const Task task = narrow_training(64);  // one micro-batch a rank
  // What is gathered and reduced around a ring leaves a node 63 of 64 times, an exchange 7 of 8.
  const double parameters = make_decoder(layers_alone()).parameters();
  const double ring = 2 * parameters * 63 / 64, exchange = 2 * parameters * 7 / 8;
  const auto sent = [&](auto change) {
    Strategy s = sharded();
    change(s);
    return between_nodes(layers_alone(), cluster, task, s);
  };
  const double tolerance = 1e-3;  // scales, and ends that are gathered once
  const double plain = sent([](Strategy&) {});
  CHECK(plain == Approx(3 * ring).epsilon(tolerance));
  CHECK(sent([](Strategy& s) { s.quantized_gather = true; }) ==
        Approx(2 * ring).epsilon(tolerance));
  CHECK(sent([](Strategy& s) { s.secondary_degree = 8; }) == Approx(2 * ring).epsilon(tolerance));
  CHECK(sent([](Strategy& s) { s.quantized_reduce = true; }) ==
        Approx(2 * ring + 0.25 * exchange).epsilon(tolerance));
  const double all = sent([](Strategy& s) { s = quantized(); });
  CHECK(all == Approx(0.5 * ring + 0.25 * exchange).epsilon(2 * tolerance));
  CHECK(all / plain == Approx(0.25).epsilon(0.05));
}

TEST_CASE("quantised values have scales: one for 8,000 gathered, one for a row reduced") {
  Tables tables(make_decoder(layers_alone()), testing::reference_cluster(64), narrow_training(64),
                testing::reference_stack());
  Strategy s = quantized();
  s.secondary_degree = 0;
  // Values and their scales follow each other.
  std::map<Communicator, std::vector<double>> bytes;
  for (const StageMessage& each : step_messages(tables, s)) {
    bytes[each.message.communicator].push_back(each.message.size.base());
  }
  CHECK(bytes.count(Communicator::dense_secondary) == 0);
  const auto check = [&](Communicator communicator, double share) {
    const std::vector<double>& sizes = bytes[communicator];
    REQUIRE(!sizes.empty());
    REQUIRE(sizes.size() % 2 == 0);
    for (std::size_t i = 0; i < sizes.size(); i += 2) {
      CHECK(sizes[i + 1] / sizes[i] == Approx(share));
    }
  };
  const double hidden = testing::dense_7b_shape().hidden;
  check(Communicator::dense_shard, 4.0 / 8000);
  check(Communicator::dense_node, 4 / hidden / 0.5);
  check(Communicator::dense_rail, 4 / hidden / 0.5);
}

TEST_CASE("one gather of a step is over all ranks, however many micro-batches follow") {
  const Cluster cluster = testing::reference_cluster(64);
  Strategy s = sharded();
  s.secondary_degree = 8;
  const double parameters = make_decoder(layers_alone()).parameters();
  for (const int micro_batches : {1, 2, 8}) {
    const double sent =
        between_nodes(layers_alone(), cluster, narrow_training(64 * micro_batches), s);
    // The gather, and a reduction for each micro-batch.
    CHECK(sent == Approx((1 + micro_batches) * 2 * parameters * 63 / 64).epsilon(1e-3));
  }
}

TEST_CASE("frozen parameters are gathered among those that share the copy, always") {
  const Cluster cluster = testing::reference_cluster(64);
  Task task = testing::training(64, 2048);
  task.method = Method::lora;
  Strategy s = sharded();
  const double plain = between_nodes(testing::dense_7b_shape(), cluster, task, s);
  s.secondary_degree = 8;
  CHECK(between_nodes(testing::dense_7b_shape(), cluster, task, s) < 0.05 * plain);
}

TEST_CASE("a copy that all ranks share is no second one, and one node has nothing to quantise") {
  int copies = 0, nodes = 0;
  testing::for_random_estimates(
      1500, 43, [&](const Question& question, const Strategy& given, const Estimate&) {
        const Cluster& cluster = question.tables.cluster();
        Strategy s = given;
        s.secondary_degree = 0;
        s.sharding = Sharding::zero3;
        s.quantized_gather = given.micro_batch % 2 == 0;
        s.quantized_reduce = false;
        const Degrees d = resolve_degrees(s, cluster, question.tables.task());
        const Estimate plain = evaluate(question.tables, s);
        Strategy whole = s;
        whole.secondary_degree = static_cast<std::uint16_t>(d.dp * d.cp);
        CHECK(evaluate(question.tables, whole) == plain);
        ++copies;
        const DataParallelGroups g =
            data_parallel_groups(cluster, s, d, question.tables.model().routed());
        if (g.dense_shard.domains > 1 || g.expert_shard.domains > 1) return;
        s.quantized_reduce = true;
        CHECK(evaluate(question.tables, s) == plain);
        ++nodes;
      });
  CHECK(copies == 1500);
  CHECK(nodes > 100);
}

TEST_CASE(
    "a second copy in a node shortens no traffic but that between nodes, and never adds any") {
  Cluster slow = testing::without_latency(testing::reference_cluster(64));
  slow.fabric.bandwidth = 0.1 * slow.fabric.bandwidth;
  for (const int micro_batches : {1, 4}) {
    for (const bool narrow : {false, true}) {
      const Task task = testing::training(64 * micro_batches, 2048);
      Strategy s = sharded();
      s.quantized_gather = narrow;
      const Estimate plain = estimate(testing::dense_7b_shape(), slow, task, s);
      s.secondary_degree = 8;
      const Estimate copied = estimate(testing::dense_7b_shape(), slow, task, s);
      CHECK(copied.verdict == Reason::ok);
      CHECK(copied.exposed_dp < plain.exposed_dp);
      CHECK(copied.step_time < plain.step_time);
    }
  }
}

TEST_CASE("kernels that restore values take the bytes that they read and write") {
  // One read of 8 bits and one write of 16 for every gather of a layer, in either pass.
  const Cluster cluster = testing::reference_cluster(64);
  const Task task = testing::training(64, 2048);
  Strategy s = sharded();
  s.overlap_param_gather = s.overlap_grad_reduce = OnOff::off;
  const auto of = [&] { return estimate(layers_alone(), cluster, task, s); };
  const Seconds plain = of().compute;
  s.quantized_gather = true;
  const double parameters = make_decoder(layers_alone()).parameters();
  const Accelerator& accelerator = cluster.accelerator;
  const Stack stack = testing::reference_stack();
  const int layers = layers_alone().layers;
  const Seconds wanted =
      Bytes{2 * 3 * parameters} / (accelerator.elementwise.add_fraction * stack.memory_efficiency *
                                   accelerator.memory_bandwidth) +
      (2.0 * layers + 1) * accelerator.elementwise.launch;
  CHECK(about_equal(of().compute - plain, wanted, 0.01));
}

}  // namespace
}  // namespace scalemodel
