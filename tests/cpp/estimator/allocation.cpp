// An evaluation may not touch the heap: operator new is replaced by one that counts.
#include <atomic>
#include <cstdlib>
#include <new>

#include "scalemodel/search/group_space.hpp"
#include "serving/serving_support.hpp"
#include "support.hpp"

namespace {

std::atomic<long long> allocations{0};

void* counted(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void* counted(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (size + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
// What std::stable_sort asks for its buffer.
void* operator new(std::size_t size, const std::nothrow_t& /*nothrow*/) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace scalemodel {
namespace {

TEST_CASE("the counter counts") {
  const long long before = allocations;
  std::vector<int> numbers(100);
  CHECK(numbers.size() == 100);
  CHECK(allocations > before);
}

TEST_CASE("evaluating thousands of strategies on filled tables allocates nothing") {
  std::vector<testing::Question> questions = testing::all_questions();
  testing::Random random(21);
  std::vector<Strategy> strategies;
  for (int i = 0; i < testing::draws(3000); ++i)
    strategies.push_back(testing::random_strategy(random));
  for (testing::Question& question : questions) {
    for (const Strategy& strategy : strategies) question.tables.tabulate(strategy);
  }
  int can_run = 0;
  const auto evaluate_all = [&] {
    for (const testing::Question& question : questions) {
      for (const Strategy& strategy : strategies) {
        can_run += testing::can_run(evaluate(question.tables, strategy)) ? 1 : 0;
      }
    }
  };
  evaluate_all();  // The first of a pipeline finds its critical paths.
  can_run = 0;
  const long long before = allocations;
  evaluate_all();
  CHECK(allocations - before == 0);
  CHECK(can_run > testing::draws(2000));
}

TEST_CASE("evaluating group strategies on filled tables allocates nothing") {
  TableSet tables;
  tables.classes = {{64, 1e6, 20}};
  tables.dim = 128;
  MlpShape layers;
  layers.widths.assign(21, 1024);
  TransformerShape blocks;
  blocks.layers = 48;
  blocks.hidden = 1024;
  blocks.heads = 16;
  blocks.ffn = 4096;
  blocks.experts = 8;
  blocks.experts_per_token = 2;
  blocks.tokens = 64;
  std::vector<LayerGroup> groups{embedding_tables("embedding", tables), mlp("mlp", layers),
                                 transformer("transformer", blocks)};
  groups[2].waits_for = {0, 1};
  Task task;
  task.global_batch = 4096;
  GroupSpace space;
  std::vector<Mesh> meshes;
  const auto add = [&](std::initializer_list<const char*> texts) {
    auto& choices = space.meshes.emplace_back();
    for (const char* text : texts) {
      choices.push_back(static_cast<std::uint16_t>(meshes.size()));
      meshes.push_back(parse_mesh(text, 64));
    }
  };
  add({"table_wise", "row_wise@8+table_wise", "hybrid", "table_wise@8+ddp"});
  add({"ddp", "fsdp", "tp@8+ddp", "fsdp@8+ddp"});
  add({"ep@8+ddp", "ddp@8+ep"});
  space.variable_of_slot = {0, 1, 1, 2};
  space.micro_batches = {1, 2};
  space.queues = {Queues::one, Queues::per_level};
  space.prefetch = {Prefetch::none, Prefetch::one, Prefetch::unlimited};
  space.backward_gather = {BackwardGather::before, BackwardGather::behind};
  space.buckets = {Buckets::unit, Buckets::group};
  space.recompute = {0, 1};
  const GroupTables filled(compose(groups, {"embedding", "mlp", "transformer"}),
                           testing::reference_cluster(64), task, Stack{}, Ablation{}, 0.8, meshes,
                           {1, 2}, false);
  int can_run = 0;
  const long long before = allocations;
  for (std::uint64_t row = 0; row < space.size(); ++row) {
    GroupStrategy strategy;
    strategy.mesh = {space.meshes[0][row % 4], space.meshes[1][row / 4 % 4],
                     space.meshes[1][row / 4 % 4], space.meshes[2][row / 16 % 2]};
    strategy.recompute = row / 32 % 2 == 1;
    can_run += is_illegal(evaluate_groups(filled, strategy).verdict) ? 0 : 1;
  }
  CHECK(allocations - before == 0);
  CHECK(can_run == static_cast<int>(space.size()));
  // The pool that searches answers alike for any number of threads.
  GroupSearchOptions options;
  options.objective.terms = {{find_group_column("step_time_s"), 1}};
  options.too_big = true;
  const GroupSearchResult alone = search_groups(filled, space, options, {});
  options.threads = 3;
  const GroupSearchResult together = search_groups(filled, space, options, {});
  REQUIRE(alone.candidates.size() == together.candidates.size());
  for (std::size_t i = 0; i < alone.candidates.size(); ++i) {
    CHECK(alone.candidates[i].row == together.candidates[i].row);
    CHECK(alone.candidates[i].estimate == together.candidates[i].estimate);
  }
  CHECK(alone.counts.evaluated == space.size());
}

TEST_CASE("steps and steady states of a tabulated instance allocate nothing") {
  const RequestMix mix{1000, 200, 0, 2, 0.7};
  const testing::Instance one(testing::experts_8x7b_shape(), 8, testing::reference_engine(),
                              {2, 1, 4, 2, 1}, mix);
  double sum = 0;
  const long long before = allocations;
  for (int n = 1; n < 2000; n += 7) {
    sum += steady_state(one.times, one.capacity, mix, n).step.base();
    sum += steady_state_at(one.times, one.capacity, mix, 0.01 * n).step.base();
  }
  CHECK(allocations - before == 0);
  CHECK(sum > 0);
}

}  // namespace
}  // namespace scalemodel
