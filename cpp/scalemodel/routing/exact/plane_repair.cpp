#include "scalemodel/routing/exact/plane_repair.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace scalemodel {
namespace {

/// Temperatures in squared units: above them the repair loses what it was given.
constexpr double kFirstPlaneTemperature = 0.7, kLastPlaneTemperature = 0.3;
constexpr std::int64_t kMovesPerTemperature = 1024;
constexpr std::int64_t kLargestIncrease = 32;  ///< that is ever accepted

}  // namespace

PlaneRepair::PlaneRepair(const FewSizes& few, std::span<const std::int32_t> units,
                         std::int32_t full, std::int32_t planes)
    : few_(few),
      units_(units.begin(), units.end()),
      full_(full),
      planes_(planes),
      least_(few.sides, 0),
      at_(few.sides),
      plane_(units.size(), 0),
      load_(static_cast<std::size_t>(few.sides) * static_cast<std::size_t>(planes), 0) {
  for (std::size_t entry = 0; entry < units_.size(); ++entry) {
    for (const std::int32_t side : {few.up[entry], few.down[entry]}) {
      least_[side] += units_[entry];
      at_[side].push_back(static_cast<std::int32_t>(entry));
    }
  }
  for (std::int32_t& least : least_) least = std::max(least - (planes - 1) * full, 0);
}

std::int64_t PlaneRepair::penalty(std::int32_t link, std::int32_t load) const {
  const std::int64_t above = std::max(load - full_, 0);
  const std::int64_t below = std::max(least_[link / planes_] - load, 0);
  return above * above + below * below;
}

void PlaneRepair::assign(std::span<const std::int32_t> planes) {
  plane_.assign(planes.begin(), planes.end());
  std::ranges::fill(load_, 0);
  for (std::size_t entry = 0; entry < plane_.size(); ++entry) {
    load_[link(few_.up[entry], plane_[entry])] += units_[entry];
    load_[link(few_.down[entry], plane_[entry])] += units_[entry];
  }
  excess_ = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(load_.size()); ++i) {
    excess_ += penalty(i, load_[i]);
  }
}

std::int64_t PlaneRepair::change_of(std::span<const LinkChange> changes) const {
  std::int64_t change = 0;
  for (const auto& [link, units] : changes) {
    change += penalty(link, load_[link] + units) - penalty(link, load_[link]);
  }
  return change;
}

void PlaneRepair::apply(std::span<const LinkChange> changes, std::int64_t change) {
  for (const auto& [link, units] : changes) load_[link] += units;
  excess_ += change;
}

bool PlaneRepair::run(std::int64_t moves, SplitMix& random) {
  const auto entries = static_cast<std::int32_t>(plane_.size());
  std::array<double, kLargestIncrease> odds{};
  for (std::int64_t i = 0; i < moves && excess_ > 0; ++i) {
    if (i % kMovesPerTemperature == 0) {
      const double progress = static_cast<double>(i) / static_cast<double>(moves);
      const double temperature = kFirstPlaneTemperature *
                                 std::pow(kLastPlaneTemperature / kFirstPlaneTemperature, progress);
      for (std::size_t by = 0; by < odds.size(); ++by) {
        odds[by] = std::exp(-static_cast<double>(by) / temperature);
      }
    }
    const std::int32_t one = random.below(entries), from = plane_[one];
    std::array<LinkChange, 6> changes;
    std::size_t count = 0;
    // `units` of a side go from `a` to `b`.
    const auto shift = [&](std::int32_t side, std::int32_t a, std::int32_t b, std::int32_t units) {
      if (units == 0) return;
      changes[count++] = {link(side, a), -units};
      changes[count++] = {link(side, b), units};
    };
    std::int32_t to = 0, other = one;
    if ((random.next() & 3U) == 0) {
      to = random.below(planes_);
      if (to == from) continue;
      shift(few_.up[one], from, to, units_[one]);
      shift(few_.down[one], from, to, units_[one]);
    } else {
      const std::int32_t side = (random.next() & 1U) != 0 ? few_.up[one] : few_.down[one];
      other = at_[side][random.below(static_cast<std::int32_t>(at_[side].size()))];
      to = plane_[other];
      if (to == from) continue;
      const std::int32_t far = few_.far(one, side), other_far = few_.far(other, side);
      const std::int32_t difference = units_[one] - units_[other];
      shift(side, from, to, difference);
      if (far == other_far) {
        shift(far, from, to, difference);
      } else {
        shift(far, from, to, units_[one]);
        shift(other_far, to, from, units_[other]);
      }
    }
    const std::span<const LinkChange> all(changes.data(), count);
    const std::int64_t change = change_of(all);
    if (change >= kLargestIncrease) continue;
    if (change > 0 && random.unit() >= odds[static_cast<std::size_t>(change)]) continue;
    apply(all, change);
    plane_[one] = to;
    if (other != one) plane_[other] = from;
  }
  return excess_ == 0;
}

}  // namespace scalemodel
