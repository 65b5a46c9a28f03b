#include "scalemodel/search/workspace.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace scalemodel {
namespace {

/// Cells and workspaces that are kept from search to search: some tens of megabytes.
constexpr std::size_t kMaxSpareCells = 20'000, kMaxSpare = 64;

/// Workspaces that are not borrowed, those given back last at the end.
struct Spare {
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> workspaces;
  std::size_t cells = 0;
};

Spare& all_spare() {
  static Spare spare;
  return spare;
}

std::unique_ptr<Workspace> take_spare(std::uint64_t question) {
  Spare& spare = all_spare();
  const std::lock_guard lock(spare.mutex);
  const auto same =
      std::find_if(spare.workspaces.rbegin(), spare.workspaces.rend(),
                   [&](const auto& each) { return each->tables.question() == question; });
  if (same == spare.workspaces.rend()) return nullptr;
  std::unique_ptr<Workspace> taken = std::move(*same);
  spare.workspaces.erase(std::next(same).base());
  spare.cells -= taken->tables.cells();
  return taken;
}

void give_back(std::unique_ptr<Workspace> given) {
  std::vector<std::unique_ptr<Workspace>> oldest;  // freed without the lock
  Spare& spare = all_spare();
  const std::lock_guard lock(spare.mutex);
  spare.cells += given->tables.cells();
  spare.workspaces.push_back(std::move(given));
  auto kept = spare.workspaces.begin();
  const auto many = [&] {
    return spare.cells > kMaxSpareCells ||
           static_cast<std::size_t>(spare.workspaces.end() - kept) > kMaxSpare;
  };
  for (; many(); ++kept) {
    spare.cells -= (*kept)->tables.cells();
    oldest.push_back(std::move(*kept));
  }
  spare.workspaces.erase(spare.workspaces.begin(), kept);
}

}  // namespace

BorrowedWorkspace::BorrowedWorkspace(const Tables& question)
    : workspace_(take_spare(question.question())) {
  if (!workspace_) workspace_ = std::make_unique<Workspace>(question.without_cells());
}

BorrowedWorkspace::~BorrowedWorkspace() {
  if (workspace_) give_back(std::move(workspace_));
}

}  // namespace scalemodel
