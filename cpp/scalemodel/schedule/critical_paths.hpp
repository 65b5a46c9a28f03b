// How long a pipeline runs whose schedule has no closed form: the longest of its critical paths.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/schedule/stage_class.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// What a pass is made of: a layer of each kind, then the two ends of the model.
inline constexpr std::size_t kPipelineParts = kMaxLayerKinds + 2;
inline constexpr std::size_t kEmbeddingPart = kMaxLayerKinds;
inline constexpr std::size_t kHeadPart = kMaxLayerKinds + 1;

/// Times of one micro-batch in a part. `paired`: what they are in DualPipe's pairs.
struct PartTimes {
  Seconds forward, input_gradient, weight_gradient;
  Seconds paired_forward, paired_backward;
};

struct PipelineTimes {
  std::array<PartTimes, kPipelineParts> parts{};
  Seconds hop;    ///< boundary between neighbouring stages, one way
  Seconds early;  ///< how long before its end a pair hands on what it made
};

/// A pipeline whose passes wait for each other as `stage_order` says.
struct PipelineShape {
  Schedule schedule = Schedule::one_f_one_b;
  int pp = 1, vpp = 1;
  std::vector<StageClass> chunks;  ///< of stage 0 first, as of `make_chunks`
  bool transfers_block = true;     ///< kernels wait for what their stage sends
  bool transfers_serial = false;   ///< and a stage receives nothing while it sends

  /// Whether `pipeline_bubble` tells how long it idles: not where interleaved chunks are unequal,
  /// weight gradients too few to fill the gaps, or DualPipe's directions unequal.
  bool has_closed_form(int micro_batches) const;
};

/// Duration of a pipeline as a function of the times of its parts. It is the longest of its
/// critical paths, hence convex and piecewise linear in these times: a path is a count of every
/// part's passes and of hops. The paths are found once, by running the passes in order at typical
/// times; an evaluation takes the longest of them, exact where the same path is critical and short
/// of it by little in between. Once a few groups of pp micro-batches
/// have passed they repeat: further ones last as long as on the slowest stage or, interleaved in
/// chunks of unequal size that wait for each other, as one more group says.
class CriticalPaths {
 public:
  CriticalPaths() = default;
  /// `micro_batches`: as of `representative`.
  CriticalPaths(const PipelineShape& shape, int micro_batches);

  bool empty() const noexcept { return first_.empty(); }

  /// From the first pass to the end of the last one. Precondition: not empty and
  /// representative(pp, micro_batches) is what the paths were found for.
  /// `slowest`: the passes of a micro-batch on the slowest stage.
  Seconds duration(const PipelineTimes& times, double micro_batches,
                   Seconds slowest) const noexcept;

  /// Micro-batches of the shortest step whose groups repeat as in one of `micro_batches`.
  static int representative(int pp, int micro_batches) noexcept {
    return micro_batches < kGroups * pp ? micro_batches : (kGroups - 1) * pp + micro_batches % pp;
  }

 private:
  static constexpr int kGroups = 4;          ///< of pp micro-batches, after which they repeat
  static constexpr std::size_t kPasses = 5;  ///< fields of PartTimes
  static constexpr std::size_t kCounts = kPasses * kPipelineParts + 2;
  using Counts = std::array<double, kCounts>;

  struct Path {
    Counts first, longer;  ///< of the representative step, and of one with another group
    bool operator==(const Path&) const = default;
  };
  friend class PipelineRun;

  static Counts flat(const PipelineTimes& times) noexcept;

  void keep(const std::vector<Path>& paths);

  std::vector<std::size_t> used_;  ///< counts that are not zero on every path
  /// These counts, path after path: of the representative step, and of every further group.
  std::vector<double> first_, longer_;
  double pp_ = 1, micro_batches_ = 0;
  bool paced_by_stage_ = true;
};

}  // namespace scalemodel
