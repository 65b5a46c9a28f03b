#include "scalemodel/search/search.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/top_k.hpp"

namespace scalemodel {
namespace {

/// Cells a worker keeps before it starts afresh: bounds its memory to some tens of megabytes.
constexpr std::size_t kMaxCells = 20'000;
/// Rows that a sweep hands on together.
constexpr std::size_t kBlock = 256;
/// Option groups whose bounds are held at once.
constexpr std::size_t kBoundsHeld = std::size_t{1} << 21;

/// Finds what the option groups of one point share. Neighbours share most of it.
class PointTables {
 public:
  PointTables(Tables& tables, const Point& point, const Options& options)
      : tables_(tables), point_(point), options_(options) {}

  /// The first member of `group`, to which all else belongs until the next is asked for.
  const Strategy& find(const OptionGroup& group) {
    const Strategy last = leader_;
    leader_ = joined(point_.degrees, options_.rows[group.begin]);
    const bool known = tabulated_.cell != nullptr;
    if (!known || last.sharding != leader_.sharding || last.shard_degree != leader_.shard_degree) {
      degrees_ = resolve_degrees(leader_, tables_.cluster(), tables_.task());
    }
    if (known && Tables::share_cell(last, leader_)) return leader_;
    if (tables_.cells() >= kMaxCells) tables_.clear();
    tabulated_ = tables_.tabulate(leader_, degrees_);
    return leader_;
  }
  const Tables& tables() const { return tables_; }
  const Point& point() const { return point_; }
  const Options& options() const { return options_; }
  const Degrees& degrees() const { return degrees_; }
  const Cell& cell() const { return *tabulated_.cell; }
  const StageLayout& stages() const { return *tabulated_.stages; }

 private:
  Tables& tables_;
  const Point& point_;
  const Options& options_;
  Strategy leader_;
  Degrees degrees_;
  Tabulated tabulated_;
};

/// Evaluates the rows of one group that lie in `rows`; `take(row, strategy, estimate)`.
template <class Take>
void evaluate_group(PointTables& at, SiblingEvaluator& evaluate, const OptionGroup& group,
                    RowRange rows, Asked asked, Take&& take) {
  const Point& point = at.point();
  const std::uint64_t first = std::max(rows.first, point.first_row + group.begin);
  const std::uint64_t last = std::min(rows.last, point.first_row + group.end);
  if (first >= last) return;
  at.find(group);
  evaluate.start(at.tables(), at.cell(), at.stages());
  for (std::uint64_t row = first; row < last; ++row) {
    const Strategy strategy = joined(point.degrees, at.options().rows[row - point.first_row]);
    take(row, strategy, evaluate(strategy, asked));
  }
}

/// What one worker of a search holds.
struct SearchWorker {
  Tables tables;
  TopK<Strategy> best;
  SearchCounts counts;
  SiblingEvaluator evaluate;
};

/// What becomes of strategies that do not fit no search asks but one that ranks them.
Asked asked_of(const SearchOptions& options) {
  return options.too_big ? Asked::all : Asked::times_that_fit;
}

void judge(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
           const Strategy& strategy, const Estimate& estimate);

/// Judges the rows of one group that lie in `rows`.
void search_group(SearchWorker& worker, PointTables& at, const OptionGroup& group, RowRange rows,
                  const SearchOptions& options) {
  evaluate_group(at, worker.evaluate, group, rows, asked_of(options),
                 [&](std::uint64_t row, const Strategy& s, const Estimate& e) {
                   judge(worker, options, row, s, e);
                 });
}

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
  if (score > options.beyond || !worker.best.admits(score, row)) return;
  const Tables& tables = worker.tables;
  worker.best.add(
      {score, row, canonical(strategy, tables.model(), tables.cluster(), tables.task())});
}

/// A group of rows with its bound, in the queue of a branch-and-bound search.
struct BoundedGroup {
  double bound = 0;
  std::uint32_t point = 0, group = 0;

  bool operator<(const BoundedGroup& other) const {
    return std::tie(bound, point, group) < std::tie(other.bound, other.point, other.group);
  }
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
double bound_of(const Tables& tables, PointTables& at, const OptionGroup& group,
                const SearchOptions& options, PipelineBound pipeline) {
  const Strategy& leader = at.find(group);
  const Estimate bound = lower_bound(tables, leader, at.degrees(), at.cell(), at.stages(),
                                     group.freedom, pipeline, asked_of(options));
  if (!options.too_big && bound.verdict == Reason::out_of_memory) return kInfinity;
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

  bool bound_window(std::size_t first, std::size_t last) {
    std::vector<std::size_t> starts{0};
    for (std::size_t p = first; p < last; ++p) {
      starts.push_back(starts.back() + space_.options(space_.points()[p]).groups.size());
    }
    bounded_groups_.assign(starts.back(), {});
    return pool_.run(last - first, 1, [&](std::size_t worker, std::size_t item) {
      const Point& point = space_.points()[first + item];
      const Options& all = space_.options(point);
      Tables& tables = workers_[worker].tables;
      PointTables at(tables, point, all);
      for (std::size_t g = 0; g < all.groups.size(); ++g) {
        BoundedGroup& bounded = bounded_groups_[starts[item] + g];
        bounded.point = static_cast<std::uint32_t>(first + item);
        bounded.group = static_cast<std::uint32_t>(g);
        // The first and the last point may lie in other ranges too.
        bounded.bound = rows_of(bounded) == 0 ? kInfinity
                                              : bound_of(tables, at, all.groups[g], options_,
                                                         PipelineBound::busiest_stage);
      }
    });
  }

  /// In batches of the best bounds, which a look at all stages of a pipeline makes closer: most
  /// groups are worse than what was found without one.
  bool evaluate_window() {
    std::size_t batch = kFirstBatch;
    for (auto from = bounded_groups_.begin(); from != bounded_groups_.end(); batch *= 4) {
      const auto left = static_cast<std::size_t>(bounded_groups_.end() - from);
      const auto to = from + static_cast<std::ptrdiff_t>(std::min(batch, left));
      if (to != bounded_groups_.end()) std::nth_element(from, to, bounded_groups_.end());
      if (beyond(std::min_element(from, to)->bound)) {
        skip(std::span(from, bounded_groups_.end()));
        return true;
      }
      const std::span groups(from, to);
      if (!bound_closer(groups) || !evaluate_best_first(groups)) return false;
      from = to;
    }
    return true;
  }

  bool bound_closer(std::span<BoundedGroup> groups) {
    return pool_.run(groups.size(), 16, [&](std::size_t worker, std::size_t item) {
      BoundedGroup& bounded = groups[item];
      if (beyond(bounded.bound)) return;
      const Point& point = space_.points()[bounded.point];
      const Options& all = space_.options(point);
      Tables& tables = workers_[worker].tables;
      PointTables at(tables, point, all);
      bounded.bound =
          bound_of(tables, at, all.groups[bounded.group], options_, PipelineBound::one_stage);
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
            PointTables at(searcher.tables, point, all);
            // Only what may still be among the best is worth a look for its critical paths.
            if (beyond(bound_of(searcher.tables, at, group, options_,
                                PipelineBound::critical_paths))) {
              searcher.counts.pruned += rows;
              return;
            }
            search_group(searcher, at, group, rows_, options_);
          });
      if (!complete) return false;
      for (const SearchWorker& searcher : workers_) {
        for (const TopK<Strategy>::Entry& entry : searcher.best.entries()) best_.add(entry);
      }
      done = end;
      round = std::min(2 * round, kLastRound);
    }
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

  static constexpr std::size_t kFirstRound = 8, kLastRound = 1024;
  /// Groups whose bounds are made closer together, four times as many with every batch.
  static constexpr std::size_t kFirstBatch = 2048;

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
    PointTables at(searcher.tables, point, all);
    for (const OptionGroup& group : all.groups) {
      if (pool.stopped(worker)) return;
      const std::uint64_t before = searcher.counts.evaluated;
      search_group(searcher, at, group, rows, options);
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
                                    {tables, TopK<Strategy>(options.top), {}, {}});
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

double quick_look(const Tables& tables, const Enumeration& space, const SearchOptions& options) {
  // Points looked at, groups of each, and points that are then searched as a whole.
  constexpr std::size_t kPoints = 2048, kGroups = 16, kSearched = 8;
  if (!options.prune || !options.objective.bounded() || space.points().empty()) return kInfinity;
  SearchWorker worker{tables, TopK<Strategy>(options.top), {}, {}};
  const RowRange all{0, space.size()};
  const std::size_t points = space.points().size(), seen = std::min(points, kPoints);
  std::vector<BoundedGroup> sample;
  for (std::size_t i = 0; i < seen; ++i) {
    const std::size_t number = i * points / seen;
    const Point& point = space.points()[number];
    const Options& of_point = space.options(point);
    PointTables at(worker.tables, point, of_point);
    const std::size_t groups = of_point.groups.size(), looks = std::min(groups, kGroups);
    for (std::size_t k = 0; k < looks; ++k) {
      poll_point(16);
      // Another place in every point: groups at equal places are alike.
      const std::size_t group = (k * groups / looks + i) % groups;
      const double bound = bound_of(worker.tables, at, of_point.groups[group], options,
                                    PipelineBound::busiest_stage);
      sample.push_back(
          {bound, static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(group)});
    }
  }
  std::ranges::sort(sample, [](const BoundedGroup& a, const BoundedGroup& b) { return a < b; });
  for (const BoundedGroup& bounded : sample) {
    if (bounded.bound == kInfinity || bounded.bound > worker.best.threshold()) break;
    const Point& point = space.points()[bounded.point];
    const Options& of_point = space.options(point);
    const OptionGroup& group = of_point.groups[bounded.group];
    PointTables at(worker.tables, point, of_point);
    if (bound_of(worker.tables, at, group, options, PipelineBound::one_stage) <=
        worker.best.threshold()) {
      search_group(worker, at, group, all, options);
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

bool sweep(const Tables& tables, const Enumeration& space, RowRange rows, int threads,
           RowSink& sink, const Poll& poll) {
  struct Sweeper {
    Tables tables;
    RowBlock block;
    SiblingEvaluator evaluate;
  };
  ThreadPool pool(threads, poll, rows.size());
  std::vector<Sweeper> workers(static_cast<std::size_t>(pool.threads()), {tables, {}, {}});
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
    PointTables at(own, point, all);
    for (const OptionGroup& group : all.groups) {
      if (pool.stopped(worker)) return;
      evaluate_group(at, workers[worker].evaluate, group, rows, Asked::all,
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
