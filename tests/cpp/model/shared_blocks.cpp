// Layers that use blocks in turn, and mixers beside them, by hand.
#include <algorithm>

#include "scalemodel/base/error.hpp"
#include "scalemodel/model/vision.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

/// Six layers of Mamba-2, of which the third and the sixth stand behind a shared block.
DecoderShape sharing(int blocks) {
  DecoderShape s;
  s.layers = 6;
  s.hidden = 64;
  s.vocab = 100;
  s.tied_embeddings = true;
  s.mixers = "RRZRRZ";
  s.feed_forwards = "--D--D";
  s.heads = s.kv_heads = 4;
  s.head_dim = s.v_head_dim = 32;
  s.norms_per_layer = 1;
  s.ffn = 256;
  s.gated = true;
  s.recurrence = Recurrence::mamba2;
  s.scan_heads = 8;
  s.scan_groups = 1;
  s.scan_key_dim = 16;
  s.scan_value_dim = 16;
  s.scan_chunk = 64;
  s.conv_width = 4;
  s.scan_norm = true;
  s.shared_blocks = blocks;
  s.shared_rank = 8;
  return s;
}

Flop forward(const Model& model) {
  Flop sum;
  for (const std::uint8_t kind : model.layer_kind) {
    for (const Unit& unit : model.kinds[kind].units) {
      for (const LayerOperator& op : unit.operators) {
        sum += Flop{2 * op.weights()} + op.activation_flop(128);
      }
    }
  }
  return sum;
}

TEST_CASE("by hand: a block that two layers use counts once, what each adds to it twice") {
  const double h = 64, inner = 128, state = 16, heads = 8;
  const double channels = inner + 2 * state;
  const double mixer =
      h * (2 * inner + 2 * state + heads) + 4 * channels + 3 * heads + inner + inner * h + h;
  const double width = 128, attention = 2 * h + 3 * 2 * h * width + width * h;
  const double block = attention + h + 3 * h * 256;
  const double own = 8 * (h + 2 * 256) + h * h;
  const Model one = make_decoder(sharing(1));
  CHECK(one.parameters() == 100 * h + 6 * mixer + block + 2 * own + h);
  CHECK(make_decoder(sharing(2)).parameters() == one.parameters() + block);
}

TEST_CASE("how many blocks layers share changes no arithmetic") {
  CHECK(forward(make_decoder(sharing(1))) == forward(make_decoder(sharing(2))));
}

TEST_CASE("more blocks than layers that use them are no more than these") {
  CHECK(make_decoder(sharing(7)).parameters() == make_decoder(sharing(2)).parameters());
  CHECK_THROWS_WITH_AS(make_decoder(sharing(0)), "shared_blocks=0: must be at least 1 for mixers Z",
                       MalformedQuestion);
}

TEST_CASE("by hand: a layer of RWKV-7") {
  DecoderShape s;
  s.layers = 1;
  s.hidden = 64;
  s.vocab = 100;
  s.heads = s.kv_heads = 4;
  s.head_dim = 16;
  s.ffn = 256;
  s.mixers = "R";
  s.norm = Norm::layernorm;
  s.recurrence = Recurrence::rwkv7;
  s.scan_heads = 4;
  s.scan_key_dim = s.scan_value_dim = 16;
  s.scan_rank = 40;
  s.scan_chunk = 16;
  const double h = 64;
  // Queries, keys, values and the output; down and up from low ranks with three biases; six mixes,
  // three vectors of the rule, a norm of the output.
  const double mixer = 4 * h * h + 2 * h * 40 + 3 * h + 6 * h + 3 * h + 2 * h;
  CHECK(make_decoder(s).parameters() == 2 * 100 * h + mixer + 2 * h * 256 + 4 * h + 2 * h);
}

TEST_CASE("decays in full have a matrix, others two narrow ones") {
  DecoderShape s = sharing(1);
  s.mixers = "R";
  s.feed_forwards = "D";
  s.recurrence = Recurrence::kimi_delta;
  s.scan_groups = s.scan_heads;
  const double narrow = make_decoder(s).parameters();
  s.scan_full_decay = true;
  const double h = 64, inner = 8 * 16, head = 16;
  CHECK(make_decoder(s).parameters() - narrow == 6 * (h * inner - h * head - head * inner));
}

TEST_CASE("layers that use earlier keys may be wider") {
  DecoderShape s;
  s.layers = 4;
  s.hidden = 64;
  s.vocab = 100;
  s.heads = 4;
  s.ffn = 256;
  s.kv_shared_layers = 2;
  const double before = make_decoder(s).parameters();
  s.kv_shared_ffn = 512;
  CHECK(make_decoder(s).parameters() - before == 2 * 2 * 64 * 256);
}

TEST_CASE("an encoder of words sees both ways, and its head has a matrix more") {
  DecoderShape s;
  s.layers = 1;
  s.hidden = 64;
  s.vocab = 100;
  s.heads = 4;
  s.ffn = 256;
  s.norm = Norm::layernorm;
  const Flop causal = forward(make_decoder(s));
  const double before = make_decoder(s).parameters();
  s.bidirectional = true;
  s.head_transform = true;
  CHECK(forward(make_decoder(s)) > causal);
  CHECK(make_decoder(s).parameters() - before == 64 * 64 + 64 + 2 * 64);
}

TEST_CASE("by hand: two convolutions make one token of sixteen patches") {
  VisionShape s;
  s.layers = 1;
  s.hidden = 32;
  s.heads = 4;
  s.ffn = 64;
  s.patch = 14;
  s.merge = 4;
  const double plain = make_vision_tower(s, 48).parameters();
  s.downsamplings = 2;
  s.layer_scale = true;
  const VisionTower tower = make_vision_tower(s, 48);
  // Patches side by side no longer: the projector reads 128 values, not 16 x 32.
  const double convolutions = 9.0 * 32 * 64 + 64 + 9.0 * 64 * 128 + 128;
  CHECK(tower.parameters() - plain == convolutions + 48.0 * (128 - 16 * 32) + 2 * 32);
  const double first = 2 * 4 * 9.0 * 32 * 64, second = 2 * 9.0 * 64 * 128, out = 2 * 48.0 * 128;
  const double patch = 16 * 2 * 3 * 14 * 14 * 32.0;
  Flop layer{16 * 2 * (tower.block.parameters() - tower.block.norm_parameters)};
  for (const Unit& unit : tower.block.units) {
    for (const LayerOperator& op : unit.operators) layer += op.activation_flop(16);
  }
  CHECK(tower.forward_flop(16).base() - layer.base() == first + second + out + patch);
}

}  // namespace
}  // namespace scalemodel
