// Every strategy of a space evaluated, all of them kept or the best.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/search/objective.hpp"
#include "scalemodel/search/space.hpp"
#include "scalemodel/search/thread_pool.hpp"

namespace scalemodel {

inline constexpr std::size_t kReasons = EnumNames<Reason>::names.size();

/// The rows [first, last) of an enumeration.
struct RowRange {
  std::uint64_t first = 0, last = 0;

  std::uint64_t size() const { return last - first; }
};

/// One of the best strategies.
struct Candidate {
  double score = 0;
  std::uint64_t row = 0;
  Strategy strategy;
  Estimate estimate;
};

/// What became of the rows. With pruning, groups of rows that cannot reach the best are counted,
/// not evaluated.
struct SearchCounts {
  std::array<std::uint64_t, kReasons> verdicts{};  ///< of the evaluated rows
  std::uint64_t evaluated = 0, pruned = 0;
  std::uint64_t constrained = 0;  ///< ran, but a constraint left them out
};

struct SearchResult {
  std::vector<Candidate> candidates;  ///< best first; equal scores in the order of rows
  SearchCounts counts;
  bool finished = true;  ///< false: stopped by the poll
};

struct SearchOptions {
  Objective objective;
  std::vector<Constraint> constraints;
  std::size_t top = 10;
  bool prune = true;
  bool too_big = false;  ///< rank strategies that run out of memory too
  int threads = 1;
  double beyond = kInfinity;  ///< scores above it are no answer: `top` better ones are known
};

/// The best strategies of some rows. Exact: pruning skips only groups whose lower bound is worse
/// than what was found. Of strategies that mean the same only the first row is kept. The answer,
/// counts included, does not depend on the number of threads.
SearchResult search(const Tables& tables, const Enumeration& space, RowRange rows,
                    const SearchOptions& options, const Poll& poll);

/// A score that `top` strategies of the space do not exceed, from a look at few of its points; for
/// `SearchOptions::beyond` of searches of its parts, which know nothing of each other. kInfinity
/// where it finds too few, or nothing is pruned.
double quick_look(const Tables& tables, const Enumeration& space, const SearchOptions& options);

/// The same from some rows of the space, such as the best ones of a question that differs little;
/// rows beyond its end are left out.
double score_among(const Tables& tables, const Enumeration& space,
                   std::span<const std::uint64_t> rows, const SearchOptions& options);

/// Neighbouring rows of a sweep.
struct RowBlock {
  std::uint64_t first = 0;
  std::vector<Strategy> strategies;
  std::vector<Estimate> estimates;
};

/// Takes the rows of a sweep, each once, from several threads. In blocks, because writing dozens of
/// columns value by value would miss the cache with nearly every one.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void put(const RowBlock& block) = 0;
};

/// Evaluates every row of a range into `sink`. False: stopped by the poll.
bool sweep(const Tables& tables, const Enumeration& space, RowRange rows, int threads,
           RowSink& sink, const Poll& poll);

}  // namespace scalemodel
