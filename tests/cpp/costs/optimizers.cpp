// Optimizers beside Adam: what they hold, move and compute.
#include "scalemodel/costs/newton_schulz.hpp"
#include "scalemodel/costs/update.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::estimate;

Strategy on_replicas(int tp, Sharding sharding) {
  Strategy s;
  s.tp = static_cast<std::uint16_t>(tp);
  s.sharding = sharding;
  return s;
}

Estimate stepped(Optimizer optimizer, const Strategy& strategy) {
  Task task = testing::training(64, 2048);
  task.optimizer = optimizer;
  return estimate(testing::dense_7b_shape(), testing::reference_cluster(8), task, strategy);
}

TEST_CASE("a matrix and its transpose take the same Newton-Schulz steps, five times three GEMMs") {
  const Cluster cluster = testing::reference_cluster(8);
  const GemmTimer timer(cluster.accelerator, Precision::bf16);
  Stack stack;
  stack.host_launch = Seconds{};
  const auto time = [&](double rows, double columns) {
    return newton_schulz_time(rows, columns, timer, cluster, stack);
  };
  CHECK(about_equal(time(1024, 8192), time(8192, 1024)));
  const Flop flop{5 * (4 * 4096.0 * 4096 * 16384 + 2 * 4096.0 * 4096 * 4096)};
  const Seconds least = flop / cluster.accelerator.peak_of(Precision::bf16);
  CHECK(time(4096, 16384) > least);
  CHECK(time(4096, 16384) < 2 * least);
}

TEST_CASE("a loop over small matrices waits for the CPU") {
  const Cluster cluster = testing::reference_cluster(8);
  const GemmTimer timer(cluster.accelerator, Precision::bf16);
  Stack stack;
  stack.host_launch = Seconds{1e-4};
  const Seconds small = newton_schulz_time(64, 64, timer, cluster, stack);
  CHECK(small == newton_schulz_time(64, 128, timer, cluster, stack));
  CHECK(newton_schulz_time(16384, 16384, timer, cluster, stack) > small);
  stack.update_launches = 2;
  CHECK(newton_schulz_time(64, 64, timer, cluster, stack) == 2 * small);
}

TEST_CASE("gate and up are one matrix where one GEMM computes both, queries and keys never are") {
  const Cluster cluster = testing::reference_cluster(8);
  const GemmTimer timer(cluster.accelerator, Precision::bf16);
  const Model model = make_decoder(testing::dense_7b_shape());
  Stack stack;
  const auto matrices = [&] {
    return orthogonalisation(model.kinds.front(), {}, timer, cluster, stack).dense;
  };
  CHECK(matrices() == 6);  // queries, keys, values, projection, gate with up, down
  stack.split_gate = true;
  CHECK(matrices() == 7);
}

TEST_CASE("Muon holds one moment of matrices and two of embedding and head") {
  const DecoderShape shape = testing::dense_7b_shape();
  const double parameters = make_decoder(shape).parameters();
  const double ends = 2.0 * shape.vocab * shape.hidden;
  const Strategy s = on_replicas(1, Sharding::ddp);
  const double adam = stepped(Optimizer::adam, s).memory_optimizer.base();
  const double muon = stepped(Optimizer::muon, s).memory_optimizer.base();
  CHECK(adam - muon == Approx(4 * (parameters - ends)).epsilon(1e-3));
}

TEST_CASE("owners of matrices share out the Newton-Schulz steps, replicas repeat them") {
  const Estimate alone = stepped(Optimizer::muon, on_replicas(1, Sharding::ddp));
  const Estimate owned = stepped(Optimizer::muon, on_replicas(1, Sharding::zero1));
  CHECK(owned.optimizer < 0.2 * alone.optimizer);
  CHECK(owned.optimizer > 0.1 * alone.optimizer);
  CHECK(alone.optimizer > 3 * stepped(Optimizer::adam, on_replicas(1, Sharding::ddp)).optimizer);
}

TEST_CASE("states of eight bits are a byte and a share of their scale, factored ones are nothing") {
  const Strategy s = on_replicas(1, Sharding::ddp);
  const double parameters = make_decoder(testing::dense_7b_shape()).parameters();
  const auto held = [&](Optimizer optimizer) {
    return stepped(optimizer, s).memory_optimizer.base() / parameters;
  };
  CHECK(held(Optimizer::adam_8bit) == Approx(4 + 2 * (1 + 4.0 / 256)));
  CHECK(held(Optimizer::lion) == Approx(8));
  CHECK(held(Optimizer::adafactor) == Approx(4));
}

TEST_CASE("adapters are Adam's: Muon orthogonalises none of them") {
  Task task = testing::training(64, 2048);
  task.method = Method::lora;
  const Strategy s = on_replicas(1, Sharding::ddp);
  const auto time = [&](Optimizer optimizer) {
    task.optimizer = optimizer;
    return estimate(testing::dense_7b_shape(), testing::reference_cluster(8), task, s).optimizer;
  };
  CHECK(time(Optimizer::muon) <= time(Optimizer::adam));
}

}  // namespace
}  // namespace scalemodel
