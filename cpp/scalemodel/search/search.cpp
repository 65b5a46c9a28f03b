#include "scalemodel/search/search.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/search/pruned_search.hpp"

namespace scalemodel {
namespace {

/// Rows that a sweep hands on together.
constexpr std::size_t kBlock = 256;

bool search_exhaustively(const Enumeration& space, RowRange rows, const SearchOptions& options,
                         ThreadPool& pool, std::vector<SearchWorker>& workers) {
  const PointRange points = points_of(space, rows);
  return pool.run(points.last - points.first, 1, [&](std::size_t worker, std::size_t item) {
    SearchWorker& searcher = workers[worker];
    const Point& point = space.points()[points.first + item];
    const Options& all = space.options(point);
    PointTables at(searcher.tables(), point, all);
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
  std::vector<SearchWorker> workers;
  workers.reserve(static_cast<std::size_t>(pool.threads()));
  for (int i = 0; i < pool.threads(); ++i) workers.emplace_back(tables, options);
  const bool prune = options.prune && options.objective.bounded();
  SearchResult result;
  result.finished = prune ? search_with_bounds(space, rows, options, pool, workers)
                          : search_exhaustively(space, rows, options, pool, workers);
  TopK<Strategy> best(options.top);
  for (const SearchWorker& worker : workers) {
    add_counts(result.counts, worker.counts);
    for (const TopK<Strategy>::Entry& entry : worker.best.entries()) best.add(entry);
  }
  Tables& own = workers.front().tables();
  for (const TopK<Strategy>::Entry& entry : best.entries()) {
    const Strategy strategy = space.at(entry.row);
    own.tabulate(strategy);
    result.candidates.push_back({entry.score, entry.row, strategy, evaluate(own, strategy)});
  }
  return result;
}

double score_among(const Tables& tables, const Enumeration& space,
                   std::span<const std::uint64_t> rows, const SearchOptions& options) {
  SearchWorker worker(tables, options);
  for (const std::uint64_t row : rows) {
    if (row >= space.size()) continue;
    const Strategy strategy = space.at(row);
    worker.tables().tabulate(strategy);
    judge(worker, options, row, evaluate(worker.tables(), strategy), strategy);
  }
  return worker.best.threshold();
}

bool sweep(const Tables& tables, const Enumeration& space, RowRange rows, int threads,
           RowSink& sink, const Poll& poll) {
  struct Sweeper {
    explicit Sweeper(const Tables& question) : workspace(question) {
      workspace->evaluate.derive(Derived{});
    }

    BorrowedWorkspace workspace;
    RowBlock block;
  };
  ThreadPool pool(threads, poll, rows.size());
  std::vector<Sweeper> workers;
  workers.reserve(static_cast<std::size_t>(pool.threads()));
  for (int i = 0; i < pool.threads(); ++i) workers.emplace_back(tables);
  const PointRange points = points_of(space, rows);
  return pool.run(points.last - points.first, 1, [&](std::size_t worker, std::size_t item) {
    Tables& own = workers[worker].workspace->tables;
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
      SiblingEvaluator& evaluate = workers[worker].workspace->evaluate;
      each_of_group(at, evaluate, group, rows, [&](std::uint64_t row, const auto& strategy) {
        if (block.strategies.empty()) block.first = row;
        block.strategies.push_back(strategy());
        block.estimates.push_back(evaluate.estimate(Asked::all));
        if (block.strategies.size() == kBlock) flush();
      });
    }
    flush();
  });
}

}  // namespace scalemodel
