#include "scalemodel/search/pruned_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "scalemodel/search/point_bounds.hpp"

namespace scalemodel {
namespace {

/// Option groups whose bounds are held at once.
constexpr std::size_t kBoundsHeld = std::size_t{1} << 21;

/// Neighbouring groups of a point.
struct GroupRange {
  std::uint32_t first = 0, last = 0;
};

class PrunedSearch {
 public:
  PrunedSearch(const Enumeration& space, RowRange rows, const SearchOptions& options,
               ThreadPool& pool, std::vector<SearchWorker>& workers)
      : space_(space),
        rows_(rows),
        options_(options),
        pool_(pool),
        workers_(workers),
        // Who knows what good strategies score need not look for some first.
        seeded_(options.beyond < kInfinity) {}

  /// Windows of points, so that memory stays bounded whatever the size of the space.
  bool run() {
    const PointRange points = points_of(space_, rows_);
    for (std::size_t first = points.first; first < points.last;) {
      std::size_t last = first, groups = 0;
      while (last < points.last && (last == first || groups < kBoundsHeld)) {
        groups += space_.options(space_.points()[last]).groups.size();
        ++last;
      }
      if (!bound_window(first, last) || !evaluate_window()) return false;
      skip_to(last);
      first = last;
    }
    return true;
  }

 private:
  const Point& point_of(const BoundedGroup& bounded) const {
    return space_.points()[bounded.point];
  }
  const TwinRuns& twins_of(std::size_t point) const { return *twins_[point - window_]; }

  /// Those of a point that have rows of the range. The first and the last point of it may lie in
  /// other ranges too.
  GroupRange groups_inside(const Point& point, const Options& options) const {
    const auto at = [&](std::uint64_t row) {
      return row > point.first_row ? row - point.first_row : 0;
    };
    const auto first =
        std::ranges::upper_bound(options.groups, at(rows_.first), {}, &OptionGroup::end);
    const auto last =
        std::ranges::lower_bound(options.groups, at(rows_.last), {}, &OptionGroup::begin);
    return {static_cast<std::uint32_t>(first - options.groups.begin()),
            static_cast<std::uint32_t>(last - options.groups.begin())};
  }

  bool bound_window(std::size_t first, std::size_t last) {
    window_ = first;
    twins_.assign(last - first, nullptr);
    const bool found = pool_.run(last - first, 16, [&](std::size_t worker, std::size_t item) {
      const Point& point = space_.points()[first + item];
      SearchWorker& own = workers_[worker];
      twins_[item] = &own.workspace->twins.of(own.tables(), space_, point);
    });
    if (!found) return false;
    std::vector<std::size_t> starts{0};
    for (const TwinRuns* twins : twins_) starts.push_back(starts.back() + twins->groups);
    bounded_groups_.resize(starts.back());
    return pool_.run(last - first, 1, [&](std::size_t worker, std::size_t item) {
      bound_point(workers_[worker], first + item, &bounded_groups_[starts[item]]);
    });
  }

  /// Bounds the groups of a point that are like none before.
  void bound_point(SearchWorker& worker, std::size_t number, BoundedGroup* place) const {
    const Point& point = space_.points()[number];
    const Options& all = space_.options(point);
    const TwinRuns& twins = twins_of(number);
    const GroupRange inside = groups_inside(point, all);
    const auto meets = [&](std::uint32_t run) {
      while (run != TwinRuns::kNone &&
             (all.runs[run].end <= inside.first || all.runs[run].begin >= inside.last)) {
        run = twins.next[run];
      }
      return run != TwinRuns::kNone;
    };
    PointBounds bounds(worker, point, all, options_);
    for (std::uint32_t run = 0; run < all.runs.size(); ++run) {
      if (twins.first[run] != run) continue;
      const bool asked = meets(run) && !(limited() && beyond(bounds.rough(all.runs[run])));
      for (std::uint32_t group = all.runs[run].begin; group < all.runs[run].end; ++group) {
        const double bound = asked ? bounds.rough(all.groups[group]) : kInfinity;
        *place++ = {bound, static_cast<std::uint32_t>(number), group};
      }
    }
  }

  /// The groups with the best bounds one small batch after the other, until what is found tells
  /// which others are worse: most of them. Then the rest.
  bool evaluate_window() {
    for (std::size_t part = kSortedFirst; !seeded_ && !bounded_groups_.empty(); part *= 8) {
      std::vector<BoundedGroup> best(std::min(part, bounded_groups_.size()));
      std::partial_sort_copy(bounded_groups_.begin(), bounded_groups_.end(), best.begin(),
                             best.end());
      std::span<BoundedGroup> left(best);
      BoundedGroup last;  // as it was before its bound was made closer
      for (std::size_t batch = kFirstBatch; !seeded_ && !left.empty(); batch *= 2) {
        const std::span now = left.first(std::min(batch, left.size()));
        left = left.subspan(now.size());
        last = now.back();
        if (!evaluate(now, (left.empty() ? now.back() : left.front()).bound)) return false;
      }
      std::erase_if(bounded_groups_, [&](const BoundedGroup& group) { return !(last < group); });
    }
    return evaluate_in_slices(bounded_groups_);
  }

  /// From the best bound to the worst that may be an answer, so that each slice leaves less of the
  /// next. Within a slice groups stay in their order.
  bool evaluate_in_slices(std::span<BoundedGroup> groups) {
    groups = without_beyond(groups);
    double least = kInfinity;
    for (const BoundedGroup& bounded : groups) least = std::min(least, bounded.bound);
    const double width = (limit() - least) / kSlices;
    for (int slice = 1; slice < kSlices && std::isfinite(width); ++slice) {
      const auto others = std::stable_partition(
          groups.begin(), groups.end(),
          [&](const BoundedGroup& bounded) { return bounded.bound <= least + slice * width; });
      if (!evaluate(std::span(groups.begin(), others), least + slice * width)) return false;
      groups = without_beyond(std::span(others, groups.end()));
    }
    return evaluate(groups, kInfinity);
  }

  /// Groups, whose bounds a look at memory and at all stages of a pipeline makes closer. Those that
  /// are so bounded beyond `next`, which no other group is bounded below, wait for these.
  bool evaluate(std::span<BoundedGroup> groups, double next) {
    const std::span near = without_beyond(groups);
    if (!bound_closer(near)) return false;
    const std::span left = without_beyond(near);
    const auto added = waiting_.insert(waiting_.end(), left.begin(), left.end());
    std::sort(added, waiting_.end());
    std::inplace_merge(waiting_.begin(), added, waiting_.end());
    return evaluate_best_first(next);
  }

  /// The groups that may hold an answer, in their order.
  std::span<BoundedGroup> without_beyond(std::span<BoundedGroup> groups) const {
    const auto end = std::remove_if(groups.begin(), groups.end(), [&](const BoundedGroup& bounded) {
      return beyond(bounded.bound);
    });
    return {groups.begin(), end};
  }

  /// Point after point: groups of one share most of what bounds them.
  bool bound_closer(std::span<BoundedGroup> groups) {
    const auto place = &BoundedGroup::place;
    if (!std::ranges::is_sorted(groups, {}, place)) std::ranges::sort(groups, {}, place);
    std::vector<std::size_t> starts;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (i == 0 || groups[i].point != groups[i - 1].point) starts.push_back(i);
    }
    starts.push_back(groups.size());
    return pool_.run(starts.size() - 1, 1, [&](std::size_t worker, std::size_t item) {
      const Point& point = point_of(groups[starts[item]]);
      const Options& all = space_.options(point);
      PointBounds bounds(workers_[worker], point, all, options_);
      for (std::size_t i = starts[item]; i < starts[item + 1]; ++i) {
        groups[i].bound = bounds.close(all.groups[groups[i].group], PipelineBound::one_stage);
      }
    });
  }

  /// Those that wait, up to a bound. In rounds: within one the threshold is fixed, so that what is
  /// skipped does not depend on who was faster.
  bool evaluate_best_first(double next) {
    std::size_t done = 0, round = kFirstRound;
    const auto left = [&] { return std::span(waiting_).subspan(done); };
    while (near(left(), 1, next) > 0) {
      if (!bound_first(left(), round, next)) return false;
      const std::size_t end = done + closely_bounded(left().first(near(left(), round, next)));
      const bool complete =
          pool_.run(end - done, 1 + round / 256, [&](std::size_t worker, std::size_t item) {
            evaluate(workers_[worker], waiting_[done + item]);
          });
      if (!complete) return false;
      for (const SearchWorker& searcher : workers_) {
        for (const TopK<Strategy>::Entry& entry : searcher.best.entries()) best_.add(entry);
      }
      seeds_ += end - done;
      done = end;
      round = std::min(2 * round, kLastRound);
    }
    const bool all = done == waiting_.size() || beyond(waiting_[done].bound);
    waiting_.erase(waiting_.begin(),
                   all ? waiting_.end() : waiting_.begin() + static_cast<std::ptrdiff_t>(done));
    seeded_ = seeded_ || (seeds_ >= kSeeds && best_.threshold() < kInfinity);
    return true;
  }

  /// How many of the first `round` sorted groups may hold answers and are not bounded beyond
  /// `next`.
  std::size_t near(std::span<const BoundedGroup> groups, std::size_t round, double next) const {
    std::size_t count = std::min(groups.size(), round);
    while (count > 0 && (beyond(groups[count - 1].bound) || groups[count - 1].bound > next)) {
      --count;
    }
    return count;
  }

  /// Evaluates a group and its twins.
  void evaluate(SearchWorker& worker, const BoundedGroup& bounded) {
    const Point& point = point_of(bounded);
    PointTables at(worker.tables(), point, space_.options(point));
    const std::uint64_t before = worker.counts.evaluated;
    search_twins(worker, at, twins_of(bounded.point), bounded.group, rows_, options_);
    pool_.add_done(worker.counts.evaluated - before);
  }

  /// Raises the bounds of the first `round` groups by the memory and traffic of their own rows, for
  /// the bounds of a group are as of a member that has the least of each; then, of those that stay
  /// in front, by the critical paths of their pipelines, which take longer to look for than all
  /// else. Until the very first is bounded so.
  bool bound_first(std::span<BoundedGroup> groups, std::size_t round, double next) {
    const auto by_rows = [&](SearchWorker& worker, const BoundedGroup& bounded, std::size_t) {
      return row_bound(worker, bounded);
    };
    do {
      for (bool raised = true; raised;) {
        if (!raise(groups, round, next, by_rows_, raised, by_rows)) return false;
      }
      std::vector<const CriticalPaths*> pipelines(std::min(groups.size(), round));
      const auto by_paths = [&](SearchWorker& worker, const BoundedGroup& bounded,
                                std::size_t item) {
        return path_bound(worker, bounded, pipelines[item]);
      };
      bool raised = false;
      if (!raise(groups, round, next, by_paths_, raised, by_paths)) return false;
      looked_for_.insert(pipelines.begin(), pipelines.end());
    } while (near(groups, 1, next) > 0 && closely_bounded(groups.first(1)) == 0);
    return true;
  }

  /// How many groups come before the first whose pipeline was not looked at.
  std::size_t closely_bounded(std::span<const BoundedGroup> groups) const {
    const auto other = std::ranges::find_if(groups, [&](const BoundedGroup& bounded) {
      return point_of(bounded).degrees.pp > 1 && !by_paths_.contains(bounded.place());
    });
    return static_cast<std::size_t>(other - groups.begin());
  }

  /// Bounds those of the first `round` groups that `known` has not, and sorts all anew. False:
  /// stopped by the poll.
  template <class Bound>
  bool raise(std::span<BoundedGroup> groups, std::size_t round, double next,
             std::set<std::uint64_t>& known, bool& raised, const Bound& bound) {
    raised = false;
    const std::span first = groups.first(near(groups, round, next));
    std::vector<double> found(first.size(), kUnknown);
    const bool complete = pool_.run(first.size(), 1, [&](std::size_t worker, std::size_t item) {
      if (known.contains(first[item].place())) return;
      found[item] = bound(workers_[worker], first[item], item);
    });
    if (!complete) return false;
    for (std::size_t i = 0; i < first.size(); ++i) {
      known.insert(first[i].place());
      if (std::isnan(found[i]) || found[i] <= first[i].bound) continue;
      first[i].bound = found[i];
      raised = true;
    }
    if (!raised) return true;
    std::sort(first.begin(), first.end());
    std::inplace_merge(groups.begin(), groups.begin() + std::ssize(first), groups.end());
    return true;
  }

  /// By the critical paths of its pipeline, of which it tells; no number where it has none.
  double path_bound(SearchWorker& worker, const BoundedGroup& bounded,
                    const CriticalPaths*& paths) const {
    const Point& point = point_of(bounded);
    if (point.degrees.pp == 1) return kUnknown;
    const Options& all = space_.options(point);
    PointBounds bounds(worker, point, all, options_);
    const double found = bounds.close(all.groups[bounded.group], PipelineBound::critical_paths);
    paths = bounds.tables().stages().paths.get();
    return found;
  }

  /// Of the best row of a group and its twins; no number where the group is bounded by paths
  /// already, or where it has more rows than are bounded in the time that these take.
  double row_bound(SearchWorker& worker, const BoundedGroup& bounded) const {
    const Point& point = point_of(bounded);
    const Options& all = space_.options(point);
    const OptionGroup& group = all.groups[bounded.group];
    if (point.degrees.pp == 1 || group.end - group.begin > kBoundedRows) return kUnknown;
    PointTables at(worker.tables(), point, all);
    at.find(group);
    if (looked_for_.contains(at.stages().paths.get())) return kUnknown;
    double least = kInfinity;
    each_twin(all, twins_of(bounded.point), bounded.group, [&](const OptionGroup& twin) {
      each_of_group(at, worker.workspace->evaluate, twin, rows_, [&](std::uint64_t, const auto&) {
        least = std::min(least, score_of(options_, worker.workspace->evaluate.at_least()));
      });
    });
    return least;
  }

  /// Counts what was left out of the rows in front of a point.
  void skip_to(std::size_t point) {
    const bool all = point == space_.points().size();
    const std::uint64_t next = all ? space_.size() : space_.points()[point].first_row;
    std::uint64_t left_out = std::min(rows_.last, next) - rows_.first;
    for (const SearchWorker& worker : workers_) {
      left_out -= worker.counts.evaluated + worker.counts.pruned;
    }
    workers_[0].counts.pruned += left_out;
    pool_.add_done(left_out);
  }

  double limit() const { return std::min(options_.beyond, best_.threshold()); }
  bool limited() const { return limit() < kInfinity; }
  bool beyond(double bound) const { return bound == kInfinity || bound > limit(); }

  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::size_t kFirstRound = 8, kLastRound = 1024;
  /// Groups that are sorted together, eight times as many if these are too few.
  static constexpr std::size_t kSortedFirst = 8192;
  /// Groups whose bounds are made closer together, twice as many with every batch.
  static constexpr std::size_t kFirstBatch = 128;
  /// Rows of a group that are bounded one by one.
  static constexpr std::size_t kBoundedRows = 4;
  /// Groups that are evaluated before all others are judged by what they hold.
  static constexpr std::size_t kSeeds = 64;
  /// Parts of the others that are judged together.
  static constexpr int kSlices = 4;

  const Enumeration& space_;
  RowRange rows_;
  const SearchOptions& options_;
  ThreadPool& pool_;
  std::vector<SearchWorker>& workers_;
  std::size_t window_ = 0;              ///< its first point
  std::vector<const TwinRuns*> twins_;  ///< of its points
  std::vector<BoundedGroup> bounded_groups_;
  std::vector<BoundedGroup> waiting_;          ///< with closer bounds, in their order
  std::set<const CriticalPaths*> looked_for_;  ///< whose critical paths bound groups
  /// Places of groups that rows bound, and paths.
  std::set<std::uint64_t> by_rows_, by_paths_;
  std::size_t seeds_ = 0;
  bool seeded_;
  TopK<Strategy> best_{options_.top};
};

}  // namespace

bool search_with_bounds(const Enumeration& space, RowRange rows, const SearchOptions& options,
                        ThreadPool& pool, std::vector<SearchWorker>& workers) {
  return PrunedSearch(space, rows, options, pool, workers).run();
}

}  // namespace scalemodel
