// What a front costs. Goals are for one core of an ordinary server; wall time is reported, not
// asserted.
#include "scalemodel/search/pareto.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace scalemodel {
namespace {

using Table = std::vector<std::vector<double>>;  // by column

Table uniform(std::size_t rows, std::size_t objectives) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> value(0, 1);
  Table table(objectives, std::vector<double>(rows));
  for (auto& column : table) {
    for (double& entry : column) entry = value(random);
  }
  return table;
}

/// No row dominates another: the last objective is what the others are not.
Table all_stay(std::size_t rows, std::size_t objectives) {
  Table table = uniform(rows, objectives);
  for (std::size_t i = 0; i < rows; ++i) {
    table.back()[i] = 0;
    for (std::size_t k = 0; k + 1 < objectives; ++k) table.back()[i] -= table[k][i];
  }
  return table;
}

void measure(benchmark::State& state, const Table& table) {
  std::vector<std::span<const double>> columns;
  for (const auto& column : table) columns.emplace_back(column);
  std::size_t front = 0;
  for (auto _ : state) {
    front = pareto_front(columns).size();
    benchmark::DoNotOptimize(front);
  }
  state.counters["front"] = static_cast<double>(front);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(columns.front().size()));
}

// Goal: a million rows with two to four objectives in under 0.25 s.
void front_of_random_rows(benchmark::State& state) {
  measure(state, uniform(1'000'000, static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(front_of_random_rows)->DenseRange(2, 4)->Unit(benchmark::kMillisecond);

// Goal: a million rows that all stay in about 1 s with two or three objectives.
void front_of_rows_that_all_stay(benchmark::State& state) {
  measure(state, all_stay(1'000'000, static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(front_of_rows_that_all_stay)->DenseRange(2, 3)->Unit(benchmark::kMillisecond);

// Goal: 200,000 rows that all stay in under 2 s with four objectives.
void front_of_four_objectives_that_all_stay(benchmark::State& state) {
  measure(state, all_stay(200'000, 4));
}
BENCHMARK(front_of_four_objectives_that_all_stay)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace scalemodel
