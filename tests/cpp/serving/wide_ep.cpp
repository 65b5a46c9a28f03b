// Wide expert parallelism: copies of experts, the fullest rank, halves beside an exchange.
#include <algorithm>
#include <cmath>

#include "scalemodel/ops/expert_balance.hpp"
#include "scalemodel/ops/moe.hpp"
#include "scalemodel/serving/layout.hpp"
#include "scalemodel/serving/step_times.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

StepWork decode_work(double sequences) {
  StepWork work;
  work.sequences = sequences;
  work.context = 1000;
  return work;
}

ServingLayout shared_by(std::uint16_t ranks, std::uint16_t redundant, bool halves) {
  ServingLayout layout;
  layout.dp = layout.ep = ranks;
  layout.redundant_experts = redundant;
  layout.two_batch_overlap = halves;
  return layout;
}

StepTimes mixture_of(const Engine& engine, const ServingKernels& kernels,
                     const ServingLayout& layout) {
  return {
      make_decoder(experts_8x7b_shape()), reference_cluster(layout.dp), engine, kernels, layout, 1};
}

}  // namespace

TEST_CASE("the fullest of several ranks holds what its experts' deviations do not even out") {
  // By hand: four ranks of two experts each, a spread of 0.5: 1 + 1.0294 x 0.5 x sqrt(4/8).
  ExpertBalance balance{0.5, 8, 4, 0};
  CHECK(rank_imbalance(balance) == Approx(1 + 1.0294 * 0.5 * std::sqrt(0.5)).epsilon(1e-3));
  balance.pairs = 100;  // Poisson's law on top: a tenth
  CHECK(rank_imbalance(balance) == Approx(1 + 1.0294 * std::sqrt(0.125 + 0.01)).epsilon(1e-3));
  balance.spread = 100;
  CHECK(rank_imbalance(balance) == 4);
  balance.ranks = 1;
  CHECK(rank_imbalance(balance) == 1);
}

TEST_CASE("ranks that do not divide the experts take copies of them") {
  const Model model = make_decoder(experts_8x7b_shape());  // eight experts
  const Cluster cluster = reference_cluster(8);
  CHECK(check_layout(model, shared_by(6, 0, false), cluster) == Reason::ep_experts);
  CHECK(check_layout(model, shared_by(6, 4, false), cluster) == Reason::ok);
  CHECK(check_layout(model, shared_by(6, 3, false), cluster) == Reason::ep_experts);
}

TEST_CASE("copies of experts are read and stored like experts") {
  const Model model = make_decoder(experts_8x7b_shape());
  const ServingKernels kernels = reference_kernels();
  const Bytes none = weight_bytes(model, kernels, shared_by(4, 0, false));
  const Bytes four = weight_bytes(model, kernels, shared_by(4, 4, false));
  const Bytes eight = weight_bytes(model, kernels, shared_by(4, 8, false));
  CHECK((eight - none) / (four - none) == Approx(2));
  CHECK(eight > 1.5 * none);  // most of its weights are experts
}

TEST_CASE("each half of a step is computed while the other one is under way") {
  Engine engine = reference_engine();
  engine.step_host = engine.sequence_host = Seconds{};
  engine.collective_wait = Seconds{};
  const ServingKernels kernels = reference_kernels();
  const double sequences = 4000;
  const StepTimes whole = mixture_of(engine, kernels, shared_by(4, 0, false));
  const StepTimes halves = mixture_of(engine, kernels, shared_by(4, 0, true));
  const StepTime one = whole.of(decode_work(sequences / 2)),
                 both = halves.of(decode_work(sequences));
  const Seconds compute = 2 * (one.linear + one.elementwise + one.experts) +
                          halves.decode_attention(decode_work(sequences));
  const Seconds least = max(compute, 2 * one.ep);
  const Seconds rest = both.total - both.head;
  CHECK(rest > 0.999 * least);
  CHECK(rest < compute + 2 * one.ep);
  CHECK(both.total == halves.total(decode_work(sequences)));
}

TEST_CASE("waits for the last rank are in the way of both halves") {
  Engine engine = reference_engine();
  engine.step_host = engine.sequence_host = Seconds{};
  const auto total = [&](Seconds wait, bool halves) {
    engine.collective_wait = wait;
    return mixture_of(engine, reference_kernels(), shared_by(4, 0, halves)).total(decode_work(400));
  };
  const Seconds none{}, some = 100 * unit::us;
  const Seconds once = total(some, false) - total(none, false);
  const Seconds twice = total(some, true) - total(none, true);
  CHECK(twice / once == Approx(2).epsilon(1e-6));
}

TEST_CASE("kernels that send tokens are used between as many ranks as their engine says") {
  ServingKernels kernels = reference_kernels();
  kernels.sends_tokens = true;
  kernels.received_experts = kernels.experts;
  kernels.dispatch.domain_rate = kernels.combine.domain_rate = BytesPerSecond{1e15};
  const Engine engine = reference_engine();
  const ServingLayout layout = shared_by(4, 0, false);
  const Seconds sent = mixture_of(engine, kernels, layout).of(decode_work(4000)).ep;
  kernels.dispatch_ranks = 5;
  const Seconds gathered = mixture_of(engine, kernels, layout).of(decode_work(4000)).ep;
  CHECK(sent < 0.5 * gathered);
  kernels.sends_tokens = false;
  CHECK(mixture_of(engine, kernels, layout).of(decode_work(4000)).ep == gathered);
}

TEST_CASE("few tokens never take the kernels for many, and no port is faster than itself") {
  ServingKernels kernels = reference_kernels();
  kernels.sends_tokens = kernels.sends_many = true;
  kernels.dispatch.domain_rate = kernels.combine.domain_rate = 1 * unit::GB / unit::s;
  kernels.dispatch.network_rate = kernels.combine.network_rate = 1 * unit::GB / unit::s;
  kernels.many_dispatch = kernels.many_combine = kernels.dispatch;
  kernels.many_dispatch.domain_rate = kernels.many_combine.domain_rate = 400 * unit::GB / unit::s;
  kernels.many_dispatch.network_rate = kernels.many_combine.network_rate = 40 * unit::GB / unit::s;
  kernels.received_experts = kernels.experts;
  const auto step = [&](double sequences, const Cluster& cluster) {
    return StepTimes{make_decoder(experts_8x7b_shape()),
                     cluster,
                     reference_engine(),
                     kernels,
                     shared_by(16, 8, false),
                     1}
        .of(decode_work(sequences))
        .total;
  };
  const Cluster cluster = reference_cluster(16);
  const Seconds few = step(16 * 64, cluster), many = step(16 * 512, cluster);
  kernels.few_tokens = 64;
  CHECK(step(16 * 64, cluster) >= few);
  CHECK(step(16 * 512, cluster) == many);
  Cluster slow = cluster;
  slow.fabric.bandwidth = 0.05 * cluster.fabric.bandwidth;
  CHECK(step(16 * 512, slow) > many);
}

TEST_CASE("by hand: the down projection beside its combine, tile by tile") {
  ServingKernels kernels = reference_kernels();
  kernels.sends_tokens = true;
  kernels.received_experts = kernels.experts;
  kernels.dispatch.domain_rate = kernels.combine.domain_rate = BytesPerSecond{1e11};
  kernels.combine_blocks = 8;
  Engine engine = reference_engine();
  ServingLayout layout = shared_by(4, 0, false);
  const StepWork work = decode_work(512);
  const auto exchange = [&] { return mixture_of(engine, kernels, layout).of(work).ep; };
  const Seconds whole = exchange();
  layout.single_batch_overlap = true;
  // Without shared experts and finished tiles nothing runs beside the exchange.
  CHECK(exchange() == whole);
  kernels.down_overlaps = true;
  const Seconds left = exchange();
  // 128 tokens and 256 pairs of a rank, two experts of it: four tiles of 64 rows.
  const DecoderShape shape = experts_8x7b_shape();
  ExpertLayer layer;
  layer.load = {256, 2, 0};
  layer.tokens = 128;
  layer.topk = 2;
  layer.experts = 8;
  layer.expert_ranks = 4;
  layer.hidden = shape.hidden;
  layer.intermediate = shape.ffn;
  const Accelerator chip = reference_cluster(4).accelerator;
  const Seconds down = expert_down_time(layer, kernels.experts, chip);
  const Seconds slower = down / (1 - 8.0 / chip.multiprocessors);
  kernels.combine.domain_rate = BytesPerSecond{1e18};
  layout.single_batch_overlap = false;
  const Seconds combine = (whole - exchange()) / shape.layers;
  const Seconds hidden = down + combine - max(combine, slower) - min(combine, slower) / 4;
  CHECK((whole - left) / (shape.layers * hidden) == Approx(1).epsilon(1e-3));
}

TEST_CASE("what single-batch overlap has nothing for is refused by its name") {
  ServingKernels kernels = reference_kernels();
  kernels.combine_blocks = 3;
  ServingLayout layout = shared_by(4, 0, false);
  CHECK_NOTHROW(expect_overlap_fields(layout, reference_kernels()));
  layout.single_batch_overlap = true;
  CHECK_NOTHROW(expect_overlap_fields(layout, kernels));
  CHECK_THROWS_WITH(expect_overlap_fields(layout, reference_kernels()),
                    doctest::Contains("single_batch_overlap=1: the engine has no kernels"));
  layout.two_batch_overlap = true;
  CHECK_THROWS_WITH(expect_overlap_fields(layout, kernels),
                    doctest::Contains("give it or two_batch_overlap"));
  layout.two_batch_overlap = false;
  layout.ep = 1;
  CHECK_THROWS_WITH(expect_overlap_fields(layout, kernels),
                    doctest::Contains("give ep and dp from 2"));
}

TEST_CASE("prompts whose cache has come are no work") {
  RequestMix mix{1000, 200, 0, 0, 0};
  mix.prefilled = true;
  const Instance pool(experts_8x7b_shape(), 4, reference_engine(), shared_by(4, 0, false), mix);
  const SteadyState state = steady_state(pool.times, pool.capacity, mix, 100);
  StepWork work = decode_work(100);
  work.context = 1000 + 201 / 2.0;
  CHECK(state.step / pool.times.total(work) == Approx(1).epsilon(1e-9));
  mix.prefilled = false;
  CHECK(steady_state(pool.times, pool.capacity, mix, 100).step > state.step);
}

}  // namespace scalemodel::testing
