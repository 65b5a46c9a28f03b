// A look at few points of a space, for searches of its parts.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "scalemodel/search/point_bounds.hpp"
#include "scalemodel/search/pruned_search.hpp"

namespace scalemodel {
namespace {

/// Groups of a point that a quick look sees.
constexpr std::size_t kGroupsSeen = 4;

/// Of all points seen, those whose bounds are made closer.
constexpr std::size_t kBoundedCloser = 256;

/// Of a point that is searched, groups that are evaluated.
constexpr std::size_t kGroupsSearched = 8;

/// How many of a space's points a quick look sees: more of a larger one, whose search it shortens
/// by more.
std::size_t points_seen(std::size_t points) {
  return std::min(points, std::clamp<std::size_t>(points / 8, 256, 1024));
}

/// Groups of some points, those with the best bounds first, one of each point: many by their rough
/// bounds, of which the best are bounded closer.
std::vector<BoundedGroup> sampled_groups(SearchWorker& worker, const Enumeration& space,
                                         const SearchOptions& options) {
  const std::size_t points = space.points().size(), seen = points_seen(points);
  std::vector<BoundedGroup> sample;
  for (std::size_t i = 0; i < seen; ++i) {
    const std::size_t number = i * points / seen;
    const Point& point = space.points()[number];
    const Options& of_point = space.options(point);
    PointBounds bounds(worker, point, of_point, options);
    const std::size_t groups = of_point.groups.size(), looks = std::min(groups, kGroupsSeen);
    BoundedGroup best{kInfinity, static_cast<std::uint32_t>(number), 0};
    for (std::size_t k = 0; k < looks; ++k) {
      poll_point(16);
      // Another place in every point: groups at equal places are alike.
      const std::size_t group = (k * groups / looks + i) % groups;
      const double bound = bounds.rough(of_point.groups[group]);
      if (bound < best.bound) {
        best.bound = bound;
        best.group = static_cast<std::uint32_t>(group);
      }
    }
    if (best.bound < kInfinity) sample.push_back(best);
  }
  const std::size_t closer = std::min(sample.size(), kBoundedCloser);
  std::partial_sort(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(closer),
                    sample.end());
  sample.resize(closer);
  for (BoundedGroup& bounded : sample) {
    const Point& point = space.points()[bounded.point];
    const Options& of_point = space.options(point);
    PointBounds bounds(worker, point, of_point, options);
    bounded.bound = bounds.close(of_point.groups[bounded.group], PipelineBound::one_stage);
  }
  std::sort(sample.begin(), sample.end());
  return sample;
}

/// Points whose best groups are searched, and the best strategies of them. Each further point costs
/// the critical paths of a pipeline: few are searched, the best first.
class SearchedPoints {
 public:
  SearchedPoints(const Tables& tables, const Enumeration& space, const SearchOptions& options)
      : space_(space), options_(options), worker_(tables, options) {}

  /// The best of a sample, up to `most` points that differ in more than one knob.
  void search_sample(std::size_t most) {
    for (const BoundedGroup& seen : sampled_groups(worker_, space_, options_)) {
      if (beyond(seen.bound) || known_.size() == most) return;
      if (!near_known(seen.point)) search(seen.point);
    }
  }

  /// Up to `most` points that were not searched yet: those of the best strategies, then their
  /// neighbours, which differ least from them.
  void search_near_best(std::size_t most) {
    std::vector<std::size_t> next;
    const auto add = [&](std::size_t number) {
      if (next.size() < most && !contains(known_, number) && !contains(next, number)) {
        next.push_back(number);
      }
    };
    std::vector<std::size_t> of_best;
    for (const auto& entry : worker_.best.entries()) {
      const std::size_t number = space_.point_of(entry.row);
      if (!contains(of_best, number)) of_best.push_back(number);
    }
    for (const std::size_t number : of_best) add(number);
    for (std::size_t i = 0; i < of_best.size() && next.size() < most; ++i) {
      for (const std::size_t neighbour : neighbours(of_best[i])) add(neighbour);
    }
    for (const std::size_t number : next) search(number);
  }

  double threshold() const { return worker_.best.threshold(); }

 private:
  static bool contains(const std::vector<std::size_t>& numbers, std::size_t number) {
    return std::ranges::find(numbers, number) != numbers.end();
  }
  /// The groups of a point with the best bounds: all of those that a search of it keeps would take
  /// longer, and say little more.
  void search(std::size_t number) {
    known_.push_back(number);
    const Point& point = space_.points()[number];
    const Options& all = space_.options(point);
    const TwinRuns& twins = worker_.workspace->twins.of(worker_.tables(), space_, point);
    PointBounds bounds(worker_, point, all, options_);
    std::vector<BoundedGroup> groups;
    for (std::uint32_t run = 0; run < all.runs.size(); ++run) {
      if (twins.first[run] != run || beyond(bounds.rough(all.runs[run]))) continue;
      for (std::uint32_t group = all.runs[run].begin; group < all.runs[run].end; ++group) {
        poll_point(4);
        const double bound = bounds.rough(all.groups[group]);
        if (!beyond(bound)) groups.push_back({bound, static_cast<std::uint32_t>(number), group});
      }
    }
    std::sort(groups.begin(), groups.end());
    if (groups.size() > kGroupsSearched) groups.resize(kGroupsSearched);
    const RowRange rows{0, space_.size()};
    for (const BoundedGroup& bounded : groups) {
      if (beyond(bounded.bound)) return;
      if (beyond(bounds.close(all.groups[bounded.group], PipelineBound::one_stage))) continue;
      search_twins(worker_, bounds.tables(), twins, bounded.group, rows, options_);
    }
  }
  bool beyond(double bound) const { return bound == kInfinity || bound > threshold(); }
  bool near_known(std::size_t number) const {
    const std::span points = space_.points();
    return std::ranges::any_of(known_, [&](std::size_t known) {
      return only_difference(points[known].degrees, points[number].degrees) != kKnobs;
    });
  }
  /// The nearest points to both sides that differ in one of the listed knobs, for each of them.
  std::vector<std::size_t> neighbours(std::size_t number) const {
    std::array<std::size_t, 2 * kKnobs> nearest{};
    nearest.fill(number);
    const std::span points = space_.points();
    const Strategy& own = points[number].degrees;
    for (std::size_t other = 0; other < points.size(); ++other) {
      if (other % 16 == 0) poll_point();
      const std::size_t knob = only_difference(own, points[other].degrees);
      if (knob == kKnobs) continue;
      std::size_t& before = nearest[2 * knob];
      std::size_t& after = nearest[2 * knob + 1];
      if (other < number) before = other;
      if (other > number && after == number) after = other;
    }
    std::vector<std::size_t> found;
    for (const std::size_t each : nearest) {
      if (each != number) found.push_back(each);
    }
    return found;
  }
  /// The one knob in which degrees differ; kKnobs: none, or more.
  static std::size_t only_difference(const Strategy& a, const Strategy& b) {
    const std::array<bool, kKnobs> differs{a.micro_batch != b.micro_batch,
                                           a.vpp != b.vpp,
                                           a.schedule != b.schedule,
                                           a.pp != b.pp,
                                           a.tp != b.tp,
                                           a.cp != b.cp,
                                           a.ep != b.ep,
                                           a.etp != b.etp};
    std::size_t knob = kKnobs;
    for (std::size_t i = 0; i < kKnobs; ++i) {
      if (!differs[i]) continue;
      if (knob != kKnobs) return kKnobs;
      knob = i;
    }
    return knob;
  }

  static constexpr std::size_t kKnobs = 8;

  const Enumeration& space_;
  const SearchOptions& options_;
  SearchWorker worker_;
  std::vector<std::size_t> known_;  ///< points that were searched
};

}  // namespace

double quick_look(const Tables& tables, const Enumeration& space, const SearchOptions& options) {
  constexpr std::size_t kRounds = 5;
  if (!options.prune || !options.objective.bounded() || space.points().empty()) return kInfinity;
  const std::size_t in_round = std::max<std::size_t>(8, points_seen(space.points().size()) / 64);
  SearchedPoints searched(tables, space, options);
  searched.search_sample(in_round);
  for (std::size_t round = 0; round < kRounds; ++round) searched.search_near_best(in_round);
  return searched.threshold();
}

}  // namespace scalemodel
