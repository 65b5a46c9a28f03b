#include "scalemodel/search/pruned_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>

namespace scalemodel {
namespace {

/// Option groups whose bounds are held at once.
constexpr std::size_t kBoundsHeld = std::size_t{1} << 21;

/// A group of rows with its bound, in the queue of a branch-and-bound search.
struct BoundedGroup {
  double bound = 0;
  std::uint32_t point = 0, group = 0;

  bool operator<(const BoundedGroup& other) const {
    return std::tie(bound, point, group) < std::tie(other.bound, other.point, other.group);
  }
};

/// Neighbouring groups of a point.
struct GroupRange {
  std::uint32_t first = 0, last = 0;
};

/// Bounds of the scores of a point's groups; kInfinity where no member can be an answer at all.
class PointBounds {
 public:
  PointBounds(SearchWorker& worker, const Point& point, const Options& all,
              const SearchOptions& options)
      : tables_(worker.tables(), point, all), bounds_(worker.bounds), options_(options) {}

  /// From the busiest stage and the parameters it holds.
  double rough(const OptionGroup& group) {
    set(group);
    const Estimate& bound = bounds_.rough();
    // Who cannot tell how long a step takes must look closer.
    return std::isfinite(bound.step_time.base()) ? score(bound) : -kInfinity;
  }
  double close(const OptionGroup& group, PipelineBound pipeline) {
    set(group);
    return score(bounds_.close(pipeline, asked_of(options_)));
  }
  PointTables& tables() { return tables_; }

 private:
  void set(const OptionGroup& group) {
    const Strategy& leader = tables_.find(group);
    if (!started_) bounds_.start(tables_.tables(), leader, tables_.degrees());
    started_ = true;
    if (tables_.fresh()) bounds_.set_cell(leader, tables_.cell(), tables_.stages());
    bounds_.set_group(leader, group.freedom);
  }
  double score(const Estimate& bound) const {
    if (!options_.too_big && bound.verdict == Reason::out_of_memory) return kInfinity;
    for (const Constraint& constraint : options_.constraints) {
      if (constraint.bounded() && !constraint.holds(bound)) return kInfinity;
    }
    return options_.objective.score(bound);
  }

  PointTables tables_;
  GroupBounds& bounds_;
  const SearchOptions& options_;
  bool started_ = false;
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
        known_(workers.size()),
        closer_(workers.size()),
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
      first = last;
    }
    return true;
  }

 private:
  std::uint64_t rows_of(const BoundedGroup& bounded) const {
    const Point& point = space_.points()[bounded.point];
    const OptionGroup& group = space_.options(point).groups[bounded.group];
    const std::uint64_t first = std::max(rows_.first, point.first_row + group.begin);
    const std::uint64_t last = std::min(rows_.last, point.first_row + group.end);
    return first < last ? last - first : 0;
  }

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
    std::vector<std::size_t> starts{0};
    for (std::size_t p = first; p < last; ++p) {
      starts.push_back(starts.back() + space_.options(space_.points()[p]).groups.size());
    }
    bounded_groups_.assign(starts.back(), {});
    return pool_.run(last - first, 1, [&](std::size_t worker, std::size_t item) {
      const Point& point = space_.points()[first + item];
      const Options& all = space_.options(point);
      PointBounds bounds(workers_[worker], point, all, options_);
      const auto place = [&](std::uint32_t group) -> BoundedGroup& {
        return bounded_groups_[starts[item] + group];
      };
      for (std::uint32_t group = 0; group < all.groups.size(); ++group) {
        place(group) = {kInfinity, static_cast<std::uint32_t>(first + item), group};
      }
      const GroupRange inside = groups_inside(point, all);
      PlacedTwins& twins = workers_[worker].twins;
      twins.start(workers_[worker].tables(), point, all);
      known_[worker].assign(all.runs.size(), false);
      for (std::size_t number = 0; number < all.runs.size(); ++number) {
        const PlacedRun& run = all.runs[number];
        if (run.end <= inside.first || run.begin >= inside.last) continue;
        const std::uint32_t like = twins.first_like(number);
        const PlacedRun& source = all.runs[like];
        if (!known_[worker][like]) {
          for (std::uint32_t group = source.begin; group < source.end; ++group) {
            place(group).bound = bounds.rough(all.groups[group]);
          }
          known_[worker][like] = true;
        }
        for (std::uint32_t i = 0; i < run.end - run.begin; ++i) {
          place(run.begin + i).bound = place(source.begin + i).bound;
        }
      }
      for (std::uint32_t group = 0; group < inside.first; ++group) place(group).bound = kInfinity;
      for (std::uint32_t group = inside.last; group < all.groups.size(); ++group) {
        place(group).bound = kInfinity;
      }
    });
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
        if (!evaluate(now)) return false;
      }
      std::erase_if(bounded_groups_, [&](const BoundedGroup& group) { return !(last < group); });
    }
    return evaluate_in_slices(bounded_groups_);
  }

  /// From the best bound to the worst that may be an answer, so that each slice leaves less of the
  /// next. Within a slice groups stay in their order.
  bool evaluate_in_slices(std::span<BoundedGroup> groups) {
    double least = kInfinity;
    for (const BoundedGroup& bounded : groups) least = std::min(least, bounded.bound);
    const double width = (std::min(options_.beyond, best_.threshold()) - least) / kSlices;
    for (int slice = 1; slice < kSlices && std::isfinite(width); ++slice) {
      const auto others = std::stable_partition(
          groups.begin(), groups.end(),
          [&](const BoundedGroup& bounded) { return bounded.bound <= least + slice * width; });
      if (!evaluate(std::span(groups.begin(), others))) return false;
      groups = std::span(others, groups.end());
    }
    return evaluate(groups);
  }

  /// Groups, whose bounds a look at memory and at all stages of a pipeline makes closer.
  bool evaluate(std::span<BoundedGroup> groups) {
    const std::span near = without_beyond(groups);
    return bound_closer(near) && evaluate_best_first(without_beyond(near));
  }

  /// Skips the groups that hold no answer. The others stay in their order.
  std::span<BoundedGroup> without_beyond(std::span<BoundedGroup> groups) {
    const auto end =
        std::stable_partition(groups.begin(), groups.end(),
                              [&](const BoundedGroup& bounded) { return !beyond(bounded.bound); });
    skip(std::span(end, groups.end()));
    return {groups.begin(), end};
  }

  /// Point after point: groups of one share most of what bounds them.
  bool bound_closer(std::span<BoundedGroup> groups) {
    const auto place = [](const BoundedGroup& bounded) {
      return std::uint64_t{bounded.point} << 32 | bounded.group;
    };
    if (!std::ranges::is_sorted(groups, {}, place)) std::ranges::sort(groups, {}, place);
    std::vector<std::size_t> starts;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (i == 0 || groups[i].point != groups[i - 1].point) starts.push_back(i);
    }
    starts.push_back(groups.size());
    return pool_.run(starts.size() - 1, 1, [&](std::size_t worker, std::size_t item) {
      const Point& point = space_.points()[groups[starts[item]].point];
      const Options& all = space_.options(point);
      PointBounds bounds(workers_[worker], point, all, options_);
      PlacedTwins& twins = workers_[worker].twins;
      twins.start(workers_[worker].tables(), point, all);
      std::vector<double>& closer = closer_[worker];
      closer.assign(all.groups.size(), kUnknown);
      std::size_t number = 0;
      for (std::size_t i = starts[item]; i < starts[item + 1]; ++i) {
        const std::uint32_t group = groups[i].group;
        while (all.runs[number].end <= group) ++number;
        const std::uint32_t first = all.runs[twins.first_like(number)].begin;
        double& bound = closer[first + (group - all.runs[number].begin)];
        if (std::isnan(bound)) bound = bounds.close(all.groups[group], PipelineBound::one_stage);
        groups[i].bound = bound;
      }
    });
  }

  /// In rounds: within one the threshold is fixed, so that what is skipped does not depend on who
  /// was faster.
  bool evaluate_best_first(std::span<BoundedGroup> groups) {
    std::ranges::sort(groups, [](const BoundedGroup& a, const BoundedGroup& b) { return a < b; });
    std::size_t done = 0, round = kFirstRound;
    while (done < groups.size() && !beyond(groups[done].bound)) {
      std::size_t end = std::min(groups.size(), done + round);
      while (beyond(groups[end - 1].bound)) --end;
      const bool complete =
          pool_.run(end - done, 1 + round / 256, [&](std::size_t worker, std::size_t item) {
            const BoundedGroup& bounded = groups[done + item];
            SearchWorker& searcher = workers_[worker];
            const Point& point = space_.points()[bounded.point];
            const Options& all = space_.options(point);
            const OptionGroup& group = all.groups[bounded.group];
            const std::uint64_t rows = rows_of(bounded);
            pool_.add_done(rows);
            PointBounds bounds(searcher, point, all, options_);
            // Only what may still be among the best is worth a look for its critical paths.
            if (beyond(bounds.close(group, PipelineBound::critical_paths))) {
              searcher.counts.pruned += rows;
              return;
            }
            search_group(searcher, bounds.tables(), group, rows_, options_);
          });
      if (!complete) return false;
      for (const SearchWorker& searcher : workers_) {
        for (const TopK<Strategy>::Entry& entry : searcher.best.entries()) best_.add(entry);
      }
      seeds_ += end - done;
      done = end;
      round = std::min(2 * round, kLastRound);
    }
    seeded_ = seeded_ || (seeds_ >= kSeeds && best_.threshold() < kInfinity);
    skip(groups.subspan(done));
    return true;
  }

  void skip(std::span<const BoundedGroup> groups) {
    std::uint64_t skipped = 0;
    for (const BoundedGroup& bounded : groups) skipped += rows_of(bounded);
    workers_[0].counts.pruned += skipped;
    pool_.add_done(skipped);
  }

  bool beyond(double bound) const {
    return bound == kInfinity || bound > std::min(options_.beyond, best_.threshold());
  }

  /// No bound, where none is known yet.
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::size_t kFirstRound = 8, kLastRound = 1024;
  /// Groups that are sorted together, eight times as many if these are too few.
  static constexpr std::size_t kSortedFirst = 8192;
  /// Groups whose bounds are made closer together, twice as many with every batch.
  static constexpr std::size_t kFirstBatch = 128;
  /// Groups that are evaluated before all others are judged by what they hold.
  static constexpr std::size_t kSeeds = 64;
  /// Parts of the others that are judged together.
  static constexpr int kSlices = 4;

  const Enumeration& space_;
  RowRange rows_;
  const SearchOptions& options_;
  ThreadPool& pool_;
  std::vector<SearchWorker>& workers_;
  // Of each worker, what is known of the point it is at:
  std::vector<std::vector<bool>> known_;     ///< rough bounds, of runs
  std::vector<std::vector<double>> closer_;  ///< by group, its closer bound
  std::vector<BoundedGroup> bounded_groups_;
  std::size_t seeds_ = 0;
  bool seeded_;
  TopK<Strategy> best_{options_.top};
};

}  // namespace

bool search_with_bounds(const Enumeration& space, RowRange rows, const SearchOptions& options,
                        ThreadPool& pool, std::vector<SearchWorker>& workers) {
  return PrunedSearch(space, rows, options, pool, workers).run();
}

double quick_look(const Tables& tables, const Enumeration& space, const SearchOptions& options) {
  // Points looked at, groups of each, and points that are then searched as a whole.
  constexpr std::size_t kPoints = 2048, kGroups = 16, kSearched = 8;
  if (!options.prune || !options.objective.bounded() || space.points().empty()) return kInfinity;
  SearchWorker worker(tables, options);
  const RowRange all{0, space.size()};
  const std::size_t points = space.points().size(), seen = std::min(points, kPoints);
  std::vector<BoundedGroup> sample;
  for (std::size_t i = 0; i < seen; ++i) {
    const std::size_t number = i * points / seen;
    const Point& point = space.points()[number];
    const Options& of_point = space.options(point);
    PointBounds bounds(worker, point, of_point, options);
    const std::size_t groups = of_point.groups.size(), looks = std::min(groups, kGroups);
    for (std::size_t k = 0; k < looks; ++k) {
      poll_point(16);
      // Another place in every point: groups at equal places are alike.
      const std::size_t group = (k * groups / looks + i) % groups;
      sample.push_back({bounds.rough(of_point.groups[group]), static_cast<std::uint32_t>(number),
                        static_cast<std::uint32_t>(group)});
    }
  }
  std::ranges::sort(sample, [](const BoundedGroup& a, const BoundedGroup& b) { return a < b; });
  for (const BoundedGroup& bounded : sample) {
    if (bounded.bound == kInfinity || bounded.bound > worker.best.threshold()) break;
    const Point& point = space.points()[bounded.point];
    const Options& of_point = space.options(point);
    const OptionGroup& group = of_point.groups[bounded.group];
    PointBounds bounds(worker, point, of_point, options);
    if (bounds.close(group, PipelineBound::one_stage) <= worker.best.threshold()) {
      search_group(worker, bounds.tables(), group, all, options);
    }
  }
  TopK<Strategy> best = worker.best;
  std::vector<std::size_t> searched;
  for (const TopK<Strategy>::Entry& entry : worker.best.entries()) {
    const std::size_t number = space.point_of(entry.row);
    if (searched.size() == kSearched) break;
    if (std::ranges::find(searched, number) != searched.end()) continue;
    searched.push_back(number);
    const Point& point = space.points()[number];
    SearchOptions of_point = options;
    of_point.threads = 1;
    of_point.beyond = best.threshold();
    const RowRange rows{point.first_row, point.first_row + space.options(point).rows.size()};
    for (const Candidate& found : search(tables, space, rows, of_point, {}).candidates) {
      best.add({found.score, found.row,
                canonical(found.strategy, tables.model(), tables.cluster(), tables.task())});
    }
  }
  return best.threshold();
}

}  // namespace scalemodel
