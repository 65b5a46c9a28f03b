// New weights for the ranks that generate, and accelerators that change between both uses.
#pragma once

#include <tuple>

#include "scalemodel/base/precision.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel {

/// What is moved to every replica of an engine.
struct WeightSet {
  double parameters = 1;
  double matrices = 1;  ///< of layers and experts: each is a message of its own
  Precision precision = Precision::bf16;

  bool operator==(const WeightSet&) const = default;
};

/// Fixed times of a refit.
struct RefitCosts {
  Seconds start;       ///< planning and metadata
  Seconds per_matrix;  ///< of a message

  bool operator==(const RefitCosts&) const = default;
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
  static constexpr std::tuple fields{
      field("parameters", &T::parameters, 1, 1e15, "parameters of the model"),
      field("matrices", &T::matrices, 1, 1e9, "matrices of layers and experts"),
      field("precision", &T::precision, "format that the engine holds them in")};
};

template <>
struct RecordOf<RefitCosts> {
  static constexpr std::string_view name = "RefitCosts";
  using T = RefitCosts;
  static constexpr std::tuple fields{
      field("start_s", &T::start, 0, 1e3, "planning and metadata"),
      field("per_matrix_s", &T::per_matrix, 0, 1, "fixed time of a message")};
};

template <>
struct RecordOf<SwitchCosts> {
  static constexpr std::string_view name = "SwitchCosts";
  using T = SwitchCosts;
  static constexpr std::tuple fields{
      field("per_parameter_bytes", &T::per_parameter, 0, 1e3,
            "states and gradients that leave the accelerator"),
      field("wake_s", &T::wake, 0, 1e3, "waking the engine and its cache")};
};

/// Seconds of new weights for all replicas:
///
///     start + matrices per_matrix + bytes of a receiver / rate of its link
///
/// Pools apart send every receiver its part of a replica. On the same accelerators each rank
/// gathers the whole model, matrix by matrix, and keeps its part, over the network where training
/// spans several domains. Without any link it is a copy in memory: read once, written once.
/// Source: NVIDIA-NeMo/RL, design documents: 36.8 s for DeepSeek-V3 on H100 where every rank
/// receives all experts, 2.6 s where each receives its own.
Seconds refit_time(const WeightSet& weights, const Cluster& pool, int replica_ranks, bool colocated,
                   const RefitCosts& costs);

/// Seconds for the states of a colocated training to the host and back, and an engine that wakes.
Seconds switch_time(double parameters, const Cluster& pool, const SwitchCosts& costs);

}  // namespace scalemodel
