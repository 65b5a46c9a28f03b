// What families of 2026 add to layers, by hand: loops, gates in a low rank, keys of other layers.
#include <string_view>

#include "scalemodel/base/error.hpp"
#include "scalemodel/costs/task_model.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

DecoderShape decoder() { return testing::hand_sized_shape(6); }

double added(const DecoderShape& with) {
  return make_decoder(with).parameters() - make_decoder(decoder()).parameters();
}

TEST_CASE("by hand: layers of a loop count once, however often they run") {
  DecoderShape s = decoder();
  s.loop_start = 1;
  s.loop_layers = 2;
  s.loop_passes = 2;
  DecoderShape four = decoder();
  four.layers = 4;
  const Model looped = make_decoder(s), stored = make_decoder(four);
  CHECK(looped.parameters() == Approx(stored.parameters()));
  CHECK(looped.kinds.size() == 2);
  CHECK(looped.layers() == 6);
  CHECK(looped.kinds[1].attention_parameters == Approx(looped.kinds[0].attention_parameters / 2));
  s.loop_passes = 4;
  CHECK_THROWS_WITH_AS(make_decoder(s), "loop_layers=2: all passes must be among layers=6",
                       MalformedQuestion);
}

TEST_CASE("by hand: layers with keys of another layer project none") {
  DecoderShape s = decoder();
  s.kv_sources = "OS";
  CHECK(added(s) == -3.0 * 2 * 32 * 64);
  const Model model = make_decoder(s);
  CHECK(model.kinds[1].attention.reuses_keys);
  CHECK(model.kinds[1].attention.cached_values(1) == 0);
  s.kv_sources = "X";
  CHECK_THROWS_WITH_AS(make_decoder(s), "kv_sources='X': must be letters of OS", MalformedQuestion);
}

TEST_CASE("by hand: dense blocks of two widths") {
  DecoderShape s = decoder();
  s.feed_forwards = "Dd";
  s.second_ffn = 320;
  CHECK(added(s) == 3.0 * 3 * 64 * 64);
  s.second_ffn = 0;
  CHECK_THROWS_WITH_AS(make_decoder(s), "second_ffn=0: must be at least 1 for feed_forwards d",
                       MalformedQuestion);
}

TEST_CASE("by hand: a square matrix gates a dense block") {
  DecoderShape s = decoder();
  s.ffn_receptance = true;
  CHECK(added(s) == 6.0 * (64 * 64 + 2 * 64));
}

TEST_CASE("by hand: gates behind norms are of what attention and experts read") {
  DecoderShape s = decoder();
  s.norm_rank = 4;
  CHECK(added(s) == 6.0 * 2 * 4 * 64);  // dense blocks have none
  s.experts = 4;
  s.experts_per_token = 2;
  s.expert_ffn = 32;
  DecoderShape plain = s;
  plain.norm_rank = 0;
  CHECK(make_decoder(s).parameters() - make_decoder(plain).parameters() == 6.0 * 2 * 2 * 4 * 64);
}

TEST_CASE("by hand: a router of several matrices") {
  DecoderShape s = decoder();
  s.experts = 4;
  s.experts_per_token = 2;
  s.expert_ffn = 32;
  DecoderShape plain = s;
  s.router_rank = 8;
  const double block = 64 * 8 + 3 * 8 + 2 * (8 * 8 + 8) + 8 * 4;
  CHECK(make_decoder(s).parameters() - make_decoder(plain).parameters() == 6 * (block - 64 * 4));
}

TEST_CASE("by hand: residual streams that a low rank mixes") {
  DecoderShape s = decoder();
  s.residual_streams = 4;
  s.stream_rank = 8;
  const double wide = 4 * 64;
  const double each = 2 * 8 * wide + 5 * wide;
  const double last = 2 * 8 * wide + wide;  // in the place of the last norm
  CHECK(added(s) == 6 * 2 * each + last - 64);
}

DecoderShape latent() {
  DecoderShape s = decoder();
  s.kv_heads = 8;
  s.v_head_dim = 12;
  s.q_lora_rank = 24;
  s.kv_lora_rank = 32;
  s.qk_rope_head_dim = 4;
  return s;
}

TEST_CASE("by hand: a gate that comes with queries reads latents twice") {
  DecoderShape s = latent();
  s.attention_gate = OutputGate::latents;
  const double plain = 24.0 * 8 * 16, gated = 2.0 * 24 * 8 * (16 + 12);
  CHECK(make_decoder(s).parameters() - make_decoder(latent()).parameters() == 6 * (gated - plain));
  DecoderShape without = decoder();
  without.attention_gate = OutputGate::latents;
  CHECK_THROWS_WITH_AS(make_decoder(without),
                       "q_lora_rank=0: must be at least 1 for attention_gate=latents",
                       MalformedQuestion);
}

TEST_CASE("by hand: mixers side by side that are projected together") {
  DecoderShape s = decoder();
  s.mixers = "P";
  s.window = 32;
  s.recurrence = Recurrence::mamba1;
  s.scan_heads = 128;
  s.scan_key_dim = 8;
  s.scan_value_dim = 1;
  s.scan_rank = 4;
  s.conv_width = 4;
  DecoderShape fused = s;
  fused.fused_mixers = true;
  const double out = 128 * 64, norms = 2 * 128;
  CHECK(make_decoder(s).parameters() - make_decoder(fused).parameters() == 6 * (out - norms));
  fused.mixers = "Pp";
  const Model model = make_decoder(fused);
  CHECK(model.kinds.size() == 2);
  CHECK(model.kinds[0].attention.window == 0);
  CHECK(model.kinds[1].attention.window == 32);
  CHECK(model.kinds[1].recurrence.present());
}

DecoderShape recurrent(Recurrence kind) {
  DecoderShape s = decoder();
  s.layers = 1;
  s.mixers = "R";
  s.recurrence = kind;
  s.scan_heads = 4;
  s.scan_key_dim = 8;
  s.scan_value_dim = 16;
  s.scan_norm = true;
  return s;
}

double mixer(const DecoderShape& s) {
  return make_decoder(s).parameters() - (2 * 100 * 64 + 3 * 64 + 3 * 64 * 256);
}

TEST_CASE("by hand: recurrent layers of flash-linear-attention and RWKV") {
  const double h = 64, k = 32, d = 64, out = d * h;
  DecoderShape s = recurrent(Recurrence::gla);
  CHECK(mixer(s) == h * (2 * k + 2 * d) + 16 + out);
  s.scan_rank = 4;
  CHECK(mixer(s) == h * (2 * k + 2 * d) + 4 * (h + k) + k + 16 + out);
  s.conv_width = 4;
  CHECK(mixer(s) == h * (2 * k + 2 * d) + 4 * (h + k) + k + 4 * (2 * k + d) + 16 + out);
  CHECK(mixer(recurrent(Recurrence::hgrn)) == h * (2 * k + d) + d + d + out);
  CHECK(mixer(recurrent(Recurrence::delta)) == h * (2 * k + d + 4) + 16 + out);
  CHECK(mixer(recurrent(Recurrence::rwkv4)) == h * 3 * d + 3 * h + 2 * d + out);
  DecoderShape fifth = recurrent(Recurrence::rwkv6);
  CHECK(mixer(fifth) == h * (2 * k + 2 * d) + 4 * h + 2 * k + 2 * d + out);
  fifth.scan_rank = 6;
  CHECK(mixer(fifth) == h * (2 * k + 2 * d) + 6 * h + 6 * (h + d) + 2 * k + 2 * d + out);
}

TEST_CASE("by hand: time steps and states of Mamba-2 from what is convolved") {
  DecoderShape s = recurrent(Recurrence::mamba2);
  s.scan_groups = 1;
  s.scan_rank = 4;
  s.conv_width = 4;
  const double h = 64, d = 64, state = 8;
  const double steps = d * (4 + 2 * state) + 4 + 2 * state + 4 * 4;
  CHECK(mixer(s) == h * 2 * d + 4 * d + steps + 3 * 4 + d * h);
}

TEST_CASE("by hand: an encoder with a table, heads in groups and norms of its own") {
  DecoderShape s = decoder();
  s.encoder_layers = 2;
  s.norms_per_layer = 4;
  s.encoder_vocab = 50;
  const double h = 64, attention = h * (128 + 2 * 32) + 128 * h, block = 3 * h * 256;
  const double encoder = 2 * (attention + block + 4 * h) + 50 * h + h;
  const double layer = attention + block + 4 * h + attention + 2 * h;
  CHECK(make_decoder(s).parameters() == 2 * 100 * h + h + 6 * layer + encoder);
}

}  // namespace
}  // namespace scalemodel
