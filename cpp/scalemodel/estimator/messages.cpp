#include "scalemodel/estimator/messages.hpp"

#include <algorithm>

#include "scalemodel/estimator/pass_times.hpp"
#include "scalemodel/estimator/stage_memory.hpp"
#include "scalemodel/estimator/step_traffic.hpp"

namespace scalemodel {

namespace {

/// Collects the messages of one stage.
class StageList {
 public:
  StageList(const StepContext& c, int stage, std::vector<StageMessage>& into)
      : c_(c), stage_(stage), into_(into) {}

  /// `calls` in every micro-batch, or in the step where `once`.
  void add(Message message, double calls, bool once) {
    if (message.group.ranks <= 1 || message.size <= Bytes{} || calls <= 0) return;
    const Algorithm algorithm =
        message.op ? best_algorithm(*message.op, message.size, message.group, c_.cluster())
                   : Algorithm::direct;
    into_.push_back({message, algorithm, stage_, calls, once ? 1 : c_.degrees.micro_batches});
  }

  /// Transfers of a micro-batch to the next stage and, where chunks lie that way, to the one
  /// before.
  void add_transfers(double onwards, double back) {
    const Message message{Communicator::pp, std::nullopt, boundary(c_), stage_pair(c_), 1, 1};
    add(message, onwards, false);
    const std::size_t before = into_.size();
    add(message, back, false);
    if (into_.size() > before) into_.back().back = true;
  }

  /// Layers or an end that a pass goes through `times` forwards, `again` of them repeated.
  void add_passes(const MessageList& messages, double times, double again) {
    for (const Message& message : messages) {
      const double repeated = again * (message.forward - message.unrepeated);
      add(message, times * (message.forward + repeated + message.backward), false);
    }
  }

  /// What `each_gather` and `each_reduce` call for shard groups.
  auto shard_calls(double layers, double times, bool once) {
    return [this, layers, times, once](Communicator communicator, Collective op, Bytes size,
                                       const GroupShape& group) {
      const double pieces = shard_pieces(c_, op, layers);
      add({communicator, op, size / pieces, group}, times * pieces, once);
      return 0;
    };
  }

  void add_gather(const GatherGroups& groups, const ShardedParameters& all, double layers,
                  double times, bool once) {
    each_gather(c_, groups, all, shard_calls(layers, times, once));
  }

  /// Gathers of `all` parameters of a layer, or of an end, of which some learn: before `times`
  /// passes of a micro-batch, a share `firsts` of which comes first after an update.
  void add_gathers(const SecondaryGroups& secondary, const ShardedParameters& all,
                   const ShardedParameters& trainable, double times, double firsts) {
    if (!secondary) {
      add_gather(shard_groups(c_), all, 1, times, false);
      return;
    }
    const auto add_times = [this](double calls, bool once) {
      return [this, calls, once](const GatherGroups& groups, const ShardedParameters& parameters) {
        add_gather(groups, parameters, 1, calls, once);
      };
    };
    gather_from(*secondary, c_, all, trainable, add_times(firsts * c_.degrees.micro_batches, true),
                add_times(times - firsts, false));
  }

  void add_reduce(double dense, double expert, double layers, double times, bool once) {
    each_reduce(c_, dense, expert, shard_calls(layers, times, once),
                [&, times, once](Communicator communicator, Collective op, Bytes size,
                                 const GroupShape& group) {
                  add({communicator, op, size, group}, times, once);
                  return 0;
                });
  }

 private:
  const StepContext& c_;
  int stage_;
  std::vector<StageMessage>& into_;
};

/// Replicas move parameters and gradients as `add_parameter_gathering`, `add_repeated_reduction`
/// and `step_traffic` time them.
void add_data_parallel(StageList& list, const StepContext& c, const StageClass& stage,
                       const StageCost& cost, double share) {
  const EndParameters ends = end_parameters(c, stage);
  if (c.gathered) {
    const double gathers = 2 + repeated_gathers(c, recompute_share(c.strategy, stage));
    const SecondaryGroups secondary = secondary_groups(c);
    const double firsts = first_share(c, share);
    for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
      if (stage.layers[k] == 0) continue;
      const LayerCost& layer = c.cell.layers[k];
      const double times = share * stage.layers[k];
      list.add_gathers(secondary, {layer.dense_parameters, layer.expert_parameters},
                       {layer.trainable_dense, layer.trainable_expert}, gathers * times,
                       firsts * times);
      list.add_reduce(layer.trainable_dense, layer.trainable_expert, 1, times, false);
    }
    list.add_gathers(secondary, {ends.all, 0}, {ends.trainable, 0}, share, firsts * share);
    list.add_reduce(ends.trainable, 0, 1, share, false);
    return;
  }
  const double dense = cost.trainable_dense, expert = cost.trainable_expert;
  const double layers = std::max(1, stage.total_layers());
  if (c.strategy.sharding == Sharding::zero2) {
    const double chunks = chunks_of(c, stage);
    list.add_reduce(dense / chunks, expert / chunks, layers / chunks, share * chunks, false);
  } else {
    list.add_reduce(dense, expert, layers, 1, true);
  }
  if (c.strategy.sharding != Sharding::ddp) {
    list.add_gather(shard_groups(c), {dense, expert}, layers, 1, true);
  }
}

/// The layers and ends of every stage, one class each.
std::vector<StageClass> stages_one_by_one(const Tables& tables, const Degrees& d,
                                          ChunkPlacement placement) {
  const std::vector<StageClass> chunks =
      make_chunks(tables.model(), d.pp, d.vpp, placement, tables.stack().ends_as_layers);
  const std::size_t per_stage = chunks.size() / d.pp;
  std::vector<StageClass> stages(d.pp);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    StageClass& stage = stages[i / per_stage];
    for (std::size_t k = 0; k < kMaxLayerKinds; ++k) stage.layers[k] += chunks[i].layers[k];
    stage.embedding = stage.embedding || chunks[i].embedding;
    stage.head = stage.head || chunks[i].head;
    stage.first_index = stage.last_index = static_cast<int>(i / per_stage);
    stage.count = 1;
  }
  return stages;
}

/// Whether the strategy is legal; its tables are filled then.
bool can_run(Tables& tables, const Strategy& strategy) {
  tables.tabulate(strategy);
  const Degrees d = resolve_degrees(strategy, tables.cluster(), tables.task());
  return tables.find_cell(strategy, d) != nullptr && tables.find_stages(strategy, d) != nullptr &&
         first_violation(strategy, d, tables.model(), tables.cluster(), tables.task()) ==
             Reason::ok;
}

}  // namespace

std::vector<Bytes> checkpoint_bytes(Tables& tables, const Strategy& strategy) {
  std::vector<Bytes> of_stage;
  if (!can_run(tables, strategy)) return of_stage;
  const Degrees d = resolve_degrees(strategy, tables.cluster(), tables.task());
  const StageLayout& layout = *tables.find_stages(strategy, d);
  const StepContext c = make_context(tables, strategy, d, *tables.find_cell(strategy, d), layout);
  const double weight = keeps_masters_only(c) ? 0 : c.storage_bytes;
  // Each chunk of a DualPipe pipeline is held by two stages, which write half of it each.
  const double share = layout.mirrored ? 0.5 : 1;
  LayerGathers gathers(c);
  for (const StageClass& stage : stages_one_by_one(tables, d, chunk_placement(strategy.schedule))) {
    const StageCost cost = stage_cost(c, stage, gathers);
    const double parameters =
        cost.trainable_dense / c.groups.dense_ranks + cost.trainable_expert / c.groups.expert_ranks;
    const double more = second_moment_bytes(c.task()) * end_parameters(c, stage).trainable;
    const StageMatrices matrices = stage_matrices(c, stage);
    const Bytes factors = (matrices.dense.factors + matrices.ends.factors) / c.groups.dense_ranks +
                          matrices.expert.factors / c.groups.expert_ranks;
    of_stage.push_back(share *
                       (Bytes{parameters * (weight + state_bytes(c.task(), c.storage_bytes)) +
                              more / c.groups.dense_ranks} +
                        factors));
  }
  return of_stage;
}

std::vector<StageMessage> step_messages(Tables& tables, const Strategy& strategy) {
  std::vector<StageMessage> messages;
  if (!can_run(tables, strategy)) return messages;
  const Degrees d = resolve_degrees(strategy, tables.cluster(), tables.task());
  const StageLayout& layout = *tables.find_stages(strategy, d);
  const StepContext c = make_context(tables, strategy, d, *tables.find_cell(strategy, d), layout);
  const CellMessages of_cell = tables.messages(strategy);
  LayerGathers gathers(c);
  // A DualPipe stage holds two chunks and runs half of the micro-batches through each.
  const double share = layout.mirrored ? 0.5 : 1;
  const std::vector<StageClass> stages =
      stages_one_by_one(tables, d, chunk_placement(strategy.schedule));
  for (int s = 0; s < d.pp; ++s) {
    const StageClass& stage = stages[s];
    StageList list(c, s, messages);
    const double again =
        strategy.recompute == Recompute::full ? recompute_share(strategy, stage) : 0;
    for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
      if (stage.layers[k] > 0) {
        list.add_passes(of_cell.layers[k], share * stage.layers[k], again);
      }
    }
    if (stage.embedding) list.add_passes(of_cell.embedding, share, 0);
    if (stage.head) list.add_passes(of_cell.head, share, 0);
    add_data_parallel(list, c, stage, stage_cost(c, stage, gathers), share);
    if (d.pp == 1) continue;
    if (layout.mirrored || traits_of(strategy.schedule).v_shape) {
      // There and back, each end keeps what it turns; of two directions, each takes its share.
      list.add_transfers(s + 1 < d.pp ? share : 0, s > 0 ? share : 0);
    } else {
      // The last stage hands every chunk but its last round to the first one.
      list.add_transfers(s + 1 < d.pp ? d.vpp : d.vpp - 1, 0);
    }
  }
  return messages;
}

StrategyLayout strategy_layout(const Tables& tables, const Strategy& strategy, bool rails) {
  const Cluster& cluster = tables.cluster();
  StrategyLayout layout;
  layout.degrees = resolve_degrees(strategy, cluster, tables.task());
  layout.placement = strategy.placement;
  layout.domain = std::min(cluster.scale_up.domain, cluster.accelerators);
  layout.rails = rails;
  const DataParallelGroups groups =
      data_parallel_groups(cluster, with_meant_sharding(strategy, layout.degrees), layout.degrees,
                           tables.model().routed());
  layout.dense_shard_ranks = groups.dense_shard_ranks;
  layout.expert_shard_ranks = groups.expert_shard_ranks;
  layout.dense_node_ranks = node_ranks(groups.dense_shard);
  layout.expert_node_ranks = node_ranks(groups.expert_shard);
  layout.dense_secondary_ranks = groups.dense_shard_ranks;
  layout.expert_secondary_ranks = groups.expert_shard_ranks;
  if (const SecondaryGroups shared = secondary_groups(tables, strategy, layout.degrees)) {
    layout.dense_secondary_ranks = shared->dense_shard_ranks;
    layout.expert_secondary_ranks = shared->expert_shard_ranks;
  }
  return layout;
}

Seconds message_time(const Message& message, const Cluster& cluster) noexcept {
  return message.op ? collective_time(*message.op, message.size, message.group, cluster)
                    : p2p_time(message.size, message.group, cluster);
}

}  // namespace scalemodel
