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
#include "scalemodel/schedule/path_sums.hpp"
#include "scalemodel/schedule/rough_sums.hpp"
#include "scalemodel/schedule/stage_paths.hpp"

namespace scalemodel::detail {
namespace {

/// A bit per sample.
class Covered {
 public:
  explicit Covered(std::size_t batches = 0) : bits_((batches + kBatches - 1) / kBatches) {}

  /// Some samples of a batch, a bit for each.
  void add(std::size_t batch, std::uint64_t samples) {
    if (samples == 0) return;
    if (bits_.size() <= batch / kBatches) bits_.resize(batch / kBatches + 1);
    bits_[batch / kBatches] |= samples << (batch % kBatches * kLanes);
  }

  void add(const Covered& other) {
    for (std::size_t i = 0; i < other.bits_.size(); ++i) bits_[i] |= other.bits_[i];
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
  explicit PathSearch(std::span<const PipelinePath> known = {}) : known_(known.size()) {
    for (const PipelinePath& path : known) sums_.add(path);
  }

  /// Goes on to a batch at whose samples the sequence ends so.
  void next(const SampledTimes& samples, const Lanes& ends) {
    sums_.set(samples);
    const Lanes longest = sums_.longest(known_);
    const Lanes& least = least_.emplace_back(shortest_like(ends, longest));
    covered_ = longest.reaches(least);
    by_known_.add(least_.size() - 1, covered_);
    cover(0);
  }
  /// Whether a sample of the batch lasts longer than on all paths that are known or found.
  bool lacks_path(std::size_t lane) const { return (covered_ >> lane & 1) == 0; }
  /// Adds the path of such a sample.
  void add(const PipelinePath& path) {
    sums_.add(path);
    found_.push_back({path, least_.size() - 1, Covered{}});
    cover(found_.size() - 1);
  }

  /// Those that together are as long as all at every sample: always the one that is so at most of
  /// the samples left, up to as many as are looked through. `samples`: all that were added.
  /// `beside`: others that are looked through with them.
  std::vector<PipelinePath> fewest(const SampledBatches& samples, std::size_t beside = 0) {
    Covered taken(samples.size());
    taken.add(by_known_);
    // How many samples a path covered when it was last looked at, never less than it covers now.
    using Candidate = std::pair<int, std::size_t>;
    const auto worse = [](const Candidate& a, const Candidate& b) {
      return a.first < b.first || (a.first == b.first && a.second > b.second);
    };
    std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> candidates(worse);
    cover_earlier(samples);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      candidates.emplace(found_[i].covers.beyond(taken), i);
    }
    std::vector<PipelinePath> kept;
    while (!candidates.empty() && kept.size() + beside < kMaxRows) {
      const std::size_t path = candidates.top().second;
      candidates.pop();
      const Candidate now{found_[path].covers.beyond(taken), path};
      if (now.first == 0) continue;
      if (!candidates.empty() && worse(now, candidates.top())) {
        candidates.push(now);
        continue;
      }
      kept.push_back(found_[path].path);
      taken.add(found_[path].covers);
    }
    return kept;
  }

 private:
  /// A path and the samples at which it is the longest, of the batches from `since` on.
  struct Found {
    PipelinePath path;
    std::size_t since;
    Covered covers;
  };

  /// Marks the samples of the batch at which paths from `first` on are the longest.
  void cover(std::size_t first) {
    const std::size_t number = least_.size() - 1;
    const auto mark = [&](std::size_t path, std::uint32_t reached) {
      found_[path - known_].covers.add(number, reached);
      covered_ |= reached;
    };
    sums_.each_reaching(known_ + first, sums_.size(), least_.back(), mark);
  }

  /// Looks at the batches before each path was found, too: there are fewer such paths with every
  /// batch. Listed from the last, those that are left are always the first.
  void cover_earlier(const SampledBatches& samples) {
    PathSums later;
    for (std::size_t path = found_.size(); path-- > 0;) {
      if (found_[path].since > 0) later.add(found_[path].path);
    }
    std::size_t next = 0;  // the first that was found after a batch
    for (std::size_t batch = 0;; ++batch) {
      while (next < found_.size() && found_[next].since <= batch) ++next;
      const std::size_t left = found_.size() - next;
      if (left == 0) return;
      later.set(samples[batch], left);
      later.each_reaching(0, left, least_[batch], [&](std::size_t i, std::uint32_t reached) {
        found_[found_.size() - 1 - i].covers.add(batch, reached);
      });
    }
  }

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

  std::size_t known_;
  PathSums sums_;  ///< of paths that were known, then of those found
  std::vector<Found> found_;
  std::vector<Lanes> least_;  ///< that a path must last at every sample
  Covered by_known_;
  std::uint32_t covered_ = 0;  ///< samples of the last batch, a bit for each
};

SampledParts sampled_parts(const PipelineShape& shape, StepTrafficKind traffic) {
  return {traffic, traits_of(shape.schedule).pairs, shape.tower};
}

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

/// Samples after which a search ends that goes on finding paths. Layers that differ have hundreds,
/// most of which matter at extreme times alone. Against ten times as many samples, the best layouts
/// of the 47 models that were searched longest, on 8 to 256 accelerators, take .005 % less time in
/// the mean and .2 % at most.
std::size_t most_samples(const PassSequence& sequence, std::size_t enough) {
  constexpr std::size_t kMost = 3072;
  return kinds_of(sequence.shape) == 1 ? 8 * enough : std::min(4 * enough, kMost);
}

/// All searches of a pipeline, one for each sequence of a program, at the same samples until no
/// path is missing. The first sequence says how many these are.
void search(PassProgram& program, const PassSequence& sequence,
            std::span<PathSearch* const> searches, SampledBatches& samples) {
  const std::size_t enough = enough_samples(sequence), most = most_samples(sequence, enough);
  std::size_t explained = 0;
  const auto lack_path = [&](std::size_t lane) {
    return std::ranges::any_of(searches,
                               [&](const PathSearch* one) { return one->lacks_path(lane); });
  };
  while (explained < enough && samples.size() * kLanes < most) {
    const SampledTimes& batch = samples.next();
    program.run(batch);
    for (std::size_t i = 0; i < searches.size(); ++i) searches[i]->next(batch, program.end(i));
    PassProgram::Traced traced{};
    std::size_t begin = kLanes, end = kLanes;  // of the traced lanes, those to come
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      explained = lack_path(lane) ? 0 : explained + 1;
      if (explained > 0) continue;
      while (begin < end && traced[begin] < lane) ++begin;
      if (begin == end) {
        // The path of one may make those of others needless.
        begin = end = 0;
        for (std::size_t other = lane; other < kLanes && end < traced.size(); ++other) {
          if (lack_path(other)) traced[end++] = other;
        }
        program.trace(traced);
      }
      for (std::size_t i = 0; i < searches.size(); ++i) {
        if (searches[i]->lacks_path(lane)) searches[i]->add(program.path(i, begin));
      }
    }
  }
}

}  // namespace

QuietPaths find_quiet_paths(const PipelineShape& shape, int micro_batches, bool repeats) {
  const PassSequence sequence(shape, micro_batches);
  const PassSequence longer(shape, repeats ? micro_batches + shape.pp : 1);
  const StagePaths stages(shape);
  const std::vector<PipelinePath> along = stages.of(micro_batches),
                                  along_longer = stages.of(micro_batches + shape.pp);
  PassProgram program(std::array{&sequence, &longer}, StepTrafficKind::none);
  PathSearch step(along);
  PathSearch further(repeats ? along_longer : std::vector<PipelinePath>{});
  SampledBatches samples(sampled_parts(shape, StepTrafficKind::none));
  search(program, sequence, std::array{&step, &further}, samples);
  QuietPaths paths{step.fewest(samples, along.size()),
                   further.fewest(samples, along_longer.size())};
  std::ranges::copy(along, std::back_inserter(paths.step));
  if (repeats) std::ranges::copy(along_longer, std::back_inserter(paths.further));
  return paths;
}

std::vector<PipelinePath> find_paths(const PipelineShape& shape, int micro_batches,
                                     StepTrafficKind traffic, std::span<const PipelinePath> known) {
  const PassSequence sequence(shape, micro_batches);
  PassProgram program(std::array{&sequence}, traffic);
  PathSearch sending(known);
  SampledBatches samples(sampled_parts(shape, traffic));
  search(program, sequence, std::array{&sending}, samples);
  return sending.fewest(samples);
}

}  // namespace scalemodel::detail
