// How layer groups are laid out on a cluster: an ordered mesh per group, and how their traffic is
// scheduled. A strategy holds indices into a table of meshes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/fabric/levels.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/groups.hpp"

namespace scalemodel {

/// What the ranks of a mesh axis do with a layer group. Layers: `tp` shards matrices, `sp` does
/// and shards the sequence in between (sequence parallelism), `cp` shares
/// out the sequence throughout and gathers keys and values, `ddp` replicates, `zero1`
/// replicates with sharded optimizer states, `fsdp` shards parameters and gathers them unit by
/// unit, `ep` shards routed experts. Tables: whole tables, rows or columns of every table on
/// different ranks; `hybrid` replicates tables whose rows are fewer than the samples of a rank and
/// spreads the rest evenly in whole or part tables; `ddp` replicates all.
enum class Parallelism : std::uint8_t {
  none,
  tp,
  ddp,
  zero1,
  fsdp,
  ep,
  table_wise,
  row_wise,
  column_wise,
  hybrid,
  sp,
  cp
};

template <>
struct EnumNames<Parallelism> {
  static constexpr std::string_view what = "parallelism";
  static constexpr std::array<std::string_view, 12> names{
      "none",       "tp",       "ddp",         "zero1",  "fsdp", "ep",
      "table_wise", "row_wise", "column_wise", "hybrid", "sp",   "cp"};
};

inline constexpr std::size_t kMaxAxes = 4;

struct MeshAxis {
  Parallelism parallelism = Parallelism::none;
  std::int32_t degree = 1;

  bool operator==(const MeshAxis&) const = default;
};

/// Axes of a group, innermost first: the first sit on the innermost network level.
struct Mesh {
  std::array<MeshAxis, kMaxAxes> axes{};

  int ranks() const;
  int degree(Parallelism parallelism) const;
  /// Ranks that shard the matrices of a layer, with its sequence or without.
  int tensor_degree() const { return degree(Parallelism::tp) * degree(Parallelism::sp); }
  /// As parameters see it: ranks that shard a sequence hold the same ones, so the axis joins
  /// the replicas or shards that follow it.
  Mesh of_parameters() const;
  /// For routed experts among such layers: they shard matrices and tokens, no sequence.
  Mesh of_experts() const;
  bool operator==(const Mesh&) const = default;
};

/// "tp@8+ddp@16", "fsdp", "row_wise@8+table_wise": a degree left out once is what remains of the
/// accelerators. Throws MalformedQuestion that names `text`.
Mesh parse_mesh(std::string_view text, int accelerators);
std::string to_text(const Mesh& mesh);

/// Whether groups of a kind (or their experts) can be laid out so: the names of the axes only.
bool suits(const Mesh& mesh, GroupKind kind, bool experts);

/// Where the ranks of each axis sit.
std::array<GroupShape, kMaxAxes> axis_groups(const Mesh& mesh, const Cluster& cluster);

/// In-order queues of communication: one for all, or one per network level.
enum class Queues : std::uint8_t { one, per_level };

template <>
struct EnumNames<Queues> {
  static constexpr std::string_view what = "communication queues";
  static constexpr std::array<std::string_view, 2> names{"one", "per_level"};
};

/// How far ahead of its use a sharded unit may be gathered: not before the compute of the unit in
/// front of it has ended, when that starts, or at any time.
enum class Prefetch : std::uint8_t { none, one, unlimited };

template <>
struct EnumNames<Prefetch> {
  static constexpr std::string_view what = "prefetch";
  static constexpr std::array<std::string_view, 3> names{"none", "one", "unlimited"};
};

/// Where the gather of the next unit stands in the queue of a backward pass: before this unit's
/// gradients are computed and reduced, or behind them.
enum class BackwardGather : std::uint8_t { before, behind };

template <>
struct EnumNames<BackwardGather> {
  static constexpr std::string_view what = "backward gather";
  static constexpr std::array<std::string_view, 2> names{"before", "behind"};
};

/// What one all-reduce over replicas carries: the gradients of a unit, or those of a whole group,
/// at the end of its backward pass.
enum class Buckets : std::uint8_t { unit, group };

template <>
struct EnumNames<Buckets> {
  static constexpr std::string_view what = "gradient buckets";
  static constexpr std::array<std::string_view, 2> names{"unit", "group"};
};

/// Flat: meshes are indices into the table they were tabulated in.
struct GroupStrategy {
  std::array<std::uint16_t, kMaxSlots> mesh{};
  std::uint16_t micro_batches = 1;
  Queues queues = Queues::per_level;
  Prefetch prefetch = Prefetch::one;
  BackwardGather backward_gather = BackwardGather::before;
  Buckets buckets = Buckets::unit;
  bool recompute = false;  ///< layers run forward again before their backward pass

  bool operator==(const GroupStrategy&) const = default;
};
static_assert(sizeof(GroupStrategy) <= 32);

/// What is left out of the physics, to compare with simpler models. Everything is in by default.
struct Ablation {
  double gemm_fraction = 0;     ///< constant fraction of peak; 0: by shape
  double memory_fraction = 0;   ///< of memory bandwidth, lookups and other kernels; 0: by kernel
  double network_fraction = 0;  ///< of every link, whatever the operation; 0: by operation
  bool latency = true;          ///< start-up times of kernels and collectives
  bool ring_factor = true;      ///< false: a collective of n ranks moves n/(n-1) of its bytes
  bool attention_scores = true;
  bool elementwise = true;  ///< norms, activations, residuals, loss
  bool heads = true;        ///< language-model and class heads
  bool optimizer = true;
  bool host = true;             ///< kernel launch overhead and step overhead
  bool contention = true;       ///< collectives slow the compute they hide under
  bool ends = true;             ///< collectives of token and patch embeddings
  bool reshard = true;          ///< activations gathered between groups of different meshes
  bool index_exchange = true;   ///< lookup indices sent to the ranks that hold the rows
  bool pooled_exchange = true;  ///< false: rows travel before they are pooled
  bool update_traffic = true;   ///< false: an update moves the bytes of a lookup
  bool table_balance = true;    ///< false: every rank has the mean load of tables
  bool cached_tables = true;    ///< false: every row comes from memory, none from the cache

  bool operator==(const Ablation&) const = default;
};

template <>
struct RecordOf<Ablation> {
  static constexpr std::string_view name = "Ablation";
  using T = Ablation;
  static constexpr FieldTable fields{
      field("gemm_fraction", &T::gemm_fraction, 0, 1, "constant fraction of peak; 0 = by shape"),
      field("memory_fraction", &T::memory_fraction, 0, 1,
            "constant fraction of memory bandwidth; 0 = by kernel"),
      field("network_fraction", &T::network_fraction, 0, 1,
            "constant fraction of every link; 0 = by operation"),
      field("latency", &T::latency, "start-up times of kernels and collectives"),
      field("ring_factor", &T::ring_factor, "a collective spares a rank its own share"),
      field("attention_scores", &T::attention_scores, "scores, softmax, weighted values"),
      field("elementwise", &T::elementwise, "norms, activations, residuals, loss"),
      field("heads", &T::heads, "language-model and class heads"),
      field("optimizer", &T::optimizer, "parameter update"),
      field("host", &T::host, "kernel launch overhead and step overhead"),
      field("contention", &T::contention, "collectives slow the compute they hide under"),
      field("ends", &T::ends, "collectives of token and patch embeddings"),
      field("reshard", &T::reshard, "activations gathered between different meshes"),
      field("index_exchange", &T::index_exchange, "lookup indices sent to the rows' ranks"),
      field("pooled_exchange", &T::pooled_exchange, "rows are pooled before they travel"),
      field("update_traffic", &T::update_traffic, "an update reads and writes rows and states"),
      field("table_balance", &T::table_balance, "tables load ranks unevenly"),
      field("cached_tables", &T::cached_tables, "rows of small tables come from the cache")};
};

/// The cluster without what `ablation` leaves out.
Cluster ablated(const Cluster& cluster, const Ablation& ablation);

}  // namespace scalemodel
