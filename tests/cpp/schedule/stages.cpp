#include "scalemodel/schedule/stages.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

int layers_of(const StageLayout& layout) {
  int total = 0;
  for (const StageClass& stage : layout.classes) total += stage.count * stage.total_layers();
  return total;
}

TEST_CASE("stages hold every layer once, one embedding and one head") {
  for (const DecoderShape& shape :
       {testing::gpt3_shape(), testing::latent_experts_shape(), testing::window_shape()}) {
    const Model model = make_decoder(shape);
    for (const int pp : {1, 2, 4, 7, 8}) {
      for (const int vpp : {1, 2, 3}) {
        if (pp * vpp > model.layers()) continue;
        CAPTURE(pp);
        CAPTURE(vpp);
        const StageLayout layout = make_stage_layout(model, pp, vpp, ChunkPlacement::rounds);
        CHECK(layers_of(layout) == model.layers() + model.mtp_layers);
        std::array<int, kMaxLayerKinds> held{}, wanted{};
        int stages = 0, embeddings = 0, heads = 0;
        for (const StageClass& stage : layout.classes) {
          stages += stage.count;
          embeddings += stage.embedding ? stage.count : 0;
          heads += stage.head ? stage.count : 0;
          for (std::size_t k = 0; k < kMaxLayerKinds; ++k) held[k] += stage.count * stage.layers[k];
        }
        for (const std::uint8_t kind : model.layer_kind) ++wanted[kind];
        wanted[model.layer_kind.back()] += model.mtp_layers;
        CHECK(held == wanted);
        CHECK(stages == pp);
        CHECK(embeddings == 1);
        CHECK(heads == 1);
        CHECK(layout.classes.front().first_index == 0);
      }
    }
  }
}

TEST_CASE("chunks differ by at most one layer") {
  DecoderShape shape = testing::dense_7b_shape();
  for (const int layers : {8, 30, 61, 96}) {
    shape.layers = layers;
    const Model model = make_decoder(shape);
    for (const int pp : {1, 2, 4, 8}) {
      const StageLayout layout = make_stage_layout(model, pp, 1, ChunkPlacement::rounds);
      for (const StageClass& stage : layout.classes) {
        CHECK(stage.total_layers() >= layers / pp);
        CHECK(stage.total_layers() <= (layers + pp - 1) / pp);
      }
    }
  }
}

TEST_CASE("a remainder of layers spares the ends, which also hold embedding and head") {
  DecoderShape shape = testing::dense_7b_shape();
  shape.layers = 30;
  const StageLayout layout = make_stage_layout(make_decoder(shape), 4, 1, ChunkPlacement::rounds);
  for (const StageClass& stage : layout.classes) {
    CHECK(stage.total_layers() == (stage.embedding || stage.head ? 7 : 8));
  }
}

TEST_CASE("embedding and head may be chunks of their own") {
  DecoderShape shape = testing::dense_7b_shape();
  shape.layers = 126;
  const Model model = make_decoder(shape);
  const std::vector<StageClass> chunks = make_chunks(model, 16, 8, ChunkPlacement::rounds);
  REQUIRE(chunks.size() == 128);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const StageClass& chunk = chunks[i];
    CHECK(chunk.total_layers() == (chunk.embedding || chunk.head ? 0 : 1));
    CHECK(chunk.embedding == (i == 0));
    CHECK(chunk.head == (i == 127));
    CHECK(chunk.stage_layers == (i < 8 || i >= 120 ? 7 : 8));
  }
}

TEST_CASE("chunks together are their stages") {
  for (const ChunkPlacement placement :
       {ChunkPlacement::rounds, ChunkPlacement::both_ways, ChunkPlacement::there_and_back}) {
    for (const int pp : {2, 4, 8}) {
      const int vpp = placement == ChunkPlacement::both_ways        ? 1
                      : placement == ChunkPlacement::there_and_back ? 2
                                                                    : 3;
      const Model model = make_decoder(testing::latent_experts_shape());
      const StageLayout layout = make_stage_layout(model, pp, vpp, placement);
      const std::vector<StageClass> chunks = make_chunks(model, pp, vpp, placement);
      std::array<int, kMaxLayerKinds> held{}, wanted{};
      for (std::size_t k = 0; k < kMaxLayerKinds; ++k) {
        for (const StageClass& chunk : chunks) held[k] += chunk.layers[k];
        for (const StageClass& stage : layout.classes) wanted[k] += stage.count * stage.layers[k];
      }
      CHECK(held == wanted);
    }
  }
}

TEST_CASE("there and back: embedding and head on the first stage, middle layers on the last") {
  DecoderShape shape = testing::dense_7b_shape();
  shape.layers = 30;
  const Model model = make_decoder(shape);
  const StageLayout layout = make_stage_layout(model, 4, 2, ChunkPlacement::there_and_back);
  CHECK(layers_of(layout) == 30);
  for (const StageClass& stage : layout.classes) {
    CHECK(stage.embedding == (stage.first_index == 0));
    CHECK(stage.head == (stage.first_index == 0));
    // Of eight chunks the middle six hold four layers, the first and the last three.
    CHECK(stage.total_layers() == (stage.first_index == 0 ? 6 : 8));
  }
  const std::vector<StageClass> chunks = make_chunks(model, 4, 2, ChunkPlacement::there_and_back);
  REQUIRE(chunks.size() == 8);
  CHECK(chunks[0].embedding);
  CHECK(chunks[1].head);
}

TEST_CASE("counted as layers, the ends stand in the row: no stage holds two items more") {
  DecoderShape shape = testing::dense_7b_shape();
  for (const int layers : {30, 40, 61, 96}) {
    shape.layers = layers;
    const Model model = make_decoder(shape);
    for (const int pp : {1, 2, 4, 8}) {
      CAPTURE(layers);
      CAPTURE(pp);
      const StageLayout layout = make_stage_layout(model, pp, 1, ChunkPlacement::rounds, true);
      CHECK(layers_of(layout) == layers);
      int most = 0, least = layers + 3;
      for (const StageClass& stage : layout.classes) {
        const int items = stage.total_layers() + (stage.embedding ? 1 : 0) + (stage.head ? 2 : 0);
        most = std::max(most, items);
        least = std::min(least, items);
      }
      CHECK(most - least <= 1);
    }
  }
}

TEST_CASE("DualPipe holds everything twice, stage i with stage pp - 1 - i") {
  for (const int pp : {2, 4, 8}) {
    const Model model = make_decoder(testing::gpt3_shape());
    const StageLayout layout = make_stage_layout(model, pp, 1, ChunkPlacement::both_ways);
    CHECK(layers_of(layout) == 2 * model.layers());
    int ends = 0;
    for (const StageClass& stage : layout.classes) {
      CHECK(stage.embedding == stage.head);
      ends += stage.head ? stage.count : 0;
    }
    CHECK(ends == 2);
  }
}

}  // namespace
}  // namespace scalemodel
