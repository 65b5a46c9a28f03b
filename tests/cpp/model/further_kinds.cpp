// Layers that attend to an image alone, experts of attention, and two recurrent mixers, by hand.
#include <string_view>

#include "scalemodel/base/error.hpp"
#include "scalemodel/costs/task_model.hpp"
#include "scalemodel/model/vision.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

DecoderShape decoder() { return testing::hand_sized_shape(4); }

VisionShape tower() {
  VisionShape v;
  v.layers = 3;
  v.hidden = 32;
  v.heads = 4;
  v.ffn = 128;
  v.patch = 14;
  v.image_patches = 50;
  v.feature_layers = 3;
  return v;
}

const LayerOperator* named(const LayerKind& kind, std::string_view name) {
  for (const Unit& unit : kind.units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.name == name) return &op;
    }
  }
  return nullptr;
}

DecoderShape crossing() {
  DecoderShape s = decoder();
  s.mixers = "FFFX";
  return s;
}

TEST_CASE("by hand: a layer that attends to an image alone has heads in groups and their norms") {
  const Model plain = make_decoder(decoder()), crossed = make_decoder(crossing());
  CHECK(crossed.parameters() == plain.parameters() + 2 * 16);  // norms of queries and of keys
  CHECK(crossed.kinds.size() == 2);
  const LayerKind& kind = crossed.kinds[1];
  CHECK(kind.units.front().name == "cross_attention");
  CHECK(kind.units.front().starts);
  CHECK(named(kind, "qkv") == nullptr);
  CHECK(named(kind, "rope") == nullptr);
  CHECK(named(kind, "cross_kv")->columns == 2 * 2 * 16);
  CHECK(named(kind, "cross_kv")->local_columns(4) == 2 * 16);  // a copy of a head each
  CHECK(crossed.reads_source());
  CHECK(!plain.reads_source());
}

TEST_CASE("an image that layers attend to is no part of the sequence") {
  const Model model = with_vision(make_decoder(crossing()), tower());
  CHECK(!model.vision.present());
  CHECK(model.encoder.image_patches == 50);
  CHECK(model.reads_images_apart());
  CHECK(with_vision(make_decoder(decoder()), tower()).vision.present());
  Task task;
  task.sequence = 25;
  task.images = 1;
  const Model seen = for_task(model, task);
  for (const Unit& unit : seen.kinds[1].units) {
    for (const LayerOperator& op : unit.operators) {
      if (op.of_source) CHECK(op.rows == 2);
      if (op.kind == OperatorKind::attention) CHECK(op.other_keys == 50);
    }
  }
  task.images = 2;
  CHECK_THROWS_WITH_AS(for_task(model, task),
                       "images=2: must be at most 1: its layers attend to one image of every "
                       "sequence",
                       MalformedQuestion);
  CHECK_THROWS_WITH_AS(for_task(make_decoder(crossing()), Task{}), kNoSource, MalformedQuestion);
}

TEST_CASE("outputs of inner layers stand side by side in front of the projector") {
  VisionShape one = tower();
  one.feature_layers = 1;
  const VisionTower all = make_vision_tower(tower(), 64), last = make_vision_tower(one, 64);
  CHECK(all.parameters() == last.parameters() + 2 * 32 * 64);
  CHECK(all.forward_flop(50) == last.forward_flop(50) + Flop{2.0 * 50 * 2 * 32 * 64});
}

DecoderShape choosing() {
  DecoderShape s = decoder();
  s.ffn = 0;
  s.experts = 8;
  s.experts_per_token = 2;
  s.expert_ffn = 128;
  s.out_bias = true;
  s.attention_experts = true;
  return s;
}

TEST_CASE("by hand: experts of attention count as often as there are, arithmetic as chosen") {
  const double h = 64, heads = 8 * 16, kv = 2 * 16;
  const double each = h * heads / 2;  // of one expert: half of the heads of a token
  const double attention = 8 * 2 * each + 2 * h * kv + 8 * h + h;
  const double experts = 8 * 3 * h * 128 + 8 * h;
  const Model model = make_decoder(choosing());
  CHECK(model.parameters() == 2 * 100 * h + h + 4 * (attention + experts + 2 * h));
  const double met = 2 * 2 * each + 2 * h * kv + 8 * h + h / 4 + 2 * 3 * h * 128 + 8 * h;
  CHECK(model.active_parameters() == Approx(2 * 100 * h + h + 4 * (met + 2 * h)));
  CHECK(named(model.kinds[0], "q")->weights() == h * heads);
  CHECK(named(model.kinds[0], "q")->parameters() == 8 * each);
}

TEST_CASE("experts of attention need such of the feed-forward block, and heads for each") {
  DecoderShape s = choosing();
  s.heads = s.kv_heads = 9;
  CHECK_THROWS_WITH_AS(make_decoder(s),
                       "heads=9: must be a multiple of experts_per_token=2 with attention_experts",
                       MalformedQuestion);
  DecoderShape dense = decoder();
  dense.attention_experts = true;
  CHECK_THROWS_WITH_AS(make_decoder(dense), "experts=0: must be at least 1 for attention_experts",
                       MalformedQuestion);
}

DecoderShape recurrent(Recurrence kind) {
  DecoderShape s = decoder();
  s.layers = 1;
  s.mixers = "R";
  s.recurrence = kind;
  s.scan_heads = 4;
  s.conv_width = 4;
  return s;
}

TEST_CASE("by hand: a layer of RG-LRU") {
  DecoderShape s = recurrent(Recurrence::rg_lru);
  s.scan_key_dim = 1;
  s.scan_value_dim = 24;
  s.conv_bias = s.scan_bias = true;
  const double h = 64, d = 4 * 24;
  const double projections = 2 * (h * d + d) + d * h + h;
  const double gates = 2 * (4 * 24 * 24 + d), mixer = projections + 5 * d + gates + d;
  CHECK(make_decoder(s).parameters() == 2 * 100 * h + 3 * h + mixer + 3 * h * 256);
  const LayerKind kind = make_decoder(s).kinds[0];
  CHECK(kind.recurrence.state_values() == d);
  CHECK(kind.recurrence.window_values() == 3 * d);
  CHECK(named(kind, "gates")->weights() == 2 * 4 * 24 * 24);
}

TEST_CASE("by hand: a layer of Jet-Nemotron, whose convolution learns nothing itself") {
  DecoderShape s = recurrent(Recurrence::jet);
  s.scan_key_dim = 16;
  s.scan_value_dim = 32;
  s.scan_chunk = 64;
  s.scan_rank = 16;
  const double h = 64, k = 4 * 16, d = 4 * 32;
  const double in = h * (2 * k + 2 * d + 2 * 4), weights = h * 16 + 16 * 4 * d + 4 * d;
  const double mixer = in + weights + 2 * 4 + 32 + d * h;
  CHECK(make_decoder(s).parameters() == 2 * 100 * h + 3 * h + mixer + 3 * h * 256);
  const RecurrentShape shape = make_decoder(s).kinds[0].recurrence;
  CHECK(shape.state_values() == 4 * 16 * 32);
  CHECK(shape.window_values() == 3 * d);  // of values alone
}

}  // namespace
}  // namespace scalemodel
