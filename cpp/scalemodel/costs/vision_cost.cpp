#include "scalemodel/costs/vision_cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "scalemodel/costs/layer_builder.hpp"

namespace scalemodel {
namespace {

/// A count as a layout holds it. Products of degrees that no machine has may be larger.
int layout_count(double count) {
  return static_cast<int>(std::min(std::round(count), 1.0 * std::numeric_limits<int>::max()));
}

/// The tower's own layout: of the decoder's only the tensor ranks, if they divide the heads.
LayerLayout tower_layout(const VisionTower& tower, const LayerLayout& decoder) {
  LayerLayout layout;
  if (tower.heads % decoder.tp == 0) {
    layout.tp = decoder.tp;
    layout.tp_group = decoder.tp_group;
  }
  return layout;
}

}  // namespace

void add_vision(EndCost& cost, const VisionTower& tower, const LayerLayout& layout,
                const Conditions& conditions, const Cluster& cluster, const LayerTimers& timers,
                MessageList* messages) {
  const double images = layout.micro_batch * conditions.images;
  const double patches = conditions.patches, tokens = patches / (tower.merge * tower.merge);
  const LayerTimers own_timers{timers.storage, timers.storage};
  const bool learns = !conditions.frozen_vision;
  Conditions own = conditions;
  own.precision = conditions.storage;
  own.frozen_base = false;
  own.lora_rank = 0;
  own.matrix_optimizer.reset();
  LayerLayout own_layout = tower_layout(tower, layout);
  Model stream;
  stream.hidden = tower.hidden;
  const auto add_layers = [&](int layers, double sequences, double length) {
    if (layers == 0) return;
    own_layout.micro_batch = layout_count(sequences);
    own.sequence = layout_count(length);
    MessageList of_layer;
    const LayerCost layer = layer_cost(stream, tower.block, own_layout, own, cluster, own_timers,
                                       nullptr, messages == nullptr ? nullptr : &of_layer);
    cost.forward = cost.forward + layers * layer.forward;
    if (learns) {
      cost.backward = cost.backward + layers * layer.backward;
      cost.weight_gradient += layers * layer.weight_gradient;
      cost.saved += layers * layer.saved[static_cast<std::size_t>(Recompute::none)];
    }
    cost.working = max(cost.working, layer.working);
    cost.tower += layers * layer.dense_parameters;
    if (messages == nullptr) return;
    for (Message& message : of_layer) {
      message.forward *= layers;
      message.backward *= learns ? layers : 0;
      messages->push_back(message);
    }
  };
  add_layers(tower.layers - tower.window_layers, images, patches);
  if (tower.window_layers > 0) {
    const double windows = std::ceil(patches / tower.window);
    add_layers(tower.window_layers, images * windows, patches / windows);
  }
  cost.trainable_tower = learns ? cost.tower : 0;

  LayerBuilder entry(own, cluster, nullptr, nullptr), projector(own, cluster, nullptr, nullptr);
  const double element = operand_bytes(conditions.storage);
  for (const VisionProduct& product : tower.products) {
    const double rows = images * product.rows * (product.of_patches ? patches : tokens);
    LayerBuilder& builder = product.of_patches ? entry : projector;
    const bool frozen = product.of_patches ? !learns : conditions.frozen_base;
    for (int copy = 0; copy < static_cast<int>(product.copies); ++copy) {
      builder.linear(product.name, rows, product.columns, product.depth,
                     {frozen, 1, &timers.storage});
    }
    if (!frozen) cost.saved += Bytes{product.copies * rows * product.depth * element};
  }
  cost.forward.compute += entry.forward() + projector.forward();
  // Pixels have no gradient.
  if (learns) cost.backward.compute += entry.weight_gradient();
  if (!conditions.frozen_base) {
    const Seconds gradients = projector.weight_gradient();
    cost.backward.compute += learns ? projector.backward() : gradients;
    cost.weight_gradient += gradients;
  }
  double projected = 0;
  for (const VisionProduct& product : tower.products) {
    if (!product.of_patches) projected += product.copies * product.columns * product.depth;
  }
  cost.tower += tower.other_parameters;
  cost.trainable_tower += learns ? tower.other_parameters : conditions.frozen_base ? 0 : projected;
  cost.parameters += cost.tower;
  cost.trainable += cost.trainable_tower;
}

}  // namespace scalemodel
