// Optimizers beside Adam: what they hold, move and compute.
#include "scalemodel/costs/matrix_updates.hpp"
#include "scalemodel/costs/newton_schulz.hpp"
#include "scalemodel/costs/preconditioners.hpp"
#include "scalemodel/costs/update.hpp"
#include "scalemodel/estimator/messages.hpp"
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

/// What an optimizer takes as wholes of one layer.
LayerCost layer_updates(Optimizer optimizer, const DecoderShape& shape, const Stack& stack = {}) {
  const Cluster cluster = testing::reference_cluster(8);
  const GemmTimer timer(cluster.accelerator, Precision::bf16);
  Conditions conditions;
  conditions.matrix_optimizer = optimizer;
  conditions.stack = stack;
  LayerCost cost;
  add_matrix_updates(cost, make_decoder(shape).kinds.front(), {}, conditions, cluster,
                     {timer, timer});
  return cost;
}

/// Shampoo and SOAP on matrices alone, without a CPU that they wait for.
struct Alone {
  Cluster cluster = testing::reference_cluster(8);
  GemmTimer timer = GemmTimer(cluster.accelerator, Precision::fp32);
  Stack stack = [] {
    Stack s;
    s.host_launch = Seconds{};
    return s;
  }();

  MatrixUpdates shampoo(double rows, double columns, double frequency = kShampooFrequency) const {
    return shampoo_update(rows, columns, timer, cluster, stack, frequency);
  }
  MatrixUpdates soap(double rows, double columns, double frequency = kSoapFrequency) const {
    return soap_update(rows, columns, timer, cluster, stack, frequency);
  }
};

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
  Stack stack;
  const auto matrices = [&] {
    return layer_updates(Optimizer::muon, testing::dense_7b_shape(), stack).dense_updates.matrices;
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

TEST_CASE("adapters are Adam's: Muon orthogonalises none of them, nothing has factors of them") {
  Task task = testing::training(64, 2048);
  task.method = Method::lora;
  const Strategy s = on_replicas(1, Sharding::ddp);
  const auto answer = [&](Optimizer optimizer) {
    task.optimizer = optimizer;
    return estimate(testing::dense_7b_shape(), testing::reference_cluster(8), task, s);
  };
  const Estimate adam = answer(Optimizer::adam);
  CHECK(answer(Optimizer::muon).optimizer <= adam.optimizer);
  for (const Optimizer optimizer : {Optimizer::shampoo, Optimizer::soap}) {
    CHECK(answer(optimizer).optimizer == adam.optimizer);
    CHECK(answer(optimizer).memory_optimizer == adam.memory_optimizer);
  }
}

TEST_CASE("SOAP keeps 2 m^2 + 2 n^2 FP32 values of factors and eigenbases, none of a long side") {
  const Alone on;
  CHECK(on.soap(1024, 4096).factors == Bytes{4 * (2 * 1024.0 * 1024 + 2 * 4096.0 * 4096)});
  CHECK(on.soap(4096, 1024).factors == on.soap(1024, 4096).factors);
  CHECK(on.soap(10'000, 64).factors == Bytes{4 * (2 * 1e8 + 2 * 64.0 * 64)});
  CHECK(on.soap(10'001, 64).factors == Bytes{4 * 2 * 64.0 * 64});
  CHECK(on.soap(11008, 4096).matrices == 1);
}

TEST_CASE("Shampoo keeps four FP32 values of each one in whole blocks, and more in what is left") {
  const Alone on;
  const MatrixUpdates whole = on.shampoo(4096, 8192);
  CHECK(whole.matrices == 32);
  CHECK(whole.factors == Bytes{4 * 4 * 4096.0 * 8192});  // 4 m n, as its documentation has it
  const MatrixUpdates rest = on.shampoo(1024 + 100, 300);
  CHECK(rest.matrices == 2);
  CHECK(rest.factors == Bytes{4 * (2 * (1024.0 * 1024 + 9e4) + 2 * (1e4 + 9e4))});
  const MatrixUpdates vector = shampoo_vector_update(4096, on.timer, on.cluster, on.stack);
  CHECK(vector.factors == Bytes{4 * 4 * 2 * 1024.0 * 1024});
  CHECK(shampoo_vector_update(0, on.timer, on.cluster, on.stack).matrices == 0);
}

TEST_CASE("what is computed now and then is spread over the steps") {
  const Alone on;
  const auto spread = [](const auto& time) {
    const Seconds always = time(1), never = time(1e12);
    CHECK(about_equal(time(2) - never, (always - never) / 2));
    CHECK(about_equal(time(100) - never, (always - never) / 100));
    CHECK(always > 2 * never);
  };
  spread([&](double frequency) { return on.shampoo(1024, 1024, frequency).time; });
  spread([&](double frequency) { return on.soap(2048, 512, frequency).time; });
}

TEST_CASE("Shampoo and SOAP take a matrix and its transpose alike, and longer for larger ones") {
  const Alone on;
  CHECK(about_equal(on.shampoo(2048, 700).time, on.shampoo(700, 2048).time));
  CHECK(about_equal(on.soap(2048, 700).time, on.soap(700, 2048).time));
  for (double side = 256; side < 8192; side *= 2) {
    CHECK(on.shampoo(2 * side, 1024).time > on.shampoo(side, 1024).time);
    CHECK(on.soap(2 * side, 1024).time > on.soap(side, 1024).time);
  }
}

TEST_CASE("no step is faster than its GEMMs at the FP32 peak") {
  const Alone on;
  const FlopPerSecond peak = on.cluster.accelerator.peak_of(Precision::fp32);
  const double m = 4096, n = 8192, products = m * m * n + m * n * n;
  const Seconds soap = on.soap(m, n, 1e12).time;
  CHECK(soap > Flop{10 * products} / peak);
  CHECK(soap < 1.6 * (Flop{10 * products} / peak));
  const Seconds shampoo = on.shampoo(m, n, 1e12).time;
  const double blocks = m * n / (1024.0 * 1024);
  const Flop of_blocks{blocks * 8 * 1024.0 * 1024 * 1024};
  CHECK(shampoo > of_blocks / peak);
  CHECK(shampoo < 2 * (of_blocks / peak));
}

TEST_CASE("decompositions take as long as was measured on the A100, far from its peak") {
  // QR: pytorch/pytorch#151066. Eigenvectors: half of the MI250X's times (ROCm/rocm-jax#278).
  Alone on;
  Accelerator& a100 = on.cluster.accelerator;
  a100.peak[static_cast<std::size_t>(Precision::fp32)] = FlopPerSecond{19.5e12};
  a100.memory_bandwidth = 2.04e12 * (unit::B / unit::s);
  a100.elementwise.launch = 2.9 * unit::us;
  on.timer = GemmTimer(a100, Precision::fp32);
  const auto qr = [&](double n) { return qr_time(n, on.timer, on.cluster, on.stack); };
  const auto eigen = [&](double n) { return eigen_time(n, on.timer, on.cluster, on.stack); };
  CHECK(qr(2048).base() == Approx(0.01597).epsilon(0.15));
  CHECK(eigen(1024).base() == Approx(0.0141).epsilon(0.15));
  CHECK(eigen(2048).base() == Approx(0.036).epsilon(0.15));
  CHECK(eigen(2048) > 5 * (Flop{9 * 2048.0 * 2048 * 2048} / FlopPerSecond{19.5e12}));
}

TEST_CASE("the router is a matrix to SOAP and to Shampoo, and Adam's beside Muon") {
  const DecoderShape shape = testing::experts_8x7b_shape();
  const auto matrices = [&](Optimizer optimizer) {
    return layer_updates(optimizer, shape).dense_updates.matrices;
  };
  CHECK(matrices(Optimizer::soap) == matrices(Optimizer::muon) + 1);
  // Experts are told apart: gate with up, and down, of each.
  CHECK(layer_updates(Optimizer::soap, shape).expert_updates.matrices == 2 * shape.experts);
}

TEST_CASE("states of a model by hand: factors of its matrices, its embedding and its head") {
  const DecoderShape shape = testing::dense_7b_shape();
  const Strategy s = on_replicas(1, Sharding::ddp);
  const double adam = stepped(Optimizer::adam, s).memory_optimizer.base();
  const double square = 4096.0 * 4096, block = 1024.0 * 1024;
  // Queries, keys, values, projection; one side of gate with up, down, the embedding and the head.
  const double soap = 32 * (4 * 4 * square + 2 * 2 * square) + 2 * 2 * square;
  CHECK(stepped(Optimizer::soap, s).memory_optimizer.base() - adam == Approx(4 * soap));
  // Blocks of 22,016, 11,008 and 32,000 rows leave 512, 768 and 256; two norms of each layer, one
  // more.
  const auto words = [&](double rows, double rest) {
    return 4 * (rows * 4 * block + 2 * (rest * rest + block));
  };
  const double layer = 4 * 4 * square + words(21, 512) + words(10, 768) + 8 * 2 * block;
  const double shampoo = 32 * layer + 2 * words(31, 256) + 4 * 2 * block;
  CHECK(stepped(Optimizer::shampoo, s).memory_optimizer.base() - adam == Approx(4 * shampoo));
  CHECK(shape.layers == 32);
}

TEST_CASE("owners share out factors and updates of matrices, replicas repeat them") {
  for (const Optimizer optimizer : {Optimizer::shampoo, Optimizer::soap}) {
    const Estimate alone = stepped(optimizer, on_replicas(1, Sharding::ddp));
    const Estimate owned = stepped(optimizer, on_replicas(1, Sharding::zero1));
    CHECK(owned.optimizer < 0.25 * alone.optimizer);
    CHECK(owned.optimizer >= 0.125 * alone.optimizer);
    CHECK(owned.memory_optimizer < 0.15 * alone.memory_optimizer);
    CHECK(alone.optimizer > stepped(Optimizer::muon, on_replicas(1, Sharding::ddp)).optimizer);
  }
}

TEST_CASE("a checkpoint holds factors and eigenbases") {
  const Model model = make_decoder(testing::dense_7b_shape());
  const Cluster cluster = testing::reference_cluster(8);
  const auto written = [&](Optimizer optimizer) {
    Task task = testing::training(64, 2048);
    task.optimizer = optimizer;
    Tables tables(model, cluster, task, testing::reference_stack());
    return checkpoint_bytes(tables, on_replicas(1, Sharding::ddp)).front().base();
  };
  const double square = 4096.0 * 4096;
  const double soap = 32 * (4 * 4 * square + 2 * 2 * square) + 2 * 2 * square;
  CHECK(written(Optimizer::soap) - written(Optimizer::adam) == Approx(4 * soap / 8));
}

}  // namespace
}  // namespace scalemodel
