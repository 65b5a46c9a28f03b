// What the facts of a software stack do to the cost of a layer.
#include <string_view>
#include <utility>

#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;

/// A layer of experts in FP8, and what is around it.
struct ExpertCase {
  DecoderShape shape = testing::latent_experts_shape();
  Cluster cluster = testing::reference_cluster(64);
  Task task = testing::training(64, 4096, Precision::fp8);
  Stack stack = testing::plain_sum_stack();
  Strategy strategy = testing::degrees(1, 1, 1, 8);
};

constexpr std::size_t kExperts = 1;  // behind the leading dense layers

LayerCost expert_layer_of(const ExpertCase& c, std::size_t kind = kExperts) {
  Tables tables(make_decoder(c.shape), c.cluster, c.task, c.stack);
  tables.tabulate(c.strategy);
  const Cell* cell =
      tables.find_cell(c.strategy, resolve_degrees(c.strategy, tables.cluster(), tables.task()));
  REQUIRE(cell != nullptr);
  return cell->layers[kind];
}

OperatorCost operator_of(const ExpertCase& c, std::string_view name, std::size_t kind = kExperts) {
  const Tables tables(make_decoder(c.shape), c.cluster, c.task, c.stack);
  for (const OperatorCost& cost : tables.operators(c.strategy, kind)) {
    if (cost.name == name) return cost;
  }
  return {};
}

TEST_CASE("single experts cost what as many single products cost, together they cost less") {
  ExpertCase c;
  const LayerCost single = expert_layer_of(c);
  c.stack.grouped_launch = true;
  const LayerCost together = expert_layer_of(c);
  CHECK(together.forward.compute < single.forward.compute);
  CHECK(together.backward.compute < single.backward.compute);
  c.stack.gemm_efficiency = 0.45;  // half of what it was
  CHECK(expert_layer_of(c).forward.compute > together.forward.compute);
}

TEST_CASE("the host launches single experts late: their kernels add to the layer") {
  ExpertCase c;
  c.stack.host_launch = 0.05 * unit::us;
  const LayerCost slow = expert_layer_of(c);
  c.stack.host_launch = Seconds{};
  const LayerCost free = expert_layer_of(c);
  // 64 experts over 8 ranks, two products each: quantise, arrange two scales, multiply.
  CHECK(about_equal(slow.forward.compute - free.forward.compute, 8 * 2 * 4 * (0.05 * unit::us)));
  CHECK(about_equal(slow.backward.compute - free.backward.compute, 8 * 2 * 7 * (0.05 * unit::us)));
  CHECK(about_equal(slow.weight_gradient - free.weight_gradient, 8 * 2 * 3 * (0.05 * unit::us)));
  c.stack.host_launch = 0.05 * unit::us;
  c.stack.drops_tokens = true;  // rows known in advance: queued like all others
  CHECK(about_equal(expert_layer_of(c).forward.compute, free.forward.compute));
  c.stack.drops_tokens = false;
  c.stack.grouped_launch = true;
  const LayerCost grouped = expert_layer_of(c);
  c.stack.host_launch = Seconds{};
  CHECK(about_equal(grouped.forward.compute, expert_layer_of(c).forward.compute));
}

TEST_CASE("a CPU that computes what it launches does one after the other") {
  ExpertCase c;
  c.stack.grouped_launch = true;
  const LayerCost free = expert_layer_of(c);
  c.stack.host_computes = true;
  CHECK(about_equal(expert_layer_of(c).forward.compute, free.forward.compute));
  const auto added = [&](Seconds launch) {
    c.stack.host_launch = launch;
    return expert_layer_of(c);
  };
  const LayerCost one = added(1 * unit::us), three = added(3 * unit::us);
  const Seconds forward = one.forward.compute - free.forward.compute;
  const Seconds backward = one.backward.compute - free.backward.compute;
  const Seconds weight = one.weight_gradient - free.weight_gradient;
  CHECK(forward > 5 * unit::us);
  CHECK(backward > forward);
  CHECK(weight > Seconds{});
  CHECK(about_equal(three.forward.compute - free.forward.compute, 3 * forward));
  CHECK(about_equal(three.backward.compute - free.backward.compute, 3 * backward));
  CHECK(about_equal(three.weight_gradient - free.weight_gradient, 3 * weight));
}

TEST_CASE("activation functions may reach another share of the bandwidth than additions") {
  ExpertCase c;
  const OperatorCost as_additions = operator_of(c, "activation");
  auto& kernels = c.cluster.accelerator.elementwise;
  kernels.activation_fraction = kernels.add_fraction;
  CHECK(operator_of(c, "activation").forward == as_additions.forward);
  kernels.activation_fraction = kernels.add_fraction / 4;
  CHECK(operator_of(c, "activation").forward > 3 * as_additions.forward);
  CHECK(operator_of(c, "residual").forward == operator_of(ExpertCase{}, "residual").forward);
}

TEST_CASE("a routed layer keeps the host busy, twice so where micro-batches are paired") {
  ExpertCase c;
  c.strategy = testing::degrees(1, 1, 1, 32);
  c.stack.host_launch = 1 * unit::ms;  // the host is all that counts
  const LayerCost alone = expert_layer_of(c);
  c.stack.overlap_ep_between = true;
  const LayerCost paired = expert_layer_of(c);
  CHECK(paired.forward.compute > 1.8 * alone.forward.compute);
  c.stack.grouped_launch = true;  // one graph for all
  CHECK(expert_layer_of(c).forward.compute < 0.2 * alone.forward.compute);
}

TEST_CASE("fused experts pay neither for an activation nor for quantising") {
  ExpertCase c;
  const LayerCost apart = expert_layer_of(c);
  c.stack.fused_experts = true;
  const LayerCost fused = expert_layer_of(c);
  CHECK(fused.forward.compute < apart.forward.compute);
  CHECK(fused.backward.compute < apart.backward.compute);
  CHECK(fused.saved == apart.saved);
}

TEST_CASE("biases of experts cost passes over their outputs where nothing fuses them") {
  ExpertCase c;
  c.stack.fused_expert_bias = false;
  CHECK(operator_of(c, "expert_bias").forward == Seconds{});  // the model has none
  c.shape.expert_bias = true;
  const OperatorCost apart = operator_of(c, "expert_bias");
  const double copies = static_cast<double>(c.task.sequence) * c.shape.experts_per_token;
  CHECK(about_equal(apart.bytes, Bytes{28 * copies * c.shape.hidden}));
  CHECK(apart.backward > apart.forward);
  c.stack.fused_expert_bias = true;
  CHECK(operator_of(c, "expert_bias").forward == Seconds{});
}

TEST_CASE("by hand: a core writes a bias into the output that its product is added to") {
  DecoderShape shape = testing::grouped_70b_shape();
  Stack stack = testing::plain_sum_stack();
  const Task task = testing::training(64, 4096, Precision::bf16);
  const auto copied = [&] {
    const Tables tables(make_decoder(shape), testing::reference_cluster(64), task, stack);
    Seconds sum;
    for (const OperatorCost& cost : tables.operators(testing::degrees(4, 1, 1), 0)) {
      if (cost.name != "bias") continue;
      CHECK(cost.backward == Seconds{});
      sum += cost.forward;
    }
    return sum;
  };
  shape.qkv_bias = shape.out_bias = true;
  CHECK(copied() == Seconds{});  // stored with the product
  stack.host_computes = true;
  const Accelerator a = testing::reference_cluster(64).accelerator;
  const double fraction = a.elementwise.add_fraction * stack.memory_efficiency;
  const double qkv = 10 * 1024 / 4.0;  // 64 + 2 x 8 heads of 128 on four ranks
  const auto pass = [&](double width) { return memory_time(Bytes{2 * 4096 * width}, fraction, a); };
  CHECK(about_equal(copied(), pass(qkv) + pass(8192)));
  shape.qkv_bias = shape.out_bias = false;
  CHECK(copied() == Seconds{});
}

TEST_CASE("by hand: a bias's gradient is one pass over the gradient of what it is added to") {
  DecoderShape shape = testing::grouped_70b_shape();
  const Stack stack = testing::plain_sum_stack();
  const auto summed = [&](Method method) {
    Task task = testing::training(64, 4096, Precision::bf16);
    task.method = method;
    const Tables tables(make_decoder(shape), testing::reference_cluster(64), task, stack);
    Seconds sum;
    for (const OperatorCost& cost : tables.operators(testing::degrees(4, 1, 1), 0)) {
      if (cost.name != "bias_gradient") continue;
      CHECK(cost.forward == Seconds{});
      sum += cost.backward;
    }
    return sum;
  };
  shape.qk_norm = true;  // scales of norms are no biases
  CHECK(summed(Method::full) == Seconds{});
  shape.qkv_bias = shape.out_bias = true;
  const Accelerator a = testing::reference_cluster(64).accelerator;
  const double fraction = a.elementwise.add_fraction * stack.memory_efficiency;
  const double qkv = 10 * 1024 / 4.0;  // 64 + 2 x 8 heads of 128 on four ranks
  const auto pass = [&](double width) { return memory_time(Bytes{2 * 4096 * width}, fraction, a); };
  CHECK(about_equal(summed(Method::full), pass(qkv) + pass(8192)));
  CHECK(summed(Method::lora) == Seconds{});  // they are frozen
}

TEST_CASE("by hand: clamps are kernels of their own where nothing fuses them") {
  ExpertCase c;
  c.shape.shared_experts = 0;
  c.stack.fused_clamp = false;
  CHECK(operator_of(c, "clamp").forward == Seconds{});  // the model has none
  c.shape.clamped_activation = true;
  const OperatorCost apart = operator_of(c, "clamp");
  const double copies = static_cast<double>(c.task.sequence) * c.shape.experts_per_token;
  // Of 16-bit values: gate and up read and written, then joined: 8 times the width.
  CHECK(about_equal(apart.bytes, Bytes{8 * 2 * copies * c.shape.expert_ffn}));
  CHECK(apart.backward > apart.forward);
  const Bytes kept = expert_layer_of(c).saved[0];
  c.stack.fused_clamp = true;
  CHECK(operator_of(c, "clamp").forward == Seconds{});
  CHECK(expert_layer_of(c).saved[0] < kept);
  c.stack.fused_clamp = false;
  c.stack.fused_experts = true;  // the kernel of the experts clamps too
  CHECK(operator_of(c, "clamp").forward == Seconds{});
}

TEST_CASE("by hand: biases of single experts are launched as late as these") {
  // 64 experts over 8 ranks: two kernels of each forward and five back wait for their rows.
  ExpertCase c;
  c.shape.expert_bias = true;
  const auto late = [&](bool fused) {
    ExpertCase by = c;
    by.stack.fused_expert_bias = fused;
    by.stack.host_launch = 0.05 * unit::us;
    const LayerCost slow = expert_layer_of(by);
    by.stack.host_launch = Seconds{};
    const LayerCost free = expert_layer_of(by);
    return std::pair(slow.forward.compute - free.forward.compute,
                     slow.backward.compute - free.backward.compute);
  };
  CHECK(about_equal(late(false).first - late(true).first, 8 * 2 * (0.05 * unit::us)));
  CHECK(about_equal(late(false).second - late(true).second, 8 * 5 * (0.05 * unit::us)));
  c.stack.drops_tokens = true;  // rows known in advance
  CHECK(late(false).first == late(true).first);
}

TEST_CASE("graphs take launches from the host, but not those of single experts") {
  ExpertCase c;
  c.stack.host_launch = 1 * unit::ms;  // the host is all that counts
  const LayerCost eager = expert_layer_of(c);
  c.stack.cuda_graphs = true;
  const LayerCost graphs = expert_layer_of(c);
  CHECK(graphs.forward.compute < eager.forward.compute);
  CHECK(graphs.forward.compute > 8 * 2 * 4 * c.stack.host_launch);
  c.stack.grouped_launch = true;  // nothing is left to the host
  const LayerCost whole = expert_layer_of(c);
  c.stack.host_launch = Seconds{};
  CHECK(about_equal(whole.forward.compute, expert_layer_of(c).forward.compute));
  CHECK(about_equal(whole.backward.compute, expert_layer_of(c).backward.compute));
}

TEST_CASE("attention in FP8 is faster where linear layers are narrow too") {
  ExpertCase c;
  c.stack.attention = AttentionKernel::flash3;
  const OperatorCost wide = operator_of(c, "attention");
  c.stack.fp8_attention = true;
  const OperatorCost narrow = operator_of(c, "attention");
  CHECK(narrow.forward < wide.forward);
  CHECK(narrow.backward < wide.backward);
  c.task.precision = Precision::bf16;
  CHECK(operator_of(c, "attention").forward == wide.forward);
}

TEST_CASE("rows are permuted once more for ranks, less where copies are shared") {
  ExpertCase c;
  const Bytes eight = operator_of(c, "permute").bytes;
  c.stack.deduplicated_dispatch = true;
  const Bytes shared = operator_of(c, "permute").bytes;
  CHECK(shared < 0.5 * eight);
  c.stack.deduplicated_dispatch = false;
  c.stack.pads_experts = true;
  CHECK(about_equal(operator_of(c, "permute").bytes, 1.5 * eight));
  c.task.precision = Precision::bf16;  // nothing to pad for
  CHECK(about_equal(operator_of(c, "permute").bytes, eight));
}

TEST_CASE("a router in FP32 widens its input for gradients alone") {
  ExpertCase c;
  const OperatorCost narrow = operator_of(c, "router");
  c.stack.fp32_router = true;
  const OperatorCost wide = operator_of(c, "router");
  CHECK(wide.forward >= narrow.forward);
  CHECK(wide.forward < 1.5 * narrow.forward);
  CHECK(wide.backward > narrow.backward);
  CHECK(wide.backward > wide.forward);
  CHECK(wide.m * wide.n * wide.k == narrow.m * narrow.n * narrow.k);
}

TEST_CASE("a vocabulary is padded on every tensor rank, and its unused columns cost the same") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.shape.vocab = 50257;
  c.task.precision = Precision::bf16;
  c.cluster.accelerator.gemm.rows_of_4_fraction = 0.4;
  c.cluster.accelerator.gemm.rows_of_2_fraction = 0.2;
  c.strategy = testing::degrees(1);
  constexpr std::size_t kHead = 1;  // behind the only kind of layer
  const OperatorCost odd = operator_of(c, "head", kHead);
  CHECK(odd.n == 50257);
  c.stack.vocab_multiple = 128;
  const OperatorCost padded = operator_of(c, "head", kHead);
  CHECK(padded.n == 50304);
  CHECK(odd.forward > 3 * padded.forward);
  CHECK(odd.backward > 3 * padded.backward);
  const Bytes loss = operator_of(c, "loss", kHead).bytes;
  c.shape.vocab = 50304;
  CHECK(operator_of(c, "head", kHead).forward == padded.forward);
  CHECK(operator_of(c, "loss", kHead).bytes == loss);
  c.strategy = testing::degrees(4);
  CHECK(operator_of(c, "head", kHead).n == 12672);  // 50688 in all
  c.stack.vocab_multiple = 1;
  CHECK(operator_of(c, "head", kHead).n == 12576);
}

TEST_CASE("an unfused loss with a softmax of its own makes fewer passes, a fused one fewest") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.strategy = testing::degrees(1);
  const auto both_ways = [&] {
    const OperatorCost loss = operator_of(c, "loss", 1);
    return loss.forward + loss.backward;
  };
  c.stack.fused_loss = false;
  const Seconds apart = both_ways();
  c.stack.softmax_loss = true;
  const Seconds softmax = both_ways();
  c.stack.fused_loss = true;
  const Seconds fused = both_ways();
  CHECK(softmax / apart == doctest::Approx(36.0 / 52).epsilon(0.01));
  CHECK(fused / apart == doctest::Approx(6.0 / 52).epsilon(0.01));
}

TEST_CASE("autocast reads FP32 weights in every pass and casts their gradients once") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.task.precision = Precision::bf16;
  c.strategy = testing::degrees(1);
  CHECK(operator_of(c, "weight_cast", 0).forward == Seconds{});
  const LayerCost stored = expert_layer_of(c, 0);
  c.stack.autocast = true;
  const LayerCost cast = expert_layer_of(c, 0);
  Bytes bytes;
  Seconds forward, backward;
  const Tables tables(make_decoder(c.shape), c.cluster, c.task, c.stack);
  for (const OperatorCost& cost : tables.operators(c.strategy, 0)) {
    if (cost.name != "weight_cast") continue;
    bytes += cost.bytes;
    forward += cost.forward;
    backward += cost.backward;
  }
  const double hidden = c.shape.hidden;
  const double heads = 2.0 * (c.shape.heads + c.shape.kv_heads);  // of queries, keys, values, out
  const double weights = hidden * heads * hidden / c.shape.heads + 3 * hidden * c.shape.ffn;
  CHECK(about_equal(bytes, Bytes{6 * weights}));
  CHECK(about_equal(forward, backward));
  CHECK(about_equal(cast.forward.compute - stored.forward.compute, forward));
  c.task.method = Method::lora;  // frozen weights have no gradients
  CHECK(operator_of(c, "weight_cast", 0).backward == Seconds{});
}

TEST_CASE("autocast gradients are added up in every micro-batch but the first") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.task.precision = Precision::bf16;
  const auto update = [&](int batch, bool autocast) {
    ExpertCase one = c;
    one.strategy = testing::degrees(8, 8);
    one.task.global_batch = batch;
    one.stack.autocast = autocast;
    return testing::estimate(one.shape, one.cluster, one.task, one.strategy, one.stack).optimizer;
  };
  CHECK(about_equal(update(1, true), update(1, false)));
  const Seconds once = update(2, true) - update(1, true);
  CHECK(once > Seconds{});
  CHECK(about_equal(update(4, true) - update(1, true), 3 * once));
  CHECK(about_equal(update(4, false), update(1, false)));
}

TEST_CASE("between domains copies are shared and hidden where the stack says so") {
  ExpertCase c;
  c.strategy = testing::degrees(1, 1, 1, 32);  // four domains of eight
  const LayerCost open = expert_layer_of(c);
  c.stack.deduplicated_dispatch = true;  // inside a domain only
  CHECK(expert_layer_of(c).forward.ep == open.forward.ep);
  c.stack.deduplicated_between = true;
  const LayerCost shared = expert_layer_of(c);
  CHECK(shared.forward.ep < open.forward.ep);
  c.stack.overlap_ep_between = true;
  const LayerCost hidden = expert_layer_of(c);
  CHECK(hidden.forward.ep < shared.forward.ep);
  CHECK(about_equal(hidden.forward.ep + hidden.forward.hidden, shared.forward.ep));
  c.strategy = testing::degrees(1, 1, 1, 8);
  CHECK(expert_layer_of(c).forward.hidden == Seconds{});
}

TEST_CASE("micro-batches pair where no whole layer runs again and stages alternate chunks") {
  ExpertCase c;
  c.strategy = testing::degrees(1, 1, 1, 32);
  c.stack.overlap_ep_between = true;
  const LayerCost hidden = expert_layer_of(c);
  REQUIRE(hidden.paired_forward > Seconds{});
  CHECK(about_equal(hidden.recompute[static_cast<std::size_t>(Recompute::full)].ep,
                    hidden.forward.ep + hidden.paired_forward));
  const auto exposed = [&](Recompute mode, bool overlap) {
    ExpertCase one = c;
    one.strategy.recompute = mode;
    one.stack.overlap_ep_between = overlap;
    one.stack.grouped_launch = true;  // the host has no part in it
    return testing::estimate(one.shape, one.cluster, one.task, one.strategy, one.stack).exposed_ep;
  };
  CHECK(exposed(Recompute::selective, true) < 0.9 * exposed(Recompute::selective, false));
  CHECK(about_equal(exposed(Recompute::full, true), exposed(Recompute::full, false)));
  c.strategy = testing::degrees(1, 2, 1, 32);
  CHECK(about_equal(exposed(Recompute::none, true), exposed(Recompute::none, false)));
  c.strategy.vpp = 2;
  CHECK(exposed(Recompute::none, true) < 0.9 * exposed(Recompute::none, false));
}

TEST_CASE("inputs gathered in FP8 take half the wire; partial sums do not") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.cluster = testing::without_latency(c.cluster);
  c.strategy = testing::degrees(4);
  const LayerCost wide = expert_layer_of(c, 0);
  c.stack.narrow_gather = true;
  const LayerCost narrow = expert_layer_of(c, 0);
  CHECK(about_equal(narrow.forward.tp, 0.75 * wide.forward.tp));
  CHECK(about_equal(narrow.backward.tp, (2.0 / 3) * wide.backward.tp));
  c.task.precision = Precision::bf16;
  const LayerCost plain = expert_layer_of(c, 0);
  CHECK(about_equal(plain.forward.tp, wide.forward.tp));
}

TEST_CASE("scales of rows are made and applied by passes of their own") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.cluster = testing::without_latency(c.cluster);
  c.strategy = testing::degrees(4);
  c.stack.narrow_gather = true;
  const LayerCost tensors = expert_layer_of(c, 0);
  c.stack.row_scales = true;
  const LayerCost rows = expert_layer_of(c, 0);
  CHECK(rows.forward.compute > tensors.forward.compute);
  // Two more casts of x and dy, the weights' other ones and the scaling of both results.
  CHECK(rows.backward.compute - tensors.backward.compute >
        rows.forward.compute - tensors.forward.compute);
  CHECK(rows.forward.tp > tensors.forward.tp);  // inputs are gathered before they are cast
  CHECK(operator_of(c, "row_scales", 0).backward > Seconds{});
  c.task.precision = Precision::bf16;
  CHECK(operator_of(c, "row_scales", 0).backward == Seconds{});
}

TEST_CASE("frozen weights need their inputs only once") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.cluster = testing::without_latency(c.cluster);
  c.strategy = testing::degrees(4);
  c.task.method = Method::lora;
  const LayerCost frozen = expert_layer_of(c, 0);
  CHECK(about_equal(frozen.backward.tp, frozen.forward.tp));
}

TEST_CASE("batch-first tensors are copied after a gather unless the product does it") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.strategy = testing::degrees(4);
  const LayerCost plain = expert_layer_of(c, 0);
  c.stack.batch_first = true;
  const LayerCost copied = expert_layer_of(c, 0);
  CHECK(copied.forward.compute > plain.forward.compute);
  CHECK(copied.backward.compute > plain.backward.compute);
  c.strategy.overlap_tp = TensorOverlap::ring;
  CHECK(operator_of(c, "gather_copies", 0).forward == Seconds{});
}

TEST_CASE("tensor-parallel overlap may end at the node") {
  ExpertCase c;
  c.shape = testing::grouped_70b_shape();
  c.cluster.node_accelerators = 4;
  c.stack.overlap_tp = c.stack.overlap_tp_in_node = true;
  c.strategy = testing::degrees(4);
  CHECK(expert_layer_of(c, 0).forward.hidden > Seconds{});
  c.strategy = testing::degrees(8);
  CHECK(expert_layer_of(c, 0).forward.hidden == Seconds{});
  c.strategy.overlap_tp = TensorOverlap::ring;  // stated, whatever the stack does
  CHECK(expert_layer_of(c, 0).forward.hidden > Seconds{});
}

}  // namespace
}  // namespace scalemodel
