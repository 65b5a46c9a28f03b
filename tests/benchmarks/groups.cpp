// What a strategy of layer groups costs. Goals are for one core of an ordinary server; wall time is
// reported, not asserted. A rate is strategies per second.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "questions.hpp"
#include "scalemodel/search/group_space.hpp"

namespace scalemodel {
namespace {

/// The largest click model of MAD-Max on 128 accelerators: tables, two stacks of ten layers and
/// their interaction, each group with a mesh of its own, every schedule.
class ClickModel {
 public:
  ClickModel() : tables_(model(), cluster(128), task(), {}, {}, 0.8, meshes(), {1}, false) {
    space_.queues = {Queues::one, Queues::per_level};
    space_.prefetch = {Prefetch::none, Prefetch::one, Prefetch::unlimited};
    space_.backward_gather = {BackwardGather::before, BackwardGather::behind};
    space_.buckets = {Buckets::unit};
    space_.recompute = {0};
    space_.micro_batches = {1};
    space_.variable_of_slot = {0, 1, 2, 3};
  }

  const GroupTables& tables() const { return tables_; }
  const GroupSpace& space() const { return space_; }

 private:
  static ComposedModel model() {
    TableSet tables;
    tables.classes = {{4096, 2'080'000, 15}};
    tables.dim = 94;
    tables.value_bytes = 2;
    MlpShape layers;
    layers.widths.assign(11, 3994);
    std::vector<LayerGroup> groups{embedding_tables("embedding", tables), mlp("bottom_mlp", layers),
                                   interaction("interaction", {Interaction::concat, 42, 95, 1, 0}),
                                   mlp("top_mlp", layers)};
    groups[2].waits_for = {0, 1};
    groups[3].waits_for = {2};
    return compose(groups, {"embedding", "bottom_mlp", "interaction", "top_mlp"});
  }
  static Task task() {
    Task t;
    t.global_batch = 65536;
    t.precision = Precision::tf32;
    return t;
  }
  std::vector<Mesh> meshes() {
    std::vector<Mesh> all;
    const auto add = [&](std::initializer_list<const char*> texts) {
      std::vector<std::uint16_t> indices;
      for (const char* text : texts) {
        indices.push_back(static_cast<std::uint16_t>(all.size()));
        all.push_back(parse_mesh(text, 128));
      }
      return indices;
    };
    const auto for_tables =
        add({"table_wise", "row_wise", "column_wise", "hybrid", "table_wise@8+ddp",
             "row_wise@8+table_wise", "ddp@8+table_wise", "table_wise@8+row_wise"});
    const auto for_layers = add({"ddp", "fsdp", "tp", "zero1", "tp@8+ddp", "ddp@8+tp", "fsdp@8+ddp",
                                 "fsdp@8+tp", "ddp@8+fsdp", "tp@8+fsdp"});
    space_.meshes = {for_tables, for_layers, for_layers, for_layers};
    return all;
  }

  GroupSpace space_;
  GroupTables tables_;
};

// Goal: 10 M/s in the order of a search, which schedules what may be among its best.
void search_click_model(benchmark::State& state) {
  const ClickModel click;
  GroupSearchOptions options;
  options.objective.terms = {{find_group_column("step_time_s"), 1}};
  const Seconds first = evaluate_groups(click.tables(), click.space().at(0)).step_time;
  if (!(first > Seconds{})) return state.SkipWithError("the question has no answer");
  for (auto _ : state) {
    benchmark::DoNotOptimize(search_groups(click.tables(), click.space(), options, {}));
  }
  state.counters["strategies"] = benchmark::Counter(
      static_cast<double>(click.space().size()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}
BENCHMARK(search_click_model)->Unit(benchmark::kMillisecond);

// Goal: 2 M/s in any order, where nothing is shared with the strategy before.
void evaluate_click_model(benchmark::State& state) {
  const ClickModel click;
  const std::uint64_t rows = click.space().size();
  std::uint64_t row = 0;
  for (auto _ : state) {
    row = (row + 7919) % rows;
    benchmark::DoNotOptimize(evaluate_groups(click.tables(), click.space().at(row)));
  }
  state.counters["strategies"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(evaluate_click_model);

}  // namespace
}  // namespace scalemodel
