// Bytes one layer saves for backward and needs on one rank for one micro-batch.
#pragma once

#include "scalemodel/costs/layer_cost.hpp"

namespace scalemodel {

/// Sizes a layer is made of on one rank, for one micro-batch.
struct LocalSizes {
  double tokens;        ///< after context parallelism
  double split_tokens;  ///< also after sequence parallelism
  double k, v;          ///< widths of this rank's keys and values that context ranks exchange
  double resharded;  ///< widths that change between tokens and heads: what attention reads of its
                     ///< own and writes
  double queries, outputs;  ///< widths of this rank's queries and of what attention writes
  double heads, kv_heads;
  double element;       ///< bytes of a stored activation
  double linear_input;  ///< bytes of a saved input of a linear layer
};

LocalSizes local_sizes(const LayerKind& kind, const LayerLayout& layout,
                       const Conditions& conditions);

/// Rows the routed experts of the busiest rank compute: the tokens of its expert group, k copies.
double routed_rows(const LayerKind& kind, const LayerLayout& layout, const LocalSizes& size,
                   const Conditions& conditions);

struct LayerBytes {
  BytesByRecompute saved{};  ///< saved for backward
  Bytes working;             ///< temporary peak beside what is saved
};

LayerBytes layer_bytes(const Model& model, const LayerKind& kind, const LayerLayout& layout,
                       const LocalSizes& size, const Conditions& conditions);

}  // namespace scalemodel
