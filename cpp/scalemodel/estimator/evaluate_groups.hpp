// One step of a model of layer groups: the schedule of its compute and communication.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/reason.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/costs/group_tables.hpp"
#include "scalemodel/estimator/group_schedule.hpp"

namespace scalemodel {

/// Flat. `compute`, the `exposed_` fields, `optimizer` and `overhead` sum to `step_time`; the
/// memory fields from `memory_weights` to `memory_reserve` sum to `memory`. Zero throughout for an
/// illegal strategy.
struct GroupEstimate {
  Reason verdict = Reason::ok;
  Seconds step_time;
  Seconds compute, exposed_tp, exposed_cp, exposed_ep, exposed_dp, exposed_exchange,
      exposed_reshard;
  Seconds optimizer, overhead;
  Seconds hidden, forward;
  Seconds gemm, lookup;
  Seconds communication, all_reduce, all_gather, reduce_scatter, all_to_all;
  Bytes all_reduce_bytes, all_gather_bytes, reduce_scatter_bytes, all_to_all_bytes;
  double exposed_fraction = 0;
  double samples_per_s = 0, tokens_per_s = 0, mfu_fraction = 0;
  Bytes memory_weights, memory_tables, memory_gradients, memory_optimizer, memory_activations;
  Bytes memory_logits, memory_gathered, memory_communication, memory_reserve;
  Bytes memory, memory_capacity;
  Bytes looked_up;
  Flop forward_flop;
  double table_imbalance = 1;
  Watts power;
  Joules energy;
  Dollars cost;

  bool operator==(const GroupEstimate&) const = default;
};

/// The one estimate of a group strategy. Pure: no heap, lock, exception or virtual call.
///
/// Groups run in their order, backward in the reverse one, on one compute stream; collectives run
/// in the order of issue on one queue or on one per network level, beside it. A unit starts when
/// the unit before it has ended, its input is whole (tensor-parallel sum, exchange of looked-up
/// rows, activations from another mesh) and its sharded parameters have arrived. Waiting counts as
/// exposed under what was waited for last. Repeated layers soon advance every clock by the same
/// time a period, and what is left of them follows at once: the cost does not grow with depth.
///
/// A mesh that was not tabulated for its group gives `mesh`.
GroupEstimate evaluate_groups(const GroupTables& tables, const GroupStrategy& strategy) noexcept;

/// What groups cost beside the schedule, summed over the first ones of a model.
struct GroupSums {
  Seconds compute;  ///< of one micro-batch
  Seconds gemm, lookup;
  Bytes looked_up;
  Flop forward_flop;
  ByCollective by{};
  BytesByCollective bytes_by{};
  double updated = 0, reduced = 0, table_imbalance = 1;
  Bytes weights, tables, gradients, optimizer, activations, widest, gathered, buffers, logits;
  Bytes stays_gathered;
  bool learns = false;
};

/// Evaluates strategies one after the other. What a strategy shares with the one before it, the
/// forward passes and sums of the groups in front of the first that changes, is kept: a search
/// whose last group varies fastest spares most of it. Answers are those of `evaluate_groups`, bit
/// for bit.
class GroupEvaluator {
 public:
  explicit GroupEvaluator(const GroupTables& tables) : tables_(tables) {}

  GroupEstimate operator()(const GroupStrategy& strategy) noexcept {
    look_at(strategy);
    return estimate();
  }

  /// Goes on to a strategy without its schedule, on which its verdict does not depend.
  Reason look_at(const GroupStrategy& strategy) noexcept;
  /// What the step of the strategy looked at cannot fall below: compute runs on one stream, and
  /// collectives of the same queue follow each other. Precondition: it is not illegal.
  Seconds least_step_time() noexcept;
  /// The same, closer, from what its forward pass waits for, which `estimate` need not run again.
  Seconds least_after_forward() noexcept;
  /// The estimate of the strategy looked at.
  GroupEstimate estimate() noexcept;

 private:
  static constexpr double kRounding = 1e-9;  ///< of sums in another order

  /// Sets what of `looked_at_` is no memory: a verdict does not ask for it.
  void find_totals() noexcept;

  const GroupTables& tables_;
  GroupStrategy strategy_;
  GroupEstimate looked_at_;  ///< what does not depend on the schedule
  bool has_totals_ = false;
  bool legal_ = false;
  int micro_batches_ = 0;  ///< of the sums; 0: none
  GroupOrder order_;
  GroupCosts costs_{};
  std::array<GroupSums, kMaxGroups> sums_;
  std::size_t passes_of_ = 0;  ///< groups whose forward passes are those of the sums
  ForwardPass last_, every_;   ///< of the last micro-batch, and of those before it
};

template <>
struct RecordOf<GroupEstimate> {
  static constexpr std::string_view name = "GroupEstimate";
  using T = GroupEstimate;
  /// Columns of which more is better; a search that ranks by another one looks for the least.
  static constexpr std::array<std::string_view, 3> maximised{"samples_per_s", "tokens_per_s",
                                                             "mfu_fraction"};
  static constexpr FieldTable fields{
      field("verdict", &T::verdict, "ok, out_of_memory or illegal:<reason>"),
      field("step_time_s", &T::step_time, "one step"),
      field("compute_s", &T::compute, "kernels, lookups included"),
      field("exposed_tp_s", &T::exposed_tp, "tensor-parallel sums not hidden"),
      field("exposed_cp_s", &T::exposed_cp, "gathered keys and values not hidden"),
      field("exposed_ep_s", &T::exposed_ep, "routed tokens not hidden"),
      field("exposed_dp_s", &T::exposed_dp, "gradients and gathered parameters not hidden"),
      field("exposed_exchange_s", &T::exposed_exchange, "looked-up rows not hidden"),
      field("exposed_reshard_s", &T::exposed_reshard,
            "activations between different meshes not hidden"),
      field("optimizer_s", &T::optimizer, "update of dense parameters"),
      field("overhead_s", &T::overhead, "data, logging"),
      field("hidden_s", &T::hidden, "communication underneath compute"),
      field("forward_s", &T::forward, "forward passes, exposed communication included"),
      field("gemm_s", &T::gemm, "GEMMs, of compute_s"),
      field("lookup_s", &T::lookup, "lookups and updates of tables, of compute_s"),
      field("communication_s", &T::communication, "all collectives, one after the other"),
      field("all_reduce_s", &T::all_reduce, "of communication_s"),
      field("all_gather_s", &T::all_gather, "of communication_s"),
      field("reduce_scatter_s", &T::reduce_scatter, "of communication_s"),
      field("all_to_all_s", &T::all_to_all, "of communication_s"),
      field("all_reduce_bytes", &T::all_reduce_bytes, "whole buffers of a rank"),
      field("all_gather_bytes", &T::all_gather_bytes, "whole results on a rank"),
      field("reduce_scatter_bytes", &T::reduce_scatter_bytes, "whole inputs of a rank"),
      field("all_to_all_bytes", &T::all_to_all_bytes, "what a rank holds, its own share included"),
      field("exposed_fraction", &T::exposed_fraction, "exposed communication over step time"),
      field("samples_per_s", &T::samples_per_s, "queries, images or sequences, whole cluster"),
      field("tokens_per_s", &T::tokens_per_s, "of the whole cluster"),
      field("mfu_fraction", &T::mfu_fraction, "model flop over dense peak"),
      field("memory_weights_bytes", &T::memory_weights, "weights of layers"),
      field("memory_tables_bytes", &T::memory_tables, "embedding tables, fullest rank"),
      field("memory_gradients_bytes", &T::memory_gradients, "gradients"),
      field("memory_optimizer_bytes", &T::memory_optimizer, "master weights, moments, row states"),
      field("memory_activations_bytes", &T::memory_activations, "saved for the backward pass"),
      field("memory_logits_bytes", &T::memory_logits, "logits and what their loss makes of them"),
      field("memory_gathered_bytes", &T::memory_gathered, "gathered parameters"),
      field("memory_communication_bytes", &T::memory_communication, "exchange buffers"),
      field("memory_reserve_bytes", &T::memory_reserve, "context, fragmentation"),
      field("memory_bytes", &T::memory, "peak on the fullest accelerator"),
      field("memory_capacity_bytes", &T::memory_capacity, "of an accelerator"),
      field("looked_up_bytes", &T::looked_up, "rows a rank looks up in a forward pass"),
      field("forward_flop", &T::forward_flop, "GEMMs of a rank, one forward pass"),
      field("table_imbalance", &T::table_imbalance, "lookups of the busiest rank over the mean"),
      field("power_w", &T::power, "mean of one accelerator"),
      field("energy_j", &T::energy, "of the step, at the facility's meter"),
      field("cost_usd", &T::cost, "of the step")};
};

}  // namespace scalemodel
