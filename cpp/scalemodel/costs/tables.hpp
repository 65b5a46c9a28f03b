// Costs of a (model, cluster, task, stack) on the small axes of a strategy, filled once and read
// by every evaluation.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "scalemodel/costs/end_cost.hpp"
#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/schedule/stages.hpp"
#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/packing.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/strides.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel {

/// Everything that depends only on the degrees inside a stage.
struct Cell {
  std::array<LayerCost, kMaxLayerKinds> layers{};
  EndCost embedding, head;
  Bytes boundary;      ///< what one rank sends to the next stage per micro-batch
  double fill = 1;     ///< tokens of documents in a slot of a pack
  bool timed = false;  ///< every time is a number: rates are stated for all that runs
};

/// What strategies of the same degrees inside and between stages share.
struct Tabulated {
  const Cell* cell = nullptr;
  const StageLayout* stages = nullptr;
};

/// What one rank sends in one micro-batch: a layer of every kind, the embedding and the LM head.
struct CellMessages {
  std::array<MessageList, kMaxLayerKinds> layers;
  MessageList embedding, head;
};

/// What a placement decides of strategies of the same degrees: who talks to whom inside a stage and
/// between two of them. Where it is equal, so are the cells of strategies that differ in nothing
/// but their placement.
struct PlacedGroups {
  GroupShape tp, cp, ep, etp, stages;
  bool tp_in_node = false;

  bool operator==(const PlacedGroups&) const = default;
};

/// Model flop of one sequence, for utilisation figures.
struct ModelFlop {
  Flop forward;    ///< GEMMs and causal attention, head included
  Flop attention;  ///< attention part of it
  Flop layers;     ///< forward without the head
  Flop images;     ///< beside forward: the vision tower on the images of the sequence
};

class Tables {
 public:
  /// Throws MalformedQuestion where a document of the packing is no length from 1 to the sequence.
  Tables(Model model, Cluster cluster, Task task, Stack stack, Packing packing = {});

  /// The same question, of which nothing is tabulated. Looks at nothing that `tabulate` changes.
  Tables without_cells() const;

  /// Fills what `strategy` needs. Cheap when it is there already.
  void tabulate(const Strategy& strategy);
  /// The same with degrees that are not what the strategy resolves to. What it fills stays where it
  /// is until more is filled. Precondition: the strategy can run.
  Tabulated tabulate(const Strategy& strategy, const Degrees& degrees);
  /// Whether two strategies of the same degrees and schedule share their cell in any case.
  static bool share_cell(const Strategy& a, const Strategy& b) noexcept;

  PlacedGroups placed_groups(const Strategy& strategy, const Degrees& degrees) const noexcept;

  /// Layouts of the degrees inside a stage; null before `tabulate`.
  const Cell* find_cell(const Strategy& strategy, const Degrees& degrees) const noexcept;
  const StageLayout* find_stages(const Strategy& strategy, const Degrees& degrees) const noexcept;

  /// Every operator of one layer of `kind` (or of the head, kind = number of kinds).
  OperatorList operators(const Strategy& strategy, std::size_t kind) const;

  /// Every collective of the cell of a strategy. Precondition: the strategy is legal.
  CellMessages messages(const Strategy& strategy) const;

  const Model& model() const noexcept { return model_; }
  const Cluster& cluster() const noexcept { return cluster_; }
  const Task& task() const noexcept { return task_; }
  const Stack& stack() const noexcept { return stack_; }
  const Packing& packing() const noexcept { return packing_; }
  const PackSpread& pack_spread() const noexcept { return pack_spread_; }
  /// Conditions in the precision of a strategy. Precondition: tabulated.
  const Conditions& conditions(const Strategy& strategy) const noexcept;
  const ModelFlop& flop() const noexcept { return flop_; }
  /// Whether the cluster states every rate at which it moves bytes.
  bool rates_stated() const noexcept { return rates_stated_; }
  std::size_t cells() const noexcept { return cells_.size(); }
  /// Equal for copies of the same tables, whose cells therefore say the same.
  std::uint64_t question() const noexcept { return question_; }
  /// Forgets every cell, to bound memory; pointers to them end here.
  void clear();

 private:
  struct Key {
    std::uint64_t degrees = 0, rest = 0, outer = 0, apart = 0;
    bool operator==(const Key&) const = default;
  };
  /// Open addressing over keys; a lookup is a hash and, mostly, one comparison.
  class Index {
   public:
    std::int32_t find(const Key& key) const noexcept;
    void insert(const Key& key, std::int32_t value);

   private:
    static std::size_t hash(const Key& key) noexcept;

    struct Slot {
      Key key;
      std::int32_t value = -1;
    };
    std::vector<Slot> slots_ = std::vector<Slot>(64);
    std::size_t used_ = 0;
  };

  /// A question in one precision.
  struct Setting {
    Conditions conditions;
    LayerTimers timers;
    GemmTimes linear, storage;  ///< of the timers, while cells are made
  };

  Setting make_setting(const Strategy& strategy) const;
  Setting& setting_of(const Strategy& strategy);
  static Key cell_key(const Strategy& strategy, const LayerLayout& layout) noexcept;
  static Key stage_key(const Strategy& strategy, const Degrees& degrees) noexcept;
  StageLayout stages_of(const Strategy& strategy, const Degrees& degrees) const;
  Cell make_cell(const Strategy& strategy, const Degrees& d, const LayerLayout& plain);
  LayerLayout layout_of(const Strategy& strategy, const Degrees& degrees) const noexcept;
  /// The same with the packs that its ranks see.
  LayerLayout packed(LayerLayout layout) const;
  static PackSplit pack_split(const LayerLayout& layout) noexcept;

  std::uint64_t question_;
  Model model_;
  Cluster cluster_;
  Task task_;
  Stack stack_;
  Packing packing_;
  PackSpread pack_spread_;
  std::vector<std::pair<PackSplit, PackShape>> pack_shapes_;  ///< those that cells met
  std::vector<Setting> settings_;
  std::array<std::int8_t, kPrecisions> setting_index_;
  ModelFlop flop_;
  bool rates_stated_;
  std::vector<Cell> cells_;
  std::vector<StageLayout> stages_;
  Index cell_index_, stage_index_;
};

/// Neighbouring stages. The slowest pair sets the pace: once the pipeline spans domains, some pair
/// talks over the fabric.
GroupShape stage_pair(const Cluster& cluster, const Strategy& strategy,
                      const Degrees& degrees) noexcept;

/// Groups of the data-parallel traffic of dense and expert parameters, sharded and replicated.
struct DataParallelGroups {
  GroupShape dense_shard, dense_replica;
  GroupShape expert_shard, expert_replica;
  int dense_ranks = 1, expert_ranks = 1;  ///< replicas of a parameter
  int dense_shard_ranks = 1, expert_shard_ranks = 1;

  bool operator==(const DataParallelGroups&) const = default;
};
/// `routed`: there are experts.
DataParallelGroups data_parallel_groups(const Cluster& cluster, const Strategy& strategy,
                                        const Degrees& degrees, bool routed) noexcept;

}  // namespace scalemodel
