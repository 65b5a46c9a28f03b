#include "scalemodel/strategy/stages.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

/// Layers of chunk `c` of `chunks`: even, the remainder on the middle chunks.
int chunk_layers(int layers, int chunks, int c) {
  const int base = layers / chunks, extra = layers % chunks;
  const int first = (chunks - extra) / 2;
  return base + (c >= first && c < first + extra ? 1 : 0);
}

void add(StageClass& stage, const StageClass& other) {
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) stage.layers[k] += other.layers[k];
  stage.embedding = stage.embedding || other.embedding;
  stage.head = stage.head || other.head;
}

}  // namespace

StageLayout make_stage_layout(const Model& model, int pp, int vpp, bool mirrored) {
  const int chunks = pp * vpp;
  std::vector<StageClass> stages(static_cast<std::size_t>(pp));
  int layer = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    StageClass& stage = stages[static_cast<std::size_t>(chunk % pp)];
    for (int n = chunk_layers(model.layers(), chunks, chunk); n > 0; --n, ++layer) {
      ++stage.layers[model.layer_kind[static_cast<std::size_t>(layer)]];
    }
  }
  stages.front().embedding = true;
  stages.back().head = true;
  // Multi-token-prediction modules follow the last layer and look like it.
  stages.back().layers[model.layer_kind.back()] += model.mtp_layers;
  if (mirrored) {
    const std::vector<StageClass> one_way = stages;
    for (std::size_t i = 0; i < stages.size(); ++i) add(stages[i], one_way[stages.size() - 1 - i]);
  }
  StageLayout layout{pp, vpp, mirrored, {}};
  for (int i = 0; i < pp; ++i) {
    const StageClass& stage = stages[static_cast<std::size_t>(i)];
    const auto found = std::ranges::find_if(layout.classes, [&](const StageClass& c) {
      return c.layers == stage.layers && c.embedding == stage.embedding && c.head == stage.head;
    });
    if (found != layout.classes.end()) {
      ++found->count;
      continue;
    }
    layout.classes.push_back(stage);
    layout.classes.back().first_index = i;
    layout.classes.back().count = 1;
  }
  return layout;
}

}  // namespace scalemodel
