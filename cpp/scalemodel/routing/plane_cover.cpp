#include "scalemodel/routing/plane_cover.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace scalemodel {
namespace {

constexpr double kRounding = 1e-9;
constexpr std::int64_t kFirstTry = 100'000;  ///< visits before the first new start

}  // namespace

PlaneCover::PlaneCover(std::span<const std::vector<RowLoad>> sets, std::vector<double> room,
                       std::vector<char> must_fill, std::int32_t planes)
    : sets_(sets),
      room_(std::move(room)),
      left_(room_),
      must_fill_(std::move(must_fill)),
      planes_(planes),
      plane_(sets.size(), 0) {}

bool PlaneCover::fits(std::int32_t set, std::int32_t plane) const {
  return std::ranges::all_of(sets_[set], [&](const RowLoad& row) {
    const std::size_t at = cell(row.row, plane);
    return row.load <= left_[at] + kRounding * room_[at];
  });
}

/// Lists of the possibilities of every set and of every row of a plane that must be full.
void PlaneCover::link_up(SplitMix& random) {
  const auto sets = static_cast<std::int32_t>(sets_.size());
  const auto root = static_cast<std::int32_t>(sets_.size() + room_.size());
  heads_.assign(root + 1, {root, root, 0});
  nodes_.resize(root);
  for (std::int32_t h = 0; h < root; ++h) nodes_[h] = {h, h, h, 0};
  const auto announce = [&](std::int32_t head) {
    heads_[head].left = heads_[root].left;
    heads_[head].right = root;
    heads_[heads_[root].left].right = head;
    heads_[root].left = head;
  };
  // Larger sets stand first and win among equals; those of the same size in random order.
  std::vector<std::int32_t> order(sets);
  std::iota(order.begin(), order.end(), 0);
  for (std::int32_t i = sets - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::int32_t set) { return sets_[set].size(); });
  std::ranges::for_each(order, announce);
  for (std::int32_t plane = 0; plane < planes_; ++plane) {
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(must_fill_.size()); ++row) {
      const std::size_t at = cell(row, plane);
      if (must_fill_[row] != 0 && room_[at] > 0) announce(sets + static_cast<std::int32_t>(at));
    }
  }
  option_.assign(static_cast<std::size_t>(sets) * planes_ + 1, 0);
  const auto add = [&](std::int32_t head, std::int32_t option) {
    const auto node = static_cast<std::int32_t>(nodes_.size());
    nodes_.push_back({nodes_[head].up, head, head, option});
    nodes_[nodes_[head].up].down = node;
    nodes_[head].up = node;
    ++heads_[head].size;
  };
  for (const std::int32_t set : order) {
    const std::int32_t shift = random.below(planes_);
    for (std::int32_t p = 0; p < planes_; ++p) {
      const std::int32_t plane = (p + shift) % planes_, option = set * planes_ + plane;
      option_[option] = static_cast<std::int32_t>(nodes_.size());
      if (!fits(set, plane)) continue;
      add(set, option);
      for (const auto& [row, load] : sets_[set]) {
        if (must_fill_[row] != 0) add(sets + static_cast<std::int32_t>(cell(row, plane)), option);
      }
    }
  }
}

void PlaneCover::cover(std::int32_t head) {
  heads_[heads_[head].right].left = heads_[head].left;
  heads_[heads_[head].left].right = heads_[head].right;
  for (std::int32_t i = nodes_[head].down; i != head; i = nodes_[i].down) {
    const std::int32_t option = nodes_[i].option;
    for (std::size_t n = option_[option]; n < nodes_.size() && nodes_[n].option == option; ++n) {
      if (static_cast<std::int32_t>(n) == i) continue;
      nodes_[nodes_[n].down].up = nodes_[n].up;
      nodes_[nodes_[n].up].down = nodes_[n].down;
      --heads_[nodes_[n].head].size;
      ++work_;
    }
  }
}

void PlaneCover::uncover(std::int32_t head) {
  for (std::int32_t i = nodes_[head].up; i != head; i = nodes_[i].up) {
    const std::int32_t option = nodes_[i].option;
    std::size_t end = option_[option];
    while (end < nodes_.size() && nodes_[end].option == option) ++end;
    for (std::size_t n = end; n-- > static_cast<std::size_t>(option_[option]);) {
      if (static_cast<std::int32_t>(n) == i) continue;
      const auto node = static_cast<std::int32_t>(n);
      ++heads_[nodes_[n].head].size;
      nodes_[nodes_[n].down].up = node;
      nodes_[nodes_[n].up].down = node;
    }
  }
  heads_[heads_[head].right].left = head;
  heads_[heads_[head].left].right = head;
}

void PlaneCover::change_room(std::int32_t option, double sign) {
  for (const auto& [row, load] : sets_[option / planes_]) {
    if (must_fill_[row] == 0) left_[cell(row, option % planes_)] += sign * load;
  }
}

/// What is decided next: anything with one possibility or none, otherwise the fewest, among all or
/// within the first plane that is not full; the root where nothing is left.
std::int32_t PlaneCover::choose() {
  const auto root = static_cast<std::int32_t>(heads_.size()) - 1;
  const auto sets = static_cast<std::int32_t>(sets_.size());
  std::int32_t fewest = heads_[root].right, first_plane = kNowhere;
  for (std::int32_t h = fewest; h != root && heads_[fewest].size > 1; h = heads_[h].right) {
    ++work_;
    if (plane_by_plane_ && heads_[h].size > 1) {
      if (h < sets) continue;
      const std::int32_t plane = (h - sets) % planes_;
      if (first_plane == kNowhere) fewest = h;
      if (first_plane == kNowhere) first_plane = plane;
      if (plane != first_plane) continue;
    }
    if (heads_[h].size < heads_[fewest].size) fewest = h;
  }
  return fewest;
}

bool PlaneCover::decide() {
  const std::int32_t fewest = choose();
  if (fewest == static_cast<std::int32_t>(heads_.size()) - 1) return true;
  if (heads_[fewest].size == 0) return false;
  cover(fewest);
  bool done = false;
  for (std::int32_t i = nodes_[fewest].down; i != fewest && !done; i = nodes_[i].down) {
    const std::int32_t option = nodes_[i].option;
    const std::int32_t set = option / planes_, plane = option % planes_;
    if (work_ > limit_) break;
    if (!fits(set, plane)) continue;
    change_room(option, -1);
    const auto first = static_cast<std::size_t>(option_[option]);
    std::size_t end = first;
    for (; end < nodes_.size() && nodes_[end].option == option; ++end) {
      if (static_cast<std::int32_t>(end) != i) cover(nodes_[end].head);
    }
    plane_[set] = plane;
    done = decide();
    for (std::size_t n = end; n-- > first;) {
      if (static_cast<std::int32_t>(n) != i) uncover(nodes_[n].head);
    }
    change_room(option, 1);
  }
  uncover(fewest);
  return done;
}

bool PlaneCover::solve(std::int64_t work, SplitMix& random) {
  for (std::int64_t patience = kFirstTry; work_ < work;
       patience *= plane_by_plane_ ? 1 : 2, plane_by_plane_ = !plane_by_plane_) {
    left_ = room_;
    link_up(random);
    limit_ = std::min(work, work_ + patience);
    if (decide()) return true;
    if (work_ <= limit_) return false;  // searched completely
  }
  return false;
}

}  // namespace scalemodel
