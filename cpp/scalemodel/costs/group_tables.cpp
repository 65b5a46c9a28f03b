#include "scalemodel/costs/group_tables.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace scalemodel {

GroupTables::GroupTables(ComposedModel model, const Cluster& cluster, const Task& task,
                         const Stack& stack, const Ablation& ablation, double lookup_fraction,
                         std::vector<Mesh> meshes, std::vector<int> micro_batches,
                         bool forward_only)
    : model_(std::move(model)),
      question_(
          make_question(model_, cluster, task, stack, ablation, lookup_fraction, forward_only)),
      meshes_(std::move(meshes)),
      micro_batches_(std::move(micro_batches)) {
  std::map<std::array<int, kMaxAxes>, int> layouts;
  const auto layout_number = [&](const Mesh& mesh) {
    const auto [at, added] =
        layouts.try_emplace(batch_layout(mesh), static_cast<int>(layouts.size()));
    return at->second;
  };
  for (std::size_t g = 0; g < model_.groups.size(); ++g) {
    const LayerGroup& group = model_.groups[g];
    const bool routed = group.expert_slot >= 0;
    const std::size_t expert_meshes = routed ? meshes_.size() : 1;
    // What is made once per sample (a time step) for layers of tokens goes where they go.
    const GroupKind shared = model_.slots[static_cast<std::size_t>(group.slot)].kind;
    const GroupKind kind = group.kind == GroupKind::mlp ? shared : group.kind;
    cells_of_group_[g] = {cell_of_.size(), static_cast<std::size_t>(group.slot),
                          static_cast<std::size_t>(std::max(0, group.expert_slot)), expert_meshes};
    for (const int count : micro_batches_) {
      for (const Mesh& mesh : meshes_) {
        for (std::size_t e = 0; e < expert_meshes; ++e) {
          const Mesh& experts = routed ? meshes_[e] : mesh;
          if (!suits(mesh, kind, false) || (routed && !suits(experts, kind, true))) {
            cell_of_.push_back(-1);
            continue;
          }
          cell_of_.push_back(static_cast<std::int32_t>(cells_.size()));
          cells_.push_back(group_cost(question_, g, mesh, experts, count, units_));
          cells_.back().layout = layout_number(mesh);
        }
      }
    }
    const bool counted = group.kind != GroupKind::head || ablation.heads;
    const GroupQuestion& q = question_;
    const bool adapted = q.conditions.frozen_base;
    const double sequence = task.sequence;
    if (counted && group.kind != GroupKind::embedding_tables) {
      const double back = forward_only ? 0 : 1;
      const double weights = group.trained && !adapted ? back : 0;
      sample_flop_ += (1 + back + weights) * group.forward_flop(sequence);
    }
  }
  tokens_per_sample_ = model_.tokens_per_sample > 0 ? model_.tokens_per_sample : task.sequence;
}

bool GroupTables::find(const GroupStrategy& s,
                       std::array<const GroupCost*, kMaxGroups>& costs) const noexcept {
  const std::size_t meshes = meshes_.size();
  std::size_t count = 0;
  while (count < micro_batches_.size() && micro_batches_[count] != s.micro_batches) ++count;
  if (count == micro_batches_.size()) return false;
  for (std::size_t g = 0; g < model_.groups.size(); ++g) {
    const Cells& cells = cells_of_group_[g];
    const std::size_t mesh = s.mesh[cells.slot];
    const std::size_t expert = cells.expert_meshes > 1 ? s.mesh[cells.expert_slot] : 0;
    if (mesh >= meshes || expert >= meshes) return false;
    const std::size_t at = (count * meshes + mesh) * cells.expert_meshes + expert;
    const std::int32_t cell = cell_of_[cells.begin + at];
    if (cell < 0) return false;
    costs[g] = &cells_[static_cast<std::size_t>(cell)];
  }
  return true;
}

int GroupTables::index_of(const Mesh& mesh) const noexcept {
  const auto found = std::ranges::find(meshes_, mesh);
  return found == meshes_.end() ? -1 : static_cast<int>(found - meshes_.begin());
}

}  // namespace scalemodel
