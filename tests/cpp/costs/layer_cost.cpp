#include "scalemodel/costs/layer_cost.hpp"

#include <string_view>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;

constexpr auto kNone = static_cast<std::size_t>(Recompute::none);
constexpr auto kSelective = static_cast<std::size_t>(Recompute::selective);
constexpr auto kFull = static_cast<std::size_t>(Recompute::full);

/// One layer of a model, with everything that shapes it.
struct Case {
  DecoderShape shape = testing::grouped_70b_shape();
  Cluster cluster = testing::reference_cluster(64);
  Task task = testing::training(64, 4096);
  Stack stack = testing::plain_sum_stack();
  Strategy strategy = testing::degrees(1);
};

Tables tables_of(const Case& c) {
  Tables tables(make_decoder(c.shape), c.cluster, c.task, c.stack);
  tables.tabulate(c.strategy);
  return tables;
}

Cell cell_of(const Case& c) {
  const Tables tables = tables_of(c);
  const Cell* cell =
      tables.find_cell(c.strategy, resolve_degrees(c.strategy, tables.cluster(), tables.task()));
  REQUIRE(cell != nullptr);
  return *cell;
}

LayerCost layer_of(const Case& c, std::size_t kind = 0) { return cell_of(c).layers[kind]; }

bool is_communication(const OperatorCost& cost) {
  return cost.name.find("_parallel") != std::string_view::npos;
}

TEST_CASE("the operators of a layer sum to its compute and its communication") {
  for (const DecoderShape& shape :
       {testing::gpt3_shape(), testing::grouped_70b_shape(), testing::experts_8x7b_shape(),
        testing::latent_experts_shape(), testing::window_shape()}) {
    for (const bool sequence_parallel : {false, true}) {
      Case c;
      c.shape = shape;
      c.strategy = testing::degrees(2, 1, 2, shape.experts > 0 ? 4 : 1);
      c.strategy.context = ContextParallel::all_gather;  // nothing hidden
      c.strategy.sequence_parallel = sequence_parallel;
      const Tables tables = tables_of(c);
      const Cell cell = cell_of(c);
      for (std::size_t kind = 0; kind < tables.model().kinds.size(); ++kind) {
        Phase forward, backward;
        for (const OperatorCost& cost : tables.operators(c.strategy, kind)) {
          (is_communication(cost) ? forward.tp : forward.compute) += cost.forward;
          (is_communication(cost) ? backward.tp : backward.compute) += cost.backward;
        }
        const LayerCost& layer = cell.layers[kind];
        CHECK(about_equal(forward.compute, layer.forward.compute));
        CHECK(about_equal(backward.compute, layer.backward.compute));
        CHECK(about_equal(forward.tp, layer.forward.total() - layer.forward.compute));
        CHECK(about_equal(backward.tp, layer.backward.total() - layer.backward.compute));
      }
      const OperatorList head = tables.operators(c.strategy, tables.model().kinds.size());
      CHECK(head.size() >= 2);
    }
  }
}

TEST_CASE("the GEMMs of a layer do the flop of its parameters") {
  for (const DecoderShape& shape :
       {testing::grouped_70b_shape(), testing::gpt3_shape(), testing::experts_8x7b_shape(),
        testing::latent_experts_shape()}) {
    for (const int tp : {1, 2, 4}) {
      Case c;
      c.shape = shape;
      c.strategy = testing::degrees(tp);
      const Tables tables = tables_of(c);
      for (std::size_t kind = 0; kind < tables.model().kinds.size(); ++kind) {
        const LayerKind& layer = tables.model().kinds[kind];
        double flop = 0;
        for (const OperatorCost& cost : tables.operators(c.strategy, kind)) {
          flop += 2 * cost.m * cost.n * cost.k * std::max(1.0, cost.batch);
        }
        CAPTURE(tp);
        // Biases and latent norms are parameters without a product; latent down-projections and
        // routers are repeated on every rank.
        const double whole =
            2.0 * c.task.sequence * (layer.active_parameters() - layer.norm_parameters) / tp;
        CHECK(flop == Approx(whole).epsilon(layer.attention.latent() && tp > 1 ? 0.5 : 2e-3));
      }
    }
  }
}

TEST_CASE("backward is more than forward, and a weight gradient is part of it") {
  for (const DecoderShape& shape : {testing::grouped_70b_shape(), testing::experts_8x7b_shape(),
                                    testing::latent_experts_shape()}) {
    Case c;
    c.shape = shape;
    const LayerCost layer = layer_of(c);
    CHECK(layer.backward.compute > layer.forward.compute);
    CHECK(layer.weight_gradient > Seconds{});
    CHECK(layer.weight_gradient < layer.backward.compute);
  }
}

TEST_CASE("what recomputation repeats and what it keeps trade places") {
  for (const Selective selective : {Selective::core_attention, Selective::operators}) {
    for (const AttentionKernel attention : {AttentionKernel::unfused, AttentionKernel::flash2}) {
      Case c;
      c.shape = testing::dense_7b_shape();
      c.stack.selective = selective;
      c.task.attention = attention;
      c.strategy = testing::degrees(2);
      const LayerCost layer = layer_of(c);
      CHECK(layer.recompute[kNone].total() == Seconds{});
      CHECK(layer.recompute[kSelective].total() <= layer.recompute[kFull].total());
      CHECK(layer.recompute[kFull].total() == layer.forward.total());
      CHECK(layer.saved[kSelective] <= layer.saved[kNone]);
      CHECK(layer.saved[kFull] < layer.saved[kSelective]);
      if (attention == AttentionKernel::unfused)
        CHECK(layer.saved[kSelective] < layer.saved[kNone]);
    }
  }
}

TEST_CASE("degrees of one exchange nothing") {
  const LayerCost layer = layer_of(Case{});
  for (const Phase& phase : {layer.forward, layer.backward}) {
    CHECK(phase.total() == phase.compute);
    CHECK(phase.hidden == Seconds{});
  }
}

TEST_CASE("tensor parallelism splits parameters and large products, and pays for reductions") {
  Case c;
  LayerCost before = layer_of(c);
  for (const int tp : {2, 4, 8}) {
    c.strategy = testing::degrees(tp);
    const LayerCost now = layer_of(c);
    CAPTURE(tp);
    CHECK(now.forward.compute < before.forward.compute);
    CHECK(now.dense_parameters < 0.51 * before.dense_parameters);
    CHECK(now.forward.tp > Seconds{});
    CHECK(now.saved[kNone] < before.saved[kNone]);
    before = now;
  }
}

TEST_CASE("two reductions a layer each way; sequence parallelism moves the same bytes forward") {
  Case c;
  c.cluster = testing::without_latency(c.cluster);
  for (const int tp : {2, 4, 8, 16}) {
    c.strategy = testing::degrees(tp);
    c.strategy.sequence_parallel = false;
    const LayerCost reduced = layer_of(c);
    c.strategy.sequence_parallel = true;
    const LayerCost gathered = layer_of(c);
    CAPTURE(tp);
    const Bytes stream{2.0 * c.task.sequence * c.shape.hidden};
    const Seconds all_reduce =
        collective_time(Collective::all_reduce, stream, group_shape(c.cluster, tp, 1), c.cluster);
    CHECK(about_equal(reduced.forward.tp, 2 * all_reduce));
    CHECK(about_equal(reduced.backward.tp, 2 * all_reduce));
    CHECK(about_equal(gathered.forward.tp, reduced.forward.tp));
    // Backward, the saved slice is gathered once more for the weight gradient.
    CHECK(about_equal(gathered.backward.tp, 1.5 * reduced.backward.tp));
    // Norms, residuals and what they keep are split.
    CHECK(gathered.forward.compute < reduced.forward.compute);
    CHECK(gathered.saved[kNone] < reduced.saved[kNone]);
  }
}

TEST_CASE("hidden and exposed communication add up to the same whole") {
  Case c;
  c.strategy = testing::degrees(8);
  c.strategy.overlap_tp = TensorOverlap::off;
  const LayerCost open = layer_of(c);
  c.strategy.overlap_tp = TensorOverlap::ring;
  const LayerCost covered = layer_of(c);
  CHECK(open.forward.hidden == Seconds{});
  CHECK(covered.forward.tp < open.forward.tp);
  CHECK(about_equal(covered.forward.tp + covered.forward.hidden, open.forward.tp));
  CHECK(about_equal(covered.backward.tp + covered.backward.hidden, open.backward.tp));
}

TEST_CASE("a ring exchange cuts the GEMMs that it feeds into a piece per rank") {
  const auto with = [](TensorOverlap overlap, int tp, Seconds launch, bool split = true) {
    Case c;
    c.strategy = testing::degrees(tp);
    c.strategy.sequence_parallel = split;
    c.strategy.overlap_tp = overlap;
    c.stack.host_launch = launch;
    return layer_of(c);
  };
  for (const int tp : {2, 4, 8}) {
    CAPTURE(tp);
    const LayerCost whole = with(TensorOverlap::off, tp, Seconds{});
    const LayerCost pieces = with(TensorOverlap::ring, tp, Seconds{});
    CHECK(pieces.forward.compute >= whole.forward.compute);
    CHECK(pieces.backward.compute >= whole.backward.compute);
    CHECK(pieces.weight_gradient == whole.weight_gradient);
    // A CPU that launches slowly is all there is: of four GEMMs all have pieces forward, the two
    // behind attention and activation back, and each but the first is three launches.
    const Seconds launch = 1 * unit::s;
    const LayerCost few = with(TensorOverlap::off, tp, launch);
    const LayerCost many = with(TensorOverlap::ring, tp, launch);
    CHECK(about_equal(many.forward.compute - few.forward.compute, 4 * 3 * (tp - 1) * launch));
    CHECK(about_equal(many.backward.compute - few.backward.compute, 2 * 3 * (tp - 1) * launch));
  }
  // Many ranks leave pieces too small for the accelerator.
  const auto slowdown = [&](int tp) {
    return with(TensorOverlap::ring, tp, Seconds{}).forward.compute /
           with(TensorOverlap::off, tp, Seconds{}).forward.compute;
  };
  CHECK(slowdown(2) < slowdown(8));
  // Without a split sequence sums are all-reduced, and nothing arrives rank by rank.
  CHECK(with(TensorOverlap::ring, 8, Seconds{}, false).forward.compute ==
        with(TensorOverlap::off, 8, Seconds{}, false).forward.compute);
}

TEST_CASE("context parallelism of one is no context parallelism") {
  Case c;
  c.strategy = testing::degrees(2);
  const LayerCost plain = layer_of(c);
  for (const ContextParallel context :
       {ContextParallel::ring, ContextParallel::all_to_all, ContextParallel::all_gather}) {
    c.strategy.context = context;
    const LayerCost same = layer_of(c);
    CHECK(same.forward.total() == plain.forward.total());
    CHECK(same.backward.total() == plain.backward.total());
    CHECK(same.saved == plain.saved);
  }
}

TEST_CASE("context parallelism splits the sequence: compute and kept bytes fall, bytes move") {
  for (const ContextParallel context :
       {ContextParallel::ring, ContextParallel::all_to_all, ContextParallel::all_gather}) {
    CAPTURE(name_of(context));
    Case c;
    c.task.sequence = 32768;
    c.strategy = testing::degrees(2);
    c.strategy.context = context;
    LayerCost before = layer_of(c);
    for (const int cp : {2, 4, 8}) {
      CAPTURE(cp);
      c.strategy.cp = static_cast<std::uint16_t>(cp);
      const LayerCost now = layer_of(c);
      CHECK(now.forward.compute < before.forward.compute);
      CHECK(now.forward.cp + now.forward.hidden > Seconds{});
      CHECK((2 * now.saved[kNone]).base() == Approx(before.saved[kNone].base()));
      CHECK(now.dense_parameters == before.dense_parameters);
      before = now;
    }
  }
}

TEST_CASE("expert parallelism shares out experts and exchanges k copies of every token") {
  Case c;
  c.shape = testing::experts_8x7b_shape();
  c.cluster = testing::without_latency(c.cluster);
  const LayerCost whole = layer_of(c);
  CHECK(whole.forward.ep == Seconds{});
  for (const int ep : {2, 4, 8}) {
    c.strategy = testing::degrees(1, 1, 1, ep);
    const LayerCost shared = layer_of(c);
    CAPTURE(ep);
    CHECK(shared.expert_parameters == Approx(whole.expert_parameters / ep));
    CHECK(shared.dense_parameters == whole.dense_parameters);
    // Dispatch and combine: tokens k h bytes, (ep - 1)/ep of them over the wire.
    const Bytes copies{4096.0 * 2 * 4096 * 2};
    const Seconds one_way =
        (ep - 1.0) / ep * copies /
        (c.cluster.scale_up.all_to_all.bandwidth_fraction2 * c.cluster.scale_up.bandwidth);
    CHECK(about_equal(shared.forward.ep, 2 * one_way));
    CHECK(about_equal(shared.backward.ep, 2 * one_way));
  }
}

TEST_CASE("an unbalanced router costs time in experts and on the wire") {
  Case c;
  c.shape = testing::experts_8x7b_shape();
  c.strategy = testing::degrees(1, 1, 1, 8);
  const LayerCost even = layer_of(c);
  c.task.imbalance = 1.5;
  const LayerCost skewed = layer_of(c);
  CHECK(skewed.forward.compute > even.forward.compute);
  CHECK(skewed.forward.ep > even.forward.ep);
  CHECK(skewed.saved[kNone] > even.saved[kNone]);
}

TEST_CASE("the tensor degree of experts may differ from that of attention") {
  Case c;
  c.shape = testing::experts_8x7b_shape();
  c.strategy = testing::degrees(4, 1, 1, 1);
  const LayerCost plain = layer_of(c);
  c.strategy.etp = 4;  // what is derived without expert parallelism
  const LayerCost same = layer_of(c);
  CHECK(same.forward.total() == plain.forward.total());
  CHECK(same.expert_parameters == plain.expert_parameters);
  c.strategy.etp = 2;
  const LayerCost wider = layer_of(c);
  CHECK(wider.expert_parameters == Approx(2 * plain.expert_parameters));
  CHECK(wider.dense_parameters == plain.dense_parameters);
}

TEST_CASE("adapters: frozen weights need no weight gradient") {
  for (const LoraTargets targets : {LoraTargets::qkv, LoraTargets::attention, LoraTargets::all}) {
    Case c;
    const LayerCost full = layer_of(c);
    c.task.method = Method::lora;
    c.task.lora_targets = targets;
    const LayerCost adapters = layer_of(c);
    CHECK(adapters.weight_gradient < 0.2 * full.weight_gradient);
    CHECK(adapters.backward.compute < full.backward.compute);
    CHECK(adapters.forward.compute > full.forward.compute);
    CHECK(adapters.dense_parameters == full.dense_parameters);
    CHECK(adapters.trainable_dense > 0);
    CHECK(adapters.trainable_dense < 0.05 * full.trainable_dense);
  }
}

TEST_CASE("adapters have rank times the rim of each matrix they stand beside") {
  Case c;
  c.shape = testing::dense_7b_shape();
  c.task.method = Method::lora;
  c.task.lora_rank = 16;
  const double h = 4096, attention = 16 * (h + 3 * h) + 16 * (h + h);
  CHECK(layer_of(c).trainable_dense == attention);
  c.task.lora_targets = LoraTargets::qkv;
  CHECK(layer_of(c).trainable_dense == 16 * (h + 3 * h));
  c.task.lora_targets = LoraTargets::all;
  CHECK(layer_of(c).trainable_dense == attention + 16 * (h + 2 * 11008) + 16 * (11008 + h));
}

TEST_CASE("each layer of its own has an adapter of its own") {
  Case c;
  c.shape = testing::dense_7b_shape();
  c.task.method = Method::lora;
  c.task.lora_rank = 16;
  c.task.lora_targets = LoraTargets::all;
  const double h = 4096, ffn = 11008, attention = 3 * 16 * (h + h) + 16 * (h + h);
  c.stack.split_gate = true;
  CHECK(layer_of(c).trainable_dense == attention + 2 * 16 * (h + ffn) + 16 * (ffn + h));
}

TEST_CASE("an adapter scales and adds what it gives, and what its input gets back") {
  Case c;
  c.shape = testing::dense_7b_shape();
  c.task.method = Method::lora;
  c.task.lora_rank = 16;
  const double tokens = 4096, out = 4096, element = 2;
  Bytes moved{};
  for (const OperatorCost& op : tables_of(c).operators(c.strategy, 0)) {
    if (op.name == "adapter_sum") moved += op.bytes;
  }
  CHECK(about_equal(moved, Bytes{5 * tokens * (3 * out + out) * element}));
}

TEST_CASE("norms of heads are kernels of their own where rotary positions are eager") {
  const auto added = [](bool fused_rope, OnOff fused_norm) {
    Case c;
    c.shape = testing::dense_7b_shape();
    c.stack.fused_rope = fused_rope;
    c.task.fused_norm = fused_norm;
    const LayerCost without = layer_of(c);
    c.shape.qk_norm = true;
    const LayerCost with = layer_of(c);
    CHECK(with.saved[kNone] > without.saved[kNone]);  // their inputs
    CHECK(with.saved[kFull] == without.saved[kFull]);
    return with.forward.compute - without.forward.compute;
  };
  CHECK(added(true, OnOff::on).base() == 0);
  CHECK(added(false, OnOff::on) > Seconds{});
  CHECK(added(false, OnOff::off) > 5 * added(false, OnOff::on));
}

TEST_CASE("FP8 speeds up linear layers only, and keeps narrower inputs") {
  Case c;
  const LayerCost wide = layer_of(c);
  c.task.precision = Precision::fp8;
  const LayerCost narrow = layer_of(c);
  CHECK(narrow.forward.compute < wide.forward.compute);
  CHECK(narrow.saved[kNone] < wide.saved[kNone]);
  CHECK(narrow.saved[kFull] == wide.saved[kFull]);
  const Cell head_wide = cell_of(Case{}), head_narrow = cell_of(c);
  CHECK(head_narrow.head.forward.compute == head_wide.head.forward.compute);
}

TEST_CASE("separate kernels cost more than fused ones") {
  const auto forward_with = [](const auto& change) {
    Case c;
    c.shape = testing::dense_7b_shape();
    change(c);
    return layer_of(c).forward.compute;
  };
  const Seconds fused = forward_with([](Case&) {});
  CHECK(forward_with([](Case& c) { c.task.fused_norm = OnOff::off; }) > fused);
  CHECK(forward_with([](Case& c) { c.stack.fused_activation = false; }) > fused);
  CHECK(forward_with([](Case& c) { c.stack.fused_rope = false; }) > fused);
  CHECK(forward_with([](Case& c) { c.task.dropout = OnOff::on; }) > fused);
  CHECK(forward_with([](Case& c) { c.task.attention = AttentionKernel::fused_softmax; }) > fused);
  CHECK(forward_with([](Case& c) { c.task.attention = AttentionKernel::unfused; }) >
        forward_with([](Case& c) { c.task.attention = AttentionKernel::fused_softmax; }));
  Case separate_loss, fused_loss;
  fused_loss.stack.fused_loss = true;
  CHECK(cell_of(fused_loss).head.forward.compute < cell_of(separate_loss).head.forward.compute);
  CHECK(cell_of(fused_loss).head.working < cell_of(separate_loss).head.working);
}

TEST_CASE("a layer cannot run faster than the host launches it") {
  Case c;
  c.shape = testing::dense_7b_shape();
  c.task.sequence = 128;
  c.stack.host_launch = 1 * unit::ms;
  const LayerCost bound = layer_of(c);
  c.stack.host_launch = 2 * unit::ms;
  CHECK(about_equal(layer_of(c).forward.compute, 2 * bound.forward.compute));
  CHECK(bound.forward.compute > 5 * unit::ms);
}

TEST_CASE("stages pass on micro-batch s h bytes, shared out over tensor and context ranks") {
  for (const bool sequence_parallel : {false, true}) {
    for (const int tp : {1, 4}) {
      for (const int cp : {1, 2}) {
        Case c;
        c.strategy = testing::degrees(tp, 2, cp);
        c.strategy.sequence_parallel = sequence_parallel;
        c.strategy.micro_batch = 2;
        CHECK((tp * cp * cell_of(c).boundary).base() == Approx(2 * 2.0 * 4096 * 8192));
      }
    }
  }
}

TEST_CASE("embedding and head split their tables over the tensor ranks") {
  Case c;
  const Cell one = cell_of(c);
  for (const int tp : {2, 8}) {
    for (const bool sequence_parallel : {false, true}) {
      c.strategy = testing::degrees(tp);
      c.strategy.sequence_parallel = sequence_parallel;
      const Cell split = cell_of(c);
      CHECK(split.embedding.parameters == Approx(one.embedding.parameters / tp));
      CHECK(split.head.parameters == Approx(one.head.parameters / tp).epsilon(1e-4));
      CHECK(split.head.forward.compute < one.head.forward.compute);
      CHECK(split.head.working < one.head.working);
      CHECK(split.embedding.forward.tp > Seconds{});
      CHECK(split.head.backward.tp > Seconds{});
    }
  }
}

TEST_CASE("a prediction module runs the head once more") {
  Case c;
  const Cell plain = cell_of(c);
  c.shape.mtp_layers = 1;
  const Cell twice = cell_of(c);
  CHECK(twice.head.forward.compute > 2 * plain.head.forward.compute);
  CHECK(twice.head.parameters > plain.head.parameters);
}

TEST_CASE("what a task leaves open is the stack's") {
  Stack stack = testing::reference_stack();
  for (const bool choice : {false, true}) {
    stack.fused_norm = stack.dropout = stack.gradients_fp32 = choice;
    stack.attention = choice ? AttentionKernel::flash3 : AttentionKernel::unfused;
    Task task = testing::training(1, 128);
    const Conditions left = resolve_conditions(task, stack, task.precision);
    CHECK(left.fused_norm == choice);
    CHECK(left.dropout == choice);
    CHECK(left.gradients_fp32 == choice);
    CHECK(left.attention == stack.attention);
    task.fused_norm = choice ? OnOff::off : OnOff::on;
    task.gradient_precision = choice ? GradientPrecision::bf16 : GradientPrecision::fp32;
    const Conditions given = resolve_conditions(task, stack, task.precision);
    CHECK(given.fused_norm == !choice);
    CHECK(given.gradients_fp32 == !choice);
  }
  Task task = testing::training(1, 128);
  for (std::size_t i = 0; i < EnumNames<AttentionKernel>::names.size(); ++i) {
    task.attention = static_cast<AttentionKernel>(i);
    CHECK(name_of(resolve_conditions(task, stack, task.precision).attention) ==
          name_of(task.attention));
  }
}

}  // namespace
}  // namespace scalemodel
