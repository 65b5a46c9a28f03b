#include "scalemodel/serving/simulation.hpp"

#include "scalemodel/search/serving_plans.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

StreamResult run(const Instance& one, const std::vector<Request>& requests,
                 const Replicas& replicas = {}) {
  return simulate_stream(one.times, one.blocks, one.capacity, one.mix, requests, replicas);
}

double mean_time(const std::vector<Request>& requests, const std::vector<Served>& served) {
  double sum = 0;
  for (std::size_t i = 0; i < served.size(); ++i) {
    sum += (served[i].finished - requests[i].arrival).base();
  }
  return sum / static_cast<double>(served.size());
}

}  // namespace

TEST_CASE("Little's law, order of events and a busy time within the run") {
  for (const bool mixes : {true, false}) {
    for (const Admission admission : {Admission::prompt, Admission::whole_output}) {
      Engine engine = reference_engine();
      engine.mixed_batches = mixes;
      engine.admission = admission;
      const RequestMix mix{800, 150, 0, 0, 0};
      const Instance one(dense_7b_shape(), 1, engine, {}, mix);
      for (const int replicas : {1, 3}) {
        const auto requests = random_stream(600, 6, mix, 7);
        const StreamResult result = run(one, requests, {replicas});
        const double count = static_cast<double>(requests.size());
        CHECK(result.totals.in_system_s ==
              Approx(count * mean_time(requests, result.served)).epsilon(1e-9));
        CHECK(result.totals.busy.base() <= replicas * result.totals.makespan.base() * (1 + 1e-9));
        for (std::size_t i = 0; i < requests.size(); ++i) {
          const Served& s = result.served[i];
          CHECK(requests[i].arrival < s.started);
          CHECK(s.started < s.first_token);
          CHECK(s.first_token < s.finished);
          CHECK_FALSE(s.refused);
        }
      }
    }
  }
}

TEST_CASE("at random, replicas are what each would be with its own Poisson stream") {
  const RequestMix mix{800, 150, 0, 0, 0};
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, mix);
  const double rate = 4;
  const auto wait = [&](int count, Balance balance, std::uint64_t seed) {
    const auto requests = random_stream(4000 * count, count * rate, mix, 3);
    const StreamResult result = run(one, requests, {count, balance, seed});
    double sum = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      sum += (result.served[i].first_token - requests[i].arrival).base();
    }
    return sum / static_cast<double>(requests.size());
  };
  const double closed = steady_state_at(one.times, one.capacity, mix, rate).ttft.base();
  for (const int count : {2, 16}) {
    CHECK(wait(count, Balance::random, 1) == Approx(closed).epsilon(0.05));
    CHECK(wait(count, Balance::round_robin, 1) < 0.97 * closed);
    CHECK(wait(count, Balance::random, 1) == wait(count, Balance::random, 1));
    CHECK(wait(count, Balance::random, 1) != wait(count, Balance::random, 2));
  }
}

TEST_CASE("one request alone takes its steps one after another") {
  const RequestMix mix{500, 20, 0, 0, 0};
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, mix);
  const StreamResult result = run(one, {{Seconds{1}, 500, 20, false}});
  StepWork prompt;
  prompt.prompts = 1;
  prompt.prompt_tokens = prompt.prompt_keys = 500;
  const Seconds first = one.times.of(prompt).total + one.engine.request_host;
  CHECK((result.served[0].first_token - Seconds{1}).base() == Approx(first.base()));
  Seconds rest;
  for (int token = 0; token < 19; ++token) {
    StepWork step;
    step.sequences = 1;
    step.context = 502 + token;
    rest += one.times.of(step).total;
  }
  const Seconds answer = result.served[0].finished - result.served[0].first_token;
  CHECK(answer.base() == Approx(rest.base()).epsilon(2e-3));
}

TEST_CASE("parts of prompts attend to as many tokens as the prompts do") {
  Engine engine = reference_engine();
  engine.mixed_batches = false;
  engine.max_batched_tokens = 1000;
  const RequestMix mix{1500, 2, 0, 0, 0};
  const Instance one(dense_7b_shape(), 1, engine, {}, mix);
  const StreamResult result = run(one, {{Seconds{}, 1500, 2, false}, {Seconds{}, 1500, 2, false}});
  StepWork first, second, third;
  first.prompts = third.prompts = 1;
  second.prompts = 2;
  first.prompt_tokens = second.prompt_tokens = third.prompt_tokens = 1000;
  first.prompt_keys = 1000;
  third.prompt_keys = 1500;
  // 500 tokens after 1000 and 500 first ones: 500 1250 + 500 250 pairs, as 500 (keys - 250) twice.
  second.prompt_keys = 1000;
  const Seconds both = one.times.total(first) + one.times.total(second) + one.times.total(third);
  const Seconds end = result.served[1].first_token - one.engine.request_host;
  CHECK(end.base() == Approx(both.base()).epsilon(1e-9));
}

TEST_CASE("the closed form is the mean of the stream where it is stable") {
  for (const bool mixes : {true, false}) {
    Engine engine = reference_engine();
    engine.mixed_batches = mixes;
    const RequestMix mix{1200, 250, 0, 0, 0};
    const Instance one(grouped_70b_shape(), 4, engine, {4, 1, 1, 1, 1}, mix);
    const SteadyState most =
        steady_state(one.times, one.capacity, mix, one.capacity.max_running_sequences);
    for (const double load : {0.1, 0.3, 0.6}) {
      const double rate = load * most.requests_per_s;
      const SteadyState expected = steady_state_at(one.times, one.capacity, mix, rate);
      CHECK_FALSE(expected.saturated);
      const auto requests = random_stream(6000, rate, mix, 11);
      const StreamResult result = run(one, requests);
      const double seconds = result.totals.makespan.base();
      const double real = 6000 / seconds;  // the draw's own rate
      double tpot = 0, ttft = 0;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const Served& s = result.served[i];
        tpot += (s.finished - s.first_token).base() / (mix.output - 1) / 6000;
        ttft += (s.first_token - requests[i].arrival).base() / 6000;
      }
      const SteadyState same = steady_state_at(one.times, one.capacity, mix, real);
      CHECK(same.tpot.base() == Approx(tpot).epsilon(0.05));
      CHECK(same.concurrency == Approx(result.totals.running_s / seconds).epsilon(0.05));
      CHECK(same.ttft.base() == Approx(ttft).epsilon(0.05));
      CHECK(expected.concurrency ==
            Approx(rate * (mix.output - 1) * expected.step.base()).epsilon(1e-3));
    }
    CHECK(steady_state_at(one.times, one.capacity, mix, 2 * most.requests_per_s).saturated);
  }
}

TEST_CASE("no sequence ends before its tokens, whose place it may have") {
  // Short and long answers in turn: places of those that were preempted are taken by others.
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, {400, 700, 0, 0, 0});
  std::vector<Request> requests;
  for (int i = 0; i < 3000; ++i) {
    requests.push_back({Seconds{0.02 * i}, 400, i % 3 == 0 ? 1900.0 : 100.0});
  }
  const StreamResult result = run(one, requests);
  CHECK(result.totals.preemptions > 100);
  StepWork least;
  least.sequences = least.query_tokens = least.context = 1;
  const Seconds step = one.times.total(least);
  int early = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Served& served = result.served[i];
    early += served.finished - served.first_token < 0.99 * (requests[i].output - 1) * step ? 1 : 0;
  }
  CHECK(early == 0);
}

TEST_CASE("a full cache preempts the last to come, and everyone is served in the end") {
  Engine engine = reference_engine();
  engine.max_running_sequences = 4000;
  engine.max_batched_tokens = 100'000;
  engine.memory_fraction = 0.35;
  const RequestMix mix{100, 2000, 0, 0, 0};
  const Instance one(dense_7b_shape(), 1, engine, {}, mix);
  CHECK(one.capacity.cached_sequences < 60);
  std::vector<Request> requests(80, {Seconds{}, 100, 2000, false});
  const StreamResult result = run(one, requests);
  CHECK(result.totals.preemptions > 0);
  for (const Served& s : result.served) CHECK(s.finished > s.first_token);
  engine.admission = Admission::whole_output;
  const Instance careful(dense_7b_shape(), 1, engine, {}, mix);
  CHECK(run(careful, requests).totals.preemptions == 0);
  requests[3].input = 1e7;
  const StreamResult refusing = run(careful, requests);
  CHECK(refusing.served[3].refused);
  CHECK_FALSE(refusing.served[4].refused);
}

TEST_CASE("cached prefixes shorten the first token, kept proposals the answer") {
  const RequestMix plain{4000, 300, 0, 0, 0};
  RequestMix cached = plain, guessed = plain;
  cached.prefix_hit_fraction = 0.9;
  guessed.speculative_tokens = 2;
  guessed.acceptance_fraction = 0.8;
  const Instance a(dense_7b_shape(), 1, reference_engine(), {}, plain);
  const Instance b(dense_7b_shape(), 1, reference_engine(), {}, cached);
  const Instance c(dense_7b_shape(), 1, reference_engine(), {}, guessed);
  const auto state = [](const Instance& one) {
    return steady_state(one.times, one.capacity, one.mix, 4);
  };
  CHECK(state(b).ttft < 0.5 * state(a).ttft);
  CHECK(state(c).tpot < 0.8 * state(a).tpot);
}

TEST_CASE("the search finds what trying everything finds, whatever the threads") {
  const Model model = make_decoder(experts_8x7b_shape());
  const Cluster cluster = reference_cluster(8);
  const Engine engine = reference_engine();
  const ServingKernels kernels = reference_kernels();
  const RequestMix mix{1000, 200, 0, 0, 0};
  const std::vector<ServingLayout> layouts{
      {1, 1, 1, 1, 1}, {2, 1, 1, 1, 1}, {4, 1, 4, 1, 1}, {8, 1, 8, 1, 1}, {2, 2, 1, 1, 1}};
  const std::vector<double> steps{2048, 8192};
  ServingLimits limits;
  limits.tpot = 25 * unit::ms;
  limits.rate = 30;
  const Poll go_on = [](std::uint64_t, std::uint64_t) { return true; };
  for (const ServingGoal goal :
       {ServingGoal::throughput, ServingGoal::tpot, ServingGoal::ttft, ServingGoal::accelerators}) {
    limits.goal = goal;
    const auto ask = [&](int threads) {
      return search_serving({model, cluster, engine, kernels, mix, 1}, {layouts, steps, 16}, limits,
                            5, threads, go_on);
    };
    const ServingPlans one = ask(1), four = ask(4);
    CHECK(one.best.size() == 5);
    CHECK(one.plans > one.feasible);
    double best = 1e300;
    for (const ServingLayout& layout : layouts) {
      const StepTimes times(model, cluster, engine, kernels, layout, 1);
      for (const double tokens : steps) {
        Engine limited = engine;
        limited.max_batched_tokens = static_cast<int>(tokens);
        const CacheCapacity capacity =
            cache_capacity(model, cluster, limited, kernels, layout, {mix.input, mix.output});
        double last = 0;
        for (int step = 0; last < capacity.max_running_sequences; ++step) {
          last = std::min(std::exp2(step / 16.0), capacity.max_running_sequences);
          const SteadyState s = steady_state(times, capacity, mix, last);
          if (s.tpot > limits.tpot) continue;
          const double instances = std::ceil(limits.rate / s.requests_per_s - 1e-9);
          const double value = goal == ServingGoal::throughput ? -s.requests_per_s / layout.ranks()
                               : goal == ServingGoal::tpot     ? s.tpot.base()
                               : goal == ServingGoal::ttft     ? s.ttft.base()
                                                               : instances * layout.ranks();
          best = std::min(best, value);
        }
      }
    }
    const ServingPlan& top = one.best.front();
    const double found = goal == ServingGoal::throughput
                             ? -top.state.requests_per_s / top.layout.ranks()
                         : goal == ServingGoal::tpot ? top.state.tpot.base()
                         : goal == ServingGoal::ttft ? top.state.ttft.base()
                                                     : top.accelerators();
    CHECK(found == best);
    for (std::size_t i = 0; i < one.best.size(); ++i) {
      CHECK(one.best[i].layout == four.best[i].layout);
      CHECK(one.best[i].state == four.best[i].state);
    }
    CHECK(one.front.size() == four.front.size());
    for (std::size_t i = 1; i < one.front.size(); ++i) {
      CHECK(one.front[i].state.tpot > one.front[i - 1].state.tpot);
    }
  }
}

}  // namespace scalemodel::testing
