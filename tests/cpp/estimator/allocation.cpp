// An evaluation may not touch the heap: operator new is replaced by one that counts.
#include <atomic>
#include <cstdlib>
#include <new>

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
  for (int i = 0; i < 3000; ++i) strategies.push_back(testing::random_strategy(random));
  for (testing::Question& question : questions) {
    for (const Strategy& strategy : strategies) question.tables.tabulate(strategy);
  }
  int can_run = 0;
  const long long before = allocations;
  for (const testing::Question& question : questions) {
    for (const Strategy& strategy : strategies) {
      can_run += testing::can_run(evaluate(question.tables, strategy)) ? 1 : 0;
    }
  }
  CHECK(allocations - before == 0);
  CHECK(can_run > 2000);
}

}  // namespace
}  // namespace scalemodel
