#include "scalemodel/base/error.hpp"
#include "scalemodel/model/groups.hpp"
#include "scalemodel/ops/gemm.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TransformerShape block() {
  TransformerShape shape;
  shape.layers = 3;
  shape.hidden = 256;
  shape.heads = 4;
  shape.ffn = 1024;
  shape.causal = false;
  shape.tokens = 512;
  return shape;
}

const Unit* unit_of(const LayerGroup& group, std::string_view name) {
  for (const Unit& unit : group.units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

TEST_CASE("a residual block of a U-Net has the parameters and products of its convolutions") {
  ConvolutionShape shape;
  shape.blocks = {{960, 320}};
  shape.convolutions = {{320, 4, 3}};
  shape.condition = 1280;
  shape.tokens = 4096;
  const LayerGroup group = convolution("level", shape);
  const double weights = 9.0 * 960 * 320 + 9.0 * 320 * 320 + 960.0 * 320;
  const double norms = 2.0 * 960 + 2.0 * 320, condition = 1281.0 * 320, last = 9.0 * 320 * 4 + 4;
  CHECK(group.parameters() == weights + 3 * 320 + norms + condition + last);
  const double places = 2.0 * 4096 * (weights + 9.0 * 320 * 4), once = 2.0 * 1280 * 320;
  CHECK(group.forward_flop(1).base() == Approx(places + once));
  CHECK(group.units.size() == 1);
}

TEST_CASE("kernels over frames have as many taps more, those beside a block have not") {
  ConvolutionShape shape;
  shape.blocks = {{64, 128}};
  shape.convolutions = {{128, 3, 3}};
  shape.tokens = 100;
  const double image = convolution("level", shape).units[0].parameters_whole;
  shape.frames = 3;
  const double video = convolution("level", shape).units[0].parameters_whole;
  CHECK(video - image == 2 * 9 * (64 * 128 + 128 * 128 + 128 * 3));
  shape.frames = 0;
  CHECK_THROWS_AS(convolution("level", shape), MalformedQuestion);
}

TEST_CASE("a convolution saves its input once, and reads it once") {
  ConvolutionShape shape;
  shape.convolutions = {{64, 64, 3}};
  shape.tokens = 1024;
  CHECK(convolution("wide", shape).units[0].saved_whole == 64);
  const Accelerator accelerator = testing::reference_accelerator();
  const GemmTimer timer(accelerator, Precision::bf16);
  GemmShape product{1e7, 64, 576};
  const Seconds spread = timer.time(product);
  product.taps = 9;
  CHECK(timer.time(product) < spread);
}

TEST_CASE("attention to another sequence counts its keys, and keeps its share of them") {
  TransformerShape shape = block();
  const LayerGroup alone = transformer("alone", shape);
  shape.context_tokens = 77;
  shape.context_width = 128;
  const LayerGroup beside = transformer("beside", shape);
  const double h = 256, own = 4 * 512 * h * h + 4 * 77 * 128 * h + 4 * 512 * 77 * h;
  CHECK((beside.forward_flop(1) - alone.forward_flop(1)).base() == Approx(3 * own));
  const Unit* unit = unit_of(beside, "cross_attention");
  REQUIRE(unit != nullptr);
  // Norm, input of the queries' product, queries, outputs; the text and its keys and values.
  const double text = 77.0 / 512;
  CHECK(unit->saved_whole + unit->saved_cut == Approx(4 * h + text * (128 + 2 * h)));
}

TEST_CASE("a modality has weights of its own and no products") {
  TransformerShape shape = block();
  const LayerGroup one = transformer("one", shape);
  shape.modalities = 2;
  const LayerGroup two = transformer("two", shape);
  CHECK(two.parameters() == 2 * one.parameters());
  CHECK(two.forward_flop(1) == one.forward_flop(1));
}

TEST_CASE("linear attention has no scores, and a convolution between products has weights") {
  TransformerShape shape = block();
  const LayerGroup usual = transformer("usual", shape);
  shape.linear = true;
  const LayerGroup linear = transformer("linear", shape);
  CHECK(linear.parameters() == usual.parameters());
  const double scores = 4.0 * 512 * 512 * 256;
  CHECK((usual.forward_flop(1) - linear.forward_flop(1)).base() == Approx(3 * scores));
  shape.depthwise = 3;
  const LayerGroup convolved = transformer("convolved", shape);
  CHECK(convolved.parameters() - linear.parameters() == 3 * 1024 * 10);
  shape.depthwise = -1;
  CHECK_THROWS_AS(transformer("none", shape), MalformedQuestion);
}

TEST_CASE("a malformed convolution or layer names what is wrong") {
  ConvolutionShape shape;
  shape.tokens = 16;
  CHECK_THROWS_AS(convolution("none", shape), MalformedQuestion);
  shape.blocks = {{64, 0}};
  CHECK_THROWS_AS(convolution("empty", shape), MalformedQuestion);
  TransformerShape layer = block();
  layer.context_tokens = 77;
  CHECK_THROWS_AS(transformer("text", layer), MalformedQuestion);
  layer.context_tokens = 0;
  layer.modalities = 0;
  CHECK_THROWS_AS(transformer("none", layer), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
