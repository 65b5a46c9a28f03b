#include "scalemodel/strategy/interleaving.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using doctest::Approx;

/// Layers of the chunks of each stage, summed; the head adds to the last.
double busiest(const std::vector<int>& chunks, int pp, double head) {
  std::vector<double> stages(static_cast<std::size_t>(pp));
  for (std::size_t c = 0; c < chunks.size(); ++c) stages[c % stages.size()] += chunks[c];
  stages.back() += head;
  return *std::ranges::max_element(stages);
}

std::vector<int> random_chunks(testing::Random& random, int count) {
  std::vector<int> chunks(static_cast<std::size_t>(count));
  for (int& layers : chunks) layers = 1 + random.below(3);
  return chunks;
}

TEST_CASE("equal chunks need no tabulated pace, nor does a stage of one chunk") {
  CHECK_FALSE(InterleavedPace({2, 2, 2, 2}, 2).uneven());
  CHECK_FALSE(InterleavedPace({2, 1, 2, 1}, 4).uneven());
  CHECK_FALSE(InterleavedPace({3, 1}, 1).uneven());
  CHECK(InterleavedPace({2, 1, 1, 1}, 2).uneven());
}

TEST_CASE("a step lasts at least as long as its busiest stage and at most as all in turn") {
  testing::Random random(71);
  for (int i = 0; i < 30; ++i) {
    const int pp = random.pick({2, 4, 8}), vpp = random.pick({2, 3, 4});
    const std::vector<int> chunks = random_chunks(random, pp * vpp);
    const InterleavedPace pace(chunks, pp);
    if (!pace.uneven()) continue;
    int all = 0;
    for (const int layers : chunks) all += layers;
    for (const double m : {1.0 * pp, 3.0 * pp, 16.0 * pp}) {
      for (const double head : {0.0, 0.7, 3.0, 12.0}) {
        const double lasts = pace.duration(m, head);
        // Read off between tabulated weights and lengths: to within a percent.
        CHECK(lasts >= 0.99 * m * busiest(chunks, pp, head));
        CHECK(lasts <= m * (all + head));
        CHECK(pace.duration(m, head + 0.1) >= 0.99 * lasts);
        CHECK(pace.duration(m + pp, head) > lasts);
      }
    }
  }
}

TEST_CASE("two stages by hand: a head that only the other chunk's layers wait for") {
  // One micro-batch group of two, weights in thirds: the first stage runs 2 + 1 layers, the second
  // 1 + 1 and the head.
  const InterleavedPace pace({2, 1, 1, 1}, 2);
  CHECK(pace.duration(64, 0) / 64 == Approx(3).epsilon(0.03));
  CHECK(pace.duration(64, 4) / 64 == Approx(6).epsilon(0.03));
}

}  // namespace
}  // namespace scalemodel
