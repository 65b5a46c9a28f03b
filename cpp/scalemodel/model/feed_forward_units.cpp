#include <utility>

#include "scalemodel/model/group_units.hpp"
#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {
namespace {

using building::gemm;
using building::passing;

/// What a block of experts adds for every token: the router, in front of everything.
void add_router(Unit& unit, const LayerShape& layer) {
  const double experts = layer.feed_forward.experts + layer.feed_forward.zero_experts;
  const double rank = layer.router_rank;
  if (rank == 0) {
    add_scores(unit, experts, layer.hidden, layer.router_bias);
    return;
  }
  // Down to its width, where a scale, a norm and two matrices follow (transformers, models/zaya).
  const auto add = [&](double depth, double biases) {
    LayerOperator& op = unit.operators.emplace_back(gemm("router_block", rank, depth, Cut::none));
    op.of_token = true;
    op.bias = biases * rank;
  };
  add(layer.hidden, 3);
  add(rank, 1);
  add(rank, 1);
  add_scores(unit, experts, rank, layer.router_bias);
}

/// Two or three matrices with an activation between them, from `h` values to as many.
void add_mlp(Unit& unit, const LayerShape& layer, double h, int width, bool biased) {
  const FeedForwardShape& ff = layer.feed_forward;
  const double w = width;
  LayerOperator up = gemm("mlp_up", ff.gated ? 2 * w : w, h, Cut::columns);
  if (ff.gated) up.parts = {{w, 0}, {w, 0}};
  up.bias = biased ? up.columns : 0;
  up.owned = layer.feed_forward_parts;
  LayerOperator activation = passing(OperatorKind::activation, "activation", w, Cut::columns);
  activation.gated = ff.gated;
  activation.clamped = layer.clamped_activation;
  LayerOperator down = gemm("mlp_down", h, w, Cut::depth);
  down.bias = biased ? h : 0;
  down.owned = layer.feed_forward_parts;
  unit.operators.push_back(std::move(up));
  unit.operators.push_back(std::move(activation));
  unit.operators.push_back(std::move(down));
}

/// A projection between the stream and the narrower values that experts work on: of the token.
void project_latent(Unit& unit, std::string_view name, double columns, double depth) {
  LayerOperator& op = unit.operators.emplace_back(gemm(name, columns, depth, Cut::none));
  op.of_token = true;
}

Unit dense_unit(const LayerShape& layer, int width, bool biased, int norms) {
  Unit unit = begun_block("feed_forward", layer, norms);
  if (layer.feed_forward_scores > 0) {
    add_scores(unit, layer.feed_forward_scores, layer.hidden, layer.router_bias);
  }
  add_mlp(unit, layer, layer.hidden, width, biased);
  if (layer.receptance) {  // with the shares of the token before in what both matrices read
    LayerOperator gate = gemm("receptance", layer.hidden, layer.hidden, Cut::none);
    gate.bias = 2.0 * layer.hidden;
    unit.operators.push_back(gate);
    unit.operators.push_back(passing(OperatorKind::elementwise, "receptance_gate", layer.hidden));
    unit.operators.back().depth = 3;
  }
  if (layer.layer_embedding > 0) {
    // What the layer looks up, gated by the stream and added to it.
    const double h = layer.hidden, looked_up = layer.layer_embedding;
    unit.operators.push_back(gemm("layer_gate", looked_up, h, Cut::none));
    unit.operators.push_back(gemm("layer_projection", h, looked_up, Cut::none));
    unit.operators.back().bias = h;
  }
  add_residual_sum(unit, layer);
  unit.cut_limit = width;
  return unit;
}

/// `beside` shared experts, whose block it is then.
Unit expert_unit(const LayerShape& layer, bool beside, int norms) {
  const FeedForwardShape& ff = layer.feed_forward;
  Unit unit = begun_block("experts", layer, beside ? 0 : norms);
  unit.experts = ff.experts;
  unit.experts_per_token = ff.experts_per_token;
  unit.reads_stream = !beside;
  add_router(unit, layer);
  unit.expert_width = ff.expert_width(layer.hidden);
  const double width = unit.expert_width;
  if (ff.latent > 0) project_latent(unit, "latent_down", width, layer.hidden);
  add_mlp(unit, layer, width, ff.width, layer.expert_bias);
  if (ff.latent > 0) project_latent(unit, "latent_up", layer.hidden, width);
  if (!beside) add_residual_sum(unit, layer);
  unit.cut_limit = ff.width;
  finish_unit(unit);
  // Rows in the order of their experts and what comes back; probabilities of the router in FP32;
  // of the token itself, the norm's input and output.
  const double h = layer.hidden;
  unit.saved_whole = 2 * width;
  unit.saved_token = 2.0 * (ff.experts + ff.zero_experts) + ff.latent + (beside ? 0 : 2 * h);
  return unit;
}

}  // namespace

std::vector<Unit> feed_forward_units(const LayerShape& layer) {
  const FeedForwardShape& ff = layer.feed_forward;
  const int norms = layer.norms / 2;
  std::vector<Unit> units;
  if (!ff.routed()) {
    LayerShape dense = layer;
    dense.norm_rank = 0;
    finish_unit(units.emplace_back(dense_unit(dense, ff.width, layer.mlp_bias, norms)));
    return units;
  }
  const bool shares = ff.shared_width > 0;
  if (shares) {
    Unit& shared = units.emplace_back(dense_unit(layer, ff.shared_width, layer.shared_bias, norms));
    if (layer.shared_expert_gate) {  // one number a token: parameters, hardly any time
      shared.operators.back().bias += layer.hidden;
    }
    finish_unit(shared);
  }
  units.push_back(expert_unit(layer, shares, norms));
  return units;
}

}  // namespace scalemodel
