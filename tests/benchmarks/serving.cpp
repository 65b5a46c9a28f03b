// What serving costs to evaluate. Goals are for one core of an ordinary server; wall time is
// reported, not asserted: a closed-form state below 2 us, at a rate below 0.5 us (means over loads
// of 0.1 to 0.9), 10,000 requests below half a second.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "questions.hpp"
#include "scalemodel/model/decoder.hpp"
#include "scalemodel/serving/simulation.hpp"
#include "scalemodel/serving/states_at_rates.hpp"

namespace scalemodel {
namespace {

/// Llama 3 8B on one accelerator of the reference cluster.
struct Served {
  RequestMix mix{1000, 200, 0, 0, 0};
  Engine engine;
  ServingKernels kernels;
  Model model;
  Cluster cluster;
  StepTimes times;
  CacheBlocks blocks;
  CacheCapacity capacity;

  Served()
      : model(make_decoder(shape())),
        cluster(scalemodel::cluster(8)),
        times(model, cluster, engine, kernels, {}, 1),
        blocks(model, engine, kernels, {}),
        capacity(cache_capacity(model, cluster, engine, kernels, {}, {1000, 200})) {}

  static DecoderShape shape() {
    DecoderShape s;
    s.layers = 32;
    s.hidden = 4096;
    s.vocab = 128256;
    s.heads = 32;
    s.kv_heads = 8;
    s.ffn = 14336;
    s.gated = true;
    return s;
  }
};

void BM_SteadyState(benchmark::State& state) {
  const Served served;
  double running = 1;
  for (auto _ : state) {
    running = running < 500 ? running + 1 : 1;
    benchmark::DoNotOptimize(steady_state(served.times, served.capacity, served.mix, running).step);
  }
  state.counters["goal_us"] = 2;
}
BENCHMARK(BM_SteadyState);

/// The same where requests arrive at random: what a request finds is settled in some rounds. What
/// the rate does not change is computed once.
void BM_SteadyStateAtRate(benchmark::State& state) {
  const Served served;
  const SteadyState most = steady_state(served.times, served.capacity, served.mix,
                                        served.capacity.max_running_sequences);
  const StatesAtRates states(served.times, served.capacity, served.mix);
  double load = 0.1;
  for (auto _ : state) {
    load = load < 0.9 ? load + 0.01 : 0.1;
    benchmark::DoNotOptimize(states.at(load * most.requests_per_s).ttft);
  }
  state.counters["goal_us"] = 0.5;
}
BENCHMARK(BM_SteadyStateAtRate);

/// A sweep of such rates, a thousand of them, so many side by side at most: eight with AVX2.
void BM_SteadyStatesAtRates(benchmark::State& state) {
  const Served served;
  const SteadyState most = steady_state(served.times, served.capacity, served.mix,
                                        served.capacity.max_running_sequences);
  const StatesAtRates states(served.times, served.capacity, served.mix);
  std::vector<double> rates;
  for (int i = 0; i < 1000; ++i) rates.push_back((0.1 + 0.8e-3 * i) * most.requests_per_s);
  std::vector<SteadyState> found(rates.size());
  for (auto _ : state) {
    states.at(rates, found, static_cast<std::size_t>(state.range(0)));
    benchmark::DoNotOptimize(found.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(rates.size()));
  state.counters["goal_per_s"] = 2e6;
}
BENCHMARK(BM_SteadyStatesAtRates)->Arg(8)->Arg(1);

void BM_TenThousandRequests(benchmark::State& state) {
  const Served served;
  std::vector<Request> requests;
  for (int i = 0; i < 10'000; ++i) {
    requests.push_back({Seconds{0.1 * i}, 1000, 100.0 + i % 200, false});
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        simulate_stream(served.times, served.blocks, served.capacity, served.mix, requests, {}));
  }
  state.counters["goal_s"] = 0.5;
}
BENCHMARK(BM_TenThousandRequests)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace scalemodel
