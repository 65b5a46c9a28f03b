// What one thread of a search holds, and how it goes through the rows of a group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scalemodel/search/point_tables.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/strategy_fields.hpp"
#include "scalemodel/search/top_k.hpp"
#include "scalemodel/search/workspace.hpp"

namespace scalemodel {

/// The rows of a group that lie in a range.
inline RowRange rows_of(const Point& point, const OptionGroup& group, RowRange rows) {
  const std::uint64_t first = std::max(rows.first, point.first_row + group.begin);
  return {first, std::max(first, std::min(rows.last, point.first_row + group.end))};
}

/// Goes through the rows of one group that lie in `rows`, each set in `evaluate`;
/// `take(row, strategy)`, where the strategy is made when it is called.
template <class Take>
void each_of_group(PointTables& at, SiblingEvaluator& evaluate, const OptionGroup& group,
                   RowRange rows, Take&& take) {
  const RowRange own = rows_of(at.point(), group, rows);
  if (own.size() == 0) return;
  at.find(group);
  at.start(evaluate);
  const OptionMembers& members = at.options().members_of(group);
  const std::uint64_t begin = at.point().first_row + group.begin;
  const Strategy* member = &members.rows[own.first - begin];
  const Change* change = &members.changes[own.first - begin];
  for (std::uint64_t row = own.first; row < own.last; ++row, ++member, ++change) {
    const auto strategy = [&] { return with_member(at.leader(), *member); };
    if (row == own.first || *change == Change::shards) {
      evaluate.set(strategy());
    } else {
      evaluate.follow(*member, *change);
    }
    take(row, strategy);
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

/// What a search makes of a row.
struct RowAnswer {
  Reason verdict = Reason::ok;
  bool ranks = false;  ///< it is an answer, which no constraint leaves out
  bool constrained = false;
  double score = 0;  ///< of what ranks
};

/// What one worker of a search holds.
struct SearchWorker {
  SearchWorker(const Tables& question, const SearchOptions& options);

  Tables& tables() const { return workspace->tables; }

  BorrowedWorkspace workspace;
  TopK<Strategy> best;
  SearchCounts counts;
  std::vector<RowAnswer> answers;  ///< of the group whose twins follow
};

/// What is asked of the strategies of a search.
Asked asked_of(const SearchOptions& options);

/// Judges a strategy by its estimate.
void judge(SearchWorker& worker, const SearchOptions& options, std::uint64_t row,
           const Estimate& estimate, const Strategy& strategy);

/// Judges the rows that lie in `rows` of a group and of those whose placements are its twins; of
/// those that no group of ranks tells apart it repeats the answers.
void search_twins(SearchWorker& worker, PointTables& at, const TwinRuns& twins, std::uint32_t group,
                  RowRange rows, const SearchOptions& options);

/// Judges the rows of one group that lie in `rows`.
void search_group(SearchWorker& worker, PointTables& at, const OptionGroup& group, RowRange rows,
                  const SearchOptions& options);

}  // namespace scalemodel
