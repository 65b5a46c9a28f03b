// What a search costs. Goals are for one core of an ordinary server; wall time is reported, not
// asserted. A rate is strategies per second.
#include "scalemodel/search/search.hpp"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "questions.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/model/decoder.hpp"

namespace scalemodel {
namespace {

template <auto Member>
using ValueOf = std::remove_cvref_t<decltype(Strategy{}.*Member)>;

template <auto Member, class T>
void set(Space& space, const std::vector<T>& values) {
  auto& listed = std::get<field_index(Member)>(space.values);
  listed.clear();
  for (const T value : values) listed.push_back(static_cast<ValueOf<Member>>(value));
}

std::vector<int> divisors(int number, int limit) {
  std::vector<int> found;
  for (int n = 1; n <= std::min(number, limit); ++n) {
    if (number % n == 0) found.push_back(n);
  }
  return found;
}

const std::vector<bool> kEither{false, true};

template <auto Member, class T>
void exclude(Exclusion& exclusion, T value) {
  exclusion.values.*Member = static_cast<ValueOf<Member>>(value);
  exclusion.fields |= std::uint32_t{1} << field_index(Member);
}

/// A question and its space.
struct Question {
  Tables tables;
  Space space;

  Enumeration enumerate() const { return {space, tables.model(), tables.cluster(), tables.task()}; }
};

/// Every execution of Calculon's search for GPT-3 175B on 1,024 accelerators.
Question calculon() {
  constexpr int ranks = 1024, limit = 1536;
  const DecoderShape shape = gpt3_175b();
  Task task;
  task.global_batch = limit;
  task.batch_is_limit = true;
  task.sequence = 2048;
  std::set<int> divisor_set;
  for (const int dp : divisors(ranks, limit)) {
    for (const int b : divisors(limit / dp, limit)) divisor_set.insert(b);
  }
  Space s;
  set<&Strategy::tp>(s, divisors(ranks, 96));
  set<&Strategy::pp>(s, divisors(96, 96));
  set<&Strategy::vpp>(s, divisors(96, 96));
  set<&Strategy::micro_batch>(s, std::vector(divisor_set.begin(), divisor_set.end()));
  set<&Strategy::recompute>(s, std::vector{Recompute::full, Recompute::selective, Recompute::none});
  set<&Strategy::sequence_parallel>(s, kEither);
  set<&Strategy::regather>(s, std::vector{true, false});
  set<&Strategy::split_p2p>(s, kEither);
  set<&Strategy::overlap_tp>(
      s, std::vector{TensorOverlap::off, TensorOverlap::ring, TensorOverlap::pipelined});
  set<&Strategy::sharding>(s, std::vector{Sharding::ddp, Sharding::zero1});
  set<&Strategy::overlap_grad_reduce>(s, std::vector{OnOff::off, OnOff::on});
  set<&Strategy::offload_weights>(s, kEither);
  set<&Strategy::offload_activations>(s, kEither);
  set<&Strategy::offload_optimizer>(s, kEither);
  using enum Variable;
  s.relations = {{{1, {layers}}, Comparison::multiple_of, {1, {pp, vpp}}},
                 {{1, {hidden}}, Comparison::multiple_of, {1, {tp}}},
                 {{1, {micro_batch, sequence}}, Comparison::multiple_of, {1, {tp}}}};
  s.exclusions.resize(4);
  exclude<&Strategy::sequence_parallel>(s.exclusions[0], true);
  exclude<&Strategy::split_p2p>(s.exclusions[0], false);
  exclude<&Strategy::sequence_parallel>(s.exclusions[1], false);
  exclude<&Strategy::regather>(s.exclusions[1], false);
  exclude<&Strategy::recompute>(s.exclusions[2], Recompute::full);
  exclude<&Strategy::regather>(s.exclusions[2], false);
  exclude<&Strategy::recompute>(s.exclusions[3], Recompute::full);
  exclude<&Strategy::offload_activations>(s.exclusions[3], true);
  s.redundant = 1U << field_index(&Strategy::placement) |
                1U << field_index(&Strategy::sequence_parallel) |
                1U << field_index(&Strategy::regather) | 1U << field_index(&Strategy::split_p2p);
  s.tiers = true;
  return {Tables(make_decoder(shape), cluster(ranks), task, Stack{}), s};
}

/// The usual space of Llama 3.1 405B on 16,384 accelerators.
Question usual() {
  constexpr int ranks = 16384;
  Task task;
  task.global_batch = 2048;
  task.sequence = 8192;
  Space s;
  set<&Strategy::tp>(s, divisors(128, 8));
  set<&Strategy::cp>(s, std::vector{1, 2, 4});
  set<&Strategy::pp>(s, divisors(ranks, 64));
  set<&Strategy::vpp>(s, std::vector{1, 2, 3, 4, 5, 6, 7, 8});
  set<&Strategy::micro_batch>(s, std::vector{1, 2, 4, 8, 16});
  set<&Strategy::sharding>(s, std::vector{Sharding::ddp, Sharding::zero1, Sharding::zero2,
                                          Sharding::zero3, Sharding::hsdp});
  set<&Strategy::recompute>(s, std::vector{Recompute::none, Recompute::selective, Recompute::full});
  set<&Strategy::context>(s, std::vector{ContextParallel::ring, ContextParallel::all_to_all,
                                         ContextParallel::all_gather});
  set<&Strategy::placement>(s, std::vector{0, 1, 2, 3, 4, 5});  // tensor parallelism innermost
  set<&Strategy::sequence_parallel>(s, std::vector{true, false});
  set<&Strategy::regather>(s, std::vector{true, false});
  set<&Strategy::offload_optimizer>(s, kEither);
  return {Tables(make_decoder(llama_405b()), cluster(ranks), task, Stack{}), s};
}

Question question(const benchmark::State& state) {
  return state.range(0) == 0 ? calculon() : usual();
}

void report(benchmark::State& state, std::uint64_t strategies) {
  state.SetLabel(state.range(0) == 0 ? "Calculon's, GPT-3 on 1,024" : "usual, 405B on 16,384");
  state.counters["strategies"] = static_cast<double>(strategies);
  state.counters["rate"] = benchmark::Counter(static_cast<double>(strategies),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

SearchOptions options(bool prune, int threads) {
  SearchOptions o;
  o.objective.terms = {{find_column("tokens_per_s"), 1}};
  o.prune = prune;
  o.threads = threads;
  return o;
}

// Goal: under 10 ms; neither a strategy nor a row is stored.
void enumerate_space(benchmark::State& state) {
  const Question q = question(state);
  std::uint64_t size = 0;
  for (auto _ : state) benchmark::DoNotOptimize(size = q.enumerate().size());
  report(state, size);
}
BENCHMARK(enumerate_space)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// Goal: under 6 s for all 11,698,528 executions of Calculon's space, under 5 s for a million of
// the usual space; the second argument counts threads.
void search_exhaustively(benchmark::State& state) {
  const Question q = question(state);
  const Enumeration space = q.enumerate();
  const SearchOptions how = options(false, static_cast<int>(state.range(1)));
  for (auto _ : state) {
    const SearchResult found = search(q.tables, space, {0, space.size()}, how, {});
    if (found.counts.evaluated != space.size()) state.SkipWithError("not every row evaluated");
  }
  report(state, space.size());
}
BENCHMARK(search_exhaustively)
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// Goal: under 1 s; `evaluated` says how many rows the bounds left over.
void search_pruned(benchmark::State& state) {
  const Question q = question(state);
  const Enumeration space = q.enumerate();
  const SearchOptions how = options(true, static_cast<int>(state.range(1)));
  SearchResult found;
  for (auto _ : state) found = search(q.tables, space, {0, space.size()}, how, {});
  if (found.candidates.size() != how.top) state.SkipWithError("too few strategies run");
  report(state, space.size());
  state.counters["evaluated"] = static_cast<double>(found.counts.evaluated);
}
BENCHMARK(search_pruned)
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// Goal: under 1 us for the bound of a group on prepared tables, no more than one evaluation.
void bound_group(benchmark::State& state) {
  Question q = question(state);
  Strategy s;
  s.tp = s.pp = 8;
  q.tables.tabulate(s);
  const Degrees d = resolve_degrees(s, q.tables.cluster(), q.tables.task());
  const Cell& cell = *q.tables.find_cell(s, d);
  const StageLayout& stages = *q.tables.find_stages(s, d);
  Freedom freedom;
  freedom.shards_gradients = freedom.shards_weights = freedom.offloads_optimizer = true;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        lower_bound(q.tables, s, d, cell, stages, freedom, PipelineBound::critical_paths));
  }
}
BENCHMARK(bound_group)->Arg(0)->Arg(1);

/// Three columns, as the narrowest useful table has.
class Columns final : public RowSink {
 public:
  explicit Columns(std::uint64_t rows) : step_time_s(rows), memory_bytes(rows), verdict(rows) {}

  void put(const RowBlock& block) override {
    for (std::size_t i = 0; i < block.estimates.size(); ++i) {
      const Estimate& e = block.estimates[i];
      step_time_s[block.first + i] = e.step_time.base();
      memory_bytes[block.first + i] = e.memory.base();
      verdict[block.first + i] = e.verdict;
    }
  }

  std::vector<double> step_time_s, memory_bytes;
  std::vector<Reason> verdict;
};

// Goal: within a tenth of the exhaustive search of the same space.
void sweep_to_columns(benchmark::State& state) {
  const Question q = question(state);
  const Enumeration space = q.enumerate();
  Columns columns(space.size());
  for (auto _ : state) {
    sweep(q.tables, space, {0, space.size()}, static_cast<int>(state.range(1)), columns, {});
    benchmark::ClobberMemory();
  }
  report(state, space.size());
}
BENCHMARK(sweep_to_columns)
    ->ArgsProduct({{1}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace scalemodel
