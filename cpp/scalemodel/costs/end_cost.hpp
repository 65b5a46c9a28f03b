// What the token embedding and the LM head cost one rank.
#pragma once

#include "scalemodel/costs/layer_cost.hpp"

namespace scalemodel {

/// Embedding or head with loss, on the stage that holds it.
struct EndCost {
  Phase forward, backward;
  Seconds weight_gradient;
  double parameters = 0, trainable = 0;
  double tower = 0, trainable_tower = 0;  ///< of them, those of a vision tower
  Bytes saved, working;
  MatrixUpdates updates;
};

EndCost embedding_cost(const Model& model, const LayerLayout& layout, const Conditions& conditions,
                       const Cluster& cluster, MessageList* messages = nullptr);

EndCost head_cost(const Model& model, const LayerLayout& layout, const Conditions& conditions,
                  const Cluster& cluster, const LayerTimers& timers, OperatorList* list = nullptr,
                  MessageList* messages = nullptr);

}  // namespace scalemodel
