#include "scalemodel/schedule/sampled_times.hpp"

#include <mutex>

#include "scalemodel/schedule/typical_times.hpp"

namespace scalemodel::detail {
namespace {

using Shared = std::shared_ptr<const SampledTimes>;

/// Batches that are kept: 6 KB each, and few searches go beyond them.
constexpr std::size_t kKeptBatches = 1024;
using KeptBatches = std::array<std::array<std::vector<Shared>, kStepTrafficKinds>, 2>;

/// Times of a layer kind do not depend on how many follow it: pipelines of fewer kinds find theirs
/// among those of the most.
TypicalTimes typical_times(StepTrafficKind traffic, bool tower, std::size_t first) {
  return {kMaxLayerKinds, traffic, tower, first};
}

Shared sampled(StepTrafficKind traffic, bool tower, std::size_t batch) {
  TypicalTimes typical = typical_times(traffic, tower, batch * kLanes);
  auto samples = std::make_shared<SampledTimes>();
  for (std::size_t lane = 0; lane < kLanes; ++lane) samples->set(lane, typical.next());
  return samples;
}

}  // namespace

SampledTimes::SampledTimes(const std::array<PipelineTimes, kLanes>& samples) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) set(lane, samples[lane]);
}

void SampledTimes::set(std::size_t lane, const PipelineTimes& sample) {
  const auto set_one = [&](std::size_t number, Seconds time) {
    of[number].set(lane, static_cast<float>(time.base()));
  };
  for (std::size_t part = 0; part < kPipelineParts; ++part) {
    for (std::size_t time = 0; time < kPassTimes; ++time) {
      set_one(place(part, time), sample.parts[part][time]);
    }
  }
  set_one(kHop, sample.hop);
  set_one(kEarly, sample.early);
}

const SampledTimes& SampledBatches::next() {
  static std::mutex guard;
  static KeptBatches kept;
  const std::size_t batch = taken_.size();
  if (batch >= kKeptBatches) return *taken_.emplace_back(sampled(traffic_, tower_, batch));
  const std::lock_guard lock(guard);
  std::vector<Shared>& known = kept[tower_ ? 1 : 0][static_cast<std::size_t>(traffic_)];
  if (batch == known.size()) known.push_back(sampled(traffic_, tower_, batch));
  return *taken_.emplace_back(known[batch]);
}

PipelineTimes SampledBatches::sample(std::size_t batch, std::size_t lane) const {
  return typical_times(traffic_, tower_, batch * kLanes + lane).next();
}

}  // namespace scalemodel::detail
