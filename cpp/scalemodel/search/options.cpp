#include "scalemodel/search/options.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/search/placed_runs.hpp"

namespace scalemodel {
namespace {

constexpr std::uint32_t bit(std::size_t index) { return std::uint32_t{1} << index; }

template <auto Member>
constexpr std::uint32_t bit_of() {
  return bit(field_index(Member));
}

/// Fields that the points carry; all others are options.
constexpr std::uint32_t kPointFields =
    bit_of<&Strategy::tp>() | bit_of<&Strategy::cp>() | bit_of<&Strategy::pp>() |
    bit_of<&Strategy::dp>() | bit_of<&Strategy::ep>() | bit_of<&Strategy::etp>() |
    bit_of<&Strategy::vpp>() | bit_of<&Strategy::micro_batch>() | bit_of<&Strategy::schedule>();

/// Fields of `mask` in which two strategies agree.
bool agree(const Strategy& a, const Strategy& b, std::uint32_t mask) {
  bool equal = true;
  std::size_t index = 0;
  for_each_field<Strategy>([&](const auto& field) {
    if ((mask & bit(index++)) != 0) equal = equal && a.*(field.member) == b.*(field.member);
  });
  return equal;
}

bool replicates_experts(const Degrees& d, const Model& model) {
  return model.routed() && d.inner() > d.ep * d.etp;
}

/// 0 for the expert degree that 0 stands for.
int canonical_etp(const Degrees& d, int etp) { return etp == (d.ep > 1 ? 1 : d.tp) ? 0 : etp; }

bool keeps_redundant(const Space& space, std::size_t field) {
  return (space.redundant & bit(field)) != 0;
}

/// A number of recomputed layers that no stage exceeds, whichever of them hold embedding and LM
/// head: all.
bool recomputes_all(int layers, const Strategy& s, const Degrees& d, const Model& model) {
  if (d.pp == 1) return layers >= model.layers();
  const int chunks = chunks_per_stage(s.schedule, 1);
  const auto most = (model.layers() + 2 + d.pp - 1) / d.pp;
  return layers >= chunks * most;
}

/// Ranks that one shard group of HSDP has.
int hsdp_shard(const Strategy& point, std::uint16_t listed, const Cluster& cluster,
               const Task& task) {
  Strategy s = point;
  s.sharding = Sharding::hsdp;
  s.shard_degree = listed;
  return resolve_degrees(s, cluster, task).shard;
}

/// Listed shard degrees that HSDP takes at a point: the legal ones, less those that repeat another
/// spelling that the space holds.
void set_shards(Signature& s, const Space& space, const Strategy& point, int replicas,
                const Cluster& cluster, const Task& task) {
  const auto& shardings = space.of<&Strategy::sharding>();
  if (!contains(shardings, Sharding::hsdp)) return;
  const auto listed = values_or_default<&Strategy::shard_degree>(space);
  const int node = hsdp_shard(point, 0, cluster, task);
  const bool every = keeps_redundant(space, field_index(&Strategy::shard_degree));
  const bool all_names = keeps_redundant(space, field_index(&Strategy::sharding));
  const bool by_node = contains<std::uint16_t>(listed, 0) && replicas % node == 0;
  if (by_node) s.node_shard = node;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const int shard = hsdp_shard(point, listed[i], cluster, task);
    if (shard > replicas || replicas % shard != 0) continue;
    const bool as_node = listed[i] != 0 && by_node && shard == node && !every;
    const Sharding meant = meant_sharding(Sharding::hsdp, shard, replicas);
    const bool as_other = meant != Sharding::hsdp && contains(shardings, meant) && !all_names;
    if (!as_node && !as_other) s.shards |= std::uint64_t{1} << i;
  }
}

bool wide(const Signature& s, Axis axis) {
  switch (axis) {
    case Axis::tp:
      return s.tp > 1;
    case Axis::cp:
      return s.cp > 1;
    case Axis::dp:
      return s.dp > 1;
    case Axis::pp:
      return s.pp > 1;
  }
  return false;
}

/// Axes of more than one rank, in their order.
std::vector<Axis> wide_axes(Placement placement, const Signature& s) {
  std::vector<Axis> axes;
  for (const Axis axis : axes_of(placement)) {
    if (wide(s, axis)) axes.push_back(axis);
  }
  return axes;
}

/// The first placement with the same order of the axes that have more than one rank.
Placement canonical_placement(Placement placement, const Signature& s) {
  const std::vector<Axis> order = wide_axes(placement, s);
  for (std::size_t i = 0; i < EnumNames<Placement>::names.size(); ++i) {
    if (wide_axes(static_cast<Placement>(i), s) == order) return static_cast<Placement>(i);
  }
  return placement;
}

Placement placement_of(const std::array<Axis, 4>& axes) {
  std::uint8_t i = 0;
  while (axes_of(static_cast<Placement>(i)) != axes) ++i;
  return static_cast<Placement>(i);
}

/// One placement per assignment of the wide axes to an inner and an outer tier.
std::vector<Placement> tier_placements(const Signature& s) {
  std::vector<Axis> axes;
  for (const Axis axis : {Axis::tp, Axis::pp, Axis::dp}) {
    if (wide(s, axis)) axes.push_back(axis);
  }
  std::vector<Placement> placements;
  for (std::uint32_t inner = 0; inner < bit(axes.size()); ++inner) {
    std::array<Axis, 4> order{};
    std::size_t at = 0;
    for (const bool tier : {true, false}) {
      for (std::size_t i = 0; i < axes.size(); ++i) {
        if (((inner & bit(i)) != 0) == tier) order[at++] = axes[i];
      }
    }
    // Context parallelism has no part in tiers and goes outermost, with the axes of one rank.
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
      if (!contains(axes, axis)) order[at++] = axis;
    }
    placements.push_back(canonical_placement(placement_of(order), s));
  }
  return placements;
}

/// Whether a knob changes anything, given the knobs expanded before it.
bool matters(std::size_t field, const Strategy& s, const Signature& at) {
  const bool replicated = at.dp > 1 || at.cp > 1 || at.expert_replicas;
  switch (field) {
    case field_index(&Strategy::context):
      return at.cp > 1;
    case field_index(&Strategy::sequence_parallel):
    case field_index(&Strategy::overlap_tp):
      return at.tp > 1;
    case field_index(&Strategy::regather):
      return at.tp > 1 && s.sequence_parallel;
    case field_index(&Strategy::split_p2p):
      return at.tp > 1 && at.pp > 1 && !s.sequence_parallel;
    case field_index(&Strategy::recompute_layers):
      return s.recompute != Recompute::none;
    case field_index(&Strategy::sharding):
    case field_index(&Strategy::overlap_grad_reduce):
      return replicated;
    case field_index(&Strategy::shard_degree):
      return s.sharding == Sharding::hsdp;
    case field_index(&Strategy::overlap_param_gather):
      return replicated && s.sharding != Sharding::ddp;
    default:
      return true;
  }
}

template <auto Member>
using ValueOf = std::remove_cvref_t<decltype(Strategy{}.*Member)>;

/// Grows every row by the values of one knob, in their order.
template <auto Member>
void expand(std::vector<Strategy>& rows, const Space& space, const Signature& at,
            const std::vector<ValueOf<Member>>& values) {
  constexpr std::size_t index = field_index(Member);
  const auto grows = [&](const Strategy& row) {
    return matters(index, row, at) || (space.redundant & bit(index)) != 0;
  };
  std::size_t size = 0;
  for (const Strategy& row : rows) size += grows(row) ? values.size() : 1;
  require_listable(size);
  std::vector<Strategy> grown;
  grown.reserve(size);
  for (const Strategy& row : rows) {
    poll_point();
    if (!grows(row)) {
      grown.push_back(row);
      continue;
    }
    for (const auto value : values) {
      grown.push_back(row);
      grown.back().*Member = value;
    }
  }
  rows.swap(grown);
}

template <auto Member>
void expand(std::vector<Strategy>& rows, const Space& space, const Signature& at) {
  expand<Member>(rows, space, at, values_or_default<Member>(space));
}

/// Grows every row by the fields outside `done`, in the order of the field table.
template <std::uint32_t done, std::size_t... I>
void expand_others(std::vector<Strategy>& rows, const Space& space, const Signature& at,
                   std::index_sequence<I...> /*others*/) {
  const auto grow = [&]<std::size_t index>() {
    if constexpr ((done & bit(index)) == 0) {
      expand<field_at<index>(RecordOf<Strategy>::fields).member>(rows, space, at);
    }
  };
  (grow.template operator()<I>(), ...);
}

/// Listed values whose bit is set.
template <class T>
std::vector<T> masked(const std::vector<T>& listed, std::uint64_t mask) {
  std::vector<T> kept;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if ((mask >> i & 1) != 0) kept.push_back(listed[i]);
  }
  return kept;
}

/// Every listed degree beside other shardings than HSDP, to which it means nothing; of HSDP's rows
/// those that it takes.
void expand_shard_degree(std::vector<Strategy>& rows, const Space& space, const Signature& at) {
  const auto listed = values_or_default<&Strategy::shard_degree>(space);
  const auto taken = masked(listed, at.shards);
  std::vector<Strategy> grown;
  for (const Strategy& row : rows) {
    poll_point();
    std::vector<Strategy> own{row};
    const bool is_hsdp = row.sharding == Sharding::hsdp;
    expand<&Strategy::shard_degree>(own, space, at, is_hsdp ? taken : listed);
    require_listable(grown.size() + own.size());
    grown.insert(grown.end(), own.begin(), own.end());
  }
  rows.swap(grown);
}

std::vector<Placement> placements_of(const Space& space, const Signature& at) {
  if (space.tiers) return tier_placements(at);
  std::vector<Placement> placements;
  for (const Placement listed : values_or_default<&Strategy::placement>(space)) {
    const Placement placement = canonical_placement(listed, at);
    if (!contains(placements, placement)) placements.push_back(placement);
  }
  return placements;
}

/// Fields in which the members of an option group may differ.
constexpr std::uint32_t kFreeFields =
    bit_of<&Strategy::sharding>() | bit_of<&Strategy::shard_degree>() |
    bit_of<&Strategy::overlap_grad_reduce>() | bit_of<&Strategy::overlap_param_gather>() |
    bit_of<&Strategy::offload_weights>() | bit_of<&Strategy::offload_activations>() |
    bit_of<&Strategy::offload_optimizer>();

/// Fields that make_options expands by name, for their values or their place in the order.
constexpr std::uint32_t kExpandedFields =
    kPointFields | kFreeFields | bit_of<&Strategy::linear_precision>() |
    bit_of<&Strategy::placement>() | bit_of<&Strategy::context>() |
    bit_of<&Strategy::sequence_parallel>() | bit_of<&Strategy::regather>() |
    bit_of<&Strategy::split_p2p>() | bit_of<&Strategy::overlap_tp>() |
    bit_of<&Strategy::recompute>() | bit_of<&Strategy::recompute_layers>();

constexpr std::size_t kStrategyFields = field_count<Strategy>;
static_assert(kStrategyFields <= 32, "masks of fields have 32 bits");

void add_freedom(Freedom& freedom, const Strategy& s) {
  const bool gathers = gathers_parameters(s.sharding);
  freedom.shards_weights = freedom.shards_weights || gathers;
  freedom.shards_gradients = freedom.shards_gradients || gathers || s.sharding == Sharding::zero2;
  freedom.offloads_weights = freedom.offloads_weights || s.offload_weights;
  freedom.offloads_activations = freedom.offloads_activations || s.offload_activations;
  freedom.offloads_optimizer = freedom.offloads_optimizer || s.offload_optimizer;
}

/// "task" for the task's own precision, whichever way it is asked for.
OrDefault<Precision> canonical_precision(OrDefault<Precision> choice, const Task& task) {
  return choice.value_or(task.precision) == task.precision ? OrDefault<Precision>{} : choice;
}

}  // namespace

void require_listable(std::uint64_t options) {
  constexpr std::uint64_t kMaxOptions = std::uint64_t{1} << 25;
  if (options <= kMaxOptions) return;
  throw MalformedQuestion("space: " + std::to_string(options) +
                          " combinations or more beside the degrees, of at most " +
                          std::to_string(kMaxOptions) + ": give fewer values");
}

Signature signature_of(const Space& space, const Strategy& point, const Degrees& d,
                       const Model& model, const Cluster& cluster, const Task& task) {
  Signature s;
  s.tp = std::min(d.tp, 2);
  s.cp = std::min(d.cp, 2);
  s.pp = std::min(d.pp, 2);
  s.dp = std::min(d.dp, 2);
  s.expert_replicas = replicates_experts(d, model);
  s.splits_sequence = (task.sequence / d.cp) % d.tp == 0;
  for (const LayerKind& kind : model.kinds) {
    s.splits_heads = s.splits_heads && kind.attention.heads % (d.tp * d.cp) == 0 &&
                     kind.recurrence.heads % (d.tp * d.cp) == 0;
  }
  set_shards(s, space, point, d.dp * d.cp, cluster, task);
  const auto& layers = space.of<&Strategy::recompute_layers>();
  bool all = contains<std::uint16_t>(layers, 0);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] > model.layers()) continue;
    const bool is_all = layers[i] > 0 && recomputes_all(layers[i], point, d, model);
    if (!is_all || !all) s.layers |= std::uint64_t{1} << i;
    all = all || is_all;
  }
  for (std::size_t i = 0; i < space.exclusions.size(); ++i) {
    const Exclusion& exclusion = space.exclusions[i];
    Strategy excluded = exclusion.values, here = point;
    excluded.etp = static_cast<std::uint8_t>(canonical_etp(d, excluded.etp));
    here.etp = static_cast<std::uint8_t>(canonical_etp(d, here.etp));
    if (agree(excluded, here, exclusion.fields & kPointFields)) {
      s.exclusions |= std::uint64_t{1} << i;
    }
  }
  return s;
}

/// Knobs that decide a cell vary slowest, then recomputation, then what costs no cell: rows next to
/// each other share most of their costs.
Options make_options(const Space& space, const Signature& at, const Task& task,
                     const std::vector<OrDefault<Precision>>& precisions) {
  std::vector<Strategy> rows{Strategy{}};
  expand<&Strategy::linear_precision>(rows, space, at, precisions);
  expand<&Strategy::placement>(rows, space, at, placements_of(space, at));
  auto contexts = values_or_default<&Strategy::context>(space);
  if (!at.splits_heads && at.cp > 1) std::erase(contexts, ContextParallel::all_to_all);
  expand<&Strategy::context>(rows, space, at, contexts);
  auto splits = values_or_default<&Strategy::sequence_parallel>(space);
  if (!at.splits_sequence) std::erase(splits, true);
  expand<&Strategy::sequence_parallel>(rows, space, at, splits);
  expand<&Strategy::regather>(rows, space, at);
  expand<&Strategy::split_p2p>(rows, space, at);
  expand<&Strategy::overlap_tp>(rows, space, at);
  expand<&Strategy::recompute>(rows, space, at);
  const auto& listed_layers = space.of<&Strategy::recompute_layers>();
  auto layers = masked(listed_layers, at.layers);
  if (listed_layers.empty()) layers.push_back(0);
  expand<&Strategy::recompute_layers>(rows, space, at, layers);
  expand_others<kExpandedFields>(rows, space, at, std::make_index_sequence<kStrategyFields>());
  expand<&Strategy::sharding>(rows, space, at);
  expand_shard_degree(rows, space, at);
  expand<&Strategy::overlap_grad_reduce>(rows, space, at);
  expand<&Strategy::overlap_param_gather>(rows, space, at);
  expand<&Strategy::offload_weights>(rows, space, at);
  expand<&Strategy::offload_activations>(rows, space, at);
  expand<&Strategy::offload_optimizer>(rows, space, at);

  // Exclusions mean what they say however it is spelled.
  std::vector<Exclusion> exclusions = space.exclusions;
  for (Exclusion& exclusion : exclusions) {
    Strategy& excluded = exclusion.values;
    excluded.placement = canonical_placement(excluded.placement, at);
    excluded.linear_precision = canonical_precision(excluded.linear_precision, task);
    if (excluded.shard_degree == at.node_shard) excluded.shard_degree = 0;
  }
  Options options;
  for (const Strategy& row : rows) {
    poll_point();
    const bool excluded = [&] {
      Strategy meant = row;
      if (meant.shard_degree == at.node_shard) meant.shard_degree = 0;
      for (std::size_t i = 0; i < exclusions.size(); ++i) {
        const Exclusion& exclusion = exclusions[i];
        const bool here = (at.exclusions >> i & 1) != 0;
        if (here && agree(exclusion.values, meant, exclusion.fields & ~kPointFields)) return true;
      }
      return false;
    }();
    if (excluded) continue;
    const bool starts = options.rows.empty() || !agree(options.rows.back(), row, ~kFreeFields);
    const auto end = static_cast<std::uint32_t>(options.rows.size());
    if (starts) options.groups.push_back({end, end, {}});
    options.changes.push_back(starts ? Change::shards : change_between(options.rows.back(), row));
    options.rows.push_back(row);
    options.groups.back().end = end + 1;
    add_freedom(options.groups.back().freedom, row);
  }
  find_runs(options);
  return options;
}

std::vector<OrDefault<Precision>> legal_precisions(const Space& space, const Cluster& cluster,
                                                   const Task& task) {
  std::vector<OrDefault<Precision>> legal;
  for (const OrDefault<Precision> listed : values_or_default<&Strategy::linear_precision>(space)) {
    const OrDefault<Precision> choice = canonical_precision(listed, task);
    const Precision precision = choice.value_or(task.precision);
    const bool runs = cluster.accelerator.peak_of(precision) > FlopPerSecond{};
    if (runs && !contains(legal, choice)) legal.push_back(choice);
  }
  return legal;
}

Strategy canonical(const Strategy& strategy, const Model& model, const Cluster& cluster,
                   const Task& task) {
  const Degrees d = resolve_degrees(strategy, cluster, task);
  Signature at;
  at.tp = d.tp;
  at.cp = d.cp;
  at.pp = d.pp;
  at.dp = d.dp;
  at.expert_replicas = replicates_experts(d, model);
  const Strategy defaults;
  Strategy s = strategy;
  s.sharding = meant_sharding(s.sharding, d.shard, d.dp * d.cp);
  if (s.shard_degree == hsdp_shard(s, 0, cluster, task)) s.shard_degree = 0;
  if (recomputes_all(s.recompute_layers, s, d, model)) s.recompute_layers = 0;
  const Strategy meant = s;
  s.dp = static_cast<std::uint32_t>(d.dp);
  s.placement = canonical_placement(s.placement, at);
  std::size_t index = 0;
  for_each_field<Strategy>([&](const auto& field) {
    if (!matters(index, meant, at)) s.*(field.member) = defaults.*(field.member);
    ++index;
  });
  s.etp = model.routed() ? static_cast<std::uint8_t>(canonical_etp(d, s.etp)) : 0;
  s.linear_precision = canonical_precision(s.linear_precision, task);
  if (d.pp == 1) s.schedule = defaults.schedule;
  s.schedule = written_schedule(s.schedule);
  return s;
}

}  // namespace scalemodel
