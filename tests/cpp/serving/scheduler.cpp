#include "scalemodel/serving/scheduler.hpp"

#include <array>

#include "scalemodel/serving/block_cache.hpp"
#include "serving/serving_support.hpp"

namespace scalemodel::testing {
namespace {

std::vector<BlockHash> hashes_of(const std::vector<std::uint64_t>& names, std::int64_t tokens,
                                 int name_tokens = 1) {
  return chained_hashes(names, tokens, name_tokens, 4, 99);
}

}  // namespace

TEST_CASE("a block's hash is that of everything up to its end") {
  const auto one = hashes_of({1, 2, 3, 4, 5, 6, 7, 8}, 8);
  const auto other = hashes_of({1, 2, 3, 4, 5, 6, 7, 9}, 8);
  CHECK(one[0] == other[0]);
  CHECK(one[1] != other[1]);
  // The same tokens after another start are another block.
  CHECK(hashes_of({0, 0, 0, 0, 5, 6, 7, 8}, 8)[1] != one[1]);
  // A name of two blocks covers both; what no name covers is the request's own.
  const auto named = hashes_of({7}, 12, 8);
  CHECK(named.size() == 3);
  CHECK(named[0] == hashes_of({7}, 8, 8)[0]);
  CHECK(named[2] != chained_hashes(std::array<std::uint64_t, 1>{7}, 12, 8, 4, 98)[2]);
}

TEST_CASE(
    "free blocks: the least recently used goes first, the end of a sequence before its start") {
  BlockCache cache(4, false);
  const std::vector<int> first{cache.take(), cache.take()};
  cache.name(first[0], 11);
  cache.name(first[1], 12);
  const std::vector<int> partial{cache.take()};
  cache.release(first);
  cache.release(partial);
  CHECK(cache.free_blocks() == 4);
  CHECK(cache.held(std::array<BlockHash, 2>{11, 12}) == first);
  CHECK(cache.take() == partial[0]);  // Nothing in it could be used again.
  CHECK(cache.take() == 3);
  CHECK(cache.take() == first[1]);
  CHECK(cache.held(std::array<BlockHash, 2>{11, 12}) == std::vector<int>{first[0]});
  CHECK(cache.idle(std::array<int, 1>{first[0]}) == 1);
  cache.share(std::array<int, 1>{first[0]});
  CHECK(cache.free_blocks() == 0);
}

TEST_CASE("a block that two requests hold is free when both have let it go") {
  BlockCache cache(2, false);
  const std::vector<int> block{cache.take()};
  cache.name(block[0], 5);
  cache.share(block);
  cache.release(block);
  CHECK(cache.free_blocks() == 1);
  cache.release(block);
  CHECK(cache.free_blocks() == 2);
}

TEST_CASE("step times of an instance give a schedule its seconds") {
  const RequestMix mix{100, 20, 0, 0, 0};
  const Instance one(dense_7b_shape(), 1, reference_engine(), {}, mix);
  SchedulerLimits limits;
  limits.blocks = 1000;
  const std::vector<NamedRequest> requests{{0, 100, 20, {}}, {0, 100, 20, {}}};
  const StepSchedule timed = schedule_requests(limits, requests, &one.times);
  const StepSchedule counted = schedule_requests(limits, requests, nullptr);
  CHECK(timed.steps.size() == counted.steps.size());
  CHECK(counted.requests[0].finished == 20);
  double until = one.engine.request_host.base();
  for (const ScheduledStep& step : timed.steps) {
    CHECK(step.start == Approx(until).epsilon(1e-12));
    until += step.time;
  }
  CHECK(timed.requests[1].finished == Approx(until).epsilon(1e-12));
}

}  // namespace scalemodel::testing
