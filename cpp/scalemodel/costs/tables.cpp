#include "scalemodel/costs/tables.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "scalemodel/base/index.hpp"
#include "scalemodel/costs/settled_clock.hpp"
#include "scalemodel/costs/task_model.hpp"
#include "scalemodel/costs/vision_cost.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/schedule/pipeline.hpp"

namespace scalemodel {
namespace {

/// Of a full sequence. Documents of a pack attend to themselves alone.
ModelFlop model_flop(const Model& model, const Task& task, const Packing& packing) {
  ModelFlop flop;
  const double tokens = task.sequence;
  const double attended =
      packing.packed() ? pack_shape(packing, task.sequence, {}).attended : tokens;
  std::vector<double> layers(model.kinds.size());
  for (const std::uint8_t kind : model.layer_kind) ++layers[kind];
  layers[model.mtp_kind] += model.mtp_layers;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const LayerKind& kind = model.kinds[k];
    // GEMMs of a layer: two flop per parameter that a token is multiplied with, norms left out.
    flop.layers += Flop{layers[k] * 2 * tokens * (kind.active_parameters() - kind.norm_parameters)};
    for (const Unit& unit : kind.units) {
      for (const LayerOperator& op : unit.operators) {
        flop.attention += layers[k] * (tokens / attended) * op.activation_flop(attended);
        // Tokens of a source pass these weights, not those of the sequence.
        if (op.of_source)
          flop.layers += Flop{layers[k] * 2 * tokens * (op.rows - 1) * op.weights()};
      }
    }
  }
  flop.layers += Flop{2 * tokens * model.mtp_layers * model.mtp_projection_parameters};
  flop.layers += flop.attention;
  const double heads = 1.0 + model.mtp_layers;
  flop.forward = flop.layers + Flop{2 * tokens * heads * model.vocab * model.hidden};
  if (task.images > 0) {
    const double patches = model.vision.patches(task.image_height, task.image_width);
    flop.images = task.images * model.vision.forward_flop(patches);
  }
  return flop;
}

/// Whether bytes move at all: a rate that is not stated is none, and takes for ever.
bool states_rates(const Cluster& cluster, const Stack& stack) {
  const Accelerator& accelerator = cluster.accelerator;
  const Bytes size = 1 * unit::MiB;
  Seconds sum = host_transfer_time(size, accelerator) +
                memory_time(size, accelerator.elementwise.add_fraction * stack.memory_efficiency,
                            accelerator);
  const auto add_group = [&](const GroupShape& group) {
    sum += p2p_time(size, group, cluster);
    for (const Collective op :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      sum += collective_time(op, size, group, cluster);
    }
  };
  if (cluster.scale_up.domain > 1) add_group({2, 2, 1});
  if (cluster.accelerators > cluster.scale_up.domain) add_group({2, 1, 2});
  return std::isfinite(sum.base());
}

bool is_timed(const Cell& cell) {
  Seconds sum;
  const auto add = [&](const Phase& phase) { sum += phase.total() + phase.hidden; };
  for (const LayerCost& layer : cell.layers) {
    add(layer.forward);
    add(layer.backward);
    for (const Phase& again : layer.recompute) add(again);
  }
  for (const EndCost* end : {&cell.embedding, &cell.head}) {
    add(end->forward);
    add(end->backward);
  }
  return std::isfinite(sum.base());
}

std::uint64_t next_question() {
  static std::atomic<std::uint64_t> questions{0};
  return questions.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Shape of a group whose members are `stride` apart among the ranks of a pipeline stage, when
/// pipeline ranks are interleaved every `inner` of them.
GroupShape stage_group(const Cluster& cluster, int degree, int stride, int inner, int pp,
                       double share) {
  if (pp == 1 || stride >= inner) {
    const int spread = stride >= inner && inner > 0 ? stride * pp : stride;
    return group_shape(cluster, degree, pp == 1 ? stride : spread, share);
  }
  if (degree * stride <= inner) return group_shape(cluster, degree, stride, share);
  // The group continues beyond the pipeline ranks: only its first part stays close.
  GroupShape shape = group_shape(cluster, degree, stride, share);
  const int close = inner / stride;
  if (inner * pp > cluster.scale_up.domain) {
    shape.per_domain = std::min(shape.per_domain, close);
    shape.domains = (degree + shape.per_domain - 1) / shape.per_domain;
  }
  return shape;
}

/// Replicas of a dense parameter in the order in which they share it out: along the inner one of
/// the context and data axes first. Where another axis lies between the two, every step along the
/// outer one may leave a domain.
struct ReplicaOrder {
  int inner, outer;                ///< ranks along either axis
  int inner_stride, outer_stride;  ///< distance of neighbours, in accelerators

  /// Accelerators from the first of the first `ranks` replicas to behind the last.
  long long extent(int ranks) const {
    if (ranks <= inner) return static_cast<long long>(ranks) * inner_stride;
    return static_cast<long long>((ranks + inner - 1) / inner) * outer_stride;
  }
  /// Of them, those that share a domain with the first.
  int in_domain(int domain) const {
    if (outer_stride >= domain) return std::min(inner, domain / inner_stride);
    return inner * std::min(outer, domain / outer_stride);
  }
};

/// Where the ranks of a group lie that has every `step`-th of the first replicas.
void set_extent(GroupShape& shape, const Cluster& cluster, const ReplicaOrder& order, int step) {
  const int domain = std::min(cluster.scale_up.domain, cluster.accelerators);
  shape.per_domain = std::clamp(order.in_domain(domain) / step, 1, shape.ranks);
  shape.domains = (shape.ranks + shape.per_domain - 1) / shape.per_domain;
  shape.leaves_pod =
      cluster.fabric.pod > 0 && order.extent(shape.ranks * step) > cluster.fabric.pod;
}

/// The groups of dense parameters when both axes hold several ranks and do not touch.
void set_extents_apart(DataParallelGroups& groups, const Cluster& cluster, const Strides& strides,
                       const Degrees& d) {
  const ReplicaOrder order = context_inside_data(strides, d)
                                 ? ReplicaOrder{d.cp, d.dp, strides.cp, strides.dp}
                                 : ReplicaOrder{d.dp, d.cp, strides.dp, strides.cp};
  if (order.inner * order.inner_stride == order.outer_stride) return;
  set_extent(groups.dense_shard, cluster, order, 1);
  set_extent(groups.dense_replica, cluster, order, d.shard);
}

}  // namespace

DataParallelGroups data_parallel_groups(const Cluster& cluster, const Strategy& strategy,
                                        const Degrees& d, bool routed) noexcept {
  DataParallelGroups groups;
  const double share = cluster.fabric.shares.dp;
  const Strides strides = axis_strides(strategy.placement, d);
  groups.dense_ranks = d.dp * d.cp;
  const int stride = context_inside_data(strides, d) ? strides.cp : strides.dp;
  groups.dense_shard_ranks = d.shard;
  groups.dense_shard = group_shape(cluster, d.shard, stride, share);
  groups.dense_replica =
      group_shape(cluster, groups.dense_ranks / d.shard, stride * d.shard, share);
  if (d.cp > 1 && d.dp > 1) set_extents_apart(groups, cluster, strides, d);
  if (!routed) return groups;
  const int inside = strides.pp;
  groups.expert_ranks = std::max(1, d.inner() / (d.ep * d.etp));
  // Experts are sharded over their own replicas, as far as the dense sharding reaches.
  const int expert_stride = d.ep * d.etp;
  if (strategy.sharding != Sharding::ddp) {
    groups.expert_shard_ranks =
        d.shard == groups.dense_ranks
            ? groups.expert_ranks
            : std::clamp(d.shard * d.tp / expert_stride, 1, groups.expert_ranks);
  }
  groups.expert_shard =
      stage_group(cluster, groups.expert_shard_ranks, expert_stride, inside, d.pp, share);
  groups.expert_replica =
      stage_group(cluster, groups.expert_ranks / groups.expert_shard_ranks,
                  expert_stride * groups.expert_shard_ranks, inside, d.pp, share);
  return groups;
}

std::size_t Tables::Index::hash(const Key& key) noexcept {
  return mix(key.degrees ^ mix(key.rest ^ mix(key.outer ^ mix(key.apart))));
}

std::int32_t Tables::Index::find(const Key& key) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash(key) & mask;; i = (i + 1) & mask) {
    if (slots_[i].value < 0) return -1;
    if (slots_[i].key == key) return slots_[i].value;
  }
}

void Tables::Index::insert(const Key& key, std::int32_t value) {
  if (2 * (used_ + 1) > slots_.size()) {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    used_ = 0;
    for (const Slot& slot : old) {
      if (slot.value >= 0) insert(slot.key, slot.value);
    }
  }
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash(key) & mask;
  while (slots_[i].value >= 0) i = (i + 1) & mask;
  slots_[i] = {key, value};
  ++used_;
}

Tables::Tables(Model model, Cluster cluster, Task task, Stack stack, Packing packing)
    : question_(next_question()),
      model_(for_task(std::move(model), task)),
      cluster_(cluster),
      task_(seen_by(model_, task)),
      stack_(stack),
      packing_(packing_for(std::move(packing), task_)),
      pack_spread_(scalemodel::pack_spread(packing_, task_.sequence)),
      flop_(model_flop(model_, task_, packing_)),
      rates_stated_(states_rates(cluster_, stack_)) {
  setting_index_.fill(-1);
}

Tables Tables::without_cells() const {
  Tables fresh(model_, cluster_, task_, stack_, packing_);
  fresh.question_ = question_;
  return fresh;
}

Tables::Setting Tables::make_setting(const Strategy& strategy) const {
  const Precision precision = strategy.linear_precision.value_or(task_.precision);
  Conditions conditions = resolve_conditions(task_, stack_, precision);
  if (model_.vision.present()) {
    conditions.patches = model_.vision.patches(task_.image_height, task_.image_width);
  }
  const Accelerator accelerator = settled(cluster_.accelerator);
  return {
      conditions,
      {GemmTimer(accelerator, conditions.precision), GemmTimer(accelerator, conditions.storage)},
      {},
      {}};
}

Tables::Setting& Tables::setting_of(const Strategy& strategy) {
  const Precision precision = strategy.linear_precision.value_or(task_.precision);
  std::int8_t& at = setting_index_[static_cast<std::size_t>(precision)];
  if (at < 0) {
    at = static_cast<std::int8_t>(settings_.size());
    settings_.push_back(make_setting(strategy));
  }
  return settings_[static_cast<std::size_t>(at)];
}

const Conditions& Tables::conditions(const Strategy& strategy) const noexcept {
  const Precision precision = strategy.linear_precision.value_or(task_.precision);
  const std::int8_t at = setting_index_[static_cast<std::size_t>(precision)];
  return settings_[static_cast<std::size_t>(at)].conditions;
}

void Tables::clear() {
  cells_.clear();
  stages_.clear();
  cell_index_ = Index{};
  stage_index_ = Index{};
}

/// Two strategies share a cell when their layers are laid out alike: placement and outer degrees
/// count only through the shape of the groups.
Tables::Key Tables::cell_key(const Strategy& s, const LayerLayout& l) noexcept {
  const auto u = [](auto value) { return static_cast<std::uint64_t>(value); };
  Key key;
  key.degrees = u(l.tp) | u(l.cp) << 16 | u(l.ep) << 32 | u(l.micro_batch) << 48;
  key.rest = u(l.etp) | u(l.sequence_parallel) << 16 | u(l.regather) << 17 | u(l.overlap_tp) << 18 |
             u(l.context) << 20 | u(s.linear_precision) << 22;
  int at = 0;
  for (const GroupShape* group : {&l.tp_group, &l.cp_group, &l.ep_group, &l.etp_group}) {
    key.outer |= u(group->per_domain) << (16 * at);
    key.apart |= u(group->apart) << (16 * at);
    key.rest |= u(group->leaves_pod) << (32 + at);
    ++at;
  }
  return key;
}

namespace {

/// Micro-batches whose paths tell those of all. Schedules that run twice as many passes ahead take
/// twice as many until their groups repeat.
int path_batches(const Strategy& s, const Degrees& d) noexcept {
  const ScheduleTraits& traits = traits_of(s.schedule);
  const int ahead = traits.flows_on || traits.v_shape ? 2 : 1;
  return CriticalPaths::representative(ahead * d.pp,
                                       static_cast<int>(std::lround(d.micro_batches)));
}

}  // namespace

Tables::Key Tables::stage_key(const Strategy& s, const Degrees& d) noexcept {
  const auto u = [](int value) { return static_cast<std::uint64_t>(value); };
  return {u(d.pp) | u(d.vpp) << 16 | u(static_cast<int>(s.schedule)) << 32, u(path_batches(s, d)),
          0, 0};
}

StageLayout Tables::stages_of(const Strategy& s, const Degrees& d) const {
  const ChunkPlacement placement = chunk_placement(s.schedule);
  StageLayout layout = make_stage_layout(model_, d.pp, d.vpp, placement, stack_.ends_as_layers);
  layout.pairs = traits_of(running_schedule(s.schedule, d.pp, d.vpp)).pairs;
  PipelineShape shape;
  shape.schedule = effective_schedule(s.schedule, d.vpp);
  shape.pp = d.pp;
  shape.vpp = d.vpp;
  shape.chunks = make_chunks(model_, d.pp, d.vpp, placement, stack_.ends_as_layers);
  shape.transfers_block = !transfers_overlap(stack_, shape.schedule);
  shape.transfers_serial = transfers_serial(stack_, shape.schedule, d.pp);
  shape.tower = model_.tower().present();
  for (const StageClass& chunk : shape.chunks) {
    if (chunk.embedding) layout.first_chunk = chunk;
    if (chunk.head) layout.last_chunk = chunk;
  }
  if (d.pp > 1) layout.paths = critical_paths(shape, path_batches(s, d));
  return layout;
}

GroupShape stage_pair(const Cluster& cluster, const Strategy& strategy,
                      const Degrees& degrees) noexcept {
  const int stride = axis_strides(strategy.placement, degrees).pp;
  GroupShape pair = group_shape(cluster, degrees.pp, stride, cluster.fabric.shares.pp);
  pair.ranks = 2;
  return pair;
}

PlacedGroups Tables::placed_groups(const Strategy& strategy, const Degrees& d) const noexcept {
  const LayerLayout layout = layout_of(strategy, d);
  return {layout.tp_group,
          layout.cp_group,
          layout.ep_group,
          layout.etp_group,
          stage_pair(cluster_, strategy, d),
          d.tp * axis_strides(strategy.placement, d).tp <= cluster_.node_accelerators};
}

LayerLayout Tables::layout_of(const Strategy& s, const Degrees& d) const noexcept {
  LayerLayout layout;
  layout.tp = d.tp;
  layout.cp = d.cp;
  layout.ep = d.ep;
  layout.etp = d.etp;
  layout.micro_batch = d.micro_batch;
  layout.sequence_parallel = s.sequence_parallel && d.tp > 1;
  layout.regather = (s.regather && !stack_.keep_gathered) || !layout.sequence_parallel;
  const Strides strides = axis_strides(s.placement, d);
  const bool one_node = d.tp * strides.tp <= cluster_.node_accelerators;
  const bool stack_overlaps = stack_.overlap_tp && (one_node || !stack_.overlap_tp_in_node);
  layout.overlap_tp = s.overlap_tp.value_or(stack_overlaps ? TensorOverlap::ring  //
                                                           : TensorOverlap::off);
  layout.context = s.context;
  const int inside = strides.pp;
  const NetworkShares& shares = cluster_.fabric.shares;
  layout.tp_group = group_shape(cluster_, d.tp, strides.tp, shares.tp);
  layout.cp_group = group_shape(cluster_, d.cp, strides.cp, shares.cp);
  layout.etp_group = stage_group(cluster_, d.etp, 1, inside, d.pp, shares.ep);
  layout.ep_group = stage_group(cluster_, d.ep, d.etp, inside, d.pp, shares.ep);
  return layout;
}

void Tables::tabulate(const Strategy& strategy) {
  const Degrees d = resolve_degrees(strategy, cluster_, task_);
  if (first_violation(strategy, d, model_, cluster_, task_) == Reason::ok) tabulate(strategy, d);
}

Tabulated Tables::tabulate(const Strategy& strategy, const Degrees& d) {
  const Key pipeline = stage_key(strategy, d);
  std::int32_t stages = stage_index_.find(pipeline);
  if (stages < 0) {
    stages = static_cast<std::int32_t>(stages_.size());
    stages_.push_back(stages_of(strategy, d));
    stage_index_.insert(pipeline, stages);
  }
  const LayerLayout layout = layout_of(strategy, d);
  const Key key = cell_key(strategy, layout);
  std::int32_t cell = cell_index_.find(key);
  if (cell < 0) {
    cell = static_cast<std::int32_t>(cells_.size());
    cells_.push_back(make_cell(strategy, d, layout));
    cell_index_.insert(key, cell);
  }
  return {&cells_[at(cell)], &stages_[at(stages)]};
}

bool Tables::share_cell(const Strategy& a, const Strategy& b) noexcept {
  return a.placement == b.placement && a.context == b.context &&
         a.sequence_parallel == b.sequence_parallel && a.regather == b.regather &&
         a.overlap_tp == b.overlap_tp && a.linear_precision == b.linear_precision;
}

PackSplit Tables::pack_split(const LayerLayout& layout) noexcept {
  return {layout.sequence_parallel ? layout.tp : 1, layout.cp};
}

LayerLayout Tables::packed(LayerLayout layout) const {
  if (!packing_.packed()) return layout;
  const PackSplit split = pack_split(layout);
  const auto known = std::ranges::find(pack_shapes_, split, [](const auto& e) { return e.first; });
  layout.packs =
      known != pack_shapes_.end() ? known->second : pack_shape(packing_, task_.sequence, split);
  return layout;
}

Cell Tables::make_cell(const Strategy& strategy, const Degrees& d, const LayerLayout& plain) {
  Setting& setting = setting_of(strategy);
  // Cells differ in placement and overlap more often than in the shapes of their GEMMs. Who asks
  // for few of them would pay more for the room than for the GEMMs.
  constexpr std::size_t kFewCells = 16;
  const bool many = cells_.size() >= kFewCells;
  setting.timers.linear.keep_in(many ? &setting.linear : nullptr);
  setting.timers.storage.keep_in(many ? &setting.storage : nullptr);
  const LayerLayout layout = packed(plain);
  Cell cell;
  if (packing_.packed()) {
    cell.fill = layout.packs.fill;
    const PackSplit split = pack_split(layout);
    const auto met = [&](const auto& each) { return each.first == split; };
    if (std::ranges::none_of(pack_shapes_, met)) pack_shapes_.emplace_back(split, layout.packs);
  }
  for (std::size_t k = 0; k < model_.kinds.size(); ++k) {
    cell.layers[k] =
        layer_cost(model_, model_.kinds[k], layout, setting.conditions, cluster_, setting.timers);
  }
  cell.embedding = embedding_cost(model_, layout, setting.conditions, cluster_);
  if (model_.vision.present()) {
    add_vision(cell.embedding, model_.vision, layout, setting.conditions, cluster_, setting.timers);
  }
  cell.head = head_cost(model_, layout, setting.conditions, cluster_, setting.timers);
  const double tokens = static_cast<double>(d.micro_batch) * task_.sequence / d.cp;
  // Tensor ranks send a part each and gather it on the other side (arXiv 2104.04473, 4.1).
  cell.boundary = Bytes{tokens / d.tp * (model_.streams * model_.hidden) *
                        operand_bytes(setting.conditions.storage)};
  cell.timed = is_timed(cell);
  return cell;
}

const Cell* Tables::find_cell(const Strategy& strategy, const Degrees& degrees) const noexcept {
  const std::int32_t at = cell_index_.find(cell_key(strategy, layout_of(strategy, degrees)));
  return at < 0 ? nullptr : &cells_[static_cast<std::size_t>(at)];
}

const StageLayout* Tables::find_stages(const Strategy& strategy,
                                       const Degrees& degrees) const noexcept {
  const std::int32_t at = stage_index_.find(stage_key(strategy, degrees));
  return at < 0 ? nullptr : &stages_[static_cast<std::size_t>(at)];
}

CellMessages Tables::messages(const Strategy& strategy) const {
  const Setting setting = make_setting(strategy);
  const LayerLayout layout =
      packed(layout_of(strategy, resolve_degrees(strategy, cluster_, task_)));
  CellMessages messages;
  for (std::size_t k = 0; k < model_.kinds.size(); ++k) {
    layer_cost(model_, model_.kinds[k], layout, setting.conditions, cluster_, setting.timers,
               nullptr, &messages.layers[k]);
  }
  EndCost embedding =
      embedding_cost(model_, layout, setting.conditions, cluster_, &messages.embedding);
  if (model_.vision.present()) {
    add_vision(embedding, model_.vision, layout, setting.conditions, cluster_, setting.timers,
               &messages.embedding);
  }
  head_cost(model_, layout, setting.conditions, cluster_, setting.timers, nullptr, &messages.head);
  return messages;
}

OperatorList Tables::operators(const Strategy& strategy, std::size_t kind) const {
  const Setting setting = make_setting(strategy);
  const Degrees d = resolve_degrees(strategy, cluster_, task_);
  const LayerLayout layout = packed(layout_of(strategy, d));
  OperatorList list;
  if (kind < model_.kinds.size()) {
    layer_cost(model_, model_.kinds[kind], layout, setting.conditions, cluster_, setting.timers,
               &list);
  } else {
    head_cost(model_, layout, setting.conditions, cluster_, setting.timers, &list);
  }
  return list;
}

}  // namespace scalemodel
