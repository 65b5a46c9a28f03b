#include "scalemodel/schedule/stages.hpp"

#include <algorithm>

namespace scalemodel {
namespace {

/// Layers of chunk `c` of `chunks`: even, the remainder on the middle chunks.
int chunk_layers(int layers, int chunks, int c) {
  const int base = layers / chunks, extra = layers % chunks;
  const int first = (chunks - extra) / 2;
  return base + (c >= first && c < first + extra ? 1 : 0);
}

/// Layers of chunk `c` when the embedding stands before the first layer and norm and head behind
/// the last: even, the remainder on the first chunks.
int chunk_layers_with_ends(int layers, int chunks, int c) {
  constexpr int kBefore = 1, kBehind = 2;
  const int items = layers + kBefore + kBehind;
  const int base = items / chunks, extra = items % chunks;
  const auto position = [&](int chunk) { return chunk * base + std::min(chunk, extra); };
  const auto layers_before = [&](int item) { return std::clamp(item - kBefore, 0, layers); };
  return layers_before(position(c + 1)) - layers_before(position(c));
}

void add(StageClass& stage, const StageClass& other) {
  for (std::size_t k = 0; k < kMaxLayerKinds; ++k) stage.layers[k] += other.layers[k];
  stage.embedding = stage.embedding || other.embedding;
  stage.head = stage.head || other.head;
}

/// Chunks in the order a micro-batch passes them.
std::vector<StageClass> chunks_in_order(const Model& model, int count, bool ends_as_layers) {
  std::vector<StageClass> chunks(static_cast<std::size_t>(count));
  int layer = 0;
  for (int c = 0; c < count; ++c) {
    const int held = ends_as_layers ? chunk_layers_with_ends(model.layers(), count, c)
                                    : chunk_layers(model.layers(), count, c);
    for (int n = held; n > 0; --n, ++layer) {
      const std::uint8_t kind = model.layer_kind[static_cast<std::size_t>(layer)];
      ++chunks[static_cast<std::size_t>(c)].layers[kind];
    }
  }
  chunks.front().embedding = true;
  chunks.back().head = true;
  // Multi-token-prediction modules follow the last layer.
  chunks.back().layers[model.mtp_kind] += model.mtp_layers;
  return chunks;
}

}  // namespace

StageLayout make_stage_layout(const Model& model, int pp, int vpp, ChunkPlacement placement,
                              bool ends_as_layers) {
  const bool mirrored = placement == ChunkPlacement::both_ways;
  const std::vector<StageClass> chunks = chunks_in_order(model, pp * vpp, ends_as_layers);
  std::vector<StageClass> stages(static_cast<std::size_t>(pp));
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const bool back = placement == ChunkPlacement::there_and_back && c >= stages.size();
    add(stages[back ? chunks.size() - 1 - c : c % stages.size()], chunks[c]);
  }
  if (mirrored) {
    const std::vector<StageClass> one_way = stages;
    for (std::size_t i = 0; i < stages.size(); ++i) add(stages[i], one_way[stages.size() - 1 - i]);
  }
  StageLayout layout;
  layout.pp = pp;
  layout.vpp = vpp;
  layout.mirrored = mirrored;
  layout.one_way = placement == ChunkPlacement::rounds;
  for (int i = 0; i < pp; ++i) {
    const StageClass& stage = stages[static_cast<std::size_t>(i)];
    const auto found = std::ranges::find_if(layout.classes, [&](const StageClass& c) {
      return c.layers == stage.layers && c.embedding == stage.embedding && c.head == stage.head;
    });
    if (found != layout.classes.end()) {
      ++found->count;
      found->last_index = i;
      continue;
    }
    layout.classes.push_back(stage);
    layout.classes.back().first_index = layout.classes.back().last_index = i;
    layout.classes.back().count = 1;
  }
  return layout;
}

std::vector<StageClass> make_chunks(const Model& model, int pp, int vpp, ChunkPlacement placement,
                                    bool ends_as_layers) {
  const std::vector<StageClass> in_order = chunks_in_order(model, pp * vpp, ends_as_layers);
  std::vector<StageClass> chunks;
  const auto stages = static_cast<std::size_t>(pp);
  const bool mirrored = placement == ChunkPlacement::both_ways;
  const std::size_t per_stage = mirrored ? 2 : static_cast<std::size_t>(vpp);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    int layers = 0;
    for (std::size_t i = 0; i < per_stage; ++i) {
      const bool turned = placement != ChunkPlacement::rounds && i == 1;
      const std::size_t from_end = in_order.size() - 1 - stage;
      chunks.push_back(in_order[turned ? from_end : i * stages + stage]);
      chunks.back().first_index = chunks.back().last_index = static_cast<int>(stage);
      chunks.back().count = 1;
      layers += chunks.back().total_layers();
    }
    for (std::size_t i = 0; i < per_stage; ++i) chunks[chunks.size() - 1 - i].stage_layers = layers;
  }
  return chunks;
}

}  // namespace scalemodel
