#include "scalemodel/schedule/path_search.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <queue>
#include <span>
#include <utility>

#include "scalemodel/base/index.hpp"
#include "scalemodel/schedule/pipeline_run.hpp"
#include "scalemodel/schedule/stage_paths.hpp"
#include "scalemodel/schedule/typical_times.hpp"

namespace scalemodel::detail {
namespace {

constexpr std::size_t kLanes = 16;
/// Times of several samples at once. They only tell whether a path is missing: single precision.
using Lanes = Eigen::Array<float, kLanes, 1>;

Lanes plus(const Lanes& a, const Lanes& b, double times) {
  return a + static_cast<float>(times) * b;
}

using Batch = std::array<PipelineTimes, kLanes>;

/// A batch of samples, time by time.
struct SampledTimes {
  explicit SampledTimes(const Batch& batch) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto i = static_cast<Eigen::Index>(lane);
      for (std::size_t part = 0; part < kPipelineParts; ++part) {
        for (std::size_t time = 0; time < kPassTimes; ++time) {
          parts[part][time][i] = static_cast<float>(batch[lane].parts[part][time].base());
        }
      }
      hop[i] = static_cast<float>(batch[lane].hop.base());
      early[i] = static_cast<float>(batch[lane].early.base());
    }
  }

  std::array<std::array<Lanes, kPassTimes>, kPipelineParts> parts;
  Lanes hop, early;
};

/// What a path counts, without what it has not: it is summed up at every sample.
class CountedPath {
 public:
  explicit CountedPath(const PipelinePath& path) : path_(path) {
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      for (std::size_t time = 0; time < kPassTimes; ++time) {
        const double count = path.parts[part][time];
        if (count != 0) counts_.push_back({part, time, count});
      }
    }
  }

  Lanes lasts(const SampledTimes& samples) const {
    Lanes sum = plus(plus(Lanes::Zero(), samples.hop, path_.hops), samples.early, path_.early);
    for (const Count& c : counts_) sum = plus(sum, samples.parts[c.part][c.time], c.count);
    return sum;
  }

  const PipelinePath& path() const { return path_; }

 private:
  struct Count {
    std::size_t part, time;
    double count;
  };
  PipelinePath path_;
  std::vector<Count> counts_;
};

/// Tells when a pass ends at each sample of a batch.
class LaneClock {
 public:
  using Time = Lanes;

  LaneClock(const PassSequence& sequence, const SampledTimes& times)
      : hop_(times.hop), early_(times.early) {
    lasts_.resize(kPassTimes * sequence.classes.size(), Lanes::Zero());
    for (std::size_t c = 0; c < sequence.classes.size(); ++c) {
      for (std::size_t part = 0; part < kPipelineParts; ++part) {
        const double count = PassSequence::count(sequence.classes[c], part);
        if (count == 0) continue;
        for (std::size_t time = 0; time < kPassTimes; ++time) {
          Lanes& lasts = lasts_[kPassTimes * c + time];
          lasts = plus(lasts, times.parts[part][time], count);
        }
      }
    }
  }

  static Time start() { return Lanes::Zero(); }
  static Time later(const Time& a, const Time& b) { return a.max(b); }
  Time add(const Time& from, int chunk, std::size_t time, double times) const {
    return plus(from, lasts_[kPassTimes * at(chunk) + time], times);
  }
  Time hop(const Time& from) const { return plus(from, hop_, 1); }
  Time early(const Time& from) const { return plus(from, early_, -1); }

 private:
  Lanes hop_, early_;
  std::vector<Lanes> lasts_;  ///< of every class of chunks
};

/// Tells when a pass ends at one sample, and remembers what each waited for.
class TracingClock {
 public:
  struct Time {
    double end = 0;
    std::int32_t step = 0;  ///< that ends then
  };

  TracingClock(const PassSequence& sequence, const PipelineTimes& times)
      : sequence_(sequence), hop_(times.hop.base()), early_(times.early.base()), steps_(1) {
    // A pass is an end or two, what it waited for, and two transfers.
    steps_.reserve(6 * sequence.turns.size());
    for (const StageClass& chunk : sequence.classes) {
      for (std::size_t time = 0; time < kPassTimes; ++time) {
        double lasts = 0;
        for (std::size_t part = 0; part < kPipelineParts; ++part) {
          lasts += PassSequence::count(chunk, part) * times.parts[part][time].base();
        }
        lasts_.push_back(lasts);
      }
    }
  }

  static Time start() { return {}; }
  static Time later(Time a, Time b) { return b.end > a.end ? b : a; }
  Time add(Time from, int chunk, std::size_t time, double times) {
    const std::size_t which = kPassTimes * at(chunk) + time;
    return push(from.end + times * lasts_[which],
                {times, from.step, static_cast<std::int32_t>(which)});
  }
  Time hop(Time from) { return push(from.end + hop_, {1, from.step, kHop}); }
  Time early(Time from) { return push(from.end - early_, {-1, from.step, kEarly}); }

  PipelinePath path_to(Time last) const {
    PipelinePath path;
    std::vector<double> taken(lasts_.size());
    for (std::int32_t i = last.step; i != start().step; i = steps_[at(i)].before) {
      const Step& step = steps_[at(i)];
      if (step.what == kHop) {
        path.hops += step.times;
      } else if (step.what == kEarly) {
        path.early += step.times;
      } else {
        taken[at(step.what)] += step.times;
      }
    }
    for (std::size_t c = 0; c < sequence_.classes.size(); ++c) {
      for (std::size_t part = 0; part < kPipelineParts; ++part) {
        const double count = PassSequence::count(sequence_.classes[c], part);
        for (std::size_t time = 0; time < kPassTimes; ++time) {
          path.parts[part][time] += count * taken[kPassTimes * c + time];
        }
      }
    }
    return path;
  }

 private:
  static constexpr std::int32_t kHop = -1, kEarly = -2;
  struct Step {
    double times = 0;  ///< how often what it is made of
    std::int32_t before = 0;
    std::int32_t what = 0;  ///< a class of chunks and a time of its, or a hop
  };

  Time push(double end, const Step& step) {
    steps_.push_back(step);
    return {end, static_cast<std::int32_t>(steps_.size()) - 1};
  }

  const PassSequence& sequence_;
  double hop_, early_;
  std::vector<double> lasts_;
  std::vector<Step> steps_;
};

/// A bit per sample.
class Covered {
 public:
  explicit Covered(std::size_t batches = 0) : bits_((batches + kBatches - 1) / kBatches) {}

  /// The samples of a batch at which `lasts` reaches `least`.
  void add(std::size_t batch, const Lanes& lasts, const Lanes& least) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < kLanes; ++i) {
      const auto lane = static_cast<Eigen::Index>(i);
      bits |= static_cast<std::uint64_t>(lasts[lane] >= least[lane]) << i;
    }
    if (bits_.size() <= batch / kBatches) bits_.resize(batch / kBatches + 1);
    bits_[batch / kBatches] |= bits << (batch % kBatches * kLanes);
  }

  void add(const Covered& other) {
    for (std::size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }

  int beyond(const Covered& other) const {
    int count = 0;
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      count += std::popcount(bits_[i] & ~other.bits_[i]);
    }
    return count;
  }

 private:
  static constexpr std::size_t kBatches = 64 / kLanes;  ///< in a number
  std::vector<std::uint64_t> bits_;
};

/// Paths of one sequence at many samples.
class PathSearch {
 public:
  /// `known`: paths that need not be found again.
  PathSearch(const PassSequence& sequence, StepTrafficKind traffic,
             std::span<const PipelinePath> known = {})
      : sequence_(sequence), traffic_(traffic), known_(known.begin(), known.end()) {}

  /// Adds the paths of samples that last longer than on all that are known or found, and marks
  /// these samples.
  void add(const Batch& batch, const SampledTimes& samples, std::array<bool, kLanes>& missing) {
    const std::size_t number = least_.size();
    LaneClock clock(sequence_, samples);
    const Lanes ends = PipelineRun(sequence_, clock, traffic_).end();
    Lanes longest = Lanes::Zero();
    for (const CountedPath& path : known_) longest = longest.max(path.lasts(samples));
    const Lanes& least = least_.emplace_back(shortest_like(ends, longest));
    by_known_.add(number, longest, least);
    const auto cover = [&](Found& found) {
      const Lanes lasts = found.path.lasts(samples);
      found.covers.add(number, lasts, least);
      longest = longest.max(lasts);
    };
    for (Found& found : found_) cover(found);
    for (std::size_t i = 0; i < kLanes; ++i) {
      const auto lane = static_cast<Eigen::Index>(i);
      if (longest[lane] >= least[lane]) continue;
      TracingClock tracing(sequence_, batch[i]);
      const PipelinePath path = tracing.path_to(PipelineRun(sequence_, tracing, traffic_).end());
      found_.push_back({CountedPath(path), number, Covered{}});
      cover(found_.back());
      missing[i] = true;
    }
  }

  /// Those that together are as long as all at every sample: always the one that is so at most of
  /// the samples left. `samples`: all that were added.
  std::vector<PipelinePath> fewest(std::span<const SampledTimes> samples) {
    Covered taken(samples.size());
    taken.add(by_known_);
    // How many samples a path covered when it was last looked at, never less than it covers now.
    using Candidate = std::pair<int, std::size_t>;
    const auto worse = [](const Candidate& a, const Candidate& b) {
      return a.first < b.first || (a.first == b.first && a.second > b.second);
    };
    std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> candidates(worse);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      Found& found = found_[i];
      for (std::size_t batch = 0; batch < found.since; ++batch) {
        found.covers.add(batch, found.path.lasts(samples[batch]), least_[batch]);
      }
      candidates.emplace(found.covers.beyond(taken), i);
    }
    std::vector<PipelinePath> kept;
    while (!candidates.empty()) {
      const std::size_t path = candidates.top().second;
      candidates.pop();
      const Candidate now{found_[path].covers.beyond(taken), path};
      if (now.first == 0) continue;
      if (!candidates.empty() && worse(now, candidates.top())) {
        candidates.push(now);
        continue;
      }
      kept.push_back(found_[path].path.path());
      taken.add(found_[path].covers);
    }
    return kept;
  }

 private:
  /// A path and the samples at which it is the longest, of the batches from `since` on.
  struct Found {
    CountedPath path;
    std::size_t since;
    Covered covers;
  };

  /// A path that lasts so long stands for one until `ends`: it lacks next to nothing of the step
  /// and little of what `known` paths lack, so that traffic is not lost in a long step.
  static Lanes shortest_like(const Lanes& ends, const Lanes& known) {
    constexpr float kOfStep = 2e-4F, kOfTraffic = 3e-2F;
    const Lanes more = (known > 0).select(ends - known, 0);
    return ends - (kOfStep * ends).max(kOfTraffic * more);
  }

  const PassSequence& sequence_;
  StepTrafficKind traffic_;
  std::vector<CountedPath> known_;
  std::vector<Found> found_;
  std::vector<Lanes> least_;  ///< that a path must last at every sample
  Covered by_known_;
};

std::size_t kinds_of(const PipelineShape& shape) {
  std::size_t kinds = 1;
  for (const StageClass& chunk : shape.chunks) {
    for (std::size_t k = kinds; k < kMaxLayerKinds; ++k) {
      if (chunk.layers[k] > 0) kinds = k + 1;
    }
  }
  return kinds;
}

/// All searches of a pipeline, at the same samples until no path is missing.
void search(std::span<PathSearch* const> searches, const PassSequence& sequence,
            StepTrafficKind traffic, std::vector<SampledTimes>& samples) {
  // Samples in a row without a new path, and in all: more of a small pipeline, which is soon run
  // and all of whose chunks matter, of one whose layers differ, and where gradients of weights find
  // a place of their own.
  const std::size_t kinds = kinds_of(sequence.shape);
  const std::size_t places = traits_of(sequence.shape.schedule).splits_backward ? 3 : 1;
  const std::size_t enough =
      kinds * places * std::clamp<std::size_t>(24'576 / sequence.turns.size(), 48, 384);
  const std::size_t most = 8 * enough;
  TypicalTimes typical(kinds, traffic);
  std::size_t explained = 0;
  while (explained < enough && samples.size() * kLanes < most) {
    Batch batch;
    for (PipelineTimes& times : batch) times = typical.next();
    samples.emplace_back(batch);
    std::array<bool, kLanes> missing{};
    for (PathSearch* one : searches) one->add(batch, samples.back(), missing);
    for (const bool is_missing : missing) explained = is_missing ? 0 : explained + 1;
  }
}

}  // namespace

QuietPaths find_quiet_paths(const PipelineShape& shape, int micro_batches, bool repeats) {
  const PassSequence sequence(shape, micro_batches);
  const PassSequence longer(shape, repeats ? micro_batches + shape.pp : 1);
  const StagePaths stages(shape);
  const std::vector<PipelinePath> along = stages.of(micro_batches),
                                  along_longer = stages.of(micro_batches + shape.pp);
  PathSearch step(sequence, StepTrafficKind::none, along);
  PathSearch further(longer, StepTrafficKind::none,
                     repeats ? along_longer : std::vector<PipelinePath>{});
  std::vector<SampledTimes> samples;
  search(std::array{&step, &further}, sequence, StepTrafficKind::none, samples);
  QuietPaths paths{step.fewest(samples), further.fewest(samples)};
  std::ranges::copy(along, std::back_inserter(paths.step));
  if (repeats) std::ranges::copy(along_longer, std::back_inserter(paths.further));
  return paths;
}

std::vector<PipelinePath> find_paths(const PipelineShape& shape, int micro_batches,
                                     StepTrafficKind traffic, std::span<const PipelinePath> known) {
  const PassSequence sequence(shape, micro_batches);
  PathSearch sending(sequence, traffic, known);
  std::vector<SampledTimes> samples;
  search(std::array{&sending}, sequence, traffic, samples);
  return sending.fewest(samples);
}

}  // namespace scalemodel::detail
