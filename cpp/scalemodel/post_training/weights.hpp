// New weights for the ranks that generate, and accelerators that change between both uses.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// How new weights reach the ranks that generate.
enum class RefitWay : std::uint8_t {
  ipc,         ///< one pool: each rank gathers every matrix and hands it on in memory
  broadcast,   ///< every matrix whole to every rank, by all links of a node at once
  reshard,     ///< each rank its own part, from those that have it
  rdma,        ///< each rank its own experts and all else whole, matrix by matrix
  rdma_whole,  ///< each rank all of it over its own link
};

template <>
struct EnumNames<RefitWay> {
  static constexpr std::string_view what = "way of new weights";
  static constexpr std::array<std::string_view, 5> names{"ipc", "broadcast", "reshard", "rdma",
                                                         "rdma_whole"};
};

/// What is moved to every replica of an engine.
struct WeightSet {
  double parameters = 1;
  double routed = 0;    ///< of them, parameters of routed experts
  double matrices = 1;  ///< of layers and experts: each is a message of its own
  Precision precision = Precision::bf16;

  bool operator==(const WeightSet&) const = default;
};

/// Fixed times of a refit.
struct RefitCosts {
  Seconds start;          ///< planning and metadata
  Seconds per_matrix;     ///< of a message between ranks that have agreed on its place
  Seconds per_load;       ///< of a whole matrix that the engine's loader cuts and puts in place
  BytesPerSecond gather;  ///< of sharded matrices made whole and put in buckets; 0 = at once

  bool operator==(const RefitCosts&) const = default;
};

/// Between which ranks.
struct RefitLayout {
  RefitWay way = RefitWay::reshard;
  int replica_ranks = 1;  ///< of the engine
  bool sharded = false;   ///< ranks that train hold a shard of every matrix (FSDP, ZeRO-3)

  bool operator==(const RefitLayout&) const = default;
};

/// Bytes of the busiest rank of either pool.
struct RefitBytes {
  Bytes sent, received;

  bool operator==(const RefitBytes&) const = default;
};

/// Memory that is set free while the engine generates, and what waking the engine takes.
struct SwitchCosts {
  Bytes per_parameter;  ///< optimizer states and gradients that go to the host and come back
  Seconds wake;         ///< of the engine and its pool of cache blocks

  bool operator==(const SwitchCosts&) const = default;
};

template <>
struct RecordOf<WeightSet> {
  static constexpr std::string_view name = "WeightSet";
  using T = WeightSet;
  static constexpr FieldTable fields{
      field("parameters", &T::parameters, 1, 1e15, "parameters of the model"),
      field("routed", &T::routed, 0, 1e15, "of them, parameters of routed experts"),
      field("matrices", &T::matrices, 1, 1e9, "matrices of layers and experts"),
      field("precision", &T::precision, "format that the engine holds them in")};
};

template <>
struct RecordOf<RefitCosts> {
  static constexpr std::string_view name = "RefitCosts";
  using T = RefitCosts;
  static constexpr FieldTable fields{
      field("start_s", &T::start, 0, 1e3, "planning and metadata"),
      field("per_matrix_s", &T::per_matrix, 0, 1, "fixed time of a message"),
      field("per_load_s", &T::per_load, 0, 1, "of a whole matrix that the engine's loader places"),
      field("gather_bytes_per_s", &T::gather, 0, 1e15,
            "of sharded matrices made whole and put in buckets; 0 = at once")};
};

template <>
struct RecordOf<SwitchCosts> {
  static constexpr std::string_view name = "SwitchCosts";
  using T = SwitchCosts;
  static constexpr FieldTable fields{
      field("per_parameter_bytes", &T::per_parameter, 0, 1e3,
            "states and gradients that leave the accelerator"),
      field("wake_s", &T::wake, 0, 1e3, "waking the engine and its cache")};
};

/// What of a model is moved. A layer has four projections, two norms and their like for queries,
/// keys and values, and the matrices of every expert.
WeightSet weight_set(const Model& model, Precision precision);

/// Bytes of a refit. Every replica gets a whole model, of which the ranks that train send equal
/// parts, each copy of a part to its share of the replicas; one pool for both gathers and sends
/// nothing more. A broadcast passes every rank once.
RefitBytes refit_bytes(const WeightSet& weights, const RefitLayout& layout, int train_ranks,
                       int rollout_ranks);

/// Seconds of new weights for all replicas:
///
///     start + matrices (per_matrix or per_load) + max(sent, received) / rate of the link
///
/// Where training shards every matrix, a way that hands on whole ones gathers them first, bucket by
/// bucket: before each bucket is handed on in memory, else while the bucket before is on its way.
/// A rank that is sent its own part needs no whole matrix.
/// Links are those of the scale-up domain where both pools lie in one, else of the network; a
/// broadcast fills all that a node has of them. Without any link it is a copy in memory: read once,
/// written once. Source: NVIDIA-NeMo/RL, guide to refit transports: a broadcast of whole tensors is
/// the default, resharding sends each rank its own shard; DeepSeek-V3 on H100 takes 14.2 and 2.6 s,
/// and 36.8 s where every rank receives all experts by itself.
Seconds refit_time(const WeightSet& weights, const Cluster& train, const Cluster& rollout,
                   const RefitLayout& layout, const RefitCosts& costs);

/// What one rank sends or receives of a large transfer between two pools, a second: over the
/// scale-up domain where both lie in one, else the network. `whole_node`: by all links of a node at
/// once. Without any link it is a copy in memory: read once, written once.
BytesPerSecond link_rate(const Cluster& pool, bool one_domain, bool whole_node);

/// Seconds of bytes of an accelerator to its host, or back; none without a link: they share memory.
Seconds host_copy_time(Bytes bytes, const Cluster& pool);

/// Seconds for the states of a colocated training to the host and back, and an engine that wakes.
Seconds switch_time(double parameters, const Cluster& pool, const SwitchCosts& costs);

}  // namespace scalemodel
