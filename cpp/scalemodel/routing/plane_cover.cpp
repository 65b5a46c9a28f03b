#include "scalemodel/routing/plane_cover.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace scalemodel {
namespace {

constexpr double kRounding = 1e-9;
constexpr std::int64_t kPatience = 10;  ///< times all sets of all rows are looked at, per plane
constexpr std::int32_t kGivenBack = 3;  ///< planes at most
constexpr double kNoise = 2;            ///< in rows, on the order of sets by size

}  // namespace

PlaneCover::PlaneCover(std::span<const std::vector<RowLoad>> sets, std::vector<double> room,
                       std::vector<char> must_fill, std::int32_t planes)
    : sets_(sets),
      room_(std::move(room)),
      left_(room_),
      must_fill_(std::move(must_fill)),
      planes_(planes),
      plane_(sets.size(), kNowhere),
      rank_(sets.size()),
      of_row_(must_fill_.size()),
      open_(planes) {
  std::iota(open_.begin(), open_.end(), 0);
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets.size()); ++set) {
    for (const RowLoad& row : sets[set]) of_row_[row.row].push_back(set);
    entries_ += static_cast<std::int64_t>(sets[set].size());
  }
}

bool PlaneCover::fits(std::int32_t set, std::int32_t plane) {
  ++work_;
  return std::ranges::all_of(sets_[set], [&](const RowLoad& row) {
    const std::size_t at = cell(row.row, plane);
    return row.load <= left_[at] + kRounding * room_[at];
  });
}

void PlaneCover::put(std::int32_t set, std::int32_t plane) {
  for (const auto& [row, load] : sets_[set]) left_[cell(row, plane)] -= load;
  plane_[set] = plane;
}

void PlaneCover::take(std::int32_t set) {
  for (const auto& [row, load] : sets_[set]) left_[cell(row, plane_[set])] += load;
  plane_[set] = kNowhere;
}

/// Fills what is left of the rows of a plane; changes nothing where that fails.
bool PlaneCover::cover(std::int32_t plane) {
  std::int32_t fewest = kNowhere;
  std::vector<std::int32_t> candidates, others;
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(must_fill_.size()); ++row) {
    const std::size_t at = cell(row, plane);
    if (must_fill_[row] == 0 || left_[at] <= 2 * kRounding * room_[at]) continue;
    others.clear();
    for (const std::int32_t set : of_row_[row]) {
      if (plane_[set] == kNowhere && fits(set, plane)) others.push_back(set);
    }
    if (others.empty()) return false;
    if (fewest != kNowhere && others.size() >= candidates.size()) continue;
    fewest = row;
    std::swap(candidates, others);
    if (candidates.size() == 1) break;
  }
  if (fewest == kNowhere) return true;
  std::ranges::sort(candidates, std::ranges::greater{}, [&](std::int32_t s) { return rank_[s]; });
  for (const std::int32_t set : candidates) {
    if (work_ > limit_) return false;
    put(set, plane);
    if (cover(plane)) return true;
    take(set);
  }
  return false;
}

/// Covers planes until the sets left cover none in the order drawn.
void PlaneCover::cover_all(SplitMix& random) {
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    rank_[set] = static_cast<double>(sets_[set].size()) + kNoise * random.unit();
  }
  while (!open_.empty()) {
    limit_ = work_ + kPatience * entries_;
    std::swap(open_[random.below(static_cast<std::int32_t>(open_.size()))], open_.back());
    if (!cover(open_.back())) return;
    open_.pop_back();
  }
}

void PlaneCover::give_back(std::int32_t plane) {
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    if (plane_[set] == plane) take(set);
  }
  open_.push_back(plane);
}

/// Sets that fill no row go where they fit.
bool PlaneCover::place_rest() {
  for (std::int32_t set = 0; set < static_cast<std::int32_t>(sets_.size()); ++set) {
    for (std::int32_t plane = 0; plane < planes_ && plane_[set] == kNowhere; ++plane) {
      if (fits(set, plane)) put(set, plane);
    }
    if (plane_[set] == kNowhere) return false;
  }
  return true;
}

bool PlaneCover::solve(std::int64_t work, SplitMix& random) {
  cover_all(random);
  while (!open_.empty() && work_ < work) {
    const std::vector<std::int32_t> planes = plane_, open = open_;
    const std::vector<double> left = left_;
    for (int count = 1 + random.below(kGivenBack); count > 0; --count) {
      const std::int32_t plane = random.below(planes_);
      if (std::ranges::find(open_, plane) == open_.end()) give_back(plane);
    }
    cover_all(random);
    if (open_.size() <= open.size()) continue;
    plane_ = planes;
    open_ = open;
    left_ = left;
  }
  return open_.empty() && place_rest();
}

}  // namespace scalemodel
