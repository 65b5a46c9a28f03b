// What an estimate costs. Goals are for one core of an ordinary server; wall time is reported, not
// asserted.
#include <benchmark/benchmark.h>

#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/model/decoder.hpp"

namespace scalemodel {
namespace {

DecoderShape gpt3_175b() {
  DecoderShape s;
  s.layers = 96;
  s.hidden = 12288;
  s.vocab = 51200;
  s.position = Position::learned;
  s.positions = 2048;
  s.heads = 96;
  s.ffn = 49152;
  s.norm = Norm::layernorm;
  return s;
}

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

/// 1,024 accelerators in nodes of eight; the constants matter to no branch but the tile form's.
Cluster cluster() {
  Cluster c;
  Accelerator& a = c.accelerator;
  a.peak.fill(FlopPerSecond{989e12});
  a.multiprocessors = 132;
  a.clock = Hertz{1.8e9};
  a.memory_capacity = 80 * unit::GiB;
  a.memory_bandwidth = BytesPerSecond{3.35e12};
  a.host_bandwidth = BytesPerSecond{60e9};
  a.gemm.tiled = true;
  TileGemm& wide = a.gemm.dense16;
  wide.launch = 2.5 * unit::us;
  wide.tau_cycles = 140;
  wide.burst_fraction = 0.83;
  wide.sustained_fraction = 0.72;
  wide.throttle = 1400 * unit::us;
  wide.memory_fraction = 0.84;
  wide.cache_bytes_per_clock = 113;
  wide.epilogue_bytes_per_clock = 28;
  wide.wave_weight = 0.02;
  wide.split = 2.5 * unit::us;
  wide.split_passes = 6;
  a.gemm.fp8 = wide;
  a.gemm.tile_rows = {160, 96, 128, 64, 128, 16, 192, 256};
  a.gemm.tile_columns = {64, 128, 32, 32, 96, 32, 32, 128};
  a.gemm.wave_targets = 2;
  a.gemm.reference_peak = FlopPerSecond{989e12};
  a.attention = {0.34, 0.3, 0.62, 0.54, 10 * unit::us};
  a.elementwise = {0.88, 0.6, 0.76, 2 * unit::us};
  a.power = {700 * unit::W, 75 * unit::W, 0.94, 0.79};
  c.accelerators = 1024;
  c.node_accelerators = 8;
  c.host_memory = Bytes{2e12};
  const CollectiveFit fit{5 * unit::us, 0.9 * unit::us, 0.28, 10 * unit::us, 0.4 * unit::us,
                          0.8,          10 * unit::us};
  c.scale_up.domain = 8;
  c.scale_up.bandwidth = BytesPerSecond{450e9};
  c.scale_up.all_reduce = c.scale_up.all_gather = fit;
  c.scale_up.reduce_scatter = c.scale_up.all_to_all = fit;
  c.scale_up.p2p_fraction = 0.75;
  c.fabric.bandwidth = BytesPerSecond{50e9};
  c.fabric.ring_hop_ll128 = c.fabric.tree_hop_ll128 = 4 * unit::us;
  c.fabric.ring_hop_simple = c.fabric.tree_hop_simple = 14 * unit::us;
  c.fabric.bandwidth_fraction = 0.93;
  c.fabric.all_to_all_fraction = 0.74;
  c.fabric.p2p_fraction = 0.7;
  return c;
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

// Goal: under 2 us per strategy when the strategies differ, so that look-ups miss the cache.
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
