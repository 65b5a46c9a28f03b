// The matrices of a rank as an optimizer takes them: Muon, Shampoo or SOAP.
#pragma once

#include "scalemodel/costs/end_cost.hpp"
#include "scalemodel/costs/layer_cost.hpp"

namespace scalemodel {

/// Whether an optimizer updates matrices as wholes, and not each parameter by itself.
constexpr bool updates_matrices(Optimizer optimizer) {
  return optimizer == Optimizer::muon || optimizer == Optimizer::shampoo ||
         optimizer == Optimizer::soap;
}

/// Matrices of a layer on one rank, where an optimizer takes them as wholes. A tensor-parallel rank
/// takes its shard for a matrix (block-wise, as Megatron-Bridge's recipes do with Muon). The router
/// is Adam's beside Muon alone, and Shampoo takes norms and biases too.
void add_matrix_updates(LayerCost& cost, const LayerKind& kind, const LayerLayout& layout,
                        const Conditions& conditions, const Cluster& cluster,
                        const LayerTimers& timers);

/// The token embedding or the LM head on one rank, of `parameters` in rows of `width`, and the norm
/// before the head, of `norm` parameters; they are Adam's beside Muon.
MatrixUpdates word_updates(double parameters, double width, double norm,
                           const Conditions& conditions, const Cluster& cluster);

}  // namespace scalemodel
