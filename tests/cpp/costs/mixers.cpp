// What layers with sparse, compressed and shared keys keep and exchange, by hand.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scalemodel/costs/group_tables.hpp"
#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/model/groups.hpp"
#include "scalemodel/strategy/recompute_modules.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

constexpr double kTokens = 4096;

/// Latent attention of 16 heads whose keys an indexer of 4 x 128 selects.
DecoderShape sparse_latents(const char* mixers = "I") {
  DecoderShape s = testing::latent_experts_shape();
  s.layers = 4;
  s.mixers = mixers;
  s.feed_forwards = "D";
  s.mtp_layers = 0;
  s.index_heads = 4;
  s.index_dim = 128;
  s.index_topk = 512;
  return s;
}

/// One head of keys, which serve as values, 512 wide: of a window and of 4 or 128 tokens together.
DecoderShape compressed(const char* mixers) {
  DecoderShape s;
  s.layers = 4;
  s.hidden = 1024;
  s.vocab = 1000;
  s.heads = 8;
  s.kv_heads = 1;
  s.head_dim = 512;
  s.q_lora_rank = 256;
  s.shared_values = true;
  s.window = 128;
  s.index_heads = 4;
  s.index_dim = 128;
  s.index_topk = 512;
  s.near_ratio = 4;
  s.far_ratio = 128;
  s.output_groups = 2;
  s.output_rank = 128;
  s.ffn = 2048;
  s.gated = true;
  s.mixers = mixers;
  return s;
}

Tables decoder_tables(const DecoderShape& shape, const Strategy& s, const Stack& stack) {
  Tables tables(make_decoder(shape), testing::reference_cluster(64),
                testing::training(64, static_cast<int>(kTokens)), stack);
  tables.tabulate(s);
  return tables;
}

Stack flash() {
  Stack stack = testing::plain_sum_stack();
  stack.attention = AttentionKernel::flash2;
  return stack;
}

/// Bytes of a token that a kind of layer saves.
double saved(const DecoderShape& shape, Recompute recompute = Recompute::none, int tp = 1,
             std::size_t kind = 0) {
  Stack stack = flash();
  stack.selective = Selective::operators;
  const Strategy s = testing::degrees(tp);
  const Tables tables = decoder_tables(shape, s, stack);
  const Cell* cell = tables.find_cell(s, resolve_degrees(s, tables.cluster(), tables.task()));
  REQUIRE(cell != nullptr);
  return cell->layers[kind].saved[static_cast<std::size_t>(recompute)].base() / kTokens;
}

/// Bytes of a token that two context ranks exchange for a layer of a kind, forward.
double exchanged(const DecoderShape& shape, ContextParallel context, std::size_t kind = 0) {
  Strategy s = testing::degrees(1, 1, 2);
  s.context = context;
  const CellMessages messages = decoder_tables(shape, s, flash()).messages(s);
  for (const Message& message : messages.layers[kind]) {
    if (message.communicator != Communicator::cp) continue;
    const double tokens = context == ContextParallel::all_gather ? kTokens : kTokens / 2;
    return message.size.base() / tokens;
  }
  return 0;
}

/// The same of the layer groups of a decoder, of their first layer that exchanges something.
double exchanged_in_groups(const DecoderShape& shape) {
  ComposedModel model;
  std::vector<std::string> order;
  std::vector<LayerGroup> groups = decoder_groups(shape);
  for (const LayerGroup& group : groups) order.push_back(group.name);
  const GroupTables tables(compose(groups, order), testing::reference_cluster(8),
                           testing::training(64, static_cast<int>(kTokens)), flash(), {}, 0.8,
                           {parse_mesh("cp@2+ddp", 8)}, {1}, false);
  GroupStrategy strategy;
  std::array<const GroupCost*, kMaxGroups> costs{};
  REQUIRE(tables.find(strategy, costs));
  const double samples = 64 / 4.0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::uint32_t u = 0; u < costs[g]->units; ++u) {
      const Transfer& gathered = tables.units(*costs[g])[u].context_gather;
      if (takes_part(gathered)) return gathered.size.base() / (samples * kTokens);
    }
  }
  return 0;
}

TEST_CASE("by hand: selected latents are kept once, queries and outputs as wide as they") {
  // 16 heads of 192 and 128 values: queries, keys, values and outputs in full. Selected, queries
  // of 512 + 64, one latent and rotary key, outputs of 512, and 128 of each head on both sides. An
  // indexer has 4 queries, one key and 4 FP32 weights, and leaves 512 ids.
  const double full = 2 * 16 * (192 + 192 + 128 + 128);
  const double chosen = 2 * (16 * 576 + 576 + 16 * 512 + 16 * (128 + 128));
  const double indexer = 2 * (4 * 128 + 128) + 4 * 4;
  CHECK(saved(sparse_latents("S")) - saved(sparse_latents("F")) == Approx(chosen - full));
  CHECK(saved(sparse_latents("I")) - saved(sparse_latents("S")) == Approx(indexer + 4 * 512));
}

TEST_CASE("by hand: the outputs of attention are kept, not the scores of its indexer") {
  // Every second GEMM: the indexer's two put one more of them, index_q, among those kept.
  const auto kept = [](const char* mixers) {
    return saved(sparse_latents(mixers), Recompute::selective);
  };
  CHECK(kept("I") - kept("S") == Approx(2 * 4 * 128));
}

TEST_CASE("by hand: keys of a window and compressed ones share queries and one output") {
  const double far = 2 * 512.0 / 128, near = 2 * 512.0 / 4;
  CHECK(saved(compressed("H")) - saved(compressed("W")) == Approx(far));
  const double indexer = 2 * (4 * 128 + 128.0 / 4) + 4 * 4 + 4 * 512;
  CHECK(saved(compressed("C")) - saved(compressed("W")) == Approx(near + indexer));
  const auto kept = [](const char* mixers) {
    return saved(compressed(mixers), Recompute::selective);
  };
  CHECK(kept("H") - kept("W") < 2 * 2 * 512.0 + 1);  // a compressor's GEMM, no second output
}

TEST_CASE("by hand: keys that serve as values, or are an earlier layer's, are kept once") {
  DecoderShape s = testing::grouped_70b_shape();
  s.layers = 2;
  const double each = saved(s);
  s.shared_values = true;
  s.mixers = "F";
  CHECK(each - saved(s) == Approx(2 * 8 * 128));
  s.shared_values = false;
  s.kv_shared_layers = 1;
  CHECK(each == saved(s));
  CHECK(each - saved(s, Recompute::none, 1, 1) == Approx(2 * 2 * 8 * 128));
}

TEST_CASE("by hand: a low-rank output keeps what lies between its GEMMs") {
  DecoderShape s = compressed("F");
  const double groups = saved(s);
  s.output_groups = s.output_rank = 0;
  // And queries are normalised head by head there.
  CHECK(groups - saved(s) == Approx(2 * (2 * 128 + 8 * 512)));
}

TEST_CASE("by hand: context ranks exchange the keys that there are") {
  using enum ContextParallel;
  for (const ContextParallel context : {ring, all_gather}) {
    CHECK(exchanged(testing::grouped_70b_shape(), context) == Approx(2 * 2 * 8 * 128));
    CHECK(exchanged(sparse_latents("F"), context) == Approx(2 * 16 * (192 + 128)));
    CHECK(exchanged(sparse_latents("S"), context) == Approx(2 * 576));
    CHECK(exchanged(sparse_latents("I"), context) == Approx(2 * (576 + 128)));
    // The window before a rank's 2,048 tokens, and the compressed keys of all.
    const double window = 512.0 * 128 / 2048;
    CHECK(exchanged(compressed("H"), context) == Approx(2 * (window + 512.0 / 128)));
    CHECK(exchanged(compressed("C"), context) == Approx(2 * (window + (512 + 128) / 4.0)));
    CHECK(exchanged(compressed("W"), context) == Approx(2 * 512));
  }
  for (const DecoderShape& shape :
       {testing::grouped_70b_shape(), sparse_latents("F"), sparse_latents("S"), sparse_latents("I"),
        compressed("H"), compressed("C"), compressed("W")}) {
    CHECK(exchanged_in_groups(shape) == Approx(exchanged(shape, all_gather)));
  }
}

TEST_CASE("by hand: tokens are exchanged for heads with all that attention reads and writes") {
  using enum ContextParallel;
  DecoderShape s = testing::grouped_70b_shape();
  s.layers = 2;
  CHECK(exchanged(s, all_to_all) == Approx(2 * (2 * 64 + 2 * 8) * 128));
  s.shared_values = true;
  s.mixers = "F";
  CHECK(exchanged(s, all_to_all) == Approx(2 * (2 * 64 + 8) * 128));
  s.shared_values = false;
  s.kv_shared_layers = 1;  // the layer before has exchanged its keys, which lie as heads by now
  CHECK(exchanged(s, all_to_all, 1) == Approx(2 * 2 * 64 * 128));
  CHECK(exchanged(s, ring, 1) == Approx(2 * 2 * 8 * 128));  // they go round once more
}

TEST_CASE("by hand: what tensor ranks do not shard they save each") {
  // Queries, keys and ids of an indexer; the latent that all heads read.
  const Model model = make_decoder(sparse_latents());
  const Unit& unit = model.kinds[0].units[0];
  CHECK(unit.saved_repeated == 4 * 128 + 128 + 2 * 512 + 576);
  CHECK(unit.saved_cut == 16 * (576 + 512 + 128 + 128));
  const Model full = make_decoder(testing::latent_experts_shape());
  CHECK(full.kinds[0].units[0].saved_repeated == 0);
  // In the other engine half of the heads, of the wide values and of the tokens between blocks.
  const double one = saved(sparse_latents()), two = saved(sparse_latents(), Recompute::none, 2);
  const double heads = 2 * 16 * (576 + 512 + 128 + 128) + 4 * 16;
  const double wide = 6.0 * 10944, between = 2 * 4 * 2048;
  CHECK(one - two == Approx(0.5 * (heads + wide + between)));
}

TEST_CASE("by hand: an expert that passes tokens on has a score like the others") {
  DecoderShape s = testing::latent_experts_shape();
  const auto token = [](const DecoderShape& shape) {
    return make_decoder(shape).kinds[1].units.back().saved_token;
  };
  const double without = token(s);
  s.zero_experts = 32;
  CHECK(token(s) - without == 2 * 32);
}

TEST_CASE("by hand: experts exchange latents, blocks pass on whole tokens") {
  DecoderShape s = testing::experts_8x7b_shape();
  s.expert_latent = 1024;
  const Model model = make_decoder(s);
  const Unit& unit = model.kinds[0].units.back();
  CHECK(unit.routed());
  CHECK(unit.width_in == 4096);
  CHECK(unit.width_out == 4096);
  CHECK(unit.expert_width == 1024);
  CHECK(decoder_groups(s)[1].width_out() == 4096);
  // Of a token: attention, a router of 8, both projections of latents, two of eight experts.
  const double attention = 4096.0 * 4096 * 2 + 2 * 4096.0 * 1024;
  const double block = 8 * 4096 + 2 * 4096.0 * 1024 + 2 * 3 * 1024.0 * 14336;
  Flop gemms = decoder_groups(s)[1].forward_flop(1);
  for (const LayerOperator& op : model.kinds[0].units[0].operators) {
    if (op.kind == OperatorKind::attention) gemms = gemms - 32 * op.activation_flop(1);
  }
  CHECK(gemms.base() == Approx(32 * 2 * (attention + block)));
  const Strategy apart = testing::degrees(1, 1, 1, 8);
  const auto sent = [&](const DecoderShape& shape) {
    const CellMessages messages = decoder_tables(shape, apart, flash()).messages(apart);
    for (const Message& message : messages.layers[0]) {
      if (message.communicator == Communicator::ep) return message.size.base();
    }
    return 0.0;
  };
  CHECK(sent(s) == Approx(2 * kTokens * 1024 * 2));
  CHECK(sent(testing::experts_8x7b_shape()) == Approx(2 * kTokens * 4096 * 2));
}

TEST_CASE("groups pass on every residual stream, and save it where layers run again") {
  DecoderShape s = testing::dense_7b_shape();
  const auto layers_of = [](const DecoderShape& shape) {
    const GroupTables tables(
        compose(decoder_groups(shape), {"token_embedding", "transformer", "head"}),
        testing::reference_cluster(8), testing::training(64, 4096), flash(), {}, 0.8,
        {parse_mesh("ddp", 8)}, {1}, false);
    std::array<const GroupCost*, kMaxGroups> costs{};
    REQUIRE(tables.find(GroupStrategy{}, costs));
    return std::pair(tables.model().groups[1].width_out(), costs[1]->inputs);
  };
  const auto [width, inputs] = layers_of(s);
  s.residual_streams = 4;
  CHECK(layers_of(s).first == 4 * width);
  CHECK(layers_of(s).second == 4 * inputs);
}

TEST_CASE("by hand: decays of a delta rule are as many as its keys") {
  // 8 heads of keys of 64 and values of 128: q, k and values, steps; two low ranks of 128; three
  // convolutions of 4; decays and biases of them; the gated norm.
  DecoderShape s = testing::dense_7b_shape();
  s.layers = 2;
  s.mixers = "R";
  s.recurrence = Recurrence::kimi_delta;
  s.scan_heads = 8;
  s.scan_key_dim = 64;
  s.scan_value_dim = 128;
  s.scan_chunk = 64;
  s.scan_rank = 128;
  s.conv_width = 4;
  const double h = 4096, keys = 8 * 64, inner = 8 * 128;
  const double expected = h * (2 * keys + inner + 8) + (h + keys) * 128 + (h + inner) * 128 +
                          4 * (2 * keys + inner) + keys + 8 + 128 + inner * h;
  CHECK(make_decoder(s).kinds[0].attention_parameters == expected);
  const RecurrentShape shape = make_decoder(s).kinds[0].recurrence;
  CHECK(shape.projected() == 2 * keys + inner + inner + keys + 8);
  CHECK(shape.saved_values() == 2 * (2 * keys + inner) + 2 * inner + keys + 2 * 8 * 64 + 8);
}

TEST_CASE("by hand: a layer mixes the snapshots that there are, and streams once each way") {
  const auto operator_named = [](const DecoderShape& shape, std::string_view name) {
    const Model model = make_decoder(shape);
    for (const LayerOperator& op : model.kinds[0].units[0].operators) {
      if (op.name == name) return op;
    }
    return LayerOperator{};
  };
  DecoderShape s = testing::dense_7b_shape();
  s.layers = 5;
  s.attention_residuals = 2;
  // The embedding, and 0, 0, 1, 1, 2 more: 9/5; with the running sum, and their mixture.
  CHECK(operator_named(s, "snapshots").depth == Approx(9 / 5.0 + 2));
  s.attention_residuals = 0;
  s.residual_streams = 4;
  const LayerOperator mix = operator_named(s, "hyper_connection");
  CHECK(mix.columns == 4 * 4096);
  CHECK(mix.copies == 4);
  CHECK(operator_named(s, "residual").columns == 0);  // the mixing adds what a block wrote
}

OperatorCost cost_of(const DecoderShape& shape, std::string_view name,
                     Precision precision = Precision::bf16) {
  const Tables tables(make_decoder(shape), testing::reference_cluster(64),
                      testing::training(64, static_cast<int>(kTokens), precision), flash());
  for (const OperatorCost& cost : tables.operators(testing::degrees(1), 0)) {
    if (cost.name == name) return cost;
  }
  return {};
}

TEST_CASE("by hand: three kernels pass over all streams, and their gradients are added up") {
  DecoderShape s = testing::dense_7b_shape();
  for (const int streams : {2, 4, 8}) {
    s.residual_streams = streams;
    const OperatorCost mix = cost_of(s, "hyper_connection");
    const double one = 1.0 / streams, all = 2 * kTokens * streams * 4096;
    const double forward = 1.7 + (1 + one) + (2 + one);
    const double backward = 6.6 + (2 + one) + (3 + 2 * one) + 2 * 3;
    CHECK(mix.bytes.base() == Approx(forward * all));
    const Seconds launch = testing::reference_cluster(64).accelerator.elementwise.launch;
    CHECK((mix.backward - 6 * launch) / (mix.forward - 3 * launch) ==
          Approx(backward / forward).epsilon(0.01));
  }
}

TEST_CASE("products of compressed keys, their indexer and groups of heads are never narrow") {
  const DecoderShape near = compressed("C");
  for (const std::string_view name : {"compressor", "index_q", "index_k", "output_groups"}) {
    CAPTURE(name);
    const OperatorCost wide = cost_of(near, name), narrow = cost_of(near, name, Precision::fp8);
    CHECK(wide.forward.base() > 0);
    CHECK(narrow.forward == wide.forward);
    CHECK(narrow.backward == wide.backward);
  }
  CHECK(cost_of(near, "q_up", Precision::fp8).forward != cost_of(near, "q_up").forward);
  const DecoderShape latents = sparse_latents();
  CHECK(cost_of(latents, "index_q", Precision::fp8).forward != cost_of(latents, "index_q").forward);
}

TEST_CASE("by hand: queries of compressed keys are made again with their norm") {
  Stack stack = flash();
  stack.selective_modules = *enum_from<RecomputeModules>("mla_up_proj");
  const Strategy s = testing::degrees(1);
  const Tables tables = decoder_tables(compressed("C"), s, stack);
  const Cell* cell = tables.find_cell(s, resolve_degrees(s, tables.cluster(), tables.task()));
  REQUIRE(cell != nullptr);
  const auto of = [](Recompute mode) { return static_cast<std::size_t>(mode); };
  const LayerCost& layer = cell->layers[0];
  const double dropped =
      (layer.saved[of(Recompute::none)] - layer.saved[of(Recompute::selective)]).base() / kTokens;
  CHECK(dropped == Approx(2 * 2 * 8 * 512));  // what the norm and what attention reads
  Seconds again;
  for (const std::string_view name : {"q_up", "q_head_norm", "rope"}) {
    again += cost_of(compressed("C"), name).forward;
  }
  CHECK(testing::about_equal(layer.recompute[of(Recompute::selective)].compute, again));
}

}  // namespace
}  // namespace scalemodel
