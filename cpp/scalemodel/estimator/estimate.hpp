// The answer: one step's time by cause, memory by kind, energy, cost and verdict.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/reason.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/strategy/strategy.hpp"

namespace scalemodel {

/// Flat. The time fields from `compute` to `overhead` sum to `step_time`; the memory fields from
/// `memory_weights` to `memory_reserve` sum to `memory`. Zero throughout for an illegal strategy.
struct Estimate {
  Reason verdict = Reason::ok;
  Seconds step_time;
  Seconds compute, exposed_tp, exposed_cp, exposed_ep, exposed_pp, exposed_dp, exposed_offload;
  Seconds bubble, optimizer, overhead;
  Seconds hidden;
  double tokens_per_s = 0, mfu_fraction = 0, hfu_fraction = 0;
  Bytes memory_weights, memory_gradients, memory_optimizer, memory_activations, memory_logits;
  Bytes memory_temporary, memory_communication, memory_gathered, memory_reserve;
  Bytes memory_allocated, memory, memory_capacity, host_memory;
  Watts power;
  Joules energy;
  Dollars cost;
  double micro_batches = 0;
  int dp = 0;
  int fullest_stage = 0;

  bool operator==(const Estimate&) const = default;
};

/// The one estimate of a strategy. Pure: no heap, lock, exception or virtual call.
/// Precondition: `tables.tabulate(strategy)` ran; otherwise, or where the strategy cannot run, only
/// the verdict is filled.
Estimate evaluate(const Tables& tables, const Strategy& strategy) noexcept;

/// The same for a legal strategy whose degrees, cell and stages are known.
Estimate evaluate(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                  const Cell& cell, const StageLayout& stages) noexcept;

/// What is asked of an estimate or of a bound: all of it; of strategies that do not fit in memory
/// nothing but that and why; or, besides, of those that fit not what it is that takes the memory.
enum class Asked : std::uint8_t { all, times_that_fit, totals_that_fit };

/// The memory of a strategy's estimate as the log of its stack states it.
Bytes reported_memory(const Tables& tables, const Strategy& strategy,
                      const Estimate& estimate) noexcept;

/// What a group of strategies may still choose: shardings, and what goes to host memory.
struct Freedom {
  bool shards_gradients = false, shards_weights = false;  ///< some member does
  bool offloads_weights = false, offloads_activations = false, offloads_optimizer = false;

  friend constexpr Freedom operator|(const Freedom& a, const Freedom& b) {
    return {a.shards_gradients || b.shards_gradients, a.shards_weights || b.shards_weights,
            a.offloads_weights || b.offloads_weights,
            a.offloads_activations || b.offloads_activations,
            a.offloads_optimizer || b.offloads_optimizer};
  }
  bool operator==(const Freedom&) const = default;
};

/// What two strategies that differ only in what `Freedom` speaks of may have different: nothing but
/// the offload of their optimizer states; the rest but their shards; or these.
enum class Change : std::uint8_t { optimizer_offload, step, shards };
Change change_between(const Strategy& a, const Strategy& b) noexcept;

/// The estimate of a strategy whose step is known to take `step_time`: what it is longer or shorter
/// by are waits for the pipeline. Preconditions as of `evaluate`; `estimate` is of this strategy.
Estimate at_step_time(const Tables& tables, const Strategy& strategy, Estimate estimate,
                      Seconds step_time) noexcept;

/// A bound for every strategy that differs from `strategy` only in sharding and its traffic,
/// offload and data-parallel overlap, as `freedom` says: no member has a shorter step, uses less
/// memory or energy, costs less, or yields more tokens per second or a higher MFU. Data-parallel
/// and host traffic cost nothing here, and everything that may be sharded is. The verdict tells
/// whether some member may fit in memory. The other fields mean nothing. Preconditions as of
/// `evaluate`.
Estimate lower_bound(const Tables& tables, const Strategy& strategy, const Degrees& degrees,
                     const Cell& cell, const StageLayout& stages, const Freedom& freedom,
                     PipelineBound pipeline, Asked asked = Asked::all);

template <>
struct RecordOf<Estimate> {
  static constexpr std::string_view name = "Estimate";
  using T = Estimate;
  /// Columns of which more is better; a search that ranks by another one looks for the least.
  static constexpr std::array<std::string_view, 3> maximised{"tokens_per_s", "mfu_fraction",
                                                             "hfu_fraction"};
  static constexpr FieldTable fields{
      field("verdict", &T::verdict, "ok, out_of_memory or illegal:<reason>"),
      field("step_time_s", &T::step_time, "one optimizer step"),
      field("compute_s", &T::compute, "kernels of the slowest stage, recomputation included"),
      field("exposed_tp_s", &T::exposed_tp, "tensor-parallel communication not hidden"),
      field("exposed_cp_s", &T::exposed_cp, "context-parallel communication not hidden"),
      field("exposed_ep_s", &T::exposed_ep, "expert-parallel communication not hidden"),
      field("exposed_pp_s", &T::exposed_pp, "pipeline transfers not hidden"),
      field("exposed_dp_s", &T::exposed_dp, "data-parallel communication not hidden"),
      field("exposed_offload_s", &T::exposed_offload, "exposed transfers to and from host memory"),
      field("bubble_s", &T::bubble, "pipeline stages waiting for each other"),
      field("optimizer_s", &T::optimizer, "parameter update"),
      field("overhead_s", &T::overhead, "data, clipping, logging"),
      field("hidden_s", &T::hidden, "communication underneath compute"),
      field("tokens_per_s", &T::tokens_per_s, "of the whole cluster"),
      field("mfu_fraction", &T::mfu_fraction,
            "model flop over dense peak; causal attention, recomputation excluded"),
      field("hfu_fraction", &T::hfu_fraction, "the same with recomputation"),
      field("memory_weights_bytes", &T::memory_weights, "weights"),
      field("memory_gradients_bytes", &T::memory_gradients, "gradients"),
      field("memory_optimizer_bytes", &T::memory_optimizer, "master weights and moments"),
      field("memory_activations_bytes", &T::memory_activations, "saved for the backward pass"),
      field("memory_logits_bytes", &T::memory_logits, "logits and loss"),
      field("memory_temporary_bytes", &T::memory_temporary, "live inside one layer"),
      field("memory_communication_bytes", &T::memory_communication, "communication buffers"),
      field("memory_gathered_bytes", &T::memory_gathered, "gathered parameters"),
      field("memory_reserve_bytes", &T::memory_reserve, "context, fragmentation"),
      field("memory_allocated_bytes", &T::memory_allocated, "peak of the framework's allocator"),
      field("memory_bytes", &T::memory, "peak on the fullest accelerator"),
      field("memory_capacity_bytes", &T::memory_capacity, "of an accelerator"),
      field("host_memory_bytes", &T::host_memory, "offloaded, per node"),
      field("power_w", &T::power, "mean of one accelerator"),
      field("energy_j", &T::energy, "of the step, at the facility's meter"),
      field("cost_usd", &T::cost, "of the step"),
      field("micro_batches", &T::micro_batches, "per replica and step"),
      field("dp", &T::dp, "data-parallel degree"),
      field("fullest_stage", &T::fullest_stage, "pipeline stage with the memory peak")};
};

}  // namespace scalemodel
