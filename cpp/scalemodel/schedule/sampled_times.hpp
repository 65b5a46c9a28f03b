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

  /// The later of two times and then one or two more, one after the other.
  static Lanes later(const Lanes& a, const Lanes& b, const Lanes& first) {
    Lanes sum;
    for (std::size_t i = 0; i < kQuads; ++i) {
      sum.of_[i] = (b.of_[i] > a.of_[i] ? b.of_[i] : a.of_[i]) + first.of_[i];
    }
    return sum;
  }
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
  /// A bit for every lane that is no less than another's: mostly none.
  std::uint32_t reaches(const Lanes& least) const {
    using Bits = std::int32_t __attribute__((vector_size(kQuad * sizeof(std::int32_t))));
    using Halves = std::int64_t __attribute__((vector_size(2 * sizeof(std::int64_t))));
    std::array<Bits, kQuads> reached;
    for (std::size_t i = 0; i < kQuads; ++i) reached[i] = of_[i] >= least.of_[i];
    const auto any = std::bit_cast<Halves>((reached[0] | reached[1]) | (reached[2] | reached[3]));
    if ((any[0] | any[1]) == 0) return 0;
    constexpr Bits kLow{1, 2, 4, 8};
    Bits found{};
    for (std::size_t i = 0; i < kQuads; ++i) {
      found |= reached[i] & (kLow << static_cast<int>(kQuad * i));
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

/// Which of a pipeline's times are sampled.
struct SampledParts {
  StepTrafficKind traffic = StepTrafficKind::none;
  bool pairs = false;  ///< passes run in pairs
  bool tower = false;  ///< stands with the embedding
};

/// A batch of samples, time by time: those that a pipeline has, since thousands of batches are
/// kept.
struct SampledTimes {
  /// All times.
  explicit SampledTimes(const std::array<PipelineTimes, kLanes>& samples);
  /// Room for those of some parts.
  explicit SampledTimes(const SampledParts& parts) : of(places(parts)) {}

  void set(std::size_t lane, const PipelineTimes& sample);

  static constexpr std::size_t kHop = 0, kEarly = 1;
  /// Place of a time of a part: time after time, those last that fewest pipelines have.
  static constexpr std::size_t place(std::size_t part, std::size_t time) {
    constexpr std::array<std::size_t, kPassTimes> order{0, 1,  2,  10, 11, 3, 4,
                                                        5, 12, 13, 6,  7,  8, 9};
    return kEarly + 1 + order[time] * kPipelineParts + part;
  }
  static constexpr std::size_t kPlaces = kEarly + 1 + kPassTimes * kPipelineParts;

  std::vector<Lanes> of;  ///< by place

 private:
  static std::size_t places(const SampledParts& parts);
};

/// The batches of `TypicalTimes` with some traffic, with a tower or without, one after the other:
/// the same for all pipelines, of which each has some of the parts. Any thread may make one; the
/// first batches are made once for all.
class SampledBatches {
 public:
  explicit SampledBatches(const SampledParts& parts) : parts_(parts) {}

  /// The next one, which lasts as long as this object.
  const SampledTimes& next();
  std::size_t size() const { return taken_.size(); }
  const SampledTimes& operator[](std::size_t batch) const { return *taken_[batch]; }

 private:
  SampledParts parts_;
  std::vector<std::shared_ptr<const SampledTimes>> taken_;
};

}  // namespace scalemodel::detail
