#include "scalemodel/schedule/path_sums.hpp"

#include <array>
#include <vector>

#include "draws.hpp"
#include "support.hpp"

namespace scalemodel {

TEST_CASE("paths that share sums last as long as each of them alone") {
  testing::Random random(29);
  for (int i = 0; i < testing::draws(20); ++i) {
    std::array<std::array<PipelineTimes, detail::kLanes>, 2> batches;
    for (auto& samples : batches) {
      for (PipelineTimes& times : samples) {
        times.hop = Seconds{random.between(0, 3)};
        times.early = Seconds{random.between(0, 3)};
        for (PartTimes& part : times.parts) {
          for (Seconds& time : part.of) time = Seconds{random.between(0, 3)};
        }
      }
    }
    const detail::SampledTimes first(batches[0]), second(batches[1]);
    std::vector<PipelinePath> paths(static_cast<std::size_t>(1 + random.below(30)));
    for (PipelinePath& path : paths) {
      path.hops = random.below(3);
      path.early = -random.below(2);
      for (auto& part : path.parts) {
        for (double& count : part) count = random.below(3);
      }
    }
    // Half of them before the first batch is known, the others once it is.
    detail::PathSums sums;
    for (std::size_t path = 0; path < paths.size(); ++path) {
      if (path == paths.size() / 2) sums.set(first);
      sums.add(paths[path]);
    }
    REQUIRE(sums.size() == paths.size());
    for (const auto& samples : batches) {
      if (&samples == &batches[1]) sums.set(second);
      for (std::size_t path = 0; path < paths.size(); ++path) {
        const detail::Lanes lasts = sums.of(path);
        for (std::size_t lane = 0; lane < detail::kLanes; ++lane) {
          const PipelineTimes& times = samples[lane];
          Seconds alone = paths[path].hops * times.hop + paths[path].early * times.early;
          for (std::size_t part = 0; part < kPipelineParts; ++part) {
            for (std::size_t time = 0; time < kPassTimes; ++time) {
              alone += paths[path].parts[part][time] * times.parts[part][time];
            }
          }
          CHECK(static_cast<double>(lasts[lane]) == doctest::Approx(alone.base()).epsilon(1e-5));
        }
      }
    }
  }
}

}  // namespace scalemodel
