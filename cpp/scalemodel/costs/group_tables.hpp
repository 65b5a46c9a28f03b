// Costs of every layer group under every mesh of a table, filled once per question.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scalemodel/costs/group_cost.hpp"

namespace scalemodel {

/// Everything an evaluation of a group strategy reads.
class GroupTables {
 public:
  /// Tabulates `meshes` for every group that they suit. `micro_batches`: the counts that strategies
  /// may ask for, at most 255 of them. `lookup_fraction`: share of memory bandwidth that pooled
  /// lookups reach.
  GroupTables(ComposedModel model, const Cluster& cluster, const Task& task, const Stack& stack,
              const Ablation& ablation, double lookup_fraction, std::vector<Mesh> meshes,
              std::vector<int> micro_batches, bool forward_only);
  GroupTables(const GroupTables&) = delete;
  GroupTables& operator=(const GroupTables&) = delete;

  /// Costs of every group under a strategy. False: the mesh of a group was not tabulated for it, or
  /// the count of micro-batches was not.
  bool find(const GroupStrategy& strategy,
            std::array<const GroupCost*, kMaxGroups>& costs) const noexcept;
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
  /// frozen weights need no GEMM of their own.
  Flop sample_flop() const noexcept { return sample_flop_; }
  double tokens_per_sample() const noexcept { return tokens_per_sample_; }

 private:
  ComposedModel model_;
  GroupQuestion question_;
  std::vector<Mesh> meshes_;
  std::vector<int> micro_batches_;
  std::vector<UnitCost> units_;
  std::vector<GroupCost> cells_;
  /// Where the costs of a group stand: one number per count of micro-batches, mesh and, where it
  /// has routed experts, mesh of theirs.
  struct Cells {
    std::size_t begin = 0;  ///< in `cell_of_`
    std::size_t slot = 0, expert_slot = 0;
    std::size_t expert_meshes = 1;
  };
  std::vector<std::int32_t> cell_of_;  ///< -1: unsuited
  std::array<Cells, kMaxGroups> cells_of_group_{};
  Flop sample_flop_;
  double tokens_per_sample_ = 1;
};

}  // namespace scalemodel
