#include "scalemodel/serving/step_times.hpp"

#include <cmath>

#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

StepWork decoding(double sequences, double context) {
  StepWork work;
  work.sequences = sequences;
  work.context = context;
  return work;
}

StepWork prompting(double prompts, double tokens) {
  StepWork work;
  work.prompts = prompts;
  work.prompt_tokens = prompts * tokens;
  work.prompt_keys = tokens;
  return work;
}

Seconds sum(const StepTime& t) {
  return t.linear + t.experts + t.prefill_attention + t.decode_attention + t.elementwise + t.head +
         t.draft + t.tp + t.ep + t.cp + t.pp + t.host;
}

const RequestMix kMix{1000, 200, 0, 0, 0};

}  // namespace

TEST_CASE("the causes of a step add up, and nothing to do takes no time") {
  for (const ServingLayout layout :
       {ServingLayout{1, 1, 1, 1, 1}, ServingLayout{4, 1, 1, 1, 1}, ServingLayout{2, 2, 2, 1, 1},
        ServingLayout{2, 1, 4, 2, 1}, ServingLayout{2, 1, 2, 1, 2}}) {
    const Instance one(experts_8x7b_shape(), 8, reference_engine(), layout, kMix);
    CHECK(check_layout(one.model, layout, one.cluster) == Reason::ok);
    StepWork mixed = decoding(64, 1500);
    mixed.prompts = 2;
    mixed.prompt_tokens = 2000;
    mixed.prompt_keys = 1000;
    mixed.query_tokens = 3;
    mixed.draft_tokens = 2;
    for (const StepWork& work : {mixed, decoding(1, 1), decoding(5000, 9000), prompting(7, 900)}) {
      const StepTime time = one.times.of(work);
      CHECK(time.total.base() > 0);
      CHECK(sum(time).base() == Approx(time.total.base()).epsilon(1e-12));
      CHECK(one.times.total(work) == time.total);
    }
    CHECK(one.times.of(StepWork{}).total == Seconds{});
    CHECK((one.times.of(mixed).cp > Seconds{}) == (layout.cp > 1));
    CHECK((one.times.of(mixed).pp > Seconds{}) == (layout.pp > 1));
    CHECK((one.times.of(mixed).ep > Seconds{}) == (layout.dp > 1 || layout.cp > 1));
  }
}

TEST_CASE("a step is never faster than reading its weights and its cache once") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, kMix);
  const Bytes weights = weight_bytes(one.model, one.kernels, one.layout);
  for (const double sequences : {1.0, 16.0, 256.0}) {
    const double tokens = sequences * 2000;
    const Bytes cache{tokens * 32 * 2 * 4096 * 2};
    const Seconds floor = (0.9 * weights + cache) / one.cluster.accelerator.memory_bandwidth;
    CHECK(one.times.of(decoding(sequences, 2000)).total > floor);
  }
}

TEST_CASE("more sequences, longer contexts and longer prompts never take less time") {
  const Instance one(grouped_70b_shape(), 8, reference_engine(), {8, 1, 1, 1, 1}, kMix);
  // Kernels round to tiles: a step may not shrink by more than such a corner.
  const double slack = 1.02;
  Seconds last;
  for (double sequences = 1; sequences < 4000; sequences *= 1.3) {
    const Seconds time = one.times.of(decoding(sequences, 1000)).total;
    CHECK(slack * time > last);
    last = time;
  }
  last = Seconds{};
  for (double context = 1; context < 200'000; context *= 1.5) {
    const Seconds time = one.times.of(decoding(32, context)).total;
    CHECK(time >= last);
    last = time;
  }
  last = Seconds{};
  for (double tokens = 16; tokens < 30'000; tokens *= 1.4) {
    const Seconds time = one.times.of(prompting(1, tokens)).total;
    CHECK(slack * time > last);
    last = time;
  }
}

TEST_CASE("a host that works beside the accelerator shows only where it is the slower one") {
  Engine engine = reference_engine();
  engine.sequence_host = Seconds{};
  const Instance serial(dense_7b_shape(), 1, engine, {}, kMix);
  engine.overlaps_host = true;
  const Instance beside(dense_7b_shape(), 1, engine, {}, kMix);
  const StepWork work = decoding(8, 500);
  CHECK(serial.times.of(work).host == engine.step_host);
  CHECK(beside.times.of(work).host == Seconds{});
  engine.step_host = 1 * unit::s;
  const Instance slow(dense_7b_shape(), 1, engine, {}, kMix);
  CHECK(slow.times.of(work).total.base() == Approx(1).epsilon(1e-12));
}

TEST_CASE("every micro-batch of a pipeline waits for its host, overlap or not") {
  Engine engine = reference_engine();
  engine.overlaps_host = true;
  engine.pipeline_host = 20 * unit::us;
  const StepWork work = decoding(400, 500);
  const Instance one(dense_7b_shape(), 1, engine, {}, kMix);
  CHECK(one.times.of(work).host == 400 * engine.sequence_host);
  const Instance stages(dense_7b_shape(), 4, engine, {1, 4, 1, 1, 1}, kMix);
  const Seconds each = engine.sequence_host + engine.pipeline_host;
  CHECK(stages.times.of(work).host.base() ==
        Approx((4 * engine.step_host + 400 * each).base()).epsilon(1e-12));
}

TEST_CASE("ranks of data-parallel attention have a host each") {
  const Engine engine = reference_engine();
  const Instance ranks(experts_8x7b_shape(), 4, engine, {1, 1, 4, 4, 1}, kMix);
  CHECK(ranks.times.of(decoding(400, 500)).host == engine.step_host + 100 * engine.sequence_host);
}

TEST_CASE("every prompt of a step takes the CPU of its rank, running sequences do not") {
  Engine engine = reference_engine();
  engine.prompt_host = 2 * unit::ms;
  const Instance one(experts_8x7b_shape(), 4, engine, {4, 1, 1, 1, 1}, kMix);
  const Instance ranks(experts_8x7b_shape(), 4, engine, {1, 1, 4, 4, 1}, kMix);
  const Seconds each = engine.sequence_host + engine.prompt_host;
  CHECK(one.times.of(prompting(8, 500)).host.base() ==
        Approx((engine.step_host + 8 * each).base()).epsilon(1e-12));
  CHECK(ranks.times.of(prompting(8, 500)).host.base() ==
        Approx((engine.step_host + 2 * each).base()).epsilon(1e-12));
  CHECK(one.times.of(decoding(8, 500)).host == engine.step_host + 8 * engine.sequence_host);
}

TEST_CASE("one prompt is computed by one data-parallel rank, as many as ranks by all of them") {
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, kMix);
  const Instance four(dense_7b_shape(), 4, reference_engine(), {1, 1, 1, 4, 1}, kMix);
  const auto linear = [](const Instance& instance, double prompts) {
    return instance.times.of(prompting(prompts, 1000)).linear.base();
  };
  // Ranks that repeat a dense model have nothing to exchange: four prompts on four take as long as
  // one on one, and one prompt alone no less.
  CHECK(linear(four, 1) == Approx(linear(one, 1)).epsilon(0.01));
  CHECK(linear(four, 4) == Approx(linear(one, 1)).epsilon(0.01));
  CHECK(linear(four, 8) == Approx(linear(one, 2)).epsilon(0.01));
  const StepTime alone = four.times.of(prompting(1, 1000));
  CHECK(alone.prefill_attention == one.times.of(prompting(1, 1000)).prefill_attention);
  CHECK(four.times.total(prompting(1, 1000)) == alone.total);
}

TEST_CASE("ranks that hold few experts are loaded unevenly where these are") {
  // By hand: 8 experts on 4 ranks, a spread of 2 means: 1 + 2 x 1.03 x sqrt(4/8) = 2.46 times the
  // mean, 1.03 being the expected largest of four normal draws.
  Engine engine = reference_engine();
  const Model model = make_decoder(experts_8x7b_shape());
  const Cluster cluster = reference_cluster(8);
  const auto experts = [&](double imbalance, const ServingLayout& layout) {
    const StepTimes times(model, cluster, engine, reference_kernels(), layout, imbalance);
    return times.of(prompting(8, 1000)).experts;
  };
  const ServingLayout spread{1, 1, 4, 4, 1}, whole{4, 1, 1, 1, 1};
  CHECK(experts(0, spread) == experts(1, spread));
  engine.expert_spread = 2;
  const double expected = 1 + 2 * 1.0294 * std::sqrt(4.0 / 8);
  CHECK(experts(0, spread) / experts(expected, spread) == Approx(1).epsilon(0.01));
  CHECK(experts(0, spread) > 1.5 * experts(1, spread));
  CHECK(experts(0, whole) == experts(1, whole));
}

TEST_CASE("tokens are gathered for their experts as the norm before wrote them") {
  Engine engine = reference_engine();
  ServingKernels narrow = reference_kernels();
  narrow.linear_format.activation_bytes = 0.5;
  const Model model = make_decoder(experts_8x7b_shape());
  const Cluster cluster = reference_cluster(4);
  const auto exchange = [&](const ServingKernels& kernels) {
    const StepTimes times(model, cluster, engine, kernels, {1, 1, 4, 4, 1}, 1);
    return times.of(decoding(4000, 500)).ep;
  };
  CHECK(exchange(narrow) == exchange(reference_kernels()));
  engine.fused_quantisation = true;
  const Seconds wide = exchange(reference_kernels());
  CHECK(exchange(narrow) < 0.75 * wide);  // both ways weigh alike: 5/8 and the waits
  CHECK(exchange(narrow) > 0.6 * wide);
}

TEST_CASE("serving prices every operator of a layer's list, but those that its kernels fuse") {
  const Model model = make_decoder(dense_7b_shape());
  const auto time = [](const Model& of) {
    return StepTimes(of, reference_cluster(1), reference_engine(), reference_kernels(), {}, 1)
        .of(decoding(64, 1000))
        .total;
  };
  for (std::size_t i = 0; i < EnumNames<OperatorKind>::names.size(); ++i) {
    for (const bool weightless : {false, true}) {
      LayerOperator more;
      more.kind = static_cast<OperatorKind>(i);
      more.weightless = weightless && more.kind == OperatorKind::gemm;
      more.columns = more.depth = 256;
      more.attention = model.kinds.front().attention;
      more.recurrence.kind = Recurrence::mamba2;
      more.recurrence.heads = more.recurrence.groups = 8;
      more.recurrence.key_dim = more.recurrence.value_dim = 64;
      Model longer = model;
      longer.kinds.front().units.front().operators.push_back(more);
      const bool fused = more.kind == OperatorKind::residual || more.kind == OperatorKind::loss ||
                         more.kind == OperatorKind::head_norm;
      INFO(name_of(more.kind));
      CHECK((time(longer) > time(model)) == !fused);
    }
  }
}

TEST_CASE("blocks: floor of the room, whole blocks per sequence, windows where they are kept") {
  const Instance one(window_shape(), 1, reference_engine(), {}, kMix);
  // 42 layers of 8 heads of 256, keys and values, 2 bytes, 16 tokens.
  CHECK(one.blocks.block().base() == 42.0 * 8 * 512 * 2 * 16);
  CHECK(one.blocks.of(16) == Approx(1));
  CHECK(one.blocks.of(17) == Approx(2));
  CHECK(one.blocks.of(8192) == Approx(512));
  Engine keeping = reference_engine();
  keeping.window_cache = true;
  const Instance bounded(window_shape(), 1, keeping, {}, kMix);
  CHECK(bounded.blocks.of(8192) == Approx(0.5 * 512 + 0.5 * 256));
  const CacheCapacity& c = one.capacity;
  const Bytes room =
      0.9 * one.cluster.accelerator.memory_capacity - c.weights - c.activations - c.reserve;
  CHECK(c.blocks == std::floor(room / c.block));
  CHECK(c.cache <= room);
  CHECK(c.cached_sequences == std::floor(c.blocks / 75));  // 1200 tokens in blocks of 16
}

TEST_CASE("a decoder that keeps no keys caches a block for each sequence, however long") {
  DecoderShape nothing = dense_7b_shape();
  nothing.mixers = "-";
  DecoderShape states = nothing;
  states.mixers = "R";
  states.recurrence = Recurrence::mamba2;
  states.scan_heads = 64, states.scan_key_dim = 128, states.scan_value_dim = 64;
  states.scan_groups = 8, states.conv_width = 4;
  for (const DecoderShape& shape : {nothing, states}) {
    const Instance one(shape, 1, reference_engine(), {}, kMix);
    CHECK(one.blocks.of(1) == 1);
    CHECK(one.blocks.of(100'000) == 1);
    CHECK(one.blocks.mean(100'000) == 1);
    CHECK(one.capacity.cached_sequences == one.capacity.blocks);
    CHECK(std::isfinite(one.capacity.blocks));
  }
  CHECK(Instance(nothing, 1, reference_engine(), {}, kMix).blocks.block().base() == 1);
  // 32 layers of 64 states of 128 by 64 values of 4 bytes, and windows of 3 tokens in 2 bytes.
  const double windows = 3.0 * (64 * 64 + 2 * 8 * 128) * 2;
  CHECK(Instance(states, 1, reference_engine(), {}, kMix).blocks.block().base() ==
        Approx(32 * (64.0 * 128 * 64 * 4 + windows)));
}

TEST_CASE("ranks that split a model share its weights out, experts included") {
  const Model model = make_decoder(experts_8x7b_shape());
  const ServingKernels kernels = reference_kernels();
  const Bytes whole = weight_bytes(model, kernels, {});
  CHECK(whole.base() == Approx(2 * model.parameters()).epsilon(1e-9));
  const Bytes quarter = weight_bytes(model, kernels, {4, 1, 4, 1, 1});
  CHECK(quarter.base() == Approx(whole.base() / 4).epsilon(0.001));  // norms are repeated
  // Attention is repeated over data-parallel ranks, experts are not.
  CHECK(weight_bytes(model, kernels, {1, 1, 4, 4, 1}) > quarter);
}

TEST_CASE("layouts that cannot be are told by their reason") {
  const Model dense = make_decoder(grouped_70b_shape());
  const Model experts = make_decoder(experts_8x7b_shape());
  const Cluster cluster = reference_cluster(8);
  CHECK(check_layout(dense, {16, 1, 1, 1, 1}, cluster) == Reason::mesh);
  CHECK(check_layout(dense, {5, 1, 1, 1, 1}, cluster) == Reason::tp_heads);
  CHECK(check_layout(dense, {4, 1, 2, 1, 1}, cluster) == Reason::ep_experts);
  CHECK(check_layout(experts, {4, 1, 3, 1, 1}, cluster) == Reason::ep_mesh);
  CHECK(check_layout(experts, {8, 1, 8, 1, 1}, cluster) == Reason::ok);
  CHECK(check_layout(experts, {1, 99, 1, 1, 1}, reference_cluster(99)) == Reason::pp_layers);
}

TEST_CASE("tokens per step: one, all of them, and the geometric sum between") {
  CHECK(tokens_per_step({1, 1, 0, 0, 0.9}) == 1);
  CHECK(tokens_per_step({1, 1, 0, 3, 1}) == 4);
  CHECK(tokens_per_step({1, 1, 0, 2, 0.5}) == Approx(1.75));
}

}  // namespace scalemodel::testing
