// What keeps the stages of a pipeline busy, roughly: for a bound that costs little.
#pragma once

#include <algorithm>
#include <array>

#include "scalemodel/estimator/stage_cost.hpp"

namespace scalemodel {

/// Of a micro-batch: how long its passes keep a stage busy, and the part of that it computes.
struct Load {
  Seconds busy, compute;

  friend constexpr Load operator+(const Load& a, const Load& b) {
    return {a.busy + b.busy, a.compute + b.compute};
  }
  friend constexpr Load operator*(double n, const Load& a) { return {n * a.busy, n * a.compute}; }
};

/// Loads of a cell's layers and ends. None is more than what `StageCost::busy` takes for it.
struct CellLoads {
  std::array<Load, kMaxLayerKinds> layers;
  std::array<std::array<Load, 3>, kMaxLayerKinds> again;  ///< by Recompute, layers that run twice
  Load embedding, head;
};

/// Of a pass that hides whatever other micro-batches may hide.
inline Load pass_load(const StepContext& c, const Phase& pass) {
  // DualPipe may hide the exchange of experts. What is hidden may be exposed instead, which takes
  // longer unless it slowed compute by more than itself.
  const Seconds exchange = c.stages.pairs ? Seconds{} : pass.ep;
  const double slowdown = std::min(1.0, c.stack().contention);
  return {pass.compute + pass.tp + pass.cp + exchange + slowdown * pass.hidden, pass.compute};
}

inline CellLoads cell_loads(const StepContext& c) {
  CellLoads loads;
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    const LayerCost& layer = c.cell.layers[k];
    loads.layers[k] = pass_load(c, layer.forward) + pass_load(c, layer.backward);
    for (std::size_t mode = 0; mode < layer.recompute.size(); ++mode) {
      loads.again[k][mode] = pass_load(c, layer.recompute[mode]);
    }
  }
  const auto end_load = [&](const EndCost& end) {
    return pass_load(c, end.forward) + pass_load(c, end.backward);
  };
  loads.embedding = end_load(c.cell.embedding);
  loads.head = end_load(c.cell.head);
  return loads;
}

/// Busy as the busiest stage, with the least compute of any.
inline Load pacing_load(const StepContext& c, const CellLoads& loads) {
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  const std::size_t kinds = c.tables.model().kinds.size();
  Load pace{Seconds{}, Seconds{kInfinity}};
  for (const StageClass& stage : c.stages.classes) {
    const double recomputed = recompute_share(c.strategy, stage);
    Load load;
    for (std::size_t k = 0; k < kinds; ++k) {
      load = load + stage.layers[k] * (loads.layers[k] + recomputed * loads.again[k][mode]);
    }
    if (stage.embedding) load = load + loads.embedding;
    if (stage.head) load = load + loads.head;
    pace = {max(pace.busy, load.busy), min(pace.compute, load.compute)};
  }
  return share_of_passes(c) * pace;
}

/// What the passes of a step take on a way through a pipeline along one of its stages. Zero where
/// passes of layers and ends are not certain to take as much on it as on the stages.
inline Seconds longest_way(const StepContext& c, const CellLoads& loads) {
  const auto is_inner = [](const StageClass& stage) { return !stage.embedding && !stage.head; };
  if (c.stages.paths == nullptr || c.stages.mirrored || c.stages.pairs) return {};
  if (std::ranges::none_of(c.stages.classes, is_inner)) return {};
  // Of layers that run again in part, and of ends beside them, stages take different shares.
  const bool whole = c.strategy.recompute == Recompute::none || c.strategy.recompute_layers == 0;
  const auto mode = static_cast<std::size_t>(c.strategy.recompute);
  const double again = whole && c.strategy.recompute != Recompute::none ? 1 : 0;
  std::array<Seconds, kPipelineParts> times{};
  for (std::size_t k = 0; k < c.tables.model().kinds.size(); ++k) {
    times[k] = loads.layers[k].busy + again * loads.again[k][mode].busy;
  }
  if (whole) times[kEmbeddingPart] = loads.embedding.busy;
  if (whole) times[kHeadPart] = loads.head.busy;
  Seconds longest;
  for (const StageWay& way : c.stages.paths->stage_ways()) {
    Seconds lasts;
    for (std::size_t part = 0; part < kPipelineParts; ++part) {
      lasts += (way.once[part] + c.degrees.micro_batches * way.each[part]) * times[part];
    }
    longest = max(longest, lasts);
  }
  return longest;
}

}  // namespace scalemodel
