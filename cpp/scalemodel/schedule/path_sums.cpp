#include "scalemodel/schedule/path_sums.hpp"

#include <algorithm>
#include <bit>
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
  paths_.push_back(
      {static_cast<std::uint32_t>(pieces_.size()), static_cast<std::uint32_t>(listed_.size())});
}

std::uint32_t PathSums::number_of(const Sum& sum) {
  if (2 * listed_.size() >= slots_.size()) add_slots();
  std::uint32_t& number = slots_[slot_of(sum)];
  if (number != kNothing) return number;
  number = static_cast<std::uint32_t>(listed_.size());
  listed_.push_back(sum);
  sums_.push_back(samples_ == nullptr ? Lanes{} : value(sum));
  return number;
}

/// The slots from the one that the hash names, of which less than half are taken.
std::size_t PathSums::slot_of(const Sum& sum) const {
  const std::uint64_t mixed =
      (std::uint64_t{sum.without} << 32 | std::bit_cast<std::uint32_t>(sum.count)) ^
      std::uint64_t{sum.place} << 24;
  std::size_t slot = mixed * 0x9e3779b97f4a7c15ULL >> 32;
  for (;; ++slot) {
    slot &= slots_.size() - 1;
    if (slots_[slot] == kNothing || listed_[slots_[slot]] == sum) return slot;
  }
}

void PathSums::add_slots() {
  slots_.assign(std::max<std::size_t>(64, 2 * slots_.size()), kNothing);
  for (std::uint32_t i = 1; i < listed_.size(); ++i) slots_[slot_of(listed_[i])] = i;
}

void PathSums::set(const SampledTimes& samples, std::size_t paths) {
  samples_ = &samples;
  const std::size_t last = paths == 0 ? 1 : paths_[paths - 1].sums;
  Lanes sum;  // most go on from the one before
  for (std::size_t i = 1; i < last; ++i) {
    const Sum& next = listed_[i];
    if (next.without + 1 != i) sum = sums_[next.without];
    sum = sum + next.count * samples.of[next.place];
    sums_[i] = sum;
  }
}

}  // namespace scalemodel::detail
