#include "scalemodel/schedule/sampled_times.hpp"

#include <mutex>

#include "scalemodel/schedule/typical_times.hpp"

namespace scalemodel::detail {
namespace {

using Shared = std::shared_ptr<const SampledTimes>;

/// Batches that are kept: 1 to 6 KB each, and few searches go beyond them.
constexpr std::size_t kKeptBatches = 1024;
/// By whether there is a tower, whether passes run in pairs, and traffic.
using KeptBatches =
    std::array<std::array<std::array<std::vector<Shared>, kStepTrafficKinds>, 2>, 2>;

/// Times of a layer kind do not depend on how many follow it: pipelines of fewer kinds find theirs
/// among those of the most.
TypicalTimes typical_times(const SampledParts& parts, std::size_t first) {
  return {kMaxLayerKinds, parts.traffic, parts.tower, first};
}

Shared sampled(const SampledParts& parts, std::size_t batch) {
  TypicalTimes typical = typical_times(parts, batch * kLanes);
  auto samples = std::make_shared<SampledTimes>(parts);
  for (std::size_t lane = 0; lane < kLanes; ++lane) samples->set(lane, typical.next());
  return samples;
}

}  // namespace

std::size_t SampledTimes::places(const SampledParts& parts) {
  if (parts.pairs) return kPlaces;
  switch (parts.traffic) {
    case StepTrafficKind::none:
      return place(0, kForwardOverlappable);
    case StepTrafficKind::hiding:
      return place(0, kGatheringBefore);
    case StepTrafficKind::blocking:
      break;
  }
  return place(0, kPairedForward);
}

SampledTimes::SampledTimes(const std::array<PipelineTimes, kLanes>& samples) : of(kPlaces) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) set(lane, samples[lane]);
}

void SampledTimes::set(std::size_t lane, const PipelineTimes& sample) {
  const auto set_one = [lane](Lanes& lanes, Seconds time) {
    lanes.set(lane, static_cast<float>(time.base()));
  };
  set_one(of[kHop], sample.hop);
  set_one(of[kEarly], sample.early);
  for (std::size_t time = 0; time < kPassTimes; ++time) {
    const std::size_t first = place(0, time);
    if (first >= of.size()) continue;
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      set_one(of[first + part], sample.parts[part][time]);
    }
  }
}

const SampledTimes& SampledBatches::next() {
  static std::mutex guard;
  static KeptBatches kept;
  const std::size_t batch = taken_.size();
  if (batch >= kKeptBatches) return *taken_.emplace_back(sampled(parts_, batch));
  const std::lock_guard lock(guard);
  std::vector<Shared>& known =
      kept[parts_.tower ? 1 : 0][parts_.pairs ? 1 : 0][static_cast<std::size_t>(parts_.traffic)];
  if (batch == known.size()) known.push_back(sampled(parts_, batch));
  return *taken_.emplace_back(known[batch]);
}

}  // namespace scalemodel::detail
