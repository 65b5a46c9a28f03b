#include "scalemodel/search/spare_tables.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace scalemodel {
namespace {

/// Cells and tables that are kept from search to search: some tens of megabytes.
constexpr std::size_t kMaxSpareCells = 20'000, kMaxSpareTables = 64;

/// Tables that are not borrowed, those given back last at the end.
struct SpareTables {
  std::mutex mutex;
  std::vector<std::unique_ptr<Tables>> tables;
  std::size_t cells = 0;
};

SpareTables& spare_tables() {
  static SpareTables spare;
  return spare;
}

std::unique_ptr<Tables> take_spare(std::uint64_t question) {
  SpareTables& spare = spare_tables();
  const std::lock_guard lock(spare.mutex);
  const auto same = std::find_if(spare.tables.rbegin(), spare.tables.rend(),
                                 [&](const auto& each) { return each->question() == question; });
  if (same == spare.tables.rend()) return nullptr;
  std::unique_ptr<Tables> taken = std::move(*same);
  spare.tables.erase(std::next(same).base());
  spare.cells -= taken->cells();
  return taken;
}

void give_back(std::unique_ptr<Tables> given) {
  std::vector<std::unique_ptr<Tables>> oldest;  // freed without the lock
  SpareTables& spare = spare_tables();
  const std::lock_guard lock(spare.mutex);
  spare.cells += given->cells();
  spare.tables.push_back(std::move(given));
  auto kept = spare.tables.begin();
  const auto many = [&] {
    return spare.cells > kMaxSpareCells ||
           static_cast<std::size_t>(spare.tables.end() - kept) > kMaxSpareTables;
  };
  for (; many(); ++kept) {
    spare.cells -= (*kept)->cells();
    oldest.push_back(std::move(*kept));
  }
  spare.tables.erase(spare.tables.begin(), kept);
}

}  // namespace

BorrowedTables::BorrowedTables(const Tables& question) : tables_(take_spare(question.question())) {
  if (!tables_) tables_ = std::make_unique<Tables>(question.without_cells());
}

BorrowedTables::~BorrowedTables() {
  if (tables_) give_back(std::move(tables_));
}

}  // namespace scalemodel
