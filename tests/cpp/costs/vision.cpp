// Vision towers: what they are made of, and what they cost the stage that holds them.
#include "scalemodel/model/vision.hpp"

#include "scalemodel/base/error.hpp"
#include "scalemodel/costs/vision_cost.hpp"
#include "scalemodel/estimator/stage_terms.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::small_tower;

constexpr int kSide = 512;  // pixels: 32 x 32 patches

Model seeing(const VisionShape& tower) {
  Model model = make_decoder(testing::dense_7b_shape());
  model.vision = make_vision_tower(tower, model.hidden);
  return model;
}

Task with_images(int images, bool frozen = false) {
  Task task = testing::training(64, 2048);
  task.images = images;
  task.image_height = task.image_width = kSide;
  task.frozen_vision = frozen;
  return task;
}

Estimate estimated(const Model& model, const Task& task, const Strategy& strategy) {
  Tables tables(model, testing::reference_cluster(8), task, Stack{});
  return evaluate(tables, strategy);
}

Strategy over(int tp, int pp) {
  Strategy s;
  s.tp = static_cast<std::uint16_t>(tp);
  s.pp = static_cast<std::uint16_t>(pp);
  return s;
}

TEST_CASE("by hand: parameters of a tower") {
  const double h = 1024, f = 4096;
  const double norms = 4 * h;  // two, scale and bias
  const double layer = 4 * h * h + 2 * h * f + norms;
  const double decoder = testing::dense_7b_shape().hidden;
  const double projector = 4 * h * 4096 + 4096 * decoder;
  const VisionTower tower = make_vision_tower(small_tower(), static_cast<int>(decoder));
  CHECK(tower.parameters() == 12 * layer + 3 * 16 * 16 * h + projector);
}

TEST_CASE("images are read in whole tokens of the decoder") {
  const VisionTower tower = make_vision_tower(small_tower(), 4096);
  CHECK(tower.patches(512, 512) == 1024);
  CHECK(tower.tokens(512, 512) == 256);
  CHECK(tower.patches(500, 530) == 4 * 16 * 17);
  CHECK(tower.patches(1, 1) == 4);
}

TEST_CASE("text alone: the tower is not loaded") {
  const Task task = testing::training(64, 2048);
  const Estimate blind = estimated(make_decoder(testing::dense_7b_shape()), task, over(2, 2));
  const Estimate text = estimated(seeing(small_tower()), task, over(2, 2));
  CHECK(blind.step_time == text.step_time);
  CHECK(blind.memory == text.memory);
}

TEST_CASE("every image takes as long as the one before it, and a frozen tower less") {
  const Model model = seeing(small_tower());
  const auto cost = [&](int images, bool frozen) {
    const Task task = with_images(images, frozen);
    Conditions conditions = resolve_conditions(task, Stack{}, task.precision);
    conditions.patches = model.vision.patches(kSide, kSide);
    const Cluster cluster = testing::reference_cluster(8);
    const GemmTimer timer(cluster.accelerator, Precision::bf16);
    EndCost end;
    LayerLayout layout;
    layout.micro_batch = 8;
    add_vision(end, model.vision, layout, conditions, cluster, {timer, timer});
    return end;
  };
  const EndCost one = cost(2, false), two = cost(4, false), frozen = cost(2, true);
  CHECK(two.forward.compute / one.forward.compute == Approx(2).epsilon(0.1));
  CHECK(about_equal(two.saved, 2 * one.saved));
  CHECK(one.forward.compute == frozen.forward.compute);
  CHECK(frozen.backward.compute < 0.2 * one.backward.compute);
  CHECK(frozen.saved < 0.2 * one.saved);
  CHECK(one.parameters == frozen.parameters);
  CHECK(one.trainable == one.parameters);
  CHECK(frozen.trainable < frozen.parameters);
}

TEST_CASE("the first stage holds the tower; a copy of a tied embedding does not") {
  DecoderShape shape = testing::dense_7b_shape();
  shape.tied_embeddings = true;
  Model model = make_decoder(shape);
  model.vision = make_vision_tower(small_tower(), model.hidden);
  Tables tables(model, testing::reference_cluster(8), with_images(2), Stack{});
  Tables blind(model, testing::reference_cluster(8), testing::training(64, 2048), Stack{});
  const Strategy strategy = over(1, 2);
  const Degrees degrees = resolve_degrees(strategy, tables.cluster(), tables.task());
  const auto parameters = [&](Tables& asked, bool first) {
    const auto [cell, stages] = asked.tabulate(strategy, degrees);
    const StepContext c = make_context(asked, strategy, degrees, *cell, *stages);
    return stage_parameters(c, first ? stages->classes.front() : stages->classes.back());
  };
  const double tower = model.vision.parameters();
  CHECK(parameters(tables, true).dense == Approx(parameters(blind, true).dense + tower));
  CHECK(parameters(tables, false).dense == Approx(parameters(blind, false).dense));
  CHECK(parameters(tables, false).trainable_dense ==
        Approx(parameters(blind, false).trainable_dense));
  CHECK(evaluate(tables, strategy).step_time > evaluate(blind, strategy).step_time);
}

TEST_CASE("layers with a window cost less, as many as have one") {
  VisionShape windowed = small_tower();
  windowed.window = 64;
  windowed.full_layers = 4;
  const VisionTower few = make_vision_tower(windowed, 4096);
  const VisionTower none = make_vision_tower(small_tower(), 4096);
  const double length = 16384;
  const Flop saved = none.forward_flop(length) - few.forward_flop(length);
  // Scores and values, 4 h for a pair of patches, of eight layers over 64 patches, not all.
  CHECK(about_equal(saved, Flop{8 * 4 * 1024 * length * (length - 64)}));
}

TEST_CASE("images that a model cannot read are refused") {
  const Model blind = make_decoder(testing::dense_7b_shape());
  const auto tables = [](const Model& model, const Task& task) {
    return Tables(model, testing::reference_cluster(8), task, Stack{});
  };
  CHECK_THROWS_WITH_AS(tables(blind, with_images(1)),
                       "images=1: must be 0: the model has no vision tower", MalformedQuestion);
  CHECK_THROWS_WITH_AS(tables(seeing(small_tower()), with_images(9)),
                       "images=9: must be at most 8 of 256 tokens each in a sequence of 2048",
                       MalformedQuestion);
  Task sizeless = with_images(1);
  sizeless.image_width = 0;
  CHECK_THROWS_AS(tables(seeing(small_tower()), sizeless), MalformedQuestion);
  VisionShape narrow = small_tower();
  narrow.heads = 2048;
  CHECK_THROWS_AS(make_vision_tower(narrow, 4096), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
