// What the threads of a search work with, which outlives it for the next one of the same question.
#pragma once

#include <memory>
#include <utility>

#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/group_bounds.hpp"
#include "scalemodel/estimator/sibling_evaluator.hpp"
#include "scalemodel/search/placed_runs.hpp"

namespace scalemodel {

/// What one thread fills and what it finds in it decides nothing but how soon an answer is known.
/// Members of a hundred kilobytes stay as they are until they are used.
struct Workspace {
  explicit Workspace(Tables empty) : tables(std::move(empty)) {}

  Tables tables;
  PlacedTwins twins;
  SiblingEvaluator evaluate;
  GroupBounds bounds;
};

/// A workspace for one thread of one search. A search in many parts would fill the same in each: at
/// its end a part leaves it to the next.
class BorrowedWorkspace {
 public:
  /// For the question of tables of which nothing that may change is looked at.
  explicit BorrowedWorkspace(const Tables& question);
  ~BorrowedWorkspace();
  BorrowedWorkspace(BorrowedWorkspace&&) = default;
  BorrowedWorkspace& operator=(BorrowedWorkspace&&) = delete;

  Workspace& operator*() const { return *workspace_; }
  Workspace* operator->() const { return workspace_.get(); }

 private:
  std::unique_ptr<Workspace> workspace_;  ///< null: moved from
};

}  // namespace scalemodel
