// Every combination of meshes of the layer groups, evaluated: all rows kept, or the best.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "scalemodel/costs/group_tables.hpp"
#include "scalemodel/estimator/evaluate_groups.hpp"
#include "scalemodel/search/objective.hpp"
#include "scalemodel/search/search.hpp"
#include "scalemodel/search/thread_pool.hpp"

namespace scalemodel {

/// A product of choices. Slots of one variable take the same mesh.
struct GroupSpace {
  std::vector<std::vector<std::uint16_t>> meshes;  ///< by variable: indices into the tables
  std::vector<std::size_t> variable_of_slot;
  std::vector<std::uint16_t> micro_batches;
  std::vector<Queues> queues;
  std::vector<Prefetch> prefetch;
  std::vector<BackwardGather> backward_gather;
  std::vector<Buckets> buckets;
  std::vector<std::uint8_t> recompute;

  std::uint64_t size() const;
  /// Strategy number `row`; the last variable of a model varies fastest.
  GroupStrategy at(std::uint64_t row) const;
};

/// Walks the strategies of a space in the order of rows: one variable changes at nearly every step,
/// so that no row is divided into its digits.
class GroupCursor {
 public:
  GroupCursor(const GroupSpace& space, std::uint64_t row);

  const GroupStrategy& operator*() const { return strategy_; }
  void next();

 private:
  const GroupSpace& space_;
  std::uint64_t row_;
  GroupStrategy strategy_;
  std::size_t digit_;                            ///< of the last variable
  std::array<std::uint8_t, kMaxSlots> slots_{};  ///< that it sets
  std::size_t slot_count_ = 0;
};

using GroupColumn = ColumnOf<GroupEstimate>;

/// The numeric fields of GroupEstimate in their order.
std::span<const GroupColumn> group_columns();
const GroupColumn* find_group_column(std::string_view name);

struct GroupCandidate {
  double score = 0;
  std::uint64_t row = 0;
  GroupStrategy strategy;
  GroupEstimate estimate;
};

struct GroupSearchResult {
  std::vector<GroupCandidate> candidates;  ///< best first; equal scores in the order of rows
  SearchCounts counts;
  bool finished = true;
};

struct GroupSearchOptions {
  ObjectiveOf<GroupEstimate> objective;
  std::vector<ConstraintOf<GroupEstimate>> constraints;
  std::size_t top = 10;
  bool too_big = false;  ///< rank strategies that run out of memory too
  int threads = 1;
};

/// The best strategies of a space, every row evaluated. Does not depend on the number of threads.
GroupSearchResult search_groups(const GroupTables& tables, const GroupSpace& space,
                                const GroupSearchOptions& options, const Poll& poll);

/// Every row, in order. False: stopped by the poll.
bool sweep_groups(const GroupTables& tables, const GroupSpace& space, int threads,
                  std::span<GroupEstimate> estimates, const Poll& poll);

}  // namespace scalemodel
