#include "scalemodel/search/options.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/search/option_members.hpp"
#include "scalemodel/search/placed_runs.hpp"
#include "scalemodel/search/strategy_fields.hpp"

namespace scalemodel {
namespace {

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

/// Listed secondary degrees that a shard group takes: the legal ones, less the one that means none
/// where none is listed too.
std::uint64_t secondaries_of(const Space& space, int shard) {
  const auto listed = values_or_default<&Strategy::secondary_degree>(space);
  const bool every = keeps_redundant(space, field_index(&Strategy::secondary_degree));
  const bool none = contains<std::uint16_t>(listed, 0) && !every;
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const bool legal = listed[i] == 0 || shard % listed[i] == 0;
    if (legal && !(none && listed[i] == shard)) taken |= std::uint64_t{1} << i;
  }
  return taken;
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

/// Axes of more than one rank, in their order: what a placement means. Every candidate of a search
/// asks for it, so that it is kept without an allocation.
struct WideAxes {
  std::array<Axis, 4> axes{};
  std::size_t count = 0;

  bool operator==(const WideAxes&) const = default;
};

WideAxes wide_axes(Placement placement, const Signature& s) {
  WideAxes wide_ones;
  for (const Axis axis : axes_of(placement)) {
    if (wide(s, axis)) wide_ones.axes[wide_ones.count++] = axis;
  }
  return wide_ones;
}

/// The first placement with the same order of the axes that have more than one rank.
Placement canonical_placement(Placement placement, const Signature& s) {
  const WideAxes order = wide_axes(placement, s);
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
    placements.push_back(placement_of(order));
  }
  return placements;
}

/// Whether a knob is illegal beside shardings that gather no parameters: never redundant there.
constexpr bool needs_gathering(std::size_t field) {
  return field == field_index(&Strategy::secondary_degree) ||
         field == field_index(&Strategy::quantized_gather) ||
         field == field_index(&Strategy::quantized_reduce);
}

/// Whether a knob changes anything, given the knobs expanded before it.
bool matters(std::size_t field, const Strategy& s, const Signature& at) {
  const bool replicated = at.dp > 1 || at.cp > 1 || at.expert_replicas;
  if (needs_gathering(field)) return replicated && gathers_parameters(s.sharding);
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
    if (matters(index, row, at)) return true;
    return keeps_redundant(space, index) &&
           (!needs_gathering(index) || gathers_parameters(row.sharding));
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

/// Of every row the listed secondary degrees that its shard groups take.
void expand_secondary_degree(std::vector<Strategy>& rows, const Space& space, const Signature& at) {
  const auto listed = values_or_default<&Strategy::secondary_degree>(space);
  std::vector<Strategy> grown;
  for (const Strategy& row : rows) {
    poll_point();
    std::vector<Strategy> own{row};
    const int shard = row.shard_degree > 0 ? row.shard_degree : at.node_shard;
    const std::uint64_t taken =
        row.sharding == Sharding::hsdp ? secondaries_of(space, shard) : at.secondaries;
    expand<&Strategy::secondary_degree>(own, space, at, masked(listed, taken));
    require_listable(grown.size() + own.size());
    grown.insert(grown.end(), own.begin(), own.end());
  }
  rows.swap(grown);
}

/// Placements that differ at a point; where they are redundant, as often as they are listed.
std::vector<Placement> placements_of(const Space& space, const Signature& at) {
  const auto listed =
      space.tiers ? tier_placements(at) : values_or_default<&Strategy::placement>(space);
  const bool every = keeps_redundant(space, field_index(&Strategy::placement));
  std::vector<Placement> placements;
  for (const Placement each : listed) {
    const Placement placement = canonical_placement(each, at);
    if (every || !contains(placements, placement)) placements.push_back(placement);
  }
  return placements;
}

/// Fields that make_options expands by name, for their values or their place in the order.
constexpr std::uint32_t kExpandedFields =
    kPointFields | kFreeFields | bit_of<&Strategy::linear_precision>() |
    bit_of<&Strategy::placement>() | bit_of<&Strategy::context>() |
    bit_of<&Strategy::sequence_parallel>() | bit_of<&Strategy::regather>() |
    bit_of<&Strategy::split_p2p>() | bit_of<&Strategy::overlap_tp>() |
    bit_of<&Strategy::recompute>() | bit_of<&Strategy::recompute_layers>();

constexpr std::size_t kStrategyFields = field_count<Strategy>;

/// "task" for the task's own precision, whichever way it is asked for.
OrDefault<Precision> canonical_precision(OrDefault<Precision> choice, const Task& task) {
  return choice.value_or(task.precision) == task.precision ? OrDefault<Precision>{} : choice;
}

/// What the option groups of a point differ in. Knobs that decide a cell vary slowest, then
/// recomputation, then what costs no cell: rows next to each other share most of their costs.
std::vector<Strategy> every_group(const Space& space, const Signature& at,
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
  return rows;
}

/// What the members of an option group differ in, whatever the group.
std::vector<Strategy> every_member(const Space& space, const Signature& at) {
  std::vector<Strategy> rows{Strategy{}};
  expand<&Strategy::sharding>(rows, space, at);
  expand_shard_degree(rows, space, at);
  expand_secondary_degree(rows, space, at);
  expand<&Strategy::quantized_gather>(rows, space, at);
  expand<&Strategy::quantized_reduce>(rows, space, at);
  expand<&Strategy::overlap_grad_reduce>(rows, space, at);
  expand<&Strategy::overlap_param_gather>(rows, space, at);
  expand<&Strategy::offload_weights>(rows, space, at);
  expand<&Strategy::offload_activations>(rows, space, at);
  expand<&Strategy::offload_optimizer>(rows, space, at);
  return rows;
}

/// Exclusions that speak of the degrees of a point, spelled as its option groups are: they mean
/// what they say however it is spelled.
std::vector<Exclusion> spelled_exclusions(const Space& space, const Signature& at,
                                          const Task& task) {
  std::vector<Exclusion> exclusions;
  for (std::size_t i = 0; i < space.exclusions.size(); ++i) {
    if ((at.exclusions >> i & 1) == 0) continue;
    Strategy& excluded = exclusions.emplace_back(space.exclusions[i]).values;
    excluded.placement = canonical_placement(excluded.placement, at);
    excluded.linear_precision = canonical_precision(excluded.linear_precision, task);
  }
  return exclusions;
}

}  // namespace

void require_listable(std::uint64_t groups) {
  constexpr std::uint64_t kMaxListed = std::uint64_t{1} << 23;
  if (groups <= kMaxListed) return;
  throw MalformedQuestion(
      "space: " + std::to_string(groups) + " combinations or more, of at most " +
      std::to_string(kMaxListed) +
      ", of knobs beside the degrees, sharding, offload and overlaps of gradients and parameters:"
      " give fewer values");
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
  s.secondaries = secondaries_of(space, d.dp * d.cp);
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

Options make_options(const Space& space, const Signature& at, const Task& task,
                     const std::vector<OrDefault<Precision>>& precisions) {
  Options options;
  MemberLists lists(options.members, every_member(space, at), spelled_exclusions(space, at, task),
                    at.node_shard);
  for (const Strategy& group : every_group(space, at, precisions)) {
    poll_point();
    const std::uint32_t members = lists.of(group);
    const std::vector<Strategy>& rows = options.members[members].rows;
    if (rows.empty()) continue;
    const std::uint64_t begin = options.size();
    options.groups.push_back(
        {with_member(group, rows.front()), members, begin, begin + rows.size()});
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
  s.secondary_degree = static_cast<std::uint16_t>(secondary_ranks(s, d));
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
