#include "scalemodel/model/encoder.hpp"

#include "scalemodel/base/error.hpp"
#include "scalemodel/costs/task_model.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

DecoderShape sequence_to_sequence() {
  DecoderShape shape;
  shape.layers = 2;
  shape.hidden = 64;
  shape.vocab = 1000;
  shape.position = Position::none;
  shape.heads = 8;
  shape.head_dim = 16;
  shape.ffn = 256;
  shape.encoder_layers = 3;
  return shape;
}

const Unit* crossing(const Model& model) {
  for (const Unit& unit : model.kinds[0].units) {
    if (unit.name == "cross_attention") return &unit;
  }
  return nullptr;
}

TEST_CASE("an encoder has the layers of its decoder without the attention to it") {
  const Model model = make_decoder(sequence_to_sequence());
  const double h = 64, w = 8 * 16, f = 256;
  const double own = 4 * h * w + 2 * h * f + 2 * h;
  CHECK(model.encoder.parameters() == 3 * own + h);
  const double crossed = 4 * h * w + h;
  CHECK(model.parameters() == 2 * 1000 * h + h + 2 * (own + crossed) + 3 * own + h);
  DecoderShape alone = sequence_to_sequence();
  alone.encoder_layers = 0;
  CHECK(!make_decoder(alone).encoder.present());
  CHECK(make_decoder(alone).parameters() == 2 * 1000 * h + h + 2 * own);
}

TEST_CASE("frames pass two convolutions, the second of which keeps one of a stride") {
  DecoderShape shape = sequence_to_sequence();
  shape.encoder_positions = 1500;
  shape.encoder_channels = 80;
  shape.encoder_stride = 2;
  const VisionTower encoder = make_encoder(shape);
  const double h = 64;
  CHECK(encoder.patches(0, 0) == 1500);
  CHECK(encoder.other_parameters == 1500 * h + h + (3 * 80 * h + h) + (3 * h * h + h));
  double products = 0;
  for (const VisionProduct& product : encoder.products) {
    products += 2 * 1500 * product.copies * product.columns * product.depth;
  }
  CHECK(products == 2 * (3000 * 3 * 80 * h + 1500 * 3 * h * h));
}

TEST_CASE("by hand: an encoder whose every second layer has experts, one of them a token") {
  DecoderShape shape = sequence_to_sequence();
  shape.encoder_layers = 4;
  shape.experts = 8;
  shape.experts_per_token = 1;
  shape.expert_ffn = 256;
  shape.moe_every = 2;
  const double h = 64, dense = make_encoder(shape).parameters();
  shape.encoder_moe_every = 2;
  const VisionTower encoder = make_encoder(shape);
  CHECK(encoder.parameters() == Approx(dense + 2 * (7 * 2 * h * 256 + 8 * h)));
  // A token passes one block a layer, and every router.
  const double flop = make_encoder(sequence_to_sequence()).forward_flop(128).base() / 3;
  CHECK(encoder.forward_flop(128).base() == Approx(4 * flop + 128 * 2 * 2 * 8 * h));
  shape.encoder_moe_every = 1;
  shape.experts = 0;
  CHECK_THROWS_WITH_AS(make_decoder(shape), "experts=0: must be at least 1 for encoder_moe_every",
                       MalformedQuestion);
}

TEST_CASE("layers of a task have as many keys of the source as it has tokens") {
  Task task;
  task.sequence = 128;
  task.source_tokens = 512;
  const Model model = for_task(make_decoder(sequence_to_sequence()), task);
  CHECK(model.vision.patches(0, 0) == 512);
  const Unit* unit = crossing(model);
  REQUIRE(unit != nullptr);
  for (const LayerOperator& op : unit->operators) {
    if (op.of_source) CHECK(op.rows == 4);
    if (op.kind == OperatorKind::attention) CHECK(op.other_keys == 512);
  }
  // Norm, input of the queries' product, queries, outputs; the source and its keys and values.
  const double h = 64, w = 128;
  CHECK(unit->saved_whole + unit->saved_cut == Approx(2 * h + 2 * w + 4 * (h + 2 * w)));
  CHECK(seen_by(model, task).images == 1);
}

TEST_CASE("a source is as long as the sequence, or as the model has it, unless a task says") {
  Task task;
  task.sequence = 128;
  DecoderShape shape = sequence_to_sequence();
  CHECK(for_task(make_decoder(shape), task).vision.patches(0, 0) == 128);
  shape.encoder_positions = 1500;
  CHECK(for_task(make_decoder(shape), task).vision.patches(0, 0) == 1500);
}

TEST_CASE("a source that a model cannot read is refused") {
  Task task;
  task.source_tokens = 512;
  DecoderShape shape = sequence_to_sequence();
  shape.encoder_positions = 1500;
  CHECK_THROWS_AS(for_task(make_decoder(shape), task), MalformedQuestion);
  shape.encoder_layers = 0;
  CHECK_THROWS_AS(for_task(make_decoder(shape), task), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
