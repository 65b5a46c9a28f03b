// Training steps on accelerators of several kinds: the slowest paces those that wait for it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/reason.hpp"
#include "scalemodel/costs/tables.hpp"

namespace scalemodel {

/// How layers (of stages) or micro-batches (of replicas) are distributed.
enum class MixedSplit : std::uint8_t {
  even,      ///< as if all were of one kind
  balanced,  ///< so that the slowest takes the least time, one after the other
  searched   ///< the same, then moved for memory and time as simulated
};

template <>
struct EnumNames<MixedSplit> {
  static constexpr std::string_view what = "split";
  static constexpr std::array<std::string_view, 3> names{"even", "balanced", "searched"};
};

/// The accelerators of one kind: as many pipeline stages, or data-parallel replicas, as `share`.
struct MixedPart {
  Tables* tables;  ///< of a cluster with all accelerators of the job, each of this kind
  int share = 0;
};

struct MixedStep {
  Seconds step_time;
  Seconds least_time;                 ///< no split of the layers takes less; 0 where unknown
  bool may_fit = true;                ///< whether some split of them may
  std::vector<int> layers;            ///< of each stage
  std::vector<double> micro_batches;  ///< of the busiest replica of each part
  std::vector<Seconds> times;         ///< of each part: its step alone, or its kernels' last end
  std::vector<Bytes> memory;          ///< of each part: its fullest accelerator
  std::vector<Watts> power;           ///< of each part: mean of one accelerator
  Joules energy;                      ///< of the step, at the facility's meter
  Dollars cost;                       ///< of the step; every kind at its own price
  Reason verdict = Reason::ok;
};

/// A pipeline whose first stages run on the first kind, the next ones on the next. Simulated,
/// because stages are not alike. A searched split moves layers between kinds and between
/// neighbouring stages, where that makes the step fit or, if it fits, shorter.
///
/// Throws MalformedQuestion unless the shares sum to the stages, every stage gets a layer, and no
/// stage is cut into chunks. A strategy that cannot run has a verdict and no times.
MixedStep mixed_by_stage(const std::vector<MixedPart>& parts, const Strategy& strategy,
                         MixedSplit split);

/// The same with the layers of each stage given.
///
/// Throws MalformedQuestion also unless these are as many as the stages, positive, and sum up.
MixedStep mixed_with_layers(const std::vector<MixedPart>& parts, const Strategy& strategy,
                            const std::vector<int>& layers);

/// Whole replicas on one kind each. Gradients are reduced over the slowest of the networks. What
/// balances micro-batches one by one is the best there is: a replica's step only grows with them.
///
/// Throws MalformedQuestion unless the shares sum to the replicas.
MixedStep mixed_by_replica(const std::vector<MixedPart>& parts, const Strategy& strategy,
                           MixedSplit split);

/// The network of clusters that exchange data: the worse of each property.
Fabric slowest_fabric(const Fabric& a, const Fabric& b);

}  // namespace scalemodel
