// Costs of every layer group under every mesh of a table, filled once per question.
#pragma once

#include <cstdint>
#include <vector>

#include "scalemodel/costs/group_cost.hpp"

namespace scalemodel {

/// Everything an evaluation of a group strategy reads.
class GroupTables {
 public:
  /// Tabulates `meshes` for every group that they suit. `micro_batches`: the counts that strategies
  /// may ask for, at most 255 of them.
  GroupTables(ComposedModel model, const Cluster& cluster, const Task& task, const Stack& stack,
              const Ablation& ablation, std::vector<Mesh> meshes, std::vector<int> micro_batches,
              bool forward_only);
  GroupTables(const GroupTables&) = delete;
  GroupTables& operator=(const GroupTables&) = delete;

  /// Null where a mesh does not suit a group or the count of micro-batches was not tabulated.
  const GroupCost* find(std::size_t group, const GroupStrategy& strategy) const noexcept;
  const UnitCost* units(const GroupCost& cost) const noexcept {
    return units_.data() + cost.first_unit;
  }

  const ComposedModel& model() const noexcept { return model_; }
  const GroupQuestion& question() const noexcept { return question_; }
  const std::vector<Mesh>& meshes() const noexcept { return meshes_; }
  const std::vector<int>& micro_batches() const noexcept { return micro_batches_; }
  /// Index of a mesh, or -1.
  int index_of(const Mesh& mesh) const noexcept;
  /// Flop of one sample in a step by the usual count: 2 per parameter met and pass, attention once;
  /// frozen weights need no product of their own.
  Flop sample_flop() const noexcept { return sample_flop_; }
  double tokens_per_sample() const noexcept { return tokens_per_sample_; }

 private:
  ComposedModel model_;
  GroupQuestion question_;
  std::vector<Mesh> meshes_;
  std::vector<int> micro_batches_;
  std::vector<UnitCost> units_;
  std::vector<GroupCost> cells_;
  std::vector<std::int32_t> cell_of_;     ///< -1: unsuited
  std::vector<std::size_t> group_begin_;  ///< of a group's part of `cell_of_`
  Flop sample_flop_;
  double tokens_per_sample_ = 1;
};

}  // namespace scalemodel
