// Attention and experts on accelerators of their own (attention-FFN disaggregation): what passes
// between the pools, and how the micro-batches of a step keep both of them busy.
#pragma once

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/layout.hpp"

namespace scalemodel {

/// Where the experts of a model lie that is served by two pools of unlike accelerators.
struct ExpertPool {
  Cluster cluster;
  ServingKernels kernels;
};

/// The unit of a layer's shared experts, which compute beside the routed ones; null: it has none.
const Unit* shared_experts(const LayerKind& kind) noexcept;

/// Whether an expert pool computes an operator: GEMMs and activations of routed and shared experts.
/// Routers, norms and layers without experts stay with attention.
bool computed_by_pool(const LayerKind& kind, const Unit& unit, const LayerOperator& op) noexcept;

/// One micro-batch on its way through all layers with experts: what each place is busy with.
struct PoolTimes {
  Seconds attention;  ///< of the attention pool
  Seconds experts;    ///< of the expert pool
  Seconds dispatch;   ///< tokens on their way to the experts
  Seconds combine;    ///< and back
  Seconds waits;      ///< for the last rank of the other pool, in which nothing is busy
};

/// What of a step is not hidden behind the attention pool.
struct ExposedExperts {
  Seconds experts, exchange;
};

/// Time of all layers with experts for `micro_batches` that follow each other through attention,
/// dispatch, experts and combine, layer by layer:
///
///     t = max(m max(A, D, E, C), A + D + E + C + waits)
///
/// The slowest place sets the pace where m micro-batches are enough to fill the round, else each of
/// them waits for itself; with one nothing overlaps. All layers are taken alike. Sources:
/// MegaScale-Infer, arXiv 2504.02263, section 4.1 (m Tf >= 2 (Tf + Tc), equations 1 to 5); Step-3,
/// arXiv 2507.19427, section 5, and StepMesh's introduction (A2F + F2A <= A of three
/// micro-batches).
Seconds alternating_time(const PoolTimes& each, int micro_batches) noexcept;

/// The same less what attention computes, by what it waits for.
ExposedExperts exposed_experts(const PoolTimes& each, int micro_batches) noexcept;

/// Time to send `from` bytes of each accelerator of the attention pool to the experts, each of
/// which receives `to`, or the other way round: the busier adapter sets it. Pools of one cluster
/// that fit into one scale-up domain meet in it, others on the fabric, each through its own
/// adapters. `pool`: the experts' cluster; null: the same.
Seconds pool_exchange_time(Bytes from, Bytes to, const ServingLayout& layout,
                           const Cluster& cluster, const Cluster* pool) noexcept;

/// Busy time of a step, of each pool and on the way between them.
struct PoolLoad {
  Seconds attention, experts, dispatch, combine, step;

  bool operator==(const PoolLoad&) const = default;
};

template <>
struct RecordOf<PoolLoad> {
  static constexpr std::string_view name = "PoolLoad";
  using T = PoolLoad;
  static constexpr FieldTable fields{
      field("attention_s", &T::attention, "of a step in which the attention pool computes"),
      field("experts_s", &T::experts, "of a step in which the expert pool computes"),
      field("dispatch_s", &T::dispatch, "of a step in which tokens are sent to experts"),
      field("combine_s", &T::combine, "of a step in which outputs of experts are sent back"),
      field("step_time_s", &T::step, "whole step")};
};

}  // namespace scalemodel
