// What one thread of a search holds, and how it goes through the rows of a group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scalemodel/estimator/group_bounds.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/placed_runs.hpp"
#include "scalemodel/search/point_tables.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/spare_tables.hpp"
#include "scalemodel/search/top_k.hpp"

namespace scalemodel {

/// Goes through the rows of one group that lie in `rows`, each set in `evaluate`; `take(row)`.
template <class Take>
void each_of_group(PointTables& at, SiblingEvaluator& evaluate, const OptionGroup& group,
                   RowRange rows, Take&& take) {
  const Point& point = at.point();
  const Options& options = at.options();
  const std::uint64_t first = std::max(rows.first, point.first_row + group.begin);
  const std::uint64_t last = std::min(rows.last, point.first_row + group.end);
  if (first >= last) return;
  at.find(group);
  at.start(evaluate);
  const Strategy* completed = &options.rows[first - point.first_row];
  const Change* change = &options.changes[first - point.first_row];
  for (std::uint64_t row = first; row < last; ++row, ++completed, ++change) {
    if (row == first || *change == Change::shards) {
      evaluate.set(joined(point.degrees, *completed));
    } else {
      evaluate.follow(*completed, *change);
    }
    take(row);
  }
}

/// Points whose rows meet a range.
struct PointRange {
  std::size_t first = 0, last = 0;
};

inline PointRange points_of(const Enumeration& space, RowRange rows) {
  if (rows.first >= rows.last) return {};
  return {space.point_of(rows.first), space.point_of(rows.last - 1) + 1};
}

/// What one worker of a search holds.
struct SearchWorker {
  // Members of a hundred kilobytes stay as they are until they are used.
  SearchWorker(const Tables& question, const SearchOptions& options);

  Tables& tables() { return *borrowed; }

  BorrowedTables borrowed;
  TopK<Strategy> best;
  SearchCounts counts;
  SiblingEvaluator evaluate;
  GroupBounds bounds;
  PlacedTwins twins;
};

/// What is asked of the strategies of a search.
Asked asked_of(const SearchOptions& options);

/// Judges a strategy by its estimate.
void judge(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
           const Estimate& estimate, const Strategy& strategy);

/// Judges the rows of one group that lie in `rows`.
void search_group(SearchWorker& worker, PointTables& at, const OptionGroup& group, RowRange rows,
                  const SearchOptions& options);

}  // namespace scalemodel
