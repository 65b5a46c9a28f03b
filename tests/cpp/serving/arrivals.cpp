#include <cmath>
#include <vector>

#include "scalemodel/serving/batches.hpp"
#include "scalemodel/serving/demand.hpp"
#include "scalemodel/serving/prompt_steps.hpp"
#include "scalemodel/serving/states_at_rates.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

PromptSteps mixed_steps(double most) {
  PromptSteps steps;
  steps.decode_only = 10 * unit::ms;
  steps.alone = steps.last = 40 * unit::ms;
  steps.more = most > 1 ? 25 * unit::ms : steps.alone / most;
  steps.full = most > 1 ? steps.alone + (most - 1) * steps.more : steps.alone;
  steps.most = most;
  return steps;
}

}  // namespace

TEST_CASE("without prompts every step is decode-only, and a lone prompt waits for half of it") {
  for (const double most : {0.4, 1.0, 8.0}) {
    for (const bool mixed : {true, false}) {
      PromptSteps steps = mixed_steps(most);
      steps.mixed = mixed;
      steps.chunks = std::ceil(1 / most);
      steps.alone = steps.chunks * steps.full;
      const Hertz rate{1e-12};
      const StepMoments moments = step_moments(steps, rate);
      CHECK(moments.decode_interval.base() == Approx(steps.decode_only.base()));
      CHECK(moments.busy == 0);
      const PromptWait wait = prompt_wait(steps, moments, rate);
      CHECK(wait.wait.base() == Approx(0.5 * steps.decode_only.base()));
      CHECK(wait.computed.base() == Approx(steps.alone.base()));
      CHECK(time_of_steps(steps, moments, wait, rate, 50).base() ==
            Approx(50 * steps.decode_only.base()));
    }
  }
}

TEST_CASE("one prompt a step is a queue with vacations") {
  // Load 0.6 of 40 ms steps, decode-only ones of 10 ms: (0.6 40 + 0.4 10)/2/0.4 = 35 ms.
  const PromptSteps steps = mixed_steps(1);
  const Hertz rate{15};
  const StepMoments moments = step_moments(steps, rate);
  CHECK(prompt_wait(steps, moments, rate).wait.base() == Approx(0.035));
  CHECK(moments.busy * (1 / moments.decode_interval.base()) ==
        Approx(15));  // one for each that comes
}

TEST_CASE("more prompts never shorten steps or waits, and each is computed once") {
  for (const double most : {0.4, 1.0, 2.0, 8.0, 64.0}) {
    for (const bool mixed : {true, false}) {
      PromptSteps steps = mixed_steps(most);
      steps.mixed = mixed;
      Seconds round, wait;
      for (double load = 0.05; load < 0.9; load += 0.05) {
        const Hertz rate{load * most / steps.full.base()};
        const StepMoments moments = step_moments(steps, rate);
        const PromptWait found = prompt_wait(steps, moments, rate);
        CHECK(moments.decode_interval >= round);
        CHECK(found.wait >= wait);
        CHECK(moments.length_biased >= 0.99 * steps.decode_only);
        CHECK(found.own <= 1.0001 * steps.full);
        round = moments.decode_interval;
        wait = found.wait;
      }
    }
  }
}

TEST_CASE("steps of a deployment: exact at one prompt, cut ones in whole parts and a rest") {
  Engine engine = reference_engine();
  engine.max_batched_tokens = 1000;
  const RequestMix mix{2600, 100, 0, 0, 0};
  const Instance one(dense_7b_shape(), 1, engine, {}, mix);
  const Demand demand(mix);
  const PromptSteps cut = StepsOfMix(one.times, one.capacity, demand).beside(200, 1);
  CHECK(cut.most == Approx(800.0 / 2600));
  CHECK(cut.chunks == 4);
  CHECK(cut.last == one.times.of(demand.work(200, 1, 200, 2600)).total);
  const Seconds first = one.times.of(demand.work(200, 1, 800, 1600)).total;
  CHECK(cut.alone.base() == Approx((3 * first + cut.last).base()));
  // In a row of prompts a step computes as much, in parts of prompts that attend to any place.
  CHECK(cut.full.base() == Approx(first.base()).epsilon(0.05));
  CHECK(cut.more.base() == Approx(cut.full.base() * 2600 / 800));
  engine.chunked_prefill = false;
  const Instance whole(dense_7b_shape(), 1, engine, {}, mix);
  const PromptSteps lone = StepsOfMix(whole.times, whole.capacity, demand).beside(200, 1);
  CHECK(lone.most == 1);
  CHECK(lone.alone == whole.times.of(demand.work(200, 1)).total);
}

TEST_CASE("a rate that fills every slot is saturated, whoever is served first") {
  for (const bool mixes : {true, false}) {
    Engine engine = reference_engine();
    engine.mixed_batches = mixes;
    engine.max_running_sequences = 3;
    const RequestMix mix{1200, 250, 0, 0, 0};
    const Instance one(grouped_70b_shape(), 4, engine, {4, 1, 1, 1, 1}, mix);
    const SteadyState most = steady_state(one.times, one.capacity, mix, 3);
    const SteadyState busy =
        steady_state_at(one.times, one.capacity, mix, 0.5 * most.requests_per_s);
    CHECK_FALSE(busy.saturated);
    CHECK(busy.concurrency < 3);
    CHECK(busy.ttft > busy.prefill);
    CHECK(busy.utilisation == Approx(0.5));
    CHECK(steady_state_at(one.times, one.capacity, mix, 1.01 * most.requests_per_s).saturated);
    CHECK(steady_state_at(one.times, one.capacity, mix, 0).requests_per_s == 0);
  }
}

TEST_CASE("whoever starts by its prompt finds room beside answers of any age") {
  Engine engine = reference_engine();
  engine.memory_fraction = 0.35;
  const RequestMix mix{100, 1900, 0, 0, 0};
  engine.admission = Admission::whole_output;
  const Instance careful(dense_7b_shape(), 1, engine, {}, mix);
  CHECK(careful.capacity.max_admitted == careful.capacity.max_running_sequences);
  engine.admission = Admission::prompt;
  const Instance bold(dense_7b_shape(), 1, engine, {}, mix);
  const CacheCapacity& c = bold.capacity;
  // 7 blocks of 16 for 101 tokens; 1050 tokens on average take 65.625 and half a block.
  CHECK(c.max_admitted == Approx(0.5 + (c.blocks - 7) / 66.125).epsilon(0.01));
  CHECK(c.max_admitted > 1.5 * c.max_running_sequences);
  engine.max_running_sequences = 5;
  const Instance limited(dense_7b_shape(), 1, engine, {}, mix);
  CHECK(limited.capacity.max_admitted == 5);
}

TEST_CASE("windows that are full hold as much at any age, to the last block") {
  Engine engine = reference_engine();
  engine.admission = Admission::prompt;
  engine.window_cache = true;
  DecoderShape shape = window_shape();
  shape.full_attention_every = 0;
  const RequestMix mix{6000, 500, 0, 0, 0};
  const CacheCapacity usual = Instance(shape, 1, engine, {}, mix).capacity;
  // A prompt takes 256 blocks, one of any age half a block more: two of them fit beside it.
  for (const double blocks : {768, 769, 770}) {
    const Instance any(shape, 1, engine, {}, mix);
    const Bytes wanted =
        usual.weights + usual.activations + usual.reserve + (blocks + 0.5) * usual.block;
    engine.memory_fraction = wanted / any.cluster.accelerator.memory_capacity;
    const CacheCapacity c = Instance(shape, 1, engine, {}, mix).capacity;
    CAPTURE(blocks);
    REQUIRE(c.blocks == blocks);
    CHECK(c.max_running_sequences == 3);
    CHECK(c.max_admitted == 3);
  }
}

TEST_CASE("equal holding times: the wait of many slots by simulation, of one by Pollaczek") {
  Engine engine = reference_engine();
  engine.admission = Admission::whole_output;
  for (const int slots : {1, 2, 5, 12}) {
    engine.max_running_sequences = slots;
    const RequestMix mix{64, 400, 0, 0, 0};
    const Instance one(dense_7b_shape(), 1, engine, {}, mix);
    const SteadyState most = steady_state(one.times, one.capacity, mix, slots);
    const double rate = 0.6 * most.requests_per_s;
    double ttft = 0;
    constexpr int kRequests = 100'000;
    const auto requests = random_stream(kRequests, rate, mix, 5);
    const auto result = simulate_stream(one.times, one.blocks, one.capacity, one.mix, requests, {});
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ttft += (result.served[i].first_token - requests[i].arrival).base() / kRequests;
    }
    const SteadyState state = steady_state_at(one.times, one.capacity, mix, rate);
    CHECK(state.ttft.base() == Approx(ttft).epsilon(0.05));
  }
}

TEST_CASE("a finer rate never finds fewer inside") {
  for (const bool mixes : {true, false}) {
    for (const double input : {60.0, 1200.0, 9000.0}) {
      Engine engine = reference_engine();
      engine.mixed_batches = mixes;
      const RequestMix mix{input, 150, 0, 0, 0};
      const Instance one(experts_8x7b_shape(), 2, engine, {2, 1, 2, 1, 1}, mix);
      const double most =
          steady_state(one.times, one.capacity, mix, one.capacity.max_running_sequences)
              .requests_per_s;
      SteadyState last;
      for (double load = 0.01; load < 0.8; load += 0.01) {
        const SteadyState now = steady_state_at(one.times, one.capacity, mix, load * most);
        if (now.saturated) break;
        CHECK(now.concurrency > last.concurrency);
        CHECK(now.ttft > 0.995 * last.ttft);
        last = now;
      }
    }
  }
}

TEST_CASE("states of one instance are the same at any rate, whichever were asked before") {
  for (const bool adaptive : {false, true}) {
    for (const std::uint16_t pp : {1, 2}) {
      RequestMix mix{1200, 150, 0, 2, 0.7};
      mix.adaptive_drafts = adaptive;
      const Instance one(grouped_70b_shape(), 8, reference_engine(), {4, 1, pp, 1, 1}, mix);
      const StatesAtRates states(one.times, one.capacity, mix);
      const double most =
          steady_state(one.times, one.capacity, mix, one.capacity.max_running_sequences)
              .requests_per_s;
      for (const double load : {0.9, 0.1, 1.2, 0.0, 0.5, 0.99, 0.5}) {
        const SteadyState alone = steady_state_at(one.times, one.capacity, mix, load * most);
        CHECK(states.at(load * most) == alone);
        CHECK(alone.saturated == (load > 1));
      }
    }
  }
}

TEST_CASE("states at many rates are those at each, within 1e-12") {
  const auto close = [](auto found, auto expected) {
    const auto apart = max(found - expected, expected - found);
    return apart <= 1e-12 * expected;
  };
  // Eight at a time and a rest, saturated and idle ones among them.
  std::vector<double> loads{1e-9, 0, 1.2, 0.999};
  for (double load = 0.013; load < 1.05; load += 0.0271) loads.push_back(load);
  for (const bool mixes : {true, false}) {
    for (const bool chunks : {true, false}) {
      for (const double input : {60.0, 1200.0, 9000.0}) {
        for (const int slots : {3, 40, 1024}) {
          for (const std::uint16_t pp : {1, 2}) {
            Engine engine = reference_engine();
            engine.mixed_batches = mixes;
            engine.chunked_prefill = chunks;
            engine.max_running_sequences = slots;
            const RequestMix mix{input, 150, 0, 0, 0};
            const Instance one(grouped_70b_shape(), 8, engine, {4, 1, pp, 1, 1}, mix);
            const StatesAtRates states(one.times, one.capacity, mix);
            const double most = steady_state(one.times, one.capacity, mix, slots).requests_per_s;
            std::vector<double> rates;
            for (const double load : loads) rates.push_back(load * most);
            std::vector<SteadyState> found(rates.size());
            for (const std::size_t at_once : {8, 4}) {
              states.at(rates, found, at_once);
              for (std::size_t i = 0; i < rates.size(); ++i) {
                CAPTURE(loads[i]);
                const SteadyState each = states.at(rates[i]);
                CHECK(found[i].saturated == each.saturated);
                CHECK(found[i].requests_per_s == each.requests_per_s);
                CHECK(found[i].utilisation == each.utilisation);
                CHECK(close(found[i].concurrency, each.concurrency));
                CHECK(close(found[i].step, each.step));
                CHECK(close(found[i].tpot, each.tpot));
                CHECK(close(found[i].ttft, each.ttft));
                CHECK(close(found[i].prefill, each.prefill));
                CHECK(std::abs(found[i].prompt_fraction - each.prompt_fraction) <= 1e-12);
              }
            }
            states.at(rates, found, 1);
            for (std::size_t i = 0; i < rates.size(); ++i) CHECK(found[i] == states.at(rates[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("ranks wait the longer the more they are") {
  Engine engine = reference_engine();
  const RequestMix mix{1000, 200, 0, 0, 0};
  double last = 0;
  for (const std::uint16_t tp : {2, 4, 8}) {
    engine.collective_wait = Seconds{};
    const Instance fast(grouped_70b_shape(), 8, engine, {tp, 1, 1, 1, 1}, mix);
    engine.collective_wait = 20 * unit::us;
    const Instance slow(grouped_70b_shape(), 8, engine, {tp, 1, 1, 1, 1}, mix);
    StepWork work;
    work.sequences = 16;
    work.context = 500;
    const Seconds wait = slow.times.of(work).tp - fast.times.of(work).tp;
    CHECK(wait.base() > last);
    last = wait.base();
  }
  CHECK(last == Approx(2 * 80 * 20e-6));  // eight ranks, two collectives in each of 80 layers
}

TEST_CASE("a server of batches: alone when idle, full when it cannot keep up") {
  const BatchPass pass{10 * unit::ms, 1 * unit::ms, 4, 16};
  CHECK(pass.of(1) == pass.of(4));
  CHECK(pass.of(16).base() == Approx(0.022));
  const BatchState idle = batch_state_at(pass, Hertz{1e-6});
  CHECK(idle.latency.base() == Approx(0.010).epsilon(1e-4));
  CHECK(idle.batch == Approx(1));
  const BatchState over = batch_state_at(pass, Hertz{16 / 0.022});
  CHECK(over.saturated);
  CHECK(over.batch == 16);
  Seconds last;
  for (double load = 0.05; load < 0.95; load += 0.05) {
    const BatchState state = batch_state_at(pass, Hertz{load * 16 / 0.022});
    CHECK(state.utilisation == Approx(load));
    CHECK(state.latency > last);
    last = state.latency;
  }
}

TEST_CASE("a line through two passes, and what a server of batches delivers and draws") {
  const BatchPass pass = batch_pass(10 * unit::ms, 22 * unit::ms, 4, 16);
  CHECK(pass.of(4).base() == Approx(0.010));
  CHECK(pass.of(16).base() == Approx(0.022));
  CHECK(batch_pass(10 * unit::ms, 9 * unit::ms, 4, 16).more == Seconds{});
  CHECK(batch_pass(10 * unit::ms, 10 * unit::ms, 4, 4).most == 4);
  const BatchState full = full_batches(pass);
  CHECK(full.leaving.base() == Approx(16 / 0.022));
  CHECK(full.latency == full.pass);
  const BatchState over = batch_state_at(pass, Hertz{2000});
  CHECK(over.leaving == full.leaving);
  CHECK(over.busy == 1);
  const Watts alone{300}, most{600}, idle{100};
  CHECK(batch_power(pass, full, alone, most, idle).base() == Approx(600));
  Watts before = idle;
  for (const double rate : {1e-6, 50.0, 200.0, 500.0, 700.0}) {
    const BatchState state = batch_state_at(pass, Hertz{rate});
    CHECK(state.leaving == Hertz{rate});
    const Watts drawn = batch_power(pass, state, alone, most, idle);
    CHECK(drawn >= before);
    CHECK(drawn.base() <= Approx(600));
    before = drawn;
  }
}

}  // namespace scalemodel::testing
