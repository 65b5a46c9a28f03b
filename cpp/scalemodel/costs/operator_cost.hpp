// Prices the operators of a unit on one rank: the decoder's layers and layer groups alike.
#pragma once

#include "scalemodel/costs/layer_builder.hpp"
#include "scalemodel/model/operators.hpp"
#include "scalemodel/ops/attention.hpp"

namespace scalemodel {

/// The shard of a unit that one rank computes in one micro-batch.
struct UnitShard {
  double tp = 1;            ///< ranks that the matrices are sharded over
  double tokens = 0;        ///< of the rank
  double split_tokens = 0;  ///< of them, those between GEMMs where the sequence is sharded too
  double rows = 0;          ///< tokens, or their copies on the busiest rank of the experts
  double batch = 1;         ///< experts of the rank that get a row
  int ep = 1;               ///< ranks that the experts are sharded over
  bool ep_between = false;  ///< in several scale-up domains
};

/// What the units of a layer have in common.
struct PricingContext {
  const Conditions& conditions;
  const Cluster& cluster;
  const LayerTimers& timers;
  AttentionWork attention;  ///< sequences, queries and keys of the rank
  bool frozen = false;      ///< weights get no gradient
  bool adapts = true;       ///< low-rank adapters, where the task trains them, sit here
  bool attention_core = true, elementwise = true;  ///< false: left out by an ablation
  /// Inputs come in the narrow format from the kernels that make them, as where nothing is trained
  /// and engines are built ahead (TensorRT).
  bool quantised = false;
  bool routed_layer = false;  ///< a dense block is then that of shared experts
  double pieces = 1;          ///< of GEMMs under a ring exchange of tensor ranks
  bool latent = false;        ///< attention makes its heads, or its queries, out of latents
};

/// Adds the operators of `unit` to `builder`; parameters of their adapters.
double add_operators(LayerBuilder& builder, const Unit& unit, const UnitShard& shard,
                     const PricingContext& context);

/// Whether an adapter sits beside a matrix.
bool has_adapter(const LayerOperator& op, LoraTargets targets);

/// Copies of a token that leave for other ranks: k, or, sent once per rank that holds any of its
/// experts, the expected number of distinct ranks n (1 - (1 - 1/n)^k) of the n that it may visit.
double dispatched_copies(int experts_per_token, double ranks, bool deduplicated);

}  // namespace scalemodel
