#include "scalemodel/costs/group_tables.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace scalemodel {

GroupTables::GroupTables(ComposedModel model, const Cluster& cluster, const Task& task,
                         const Stack& stack, const Ablation& ablation, std::vector<Mesh> meshes,
                         std::vector<int> micro_batches, bool forward_only)
    : model_(std::move(model)),
      question_(make_question(model_, cluster, task, stack, ablation, forward_only)),
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
    group_begin_.push_back(cell_of_.size());
    const bool routed = group.expert_slot >= 0;
    const std::size_t expert_meshes = routed ? meshes_.size() : 1;
    for (const int count : micro_batches_) {
      for (const Mesh& mesh : meshes_) {
        for (std::size_t e = 0; e < expert_meshes; ++e) {
          const Mesh& experts = routed ? meshes_[e] : mesh;
          if (!suits(mesh, group.kind, false) || (routed && !suits(experts, group.kind, true))) {
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

const GroupCost* GroupTables::find(std::size_t group, const GroupStrategy& s) const noexcept {
  std::size_t count = 0;
  while (count < micro_batches_.size() && micro_batches_[count] != s.micro_batches) ++count;
  if (count == micro_batches_.size()) return nullptr;
  const LayerGroup& g = model_.groups[group];
  const std::size_t mesh = s.mesh[static_cast<std::size_t>(g.slot)];
  const bool routed = g.expert_slot >= 0;
  const std::size_t expert = routed ? s.mesh[static_cast<std::size_t>(g.expert_slot)] : 0;
  if (mesh >= meshes_.size() || expert >= meshes_.size()) return nullptr;
  const std::size_t at = (count * meshes_.size() + mesh) * (routed ? meshes_.size() : 1) + expert;
  const std::int32_t cell = cell_of_[group_begin_[group] + at];
  return cell < 0 ? nullptr : &cells_[static_cast<std::size_t>(cell)];
}

int GroupTables::index_of(const Mesh& mesh) const noexcept {
  const auto found = std::ranges::find(meshes_, mesh);
  return found == meshes_.end() ? -1 : static_cast<int>(found - meshes_.begin());
}

}  // namespace scalemodel
