// How long a pipeline runs: as long as the longest of its critical paths.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "scalemodel/schedule/pipeline_times.hpp"
#include "scalemodel/schedule/rough_sums.hpp"

namespace scalemodel {

/// The same with hops and without: what is sent in no time.
struct PathTimes {
  Seconds passes, with_hops;
};

/// The longest of several paths: a product of a matrix, a row per path, and the times.
class LongestPath {
 public:
  static constexpr std::size_t kMaxColumns = kPassTimes * kPipelineParts + 2;

  LongestPath() = default;
  /// Paths of several kinds, which are asked for apart.
  explicit LongestPath(std::span<const std::vector<PipelinePath>> kinds);

  /// Times by column.
  class Sums {
   public:
    Sums(const LongestPath& paths, const PipelineTimes& times) noexcept;

   private:
    friend class LongestPath;
    std::array<double, kMaxColumns> exact_;
  };
  /// What the times add up to on the paths of the first kind, but for the traffic of a step: that
  /// may change.
  class Begun {
   public:
    Begun(const LongestPath& paths, const PipelineTimes& times) noexcept;

   private:
    friend class LongestPath;
    std::array<double, kMaxColumns> exact_;  ///< times by column
    std::array<float, detail::kMaxRows> rough_;
  };

  PathTimes longest(std::size_t which, const Sums& sums) const noexcept;
  /// The longest of two kinds' paths, row with row, the second taken `times` times.
  PathTimes longest(std::size_t which, std::size_t repeated, double times,
                    const Sums& sums) const noexcept;
  /// With hops, of the first kind; `times` differ at most in the traffic of a step from those that
  /// sums were begun with.
  Seconds longest_with_hops(Begun& begun, const PipelineTimes& times) const noexcept;

 private:
  /// A time of a part and the column that counts it. Those that every path has equally often share
  /// one.
  struct Use {
    std::uint8_t part, time, column;

    double of(const PipelineTimes& times) const { return times.parts[part][time].base(); }
  };
  /// A column that counts the traffic of a step, and where in `traffic_uses_` what it counts ends.
  struct TrafficColumn {
    std::uint8_t column, end;
  };
  /// Rows of a kind.
  struct Kind {
    std::size_t first = 0, last = 0;
    std::size_t rough = 0;  ///< where in `rough_` they begin
  };
  using Columns = std::array<double, kMaxColumns>;
  void add_all(const PipelineTimes& times, Columns& sums) const noexcept;
  PathTimes exactly(std::size_t row, const Columns& sums) const noexcept;

  std::vector<Use> uses_;
  std::size_t columns_ = 0;  ///< the first two are hops and what is handed on early
  std::vector<TrafficColumn> traffic_columns_;
  std::vector<Use> traffic_uses_;
  std::vector<std::uint8_t> other_columns_;
  std::vector<Kind> kinds_;
  std::vector<double> exact_;  ///< row after row
  std::vector<float> rough_;   ///< the same as `detail::may_be_longest` takes them
};

/// Traffic that some times hold.
StepTrafficKind traffic_of(const PipelineTimes& times) noexcept;

/// A pipeline without the traffic of a step: the step that its paths were found for, and by how
/// much further micro-batches lengthen it.
struct QuietTimes {
  PathTimes first, further;
};

/// A way through a pipeline along one of its stages: how often all passes of a part lie on it, to
/// the stage and back once, on the stage for every micro-batch.
struct StageWay {
  std::array<double, kPipelineParts> once{}, each{};
};

/// What bounds the duration of a pipeline: its critical paths, or, without looking for them, what
/// each stage takes from the first micro-batch to the last, or the passes of the busiest one alone.
enum class PipelineBound : std::uint8_t { critical_paths, one_stage, busiest_stage };

/// Duration of a pipeline as a function of the times of its parts. It is the longest of its
/// critical paths, hence convex and piecewise linear in these times: a path is a count of every
/// part's passes and of hops. The paths are found once, when they are first asked for, by running
/// the passes in order at typical times; an evaluation takes the longest of them, exact where the
/// same path is critical and short of it by little in between, but never less than along any one
/// stage. Once a few groups of pp micro-batches have passed they repeat: further ones last as one
/// more group says, at least as long as on the slowest stage.
class CriticalPaths {
 public:
  /// `micro_batches`: as of `representative`.
  CriticalPaths(PipelineShape shape, int micro_batches);

  /// Precondition of both: representative(pp, micro_batches) is what the paths are of. They find
  /// them, which takes milliseconds, where that was not done yet; any thread may ask. `slowest`:
  /// the passes of a micro-batch on the slowest stage.
  QuietTimes quiet(const PipelineTimes& times, double micro_batches, Seconds slowest) const;
  PipelineDuration duration(const PipelineTimes& times, double micro_batches,
                            Seconds slowest) const {
    return duration(quiet(times, micro_batches, slowest), times);
  }
  /// The same from what `quiet` says of these times, whatever their traffic.
  PipelineDuration duration(const QuietTimes& quiet, const PipelineTimes& times) const;
  /// The same with traffic, and what sums were begun with it.
  PipelineDuration duration(const QuietTimes& quiet, const PipelineTimes& times,
                            StepTrafficKind traffic, LongestPath::Begun& begun) const;
  LongestPath::Begun begin(StepTrafficKind traffic, const PipelineTimes& times) const {
    return {find(traffic), times};
  }

  /// No less than this, as the passes of each stage say without the others'; the traffic of a step
  /// left out. Needs no paths to be found.
  PipelineDuration at_least(const PipelineTimes& times, double micro_batches,
                            Seconds slowest) const noexcept;

  /// The ways along stages that may be the longest, whatever the parts take. None has a part whose
  /// passes it has but in parts.
  std::span<const StageWay> stage_ways() const noexcept { return stage_ways_; }

  /// Micro-batches of the shortest step whose groups repeat as in one of `micro_batches`.
  static int representative(int pp, int micro_batches) noexcept {
    return micro_batches < kGroups * pp ? micro_batches : (kGroups - 1) * pp + micro_batches % pp;
  }

 private:
  static constexpr int kGroups = 3;  ///< of pp micro-batches, after which they repeat

  /// Without traffic outside the passes: of a step; of one with another group, none where groups do
  /// not repeat; then along one stage, which many micro-batches may make the longest: to it and
  /// back, and a micro-batch on it.
  enum Kind : std::size_t { kStep, kFurther, kToStage, kOnStage, kKinds };

  /// Paths with some traffic, once they are found.
  struct Found {
    std::atomic<bool> done{false};
    LongestPath paths;
  };

  const LongestPath& find(StepTrafficKind traffic) const {
    const Found& found = found_[static_cast<std::size_t>(traffic)];
    if (!found.done.load(std::memory_order_acquire)) search(traffic);
    return found.paths;
  }
  void search(StepTrafficKind traffic) const;
  LongestPath without_traffic() const;

  PipelineShape shape_;
  double pp_, micro_batches_;
  LongestPath stage_paths_;  ///< to each stage and on it
  std::vector<StageWay> stage_ways_;
  mutable std::mutex searching_;
  mutable std::vector<PipelinePath> known_;  ///< of a step without traffic, once they are found
  mutable std::array<Found, kStepTrafficKinds> found_;
};

/// The critical paths of a pipeline, one object for all who ask. Any thread may.
std::shared_ptr<const CriticalPaths> critical_paths(const PipelineShape& shape, int micro_batches);

}  // namespace scalemodel
