#include "scalemodel/schedule/path_sums.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "draws.hpp"
#include "support.hpp"

namespace scalemodel {

namespace {

/// A few counts of every time.
PipelinePath any_path(testing::Random& random) {
  PipelinePath path;
  path.hops = random.below(3);
  for (auto& part : path.parts) {
    for (double& count : part) count = random.below(3);
  }
  return path;
}

detail::SampledTimes any_times(testing::Random& random) {
  std::array<PipelineTimes, detail::kLanes> samples;
  for (PipelineTimes& times : samples) {
    times.hop = Seconds{random.between(0, 3)};
    for (PartTimes& part : times.parts) {
      for (Seconds& time : part.of) time = Seconds{random.between(0, 3)};
    }
  }
  return detail::SampledTimes(samples);
}

}  // namespace

TEST_CASE("the first of some paths last as long without the others") {
  testing::Random random(31);
  for (int i = 0; i < testing::draws(20); ++i) {
    const detail::SampledTimes first = any_times(random), second = any_times(random);
    detail::PathSums all, some;
    const std::size_t paths = 40, few = static_cast<std::size_t>(1 + random.below(30));
    for (std::size_t path = 0; path < paths; ++path) {
      const PipelinePath any = any_path(random);
      all.add(any);
      if (path < few) some.add(any);
    }
    all.set(first);
    all.set(second, few);
    some.set(second);
    const detail::Lanes longest = some.longest(few);
    std::size_t reaching = 0;
    for (std::size_t path = 0; path < few; ++path) {
      for (std::size_t lane = 0; lane < detail::kLanes; ++lane) {
        REQUIRE(all.of(path)[lane] == some.of(path)[lane]);
        REQUIRE(all.of(path)[lane] <= longest[lane]);
      }
      if (some.of(path).reaches(longest) != 0) ++reaching;
    }
    std::uint32_t reached = 0;
    all.each_reaching(0, few, longest, [&](std::size_t path, std::uint32_t samples) {
      CHECK(samples == some.of(path).reaches(longest));
      reached |= samples;
      --reaching;
    });
    CHECK(reaching == 0);
    CHECK(reached == 0xffff);
  }
}

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
