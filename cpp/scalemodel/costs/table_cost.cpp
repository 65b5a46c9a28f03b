#include "scalemodel/costs/table_cost.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "scalemodel/ops/memory_bound.hpp"

namespace scalemodel {
namespace {

/// Bytes of a sector, the unit that memory is read in.
constexpr double kSector = 32;
constexpr double kIndexBytes = 8;
/// An update sorts the indices of its rows: passes over them, in and out, of a radix sort of 32-bit
/// keys by 8 bits.
constexpr double kSortPasses = 8;
/// Tables partitioned one by one; beyond it their loads are as good as even.
constexpr double kMaxTables = 100'000;

double expected_unique(double rows, double draws) {
  return rows * -std::expm1(draws * std::log1p(-1 / std::max(rows, 1 + 1e-9)));
}

/// Load of the busiest rank over the mean, and rows of the fullest over the mean, when whole tables
/// go to the least loaded rank, heaviest first.
struct LoadBalance {
  double load = 1, rows = 1;
};

LoadBalance whole_tables(const std::vector<TableClass>& classes, int ranks) {
  double tables = 0, loads = 0, rows = 0;
  for (const TableClass& c : classes) {
    tables += c.count;
    loads += c.count * c.pooling;
    rows += c.count * c.rows;
  }
  if (ranks == 1 || tables == 0) return {};
  if (classes.size() == 1 || tables > kMaxTables) {
    const double most = std::ceil(tables / ranks) * ranks / tables;
    return {most, most};
  }
  std::vector<TableClass> order = classes;
  std::ranges::sort(order, std::greater{},
                    [](const TableClass& c) { return std::pair(c.pooling, c.rows); });
  using Rank = std::pair<double, double>;  // lookups, rows
  std::priority_queue<Rank, std::vector<Rank>, std::greater<>> queue;
  for (int i = 0; i < ranks; ++i) queue.emplace(0.0, 0.0);
  LoadBalance most{0, 0};
  for (const TableClass& c : order) {
    for (double i = 0; i < c.count; ++i) {
      auto [load, held] = queue.top();
      queue.pop();
      load += c.pooling;
      held += c.rows;
      most.load = std::max(most.load, load);
      most.rows = std::max(most.rows, held);
      queue.emplace(load, held);
    }
  }
  return {most.load * ranks / loads, most.rows * ranks / rows};
}

/// Rows a rank reads from memory for `draws` lookups into `rows` of its rows: each, or each
/// different one once where they fit into its cache.
double rows_from_memory(double rows, double draws, double row_bytes, Bytes cache, bool cached) {
  const double unique = expected_unique(rows, draws);
  return cached && Bytes{unique * row_bytes} < 0.5 * cache ? unique : draws;
}

/// Gradients of bags a rank reads from memory for `draws` rows that learn: tables are updated one
/// after another, so a table's gradients are read once where they fit into the cache beside its
/// rows.
double gradients_from_memory(double bags, double draws, double bag_bytes, Bytes cache,
                             bool cached) {
  return cached && Bytes{bags * bag_bytes} < 0.5 * cache ? std::min(bags, draws) : draws;
}

struct Shards {
  double table = 1, row = 1, column = 1, replicas = 1;
};

/// What tables are asked for, and where.
struct TableUse {
  const TableSet& set;
  double samples;
  bool trained;
  const Cluster& cluster;
  const Ablation& ablation;
};

/// Memory traffic of tables.
struct TableTraffic {
  Bytes lookup, update;
};

/// Gradients that the replicas of tables exchange.
struct ReplicaGradients {
  Bytes dense;   ///< of whole tables
  Bytes sparse;  ///< of touched rows, with their indices
};

/// Adds tables of some classes in one layout.
ReplicaGradients add_tables(TableCost& cost, TableTraffic& traffic, const TableUse& use,
                            const std::vector<TableClass>& classes, const Shards& shards,
                            const LoadBalance& balance) {
  const TableSet& set = use.set;
  const Ablation& ablation = use.ablation;
  ReplicaGradients gradients;
  // Samples whose rows a rank looks up: those of every rank that shares the tables with it.
  const double served = use.samples * shards.table * shards.row * shards.column;
  const double columns = std::ceil(set.dim / shards.column);
  const double exact_row = columns * set.value_bytes;
  const double row_bytes =
      ablation.memory_fraction > 0 ? exact_row : std::ceil(exact_row / kSector) * kSector;
  const double state_bytes = row_state_bytes(set.optimizer, columns);
  const Bytes cache = use.cluster.accelerator.l2;
  for (const TableClass& c : classes) {
    const double tables = c.count / shards.table;  // of the mean rank
    const double rows = c.rows / shards.row;
    const double draws = served * c.pooling / shards.row;
    const double read = rows_from_memory(rows, draws, row_bytes, cache, ablation.cached_tables);
    const double pooled = served * columns * set.output_bytes;
    const double index = ablation.memory_fraction > 0 ? 0 : kIndexBytes;
    cost.looked_up += Bytes{tables * draws * exact_row};
    traffic.lookup += Bytes{balance.load * tables *
                            (read * row_bytes + draws * index + (index > 0 ? pooled : 0))};
    const double unique = expected_unique(rows, draws * shards.replicas);
    if (use.trained) {
      if (ablation.update_traffic) {
        const double bag_bytes = columns * set.output_bytes;
        const double bags =
            gradients_from_memory(served, draws, bag_bytes, cache, ablation.cached_tables);
        traffic.update += Bytes{balance.load * tables *
                                (bags * bag_bytes + draws * 2 * kSortPasses * kIndexBytes +
                                 unique * 2 * (row_bytes + state_bytes))};
      } else {
        traffic.update += Bytes{balance.load * tables * draws * exact_row};
      }
      if (shards.replicas > 1) {
        // Whole gradient tables or the touched rows with their indices, whichever is less.
        const double whole = 2 * rows * exact_row;
        const double touched =
            shards.replicas * expected_unique(rows, draws) * (exact_row + kIndexBytes);
        if (whole < touched) {
          gradients.dense += Bytes{tables * rows * exact_row};
        } else {
          gradients.sparse += Bytes{tables * touched};
        }
      }
    }
    const double held = balance.rows * tables * rows;
    cost.parameters += held * columns;
    cost.tables += Bytes{held * exact_row};
    if (use.trained) cost.states += Bytes{held * state_bytes};
  }
  cost.imbalance = std::max(cost.imbalance, balance.load);
  return gradients;
}

}  // namespace

Transfer transfer(Collective op, Bytes size, const GroupShape& group, const Cluster& cluster,
                  const Ablation& ablation) {
  Transfer moved{collective_time(op, size, group, cluster), size, op,
                 static_cast<std::uint8_t>(group.domains > 1 ? 1 : 0)};
  if (group.ranks <= 1) moved.size = Bytes{};
  if (!ablation.ring_factor && group.ranks > 1) {
    moved.time = (static_cast<double>(group.ranks) / (group.ranks - 1)) * moved.time;
  }
  return moved;
}

namespace {

/// Tables of a set under a mesh, as their exchanges see them.
struct Exchange {
  const Mesh& mesh;
  const Cluster& cluster;
  const Ablation& ablation;
  std::array<GroupShape, kMaxAxes> groups;
  double tables = 0;   ///< that are sharded
  double lookups = 0;  ///< of a sample in them
  double load = 1;     ///< of the busiest rank over the mean

  [[nodiscard]] Transfer along(std::size_t axis, Collective op, Bytes size) const {
    return transfer(op, size, groups[axis], cluster, ablation);
  }
};

/// Axes whose ranks hold other columns or tables, and send what they looked up.
bool sends(Parallelism p) {
  return p == Parallelism::table_wise || p == Parallelism::column_wise || p == Parallelism::hybrid;
}

/// What the shards of a rank answer for all samples they serve, brought to the ranks whose samples
/// they are. Sums of partial rows first, which shrinks what is left to send.
void add_answers(TableCost& cost, const Exchange& e, Bytes held) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    const MeshAxis& axis = e.mesh.axes[i];
    if (axis.parallelism != Parallelism::row_wise || axis.degree == 1) continue;
    cost.forward[at] = e.along(i, Collective::reduce_scatter, held);
    cost.backward[at] = e.along(i, Collective::all_gather, held);
    // Few rows a bag: partial sums that are not empty travel alone.
    const double filled = axis.degree * (1 - std::pow(1 - 1.0 / axis.degree,
                                                      e.tables > 0 ? e.lookups / e.tables : 0));
    const Bytes alone = (filled / axis.degree) * held;
    const Transfer direct = e.along(i, Collective::all_to_all, alone);
    if (direct.time < cost.forward[at].time) cost.forward[at] = cost.backward[at] = direct;
    held = held / static_cast<double>(axis.degree);
    ++at;
  }
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    const MeshAxis& axis = e.mesh.axes[i];
    if (!sends(axis.parallelism) || axis.degree == 1) continue;
    cost.forward[at] = e.along(i, Collective::all_to_all, e.load * held);
    cost.backward[at] = cost.forward[at];
    ++at;
  }
  std::reverse(cost.backward.begin(), cost.backward.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Indices on their way to the shards that hold their rows.
void add_indices(TableCost& cost, const Exchange& e, double samples) {
  if (!e.ablation.index_exchange) return;
  std::size_t sent = 0;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    const MeshAxis& axis = e.mesh.axes[i];
    const bool shares = sends(axis.parallelism) || axis.parallelism == Parallelism::row_wise;
    if (!shares || axis.degree == 1) continue;
    const double copies = axis.parallelism == Parallelism::column_wise ? axis.degree : 1;
    cost.indices[sent++] =
        e.along(i, Collective::all_to_all, Bytes{copies * samples * e.lookups * kIndexBytes});
  }
}

/// Brings replicas along axes of one parallelism to the same gradients; `sent` so far.
std::size_t synchronise(TableCost& cost, const Exchange& e, Parallelism p,
                        const ReplicaGradients& gradients, std::size_t sent) {
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    const MeshAxis& axis = e.mesh.axes[i];
    if (axis.parallelism != p || axis.degree == 1) continue;
    const auto send = [&](Collective op, Bytes size) {
      if (size > Bytes{}) cost.gradients[sent++] = e.along(i, op, size);
    };
    send(Collective::all_reduce, gradients.dense);
    send(Collective::all_gather, gradients.sparse);
  }
  return sent;
}

}  // namespace

TableCost table_cost(const TableSet& set, const Mesh& mesh, double samples, bool trained,
                     const Cluster& cluster, const Ablation& ablation, double lookup_fraction) {
  TableCost cost;
  const int spread = mesh.degree(Parallelism::hybrid);
  const Shards shards{static_cast<double>(mesh.degree(Parallelism::table_wise)) * spread,
                      static_cast<double>(mesh.degree(Parallelism::row_wise)),
                      static_cast<double>(mesh.degree(Parallelism::column_wise)),
                      static_cast<double>(mesh.degree(Parallelism::ddp))};
  std::vector<TableClass> sharded, replicated;
  for (const TableClass& c : set.classes) {
    const bool small = spread > 1 && c.rows < samples;
    (small ? replicated : sharded).push_back(c);
  }
  const bool whole = spread == 1 && ablation.table_balance;
  const LoadBalance balance =
      whole ? whole_tables(sharded, static_cast<int>(shards.table)) : LoadBalance{};
  const TableUse use{set, samples, trained, cluster, ablation};
  TableTraffic traffic;
  const ReplicaGradients own = add_tables(cost, traffic, use, sharded, shards, balance);
  ReplicaGradients copied;
  if (!replicated.empty()) {
    const Shards copies{1, shards.row, shards.column, shards.replicas * spread};
    copied = add_tables(cost, traffic, use, replicated, copies, {});
  }
  const double fraction = ablation.memory_fraction > 0 ? ablation.memory_fraction : lookup_fraction;
  cost.lookup = memory_time(traffic.lookup, fraction, cluster.accelerator);
  cost.update = memory_time(traffic.update, fraction, cluster.accelerator);

  Exchange e{mesh, cluster, ablation, axis_groups(mesh, cluster), 0, 0, balance.load};
  for (const TableClass& c : sharded) {
    e.tables += c.count;
    e.lookups += c.count * c.pooling;
  }
  const double served = samples * shards.table * shards.row * shards.column;
  const double answers = ablation.pooled_exchange ? e.tables : e.lookups;
  const double columns = std::ceil(set.dim / shards.column);
  const Bytes held{served * answers / shards.table * columns * set.output_bytes};
  cost.buffers = held + Bytes{samples * e.tables * set.dim * set.output_bytes};
  add_answers(cost, e, held);
  add_indices(cost, e, samples);
  if (trained) {
    const std::size_t sent = synchronise(cost, e, Parallelism::ddp, own, 0);
    synchronise(cost, e, Parallelism::hybrid, copied, sent);
  }
  for (auto* list : {&cost.forward, &cost.backward, &cost.indices, &cost.gradients}) {
    // NOLINTNEXTLINE(modernize-use-ranges)
    std::stable_partition(list->begin(), list->end(), takes_part);
  }
  return cost;
}

}  // namespace scalemodel
