// What an estimate costs. Goals are for one core of an ordinary server; wall time is reported, not
// asserted.
#include <benchmark/benchmark.h>

#include <vector>

#include "questions.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/model/decoder.hpp"

namespace scalemodel {
namespace {

DecoderShape experts_8x7b() {
  DecoderShape s;
  s.layers = 32;
  s.hidden = 4096;
  s.vocab = 32000;
  s.heads = 32;
  s.kv_heads = 8;
  s.ffn = s.expert_ffn = 14336;
  s.gated = true;
  s.experts = 8;
  s.experts_per_token = 2;
  return s;
}

Task task() {
  Task t;
  t.global_batch = 2048;
  t.sequence = 2048;
  return t;
}

/// TP 8, PP 8, DP 16.
Strategy megatron() {
  Strategy s;
  s.tp = s.pp = 8;
  return s;
}

// Goal: under 2 us for one strategy on prepared tables.
void evaluate_gpt3_tp8_pp8_dp16(benchmark::State& state) {
  Tables tables(make_decoder(gpt3_175b()), cluster(), task(), Stack{});
  Strategy strategy = megatron();
  strategy.sharding = static_cast<Sharding>(state.range(0));
  tables.tabulate(strategy);
  for (auto _ : state) benchmark::DoNotOptimize(evaluate(tables, strategy));
  state.SetLabel(std::string(name_of(strategy.sharding)));
}
BENCHMARK(evaluate_gpt3_tp8_pp8_dp16)->DenseRange(0, 4);

// Goal: under 2 us per strategy when the strategies differ, so that lookups miss the cache.
void evaluate_mixed_strategies(benchmark::State& state) {
  Tables tables(make_decoder(gpt3_175b()), cluster(), task(), Stack{});
  std::vector<Strategy> strategies;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4, 8, 16}) {
      for (const int micro_batch : {1, 2, 4}) {
        for (std::size_t sharding = 0; sharding < 5; ++sharding) {
          for (std::size_t recompute = 0; recompute < 3; ++recompute) {
            Strategy s;
            s.tp = static_cast<std::uint16_t>(tp);
            s.pp = static_cast<std::uint16_t>(pp);
            s.micro_batch = static_cast<std::uint16_t>(micro_batch);
            s.sharding = static_cast<Sharding>(sharding);
            s.recompute = static_cast<Recompute>(recompute);
            tables.tabulate(s);
            strategies.push_back(s);
          }
        }
      }
    }
  }
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(evaluate(tables, strategies[next]));
    next = next + 1 == strategies.size() ? 0 : next + 1;
  }
}
BENCHMARK(evaluate_mixed_strategies);

// Goal: under 2 us; an illegal strategy is found out before anything is computed.
void evaluate_illegal(benchmark::State& state) {
  Tables tables(make_decoder(gpt3_175b()), cluster(), task(), Stack{});
  Strategy strategy = megatron();
  strategy.tp = 7;
  for (auto _ : state) benchmark::DoNotOptimize(evaluate(tables, strategy));
}
BENCHMARK(evaluate_illegal);

// Goal: under 100 us for a new set of degrees; a search tabulates each set once.
void tabulate_one_cell(benchmark::State& state) {
  const Model model = make_decoder(state.range(0) == 0 ? gpt3_175b() : experts_8x7b());
  const Tables empty(model, cluster(), task(), Stack{});
  const Strategy strategy = megatron();
  for (auto _ : state) {
    Tables tables = empty;
    tables.tabulate(strategy);
    benchmark::DoNotOptimize(tables.cells());
  }
  state.SetLabel(state.range(0) == 0 ? "dense" : "experts");
}
BENCHMARK(tabulate_one_cell)->Arg(0)->Arg(1);

// Goal: under 10 us; what is tabulated already is only looked up.
void tabulate_again(benchmark::State& state) {
  Tables tables(make_decoder(gpt3_175b()), cluster(), task(), Stack{});
  const Strategy strategy = megatron();
  tables.tabulate(strategy);
  for (auto _ : state) tables.tabulate(strategy);
}
BENCHMARK(tabulate_again);

}  // namespace
}  // namespace scalemodel
