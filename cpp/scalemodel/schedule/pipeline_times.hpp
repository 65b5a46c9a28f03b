// What a pipeline is made of, how long its parts take, what a path through it counts, and how long
// it lasts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/schedule/stage_class.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// What a pass is made of: a layer of each kind, then the embedding and the LM head.
inline constexpr std::size_t kPipelineParts = kMaxLayerKinds + 2;
inline constexpr std::size_t kEmbeddingPart = kMaxLayerKinds;
inline constexpr std::size_t kHeadPart = kMaxLayerKinds + 1;

/// Times of one micro-batch in a part: its passes, what they are in DualPipe's pairs, and,
/// `kOverlappable` + pass, how much of the traffic of gradients and parameters advances under a
/// pass. Then the traffic of a step: parameters before the first forward pass, gradients after the
/// last backward pass, as far as they hide under passes of their stage, and what waits for all of
/// these or lets them wait.
enum PassTime : std::size_t {
  kForward,
  kInputGradient,
  kWeightGradient,
  kPairedForward,
  kPairedBackward,
  kForwardOverlappable,
  kInputGradientOverlappable,
  kWeightGradientOverlappable,
  kPairedForwardOverlappable,
  kPairedBackwardOverlappable,
  kGathering,
  kReduction,
  kGatheringBefore,
  kReductionAfter,
  kPassTimes
};
inline constexpr std::size_t kOverlappable = kForwardOverlappable;

struct PartTimes {
  std::array<Seconds, kPassTimes> of{};

  Seconds& operator[](std::size_t time) { return of[time]; }
  const Seconds& operator[](std::size_t time) const { return of[time]; }

  /// With the passes of `count` others.
  PartTimes plus(const PartTimes& other, double count) const {
    PartTimes sum = *this;
    for (std::size_t i = 0; i < kGathering; ++i) sum[i] += count * other[i];
    return sum;
  }
  /// A share of these passes, none of them below zero.
  PartTimes share(double part) const {
    PartTimes shared;
    for (std::size_t i = 0; i < kGathering; ++i) shared[i] = max(Seconds{}, part * of[i]);
    return shared;
  }
};

struct PipelineTimes {
  std::array<PartTimes, kPipelineParts> parts{};
  Seconds hop;    ///< boundary between neighbouring stages, one way
  Seconds early;  ///< how long before its end a pair hands on what it made
};

/// Traffic of a step beside its passes: none, or such that hides under passes of its stage, or also
/// such that they wait for.
enum class StepTrafficKind : std::uint8_t { none, hiding, blocking };
inline constexpr std::size_t kStepTrafficKinds = 3;

/// From the first pass to the end of the last one: of the passes, by how much what is sent between
/// stages lengthens it, then the traffic of parameters and gradients.
struct PipelineDuration {
  Seconds passes, hops, traffic;

  Seconds total() const { return passes + hops + traffic; }
};

/// One path through the passes of a pipeline: how often it has every part's passes, hops and what a
/// pair hands on early.
struct PipelinePath {
  std::array<std::array<double, kPassTimes>, kPipelineParts> parts{};
  double hops = 0, early = 0;

  bool operator==(const PipelinePath&) const = default;
};

/// A pipeline whose passes wait for each other as `stage_order` says.
struct PipelineShape {
  Schedule schedule = Schedule::one_f_one_b;
  int pp = 1, vpp = 1;
  std::vector<StageClass> chunks;  ///< of stage 0 first, as of `make_chunks`
  bool transfers_block = true;     ///< kernels wait for what their stage sends
  bool transfers_serial = false;   ///< and a stage receives nothing while it sends
  bool tower = false;              ///< a vision tower or an encoder stands with the embedding
};

}  // namespace scalemodel
