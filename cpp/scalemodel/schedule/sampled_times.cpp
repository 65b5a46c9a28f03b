#include "scalemodel/schedule/sampled_times.hpp"

#include <mutex>

#include "scalemodel/schedule/typical_times.hpp"

namespace scalemodel::detail {
namespace {

using Shared = std::shared_ptr<const SampledTimes>;

/// Batches that are kept: 16 KB each, and few searches go beyond them.
constexpr std::size_t kKeptBatches = 128;
using KeptBatches =
    std::array<std::array<std::vector<Shared>, kStepTrafficKinds>, kMaxLayerKinds + 1>;

Shared sampled(std::size_t kinds, StepTrafficKind traffic, std::size_t batch) {
  TypicalTimes typical(kinds, traffic, batch * kLanes);
  std::array<PipelineTimes, kLanes> samples;
  for (PipelineTimes& times : samples) times = typical.next();
  return std::make_shared<const SampledTimes>(samples);
}

}  // namespace

SampledTimes::SampledTimes(const std::array<PipelineTimes, kLanes>& given) : samples(given) {
  const auto lanes_of = [&](const auto& time_of) {
    std::array<float, kLanes> lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = static_cast<float>(time_of(samples[lane]).base());
    }
    return Lanes(lanes);
  };
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    for (std::size_t time = 0; time < kPassTimes; ++time) {
      parts[part][time] = lanes_of([=](const PipelineTimes& t) { return t.parts[part][time]; });
    }
  }
  hop = lanes_of([](const PipelineTimes& t) { return t.hop; });
  early = lanes_of([](const PipelineTimes& t) { return t.early; });
}

const SampledTimes& SampledBatches::next() {
  static std::mutex guard;
  static KeptBatches kept;
  const std::size_t batch = taken_.size();
  if (batch >= kKeptBatches) return *taken_.emplace_back(sampled(kinds_, traffic_, batch));
  const std::lock_guard lock(guard);
  std::vector<Shared>& known = kept[kinds_][static_cast<std::size_t>(traffic_)];
  if (batch == known.size()) known.push_back(sampled(kinds_, traffic_, batch));
  return *taken_.emplace_back(known[batch]);
}

}  // namespace scalemodel::detail
