#include "scalemodel/search/search.hpp"

#include <algorithm>

#include "scalemodel/search/top_k.hpp"

namespace scalemodel {
namespace {

/// Cells a worker keeps before it starts afresh: bounds its memory to some tens of megabytes.
constexpr std::size_t kMaxCells = 20'000;
/// Rows that a sweep hands on together.
constexpr std::size_t kBlock = 256;
/// Option groups whose bounds are held at once.
constexpr std::size_t kBoundsHeld = std::size_t{1} << 21;

/// The members of an option group at one point, with what they share.
struct Located {
  Degrees degrees;
  const Cell* cell = nullptr;
  const StageLayout* stages = nullptr;
};

Located locate(Tables& tables, const Strategy& strategy, PipelineBound needed) {
  if (tables.cells() >= kMaxCells) tables.clear();
  if (needed == PipelineBound::one_stage) {
    tables.tabulate_bound(strategy);
  } else {
    tables.tabulate(strategy);
  }
  Located at;
  at.degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  at.cell = tables.find_cell(strategy, at.degrees);
  at.stages = tables.find_stages(strategy, at.degrees);
  return at;
}

/// Evaluates the rows of one group that lie in `rows`; `take(row, strategy, estimate)`.
template <class Take>
void evaluate_group(Tables& tables, const Point& point, const Options& options,
                    const OptionGroup& group, RowRange rows, Take&& take) {
  const std::uint64_t first = std::max(rows.first, point.first_row + group.begin);
  const std::uint64_t last = std::min(rows.last, point.first_row + group.end);
  if (first >= last) return;
  const Strategy leader = joined(point.degrees, options.rows[group.begin]);
  const Located at = locate(tables, leader, PipelineBound::critical_paths);
  RecentDurations recent;
  for (std::uint64_t row = first; row < last; ++row) {
    const Strategy strategy = joined(point.degrees, options.rows[row - point.first_row]);
    const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
    take(row, strategy, evaluate(tables, strategy, degrees, *at.cell, *at.stages, &recent));
  }
}

/// What one worker of a search holds.
struct SearchWorker {
  Tables tables;
  TopK<Strategy> best;
  SearchCounts counts;
};

void judge(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
           const Strategy& strategy, const Estimate& estimate) {
  ++worker.counts.evaluated;
  ++worker.counts.verdicts[static_cast<std::size_t>(estimate.verdict)];
  const bool too_big = options.too_big && estimate.verdict == Reason::out_of_memory;
  if (estimate.verdict != Reason::ok && !too_big) return;
  const double score = options.objective.score(estimate);
  for (const Constraint& constraint : options.constraints) {
    if (!constraint.holds(estimate)) {
      ++worker.counts.constrained;
      return;
    }
  }
  if (!worker.best.admits(score, row)) return;
  const Tables& tables = worker.tables;
  worker.best.add(
      {score, row, canonical(strategy, tables.model(), tables.cluster(), tables.task())});
}

/// A group of rows with its bound, in the queue of a branch-and-bound search.
struct BoundedGroup {
  double bound = 0;
  std::uint32_t point = 0, group = 0;
};

/// Points whose rows meet a range.
struct PointRange {
  std::size_t first = 0, last = 0;
};

PointRange points_of(const Enumeration& space, RowRange rows) {
  if (rows.first >= rows.last) return {};
  return {space.point_of(rows.first), space.point_of(rows.last - 1) + 1};
}

/// Bound of a group's scores; kInfinity where no member can be an answer at all.
double bound_of(Tables& tables, const Point& point, const Options& all, const OptionGroup& group,
                const SearchOptions& options, PipelineBound pipeline) {
  const Strategy leader = joined(point.degrees, all.rows[group.begin]);
  const Located at = locate(tables, leader, pipeline);
  const Estimate bound =
      lower_bound(tables, leader, at.degrees, *at.cell, *at.stages, group.freedom, pipeline);
  if (!options.too_big && bound.memory > bound.memory_capacity) return kInfinity;
  for (const Constraint& constraint : options.constraints) {
    if (constraint.bounded() && !constraint.holds(bound)) return kInfinity;
  }
  return options.objective.score(bound);
}

class PrunedSearch {
 public:
  PrunedSearch(const Enumeration& space, RowRange rows, const SearchOptions& options,
               ThreadPool& pool, std::vector<SearchWorker>& workers)
      : space_(space), rows_(rows), options_(options), pool_(pool), workers_(workers) {}

  /// Windows of points, so that memory stays bounded whatever the size of the space.
  bool run() {
    const PointRange points = points_of(space_, rows_);
    for (std::size_t first = points.first; first < points.last;) {
      std::size_t last = first, groups = 0;
      while (last < points.last && (last == first || groups < kBoundsHeld)) {
        groups += space_.options(space_.points()[last]).groups.size();
        ++last;
      }
      if (!bound_window(first, last) || !evaluate_best_first()) return false;
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

  bool bound_window(std::size_t first, std::size_t last) {
    std::vector<std::size_t> starts{0};
    for (std::size_t p = first; p < last; ++p) {
      starts.push_back(starts.back() + space_.options(space_.points()[p]).groups.size());
    }
    bounded_groups_.assign(starts.back(), {});
    return pool_.run(last - first, 1, [&](std::size_t worker, std::size_t item) {
      const Point& point = space_.points()[first + item];
      const Options& all = space_.options(point);
      for (std::size_t g = 0; g < all.groups.size(); ++g) {
        BoundedGroup& bounded = bounded_groups_[starts[item] + g];
        bounded.point = static_cast<std::uint32_t>(first + item);
        bounded.group = static_cast<std::uint32_t>(g);
        bounded.bound = bound_of(workers_[worker].tables, point, all, all.groups[g], options_,
                                 PipelineBound::one_stage);
      }
    });
  }

  /// In rounds: within one the threshold is fixed, so that what is skipped does not depend on who
  /// was faster.
  bool evaluate_best_first() {
    std::ranges::sort(bounded_groups_, [](const BoundedGroup& a, const BoundedGroup& b) {
      return std::tie(a.bound, a.point, a.group) < std::tie(b.bound, b.point, b.group);
    });
    std::size_t done = 0, round = kFirstRound;
    while (done < bounded_groups_.size() && !beyond(bounded_groups_[done].bound)) {
      std::size_t end = std::min(bounded_groups_.size(), done + round);
      while (beyond(bounded_groups_[end - 1].bound)) --end;
      const bool complete =
          pool_.run(end - done, 1 + round / 256, [&](std::size_t worker, std::size_t item) {
            const BoundedGroup& bounded = bounded_groups_[done + item];
            SearchWorker& searcher = workers_[worker];
            const Point& point = space_.points()[bounded.point];
            const Options& all = space_.options(point);
            const OptionGroup& group = all.groups[bounded.group];
            const std::uint64_t rows = rows_of(bounded);
            pool_.add_done(rows);
            // Only what may still be among the best is worth a look for its critical paths.
            if (beyond(bound_of(searcher.tables, point, all, group, options_,
                                PipelineBound::critical_paths))) {
              searcher.counts.pruned += rows;
              return;
            }
            evaluate_group(searcher.tables, point, all, group, rows_,
                           [&](std::uint64_t row, const Strategy& s, const Estimate& e) {
                             judge(searcher, options_, row, s, e);
                           });
          });
      if (!complete) return false;
      for (const SearchWorker& searcher : workers_) {
        for (const TopK<Strategy>::Entry& entry : searcher.best.entries()) best_.add(entry);
      }
      done = end;
      round = std::min(2 * round, kLastRound);
    }
    std::uint64_t skipped = 0;
    for (; done < bounded_groups_.size(); ++done) skipped += rows_of(bounded_groups_[done]);
    workers_[0].counts.pruned += skipped;
    pool_.add_done(skipped);
    return true;
  }

  bool beyond(double bound) const { return bound == kInfinity || bound > best_.threshold(); }

  static constexpr std::size_t kFirstRound = 64, kLastRound = 8192;

  const Enumeration& space_;
  RowRange rows_;
  const SearchOptions& options_;
  ThreadPool& pool_;
  std::vector<SearchWorker>& workers_;
  std::vector<BoundedGroup> bounded_groups_;
  TopK<Strategy> best_{options_.top};
};

bool search_exhaustively(const Enumeration& space, RowRange rows, const SearchOptions& options,
                         ThreadPool& pool, std::vector<SearchWorker>& workers) {
  const PointRange points = points_of(space, rows);
  return pool.run(points.last - points.first, 1, [&](std::size_t worker, std::size_t item) {
    SearchWorker& searcher = workers[worker];
    const Point& point = space.points()[points.first + item];
    const Options& all = space.options(point);
    for (const OptionGroup& group : all.groups) {
      if (pool.stopped(worker)) return;
      const std::uint64_t before = searcher.counts.evaluated;
      evaluate_group(searcher.tables, point, all, group, rows,
                     [&](std::uint64_t row, const Strategy& s, const Estimate& e) {
                       judge(searcher, options, row, s, e);
                     });
      pool.add_done(searcher.counts.evaluated - before);
    }
  });
}

void add_counts(SearchCounts& sum, const SearchCounts& part) {
  for (std::size_t i = 0; i < kReasons; ++i) sum.verdicts[i] += part.verdicts[i];
  sum.evaluated += part.evaluated;
  sum.pruned += part.pruned;
  sum.constrained += part.constrained;
}

}  // namespace

SearchResult search(const Tables& tables, const Enumeration& space, RowRange rows,
                    const SearchOptions& options, const Poll& poll) {
  ThreadPool pool(options.threads, poll, rows.size());
  std::vector<SearchWorker> workers(static_cast<std::size_t>(pool.threads()),
                                    {tables, TopK<Strategy>(options.top), {}});
  const bool prune = options.prune && options.objective.bounded();
  SearchResult result;
  result.finished = prune ? PrunedSearch(space, rows, options, pool, workers).run()
                          : search_exhaustively(space, rows, options, pool, workers);
  TopK<Strategy> best(options.top);
  for (const SearchWorker& worker : workers) {
    add_counts(result.counts, worker.counts);
    for (const TopK<Strategy>::Entry& entry : worker.best.entries()) best.add(entry);
  }
  Tables own = tables;
  for (const TopK<Strategy>::Entry& entry : best.entries()) {
    const Strategy strategy = space.at(entry.row);
    own.tabulate(strategy);
    result.candidates.push_back({entry.score, entry.row, strategy, evaluate(own, strategy)});
  }
  return result;
}

bool sweep(const Tables& tables, const Enumeration& space, RowRange rows, int threads,
           RowSink& sink, const Poll& poll) {
  struct Sweeper {
    Tables tables;
    RowBlock block;
  };
  ThreadPool pool(threads, poll, rows.size());
  std::vector<Sweeper> workers(static_cast<std::size_t>(pool.threads()), {tables, {}});
  const PointRange points = points_of(space, rows);
  return pool.run(points.last - points.first, 1, [&](std::size_t worker, std::size_t item) {
    Tables& own = workers[worker].tables;
    RowBlock& block = workers[worker].block;
    const auto flush = [&] {
      if (block.strategies.empty()) return;
      sink.put(block);
      pool.add_done(block.strategies.size());
      block.strategies.clear();
      block.estimates.clear();
    };
    const Point& point = space.points()[points.first + item];
    const Options& all = space.options(point);
    for (const OptionGroup& group : all.groups) {
      if (pool.stopped(worker)) return;
      evaluate_group(own, point, all, group, rows,
                     [&](std::uint64_t row, const Strategy& s, const Estimate& e) {
                       if (block.strategies.empty()) block.first = row;
                       block.strategies.push_back(s);
                       block.estimates.push_back(e);
                       if (block.strategies.size() == kBlock) flush();
                     });
    }
    flush();
  });
}

}  // namespace scalemodel
