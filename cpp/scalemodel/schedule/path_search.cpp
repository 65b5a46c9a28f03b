#include "scalemodel/schedule/path_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <queue>
#include <span>
#include <utility>

#include "scalemodel/schedule/pass_program.hpp"
#include "scalemodel/schedule/stage_paths.hpp"

namespace scalemodel::detail {
namespace {

/// What a path counts, without what it has not: it is summed up at every sample.
class CountedPath {
 public:
  explicit CountedPath(const PipelinePath& path) : path_(path) {
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      for (std::size_t time = 0; time < kPassTimes; ++time) {
        const double count = path.parts[part][time];
        if (count != 0) counts_.push_back({part, time, static_cast<float>(count)});
      }
    }
  }

  Lanes lasts(const SampledTimes& samples) const {
    Lanes sum = plus(plus(Lanes{}, samples.hop, path_.hops), samples.early, path_.early);
    for (const Count& c : counts_) sum = sum + c.count * samples.parts[c.part][c.time];
    return sum;
  }

  const PipelinePath& path() const { return path_; }

 private:
  struct Count {
    std::size_t part, time;
    float count;
  };
  PipelinePath path_;
  std::vector<Count> counts_;
};

/// A bit per sample.
class Covered {
 public:
  explicit Covered(std::size_t batches = 0) : bits_((batches + kBatches - 1) / kBatches) {}

  /// The samples of a batch at which `lasts` reaches `least`.
  void add(std::size_t batch, const Lanes& lasts, const Lanes& least) {
    const std::uint64_t bits = lasts.reaches(least);
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
      : program_(sequence, traffic), known_(known.begin(), known.end()) {}

  /// Adds the paths of samples that last longer than on all that are known or found, and marks
  /// these samples.
  void add(const SampledTimes& samples, std::array<bool, kLanes>& missing) {
    const std::size_t number = least_.size();
    const Lanes ends = program_.end(samples);
    Lanes longest;
    for (const CountedPath& path : known_) longest = longest.max(path.lasts(samples));
    const Lanes& least = least_.emplace_back(shortest_like(ends, longest));
    by_known_.add(number, longest, least);
    const auto cover = [&](Found& found) {
      const Lanes lasts = found.path.lasts(samples);
      found.covers.add(number, lasts, least);
      longest = longest.max(lasts);
    };
    for (Found& found : found_) cover(found);
    // Two missing paths are found at once; the first of them may make the second needless.
    std::array<PipelinePath, 2> paths;
    std::size_t beside = kLanes;
    for (std::size_t i = 0; i < kLanes; ++i) {
      if (longest[i] >= least[i]) continue;
      const bool ready = i == beside;
      if (!ready) {
        beside = i + 1;
        while (beside < kLanes && longest[beside] >= least[beside]) ++beside;
        paths = program_.paths(samples.samples[i], samples.samples[std::min(beside, kLanes - 1)]);
      }
      found_.push_back({CountedPath(paths[ready ? 1 : 0]), number, Covered{}});
      cover(found_.back());
      missing[i] = true;
    }
  }

  /// Those that together are as long as all at every sample: always the one that is so at most of
  /// the samples left. `samples`: all that were added.
  std::vector<PipelinePath> fewest(const SampledBatches& samples) {
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
    Lanes least;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float end = ends[lane], more = known[lane] > 0 ? end - known[lane] : 0;
      least.set(lane, end - std::max(kOfStep * end, kOfTraffic * more));
    }
    return least;
  }

  PassProgram program_;
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

/// Samples in a row without a new path that are enough: more of a small pipeline, which is soon run
/// and all of whose chunks matter, of one whose layers differ, and where gradients of weights find
/// a place of their own.
std::size_t enough_samples(const PassSequence& sequence) {
  const std::size_t places = traits_of(sequence.shape.schedule).splits_backward ? 3 : 1;
  return kinds_of(sequence.shape) * places *
         std::clamp<std::size_t>(24'576 / sequence.turns.size(), 48, 384);
}

/// All searches of a pipeline, at the same samples until no path is missing.
void search(std::span<PathSearch* const> searches, std::size_t enough, SampledBatches& samples) {
  const std::size_t most = 8 * enough;
  std::size_t explained = 0;
  while (explained < enough && samples.size() * kLanes < most) {
    const SampledTimes& batch = samples.next();
    std::array<bool, kLanes> missing{};
    for (PathSearch* one : searches) one->add(batch, missing);
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
  SampledBatches samples(kinds_of(shape), StepTrafficKind::none);
  search(std::array{&step, &further}, enough_samples(sequence), samples);
  QuietPaths paths{step.fewest(samples), further.fewest(samples)};
  std::ranges::copy(along, std::back_inserter(paths.step));
  if (repeats) std::ranges::copy(along_longer, std::back_inserter(paths.further));
  return paths;
}

std::vector<PipelinePath> find_paths(const PipelineShape& shape, int micro_batches,
                                     StepTrafficKind traffic, std::span<const PipelinePath> known) {
  const PassSequence sequence(shape, micro_batches);
  PathSearch sending(sequence, traffic, known);
  SampledBatches samples(kinds_of(shape), traffic);
  search(std::array{&sending}, enough_samples(sequence), samples);
  return sending.fewest(samples);
}

}  // namespace scalemodel::detail
