#include "scalemodel/schedule/path_sums.hpp"

#include <utility>

namespace scalemodel::detail {

void PathSums::add(const PipelinePath& path) {
  std::uint32_t sum = kNothing;
  const auto count = [&](std::size_t place, double times) {
    if (times == 0) return;
    sum = number_of({sum, static_cast<std::uint32_t>(place), static_cast<float>(times)});
  };
  const auto end_piece = [&] {
    if (sum != kNothing) pieces_.push_back(std::exchange(sum, kNothing));
  };
  count(SampledTimes::kHop, path.hops);
  count(SampledTimes::kEarly, path.early);
  end_piece();
  for (std::size_t time = 0; time < kPassTimes; ++time) {
    for (std::size_t part = kPipelineParts; part-- > 0;) {
      count(SampledTimes::place(part, time), path.parts[part][time]);
    }
    end_piece();
  }
  paths_.push_back(static_cast<std::uint32_t>(pieces_.size()));
}

std::uint32_t PathSums::number_of(const Sum& sum) {
  const auto number = static_cast<std::uint32_t>(listed_.size());
  const auto [known, is_new] = numbers_.emplace(sum, number);
  if (is_new) {
    listed_.push_back(sum);
    sums_.push_back(samples_ == nullptr ? Lanes{} : value(sum));
  }
  return known->second;
}

void PathSums::set(const SampledTimes& samples) {
  samples_ = &samples;
  for (std::size_t i = 1; i < listed_.size(); ++i) sums_[i] = value(listed_[i]);
}

}  // namespace scalemodel::detail
