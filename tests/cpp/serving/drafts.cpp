#include "scalemodel/serving/drafts.hpp"

#include <cmath>
#include <memory>
#include <vector>

#include "scalemodel/base/random.hpp"
#include "scalemodel/serving/demand.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

RequestMix drafted(int depth, double acceptance, int width = 1) {
  RequestMix mix{1000, 200, 0, depth, acceptance};
  mix.draft_width = width;
  return mix;
}

Draft draft_of(const DecoderShape& shape, int tp) {
  return {false, std::make_shared<const DraftModel>(
                     DraftModel{make_decoder(shape), reference_kernels(), tp})};
}

DecoderShape one_layer() {
  DecoderShape shape = dense_7b_shape();
  shape.layers = 1;
  return shape;
}

/// Tokens of a step where every parent draws which of its children is accepted, if any.
double drawn_tokens(const DraftTree& tree, int draws) {
  const std::vector<DraftNode> nodes = draft_nodes(tree);
  SplitMix random(7);
  double tokens = 0;
  for (int draw = 0; draw < draws; ++draw) {
    int at = DraftNode::kRoot, depth = 1;
    while (true) {
      double left = random.unit();
      int accepted = DraftNode::kRoot;
      for (std::size_t i = 0; i < nodes.size() && accepted == DraftNode::kRoot; ++i) {
        if (nodes[i].parent != at) continue;
        left -= acceptance_of(tree, depth, nodes[i].rank);
        if (left < 0) accepted = static_cast<int>(i);
      }
      tokens += 1;
      if (accepted == DraftNode::kRoot) break;
      at = accepted;
      ++depth;
    }
  }
  return tokens / draws;
}

}  // namespace

TEST_CASE("a chain gains what Leviathan's equation says, whatever form it is given in") {
  for (const double a : {0.0, 0.3, 0.8, 1.0}) {
    for (const int k : {1, 2, 5}) {
      double sum = 1;
      for (int i = 1; i <= k; ++i) sum += std::pow(a, i);
      CHECK(expected_tokens({k, 1, 0, a, 1, 0.5}) == Approx(sum));
      CHECK(verified_drafts({k, 1, 0, a, 1, 0.5}) == k);
      // Candidates that are never accepted bring nothing.
      CHECK(expected_tokens({k, 3, 0, a, 1, 0}) == Approx(sum));
    }
  }
  // Table 1 of arXiv 2211.17192 has the gain in operations; equation 1 by hand:
  CHECK(expected_tokens({3, 1, 0, 0.8, 1, 0}) == Approx(1 + 0.8 + 0.64 + 0.512));
  CHECK(expected_tokens({2, 1, 0, 0.8, 0.5, 0}) == Approx(1 + 0.8 + 0.8 * 0.4));
}

TEST_CASE("a tree gains what draws along its paths gain") {
  for (const DraftTree& tree : {DraftTree{4, 4, 16, 0.6, 0.9, 0.5}, DraftTree{3, 2, 0, 0.7, 1, 1},
                                DraftTree{6, 8, 60, 0.5, 1, 0.4}}) {
    CHECK(expected_tokens(tree) == Approx(drawn_tokens(tree, 40000)).epsilon(0.02));
    CHECK(draft_nodes(tree).size() == static_cast<std::size_t>(verified_drafts(tree)));
  }
}

TEST_CASE("more depth, width, nodes or acceptance never gain less") {
  const DraftTree tree{3, 3, 8, 0.6, 0.9, 0.5};
  const auto tokens = [&](auto change) {
    DraftTree other = tree;
    change(other);
    return expected_tokens(other);
  };
  const double own = expected_tokens(tree);
  CHECK(tokens([](DraftTree& t) { t.depth = 4; }) >= own);
  CHECK(tokens([](DraftTree& t) { t.width = 4; }) >= own);
  CHECK(tokens([](DraftTree& t) { t.nodes = 12; }) > own);
  CHECK(tokens([](DraftTree& t) { t.acceptance = 0.7; }) > own);
  CHECK(tokens([](DraftTree& t) { t.nodes = 1000; }) ==
        tokens([](DraftTree& t) { t.nodes = static_cast<int>(draft_candidates(t)); }));
  CHECK(own > expected_tokens({3, 1, 0, 0.6, 0.9, 0.5}));
}

TEST_CASE("acceptance of candidates sums to the law of their number and falls with the rank") {
  const DraftTree tree{1, 16, 0, 0.6, 1, 0.43};
  double sum = 0;
  for (int rank = 1; rank <= 16; ++rank) {
    sum += acceptance_of(tree, 1, rank);
    CHECK(sum == Approx(1 - 0.4 * std::pow(rank, -0.43)));
    if (rank > 1) CHECK(acceptance_of(tree, 1, rank) <= acceptance_of(tree, 1, rank - 1));
  }
  // Medusa's heads: 60 % of the best, above 80 % of the five best.
  CHECK(1 - 0.4 * std::pow(5, -0.43) == Approx(0.8).epsilon(0.01));
  CHECK(acceptance_of({1, 4, 0, 0.05, 1, 8}, 1, 2) == 0.05);
}

TEST_CASE("drafts that are never accepted are plain decoding and the cost of drafting") {
  const ServingLayout layout{2, 1, 1, 1, 1};
  const DecoderShape shape = dense_7b_shape();
  const Instance plain(shape, 8, reference_engine(), layout, drafted(0, 0));
  for (const int width : {1, 4}) {
    const RequestMix mix = drafted(3, 0, width);
    CHECK(tokens_per_step(mix) == 1);
    const StepTime with = plain.times.of(Demand(mix).work(16));
    const StepTime without = plain.times.of(Demand(drafted(0, 0)).work(16));
    CHECK(without.draft == Seconds{});
    CHECK(with.draft > Seconds{});
    CHECK(with.total - with.draft >= without.total);
    CHECK(with.host == without.host);
    const auto state = [&](const RequestMix& of) {
      return steady_state(plain.times, plain.capacity, of, 16);
    };
    CHECK(state(mix).tpot > state(drafted(0, 0)).tpot);
  }
}

TEST_CASE("a tree of one candidate is a chain, of depth one multi-token prediction") {
  const Instance one(dense_7b_shape(), 8, reference_engine(), {}, drafted(1, 0.7));
  RequestMix narrow = drafted(1, 0.7);
  narrow.acceptance_power = 3;
  const StepTime step = one.times.of(Demand(narrow).work(32));
  CHECK(step == one.times.of(Demand(drafted(1, 0.7)).work(32)));
  CHECK(tokens_per_step(narrow) == Approx(1.7));
  // Verified beside one token: two tokens a sequence, one pass of the draft.
  StepWork by_hand;
  by_hand.sequences = 32;
  by_hand.context = 1000 + 201.0 / 2;
  by_hand.query_tokens = 2;
  by_hand.draft_tokens = 1;
  CHECK(step.total == one.times.of(by_hand).total);
}

TEST_CASE("a draft model takes a pass of its own for every token, and one for prompts") {
  const DecoderShape shape = dense_7b_shape();
  const Cluster cluster = reference_cluster(8);
  const Engine engine = reference_engine();
  const ServingKernels kernels = reference_kernels();
  const ServingLayout layout{2, 1, 1, 1, 1};
  const StepTimes times(make_decoder(shape), cluster, engine, kernels, layout, 1, 0,
                        draft_of(shape, 2));
  const StepTimes plain(make_decoder(shape), cluster, engine, kernels, layout, 1);
  Engine idle = engine;
  idle.step_host = idle.sequence_host = Seconds{};
  const StepTimes alone(make_decoder(shape), cluster, idle, kernels, layout, 1);
  StepWork work = Demand(drafted(1, 0)).work(16);
  StepWork pass = work;
  pass.query_tokens = 1;
  pass.draft_tokens = 0;
  // The served model as its own draft.
  CHECK((times.of(work).draft / alone.total(pass)) == Approx(1));
  work.draft_tokens = 4;
  CHECK((times.of(work).draft / alone.total(pass)) == Approx(4));
  CHECK(times.of(work).linear == plain.of(work).linear);
  StepWork prompts = Demand(drafted(1, 0)).work(0, 2);
  CHECK(times.total(prompts) > plain.total(prompts));
  prompts.draft_tokens = 0;
  CHECK(times.total(prompts) == plain.total(prompts));
  // Split over fewer ranks it is slower, and all of it lies on each of them.
  const Draft whole = draft_of(shape, 1);
  const StepTimes slow(make_decoder(shape), cluster, engine, kernels, layout, 1, 0, whole);
  CHECK(slow.of(work).draft > times.of(work).draft);
  CHECK(check_draft(whole, layout, cluster) == Reason::ok);
  CHECK(check_draft(draft_of(shape, 3), layout, cluster) == Reason::mesh);
  CHECK(check_draft({}, layout, cluster) == Reason::ok);
}

TEST_CASE("without graphs a draft model is as fast as the CPU launches its layers") {
  const DecoderShape shape = dense_7b_shape();
  const double layers = make_decoder(shape).layers();
  const StepWork work = Demand(drafted(4, 0)).work(16), plain = Demand(drafted(0, 0)).work(16);
  const auto step = [&](Seconds host, const StepWork& of) {
    Engine engine = reference_engine();
    engine.draft_layer_host = host;
    return StepTimes(make_decoder(shape), reference_cluster(8), engine, reference_kernels(),
                     {2, 1, 1, 1, 1}, 1, 0, draft_of(shape, 2))
        .of(of);
  };
  const StepTime graphs = step({}, work);
  CHECK(step(0.001 * unit::us, work) == graphs);
  CHECK(step(1 * unit::ms, work).draft.base() ==
        Approx((4 * layers * unit::ms).base()).epsilon(1e-12));
  CHECK((step(1 * unit::ms, work).total - graphs.total).base() ==
        Approx((4 * layers * unit::ms - graphs.draft).base()).epsilon(1e-12));
  CHECK(step(1 * unit::ms, plain) == step({}, plain));
}

TEST_CASE("passes that are prepared one by one wait for the CPU between them") {
  for (const Seconds host : {10 * unit::us, 100 * unit::ms}) {
    Engine engine = reference_engine();
    engine.step_host = host;
    const Instance at_once(dense_7b_shape(), 8, engine, {}, drafted(2, 0.7));
    engine.phased_drafts = true;
    const Instance phased(dense_7b_shape(), 8, engine, {}, drafted(2, 0.7));
    const StepWork work = Demand(drafted(2, 0.7)).work(8), plain = Demand(drafted(0, 0)).work(8);
    CHECK(phased.times.of(plain) == at_once.times.of(plain));
    const StepTime step = at_once.times.of(work);
    // What is accepted has to be known; verification is prepared while drafts are made.
    const Seconds longer = phased.times.of(work).total - step.total;
    CHECK(longer.base() == Approx((host + max(Seconds{}, host - step.draft)).base()).epsilon(1e-9));
  }
}

TEST_CASE("verified drafts take logits, and a limit of their own holds where there are drafts") {
  const Model model = make_decoder(dense_7b_shape());
  Engine engine = reference_engine();
  engine.max_running_sequences = 256;
  engine.max_batched_tokens = 8192;
  const auto capacity = [&](double verified, bool layer = true) {
    return cache_capacity(model, reference_cluster(8), engine, reference_kernels(), {}, {1000, 200},
                          {layer, nullptr, verified});
  };
  const double logits = 256.0 * model.vocab * (kElement + kLogitBytes);
  CHECK((capacity(3).activations - capacity(0).activations).base() == Approx(3 * logits));
  // No more tokens are sampled than a step has.
  CHECK((capacity(1000).activations - capacity(0).activations).base() == Approx(31 * logits));
  CHECK(capacity(3).blocks < capacity(0).blocks);
  CHECK(capacity(3).step_sequences == 256);
  engine.max_drafting_sequences = 48;
  CHECK(capacity(3).step_sequences == 48);
  CHECK(capacity(3).max_running_sequences <= 48);
  CHECK(capacity(0, false).step_sequences == 256);
}

TEST_CASE("a draft has weights and a cache of its own") {
  const Model model = make_decoder(dense_7b_shape()), small = make_decoder(one_layer());
  const Engine engine = reference_engine();
  const ServingKernels kernels = reference_kernels();
  const Cluster cluster = reference_cluster(8);
  for (const ServingLayout layout : {ServingLayout{4, 1, 1, 1, 1}, ServingLayout{4, 2, 1, 1, 1}}) {
    const Draft draft = draft_of(one_layer(), 2), layer{true, nullptr};
    const RequestLengths lengths{1000, 200};
    const auto capacity = [&](const Draft& with) {
      return cache_capacity(model, cluster, engine, kernels, layout, lengths, with);
    };
    const CacheCapacity none = capacity({}), own = capacity(draft), more = capacity(layer);
    CHECK((own.weights - none.weights) == weight_bytes(small, kernels, {2, 1, 1, 1, 1}));
    const Bytes block = CacheBlocks(small, engine, kernels, {2, 1, 1, 1, 1}).block();
    CHECK((own.block / none.block) == Approx(1 + block / none.block));
    CHECK(own.blocks < none.blocks);
    // One more layer takes as much as any other one.
    const double layers = std::ceil(static_cast<double>(model.layers()) / layout.pp);
    CHECK((more.block / none.block) == Approx((layers + 1) / layers));
    CHECK(more.weights > none.weights);
    CHECK(none.weights == weight_bytes(model, kernels, layout));
    CHECK(CacheBlocks(model, engine, kernels, layout, draft).of(1600) ==
          Approx(CacheBlocks(model, engine, kernels, layout).of(1600)));
  }
}

TEST_CASE("adaptive drafts are as good as the best depth, and none where the batch is large") {
  // Short contexts: keys and values that all drafts of a sequence share take little of a step.
  RequestMix mix = drafted(5, 0.3);
  mix.input = 50;
  mix.output = 20;
  Engine engine = reference_engine();
  engine.sequence_host = Seconds{};  // A step of more tokens takes the CPU no longer.
  const Instance one(dense_7b_shape(), 1, engine, {}, mix);
  CacheCapacity roomy = one.capacity;
  roomy.max_running_sequences = roomy.cached_sequences = roomy.step_sequences = 32768;
  mix.adaptive_drafts = true;
  int last = mix.speculative_tokens;
  for (const double running : {1.0, 16.0, 64.0, 256.0, 4096.0, 32768.0}) {
    const SteadyState state = steady_state(one.times, roomy, mix, running);
    CHECK(state.draft_tokens <= last);
    last = state.draft_tokens;
    const RequestMix chosen = adapted(one.times, mix, running);
    const auto each = [&](const RequestMix& of) {
      const Demand demand(of);
      return one.times.total(demand.work(running)) / demand.tokens_per_step;
    };
    for (int depth = 0; depth <= 5; ++depth) {
      RequestMix fixed = chosen;
      fixed.speculative_tokens = depth;
      CHECK(each(chosen) <= each(fixed));
    }
  }
  CHECK(steady_state(one.times, roomy, mix, 1).draft_tokens > 0);
  CHECK(last == 0);
}

TEST_CASE("streams and the closed form agree on drafts of a tree and of any depth") {
  RequestMix tree = drafted(3, 0.7, 3), adaptive = drafted(4, 0.7);
  tree.draft_nodes = 8;
  adaptive.adaptive_drafts = true;
  for (const RequestMix& mix : {tree, adaptive}) {
    const Instance one(dense_7b_shape(), 1, reference_engine(), {}, mix);
    const double most =
        steady_state(one.times, one.capacity, mix, one.capacity.max_running_sequences)
            .requests_per_s;
    const double rate = 0.4 * most;
    const std::vector<Request> requests = random_stream(3000, rate, mix, 11);
    const StreamResult result = simulate_stream(one.times, one.blocks, one.capacity, mix, requests,
                                                {1, Balance::random, 0});
    double gaps = 0;
    for (const Served& each : result.served) {
      gaps += (each.finished - each.first_token).base() / (mix.output - 1);
    }
    const SteadyState state = steady_state_at(one.times, one.capacity, mix, rate);
    CHECK(state.tpot.base() == Approx(gaps / 3000).epsilon(0.06));
    CHECK(state.draft_tokens > 0);
  }
}

}  // namespace scalemodel::testing
