// Typical times of a pipeline, sixteen samples side by side. Private to the schedules.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "scalemodel/schedule/pipeline_times.hpp"

namespace scalemodel::detail {

inline constexpr std::size_t kLanes = 16;

/// Times at several samples at once. They only tell whether a path is missing: single precision.
/// In parts of four, which every processor and WebAssembly add and compare at once.
class Lanes {
  /// Of GCC and Clang: arithmetic lane by lane.
  static constexpr std::size_t kQuad = 4;
  static constexpr std::size_t kQuads = kLanes / kQuad;
  using Quad = float __attribute__((vector_size(kQuad * sizeof(float))));

 public:
  Lanes() = default;
  explicit Lanes(const std::array<float, kLanes>& lanes)
      : of_(std::bit_cast<std::array<Quad, kQuads>>(lanes)) {}

  float operator[](std::size_t lane) const { return of_[lane / kQuad][lane % kQuad]; }
  void set(std::size_t lane, float value) { of_[lane / kQuad][lane % kQuad] = value; }

  /// The later of two times and then two more, one after the other.
  static Lanes later(const Lanes& a, const Lanes& b, const Lanes& first, const Lanes& second) {
    Lanes sum;
    for (std::size_t i = 0; i < kQuads; ++i) {
      const Quad most = b.of_[i] > a.of_[i] ? b.of_[i] : a.of_[i];
      sum.of_[i] = most + first.of_[i] + second.of_[i];
    }
    return sum;
  }
  Lanes max(const Lanes& other) const {
    Lanes most;
    for (std::size_t i = 0; i < kQuads; ++i) {
      most.of_[i] = other.of_[i] > of_[i] ? other.of_[i] : of_[i];
    }
    return most;
  }
  /// A bit for every lane that is no less than another's.
  std::uint32_t reaches(const Lanes& least) const {
    using Bits = std::int32_t __attribute__((vector_size(kQuad * sizeof(std::int32_t))));
    constexpr Bits kLow{1, 2, 4, 8};
    Bits found{};
    for (std::size_t i = 0; i < kQuads; ++i) {
      found |= (of_[i] >= least.of_[i]) & (kLow << static_cast<int>(kQuad * i));
    }
    return static_cast<std::uint32_t>(found[0] | found[1] | found[2] | found[3]);
  }
  friend Lanes operator+(Lanes a, const Lanes& b) {
    for (std::size_t i = 0; i < kQuads; ++i) a.of_[i] = a.of_[i] + b.of_[i];
    return a;
  }
  friend Lanes operator-(Lanes a, const Lanes& b) {
    for (std::size_t i = 0; i < kQuads; ++i) a.of_[i] = a.of_[i] - b.of_[i];
    return a;
  }
  friend Lanes operator*(float factor, Lanes a) {
    for (Quad& quad : a.of_) quad = factor * quad;
    return a;
  }

 private:
  std::array<Quad, kQuads> of_{};
};

inline Lanes plus(const Lanes& a, const Lanes& b, double times) {
  return a + static_cast<float>(times) * b;
}

/// A batch of samples, sample by sample and time by time.
struct SampledTimes {
  explicit SampledTimes(const std::array<PipelineTimes, kLanes>& samples);

  std::array<PipelineTimes, kLanes> samples;
  std::array<std::array<Lanes, kPassTimes>, kPipelineParts> parts;
  Lanes hop, early;
};

/// The batches of `TypicalTimes`, one after the other: the same for all pipelines of as many layer
/// kinds and such traffic. Any thread may make one; the first batches are made once for all.
class SampledBatches {
 public:
  SampledBatches(std::size_t kinds, StepTrafficKind traffic) : kinds_(kinds), traffic_(traffic) {}

  /// The next one, which lasts as long as this object.
  const SampledTimes& next();
  std::size_t size() const { return taken_.size(); }
  const SampledTimes& operator[](std::size_t batch) const { return *taken_[batch]; }

 private:
  std::size_t kinds_;
  StepTrafficKind traffic_;
  std::vector<std::shared_ptr<const SampledTimes>> taken_;
};

}  // namespace scalemodel::detail
