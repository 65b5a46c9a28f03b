// Cost tables that outlive a search, for the next one of the same question.
#pragma once

#include <memory>

#include "scalemodel/costs/tables.hpp"

namespace scalemodel {

/// Tables for one thread of one search. A search in many parts would fill the same cells in each:
/// at its end a part leaves them to the next. Which cells are there decides nothing but how soon an
/// answer is known.
class BorrowedTables {
 public:
  /// Tables of the question of others, of which nothing that may change is looked at.
  explicit BorrowedTables(const Tables& question);
  ~BorrowedTables();
  BorrowedTables(BorrowedTables&&) = default;
  BorrowedTables& operator=(BorrowedTables&&) = delete;

  Tables& operator*() const { return *tables_; }

 private:
  std::unique_ptr<Tables> tables_;  ///< null: moved from
};

}  // namespace scalemodel
