#include "scalemodel/model/decoder.hpp"

#include <string>

#include "scalemodel/base/error.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

DecoderShape tiny() {
  DecoderShape s;
  s.layers = 3;
  s.hidden = 8;
  s.vocab = 100;
  s.heads = 2;
  s.head_dim = 4;
  s.ffn = 32;
  return s;
}

double parameters(const DecoderShape& shape) { return make_decoder(shape).parameters(); }

/// Parameters that `change` adds to the tiny decoder.
template <class Change>
double added(Change&& change) {
  DecoderShape changed = tiny();
  change(changed);
  return parameters(changed) - parameters(tiny());
}

TEST_CASE("parameters are tables, layers and head, counted by hand") {
  const double attention = 4 * 8 * 8, mlp = 2 * 8 * 32, norms = 2 * 8;
  CHECK(parameters(tiny()) == 2 * 100 * 8 + 3 * (attention + mlp + norms) + 8);
}

TEST_CASE("a published count: 70,553,706,496 parameters of a grouped-query decoder") {
  CHECK(parameters(testing::grouped_70b_shape()) == 70553706496.0);
}

TEST_CASE("every switch adds exactly its parameters") {
  using S = DecoderShape;
  CHECK(added([](S& s) { s.tied_embeddings = true; }) == -100 * 8);
  CHECK(added([](S& s) { s.gated = true; }) == 3 * 8 * 32);
  CHECK(added([](S& s) { s.qkv_bias = true; }) == 3 * 3 * 8);
  CHECK(added([](S& s) { s.out_bias = true; }) == 3 * 8);
  CHECK(added([](S& s) { s.mlp_bias = true; }) == 3 * (32 + 8));
  CHECK(added([](S& s) { s.head_bias = true; }) == 100);
  CHECK(added([](S& s) { s.qk_norm = true; }) == 3 * 2 * 4);
  CHECK(added([](S& s) { s.qk_norm_full = true; }) == 3 * 2 * 8);
  CHECK(added([](S& s) { s.attention_sinks = true; }) == 3 * 2);
  CHECK(added([](S& s) { s.embedding_norm = true; }) == 8);
  CHECK(added([](S& s) { s.kv_heads = 1; }) == -3 * 2 * 8 * 4);
  CHECK(added([](S& s) { s.norm = Norm::layernorm; }) == (3 * 2 + 1) * 8);
  CHECK(added([](S& s) { s.norm = Norm::layernorm_nobias; }) == 0);
  CHECK(added([](S& s) { s.norm = Norm::nonparametric; }) == -(3 * 2 + 1) * 8);
  CHECK(added([](S& s) { s.norms_per_layer = 4; }) == 3 * 2 * 8);
  CHECK(added([](S& s) {
          s.position = Position::learned;
          s.positions = 64;
        }) == 64 * 8);
  CHECK(added([](S& s) { s.window = 16; }) == 0);
  CHECK(added([](S& s) { s.parallel_block = true; }) == 0);
  // Multi-token-prediction modules are left out of the published count.
  CHECK(added([](S& s) { s.mtp_layers = 2; }) == 0);
}

TEST_CASE("grouped heads shrink keys and values in proportion") {
  DecoderShape s = testing::grouped_70b_shape();
  s.kv_heads = 64;
  const double full = parameters(s);
  for (const int kv_heads : {1, 2, 8, 32}) {
    s.kv_heads = kv_heads;
    CHECK(full - parameters(s) == 80.0 * 2 * (64 - kv_heads) * 128 * 8192);
  }
}

TEST_CASE("latent attention: down and up projections counted by hand") {
  DecoderShape s = tiny();
  s.head_dim = 6;
  s.v_head_dim = 4;
  s.kv_lora_rank = 5;
  s.qk_rope_head_dim = 2;
  const double out = 2 * 4 * 8, kv = 8 * (5 + 2) + 5 + 5 * 2 * (6 - 2 + 4);
  const double rest = 2 * 100 * 8 + 8 + 3 * (2 * 8 * 32 + 2 * 8);
  CHECK(parameters(s) == rest + 3 * (out + kv + 8 * 2 * 6));
  s.q_lora_rank = 3;
  CHECK(parameters(s) == rest + 3 * (out + kv + 8 * 3 + 3 + 3 * 2 * 6));
}

DecoderShape tiny_experts() {
  DecoderShape s = tiny();
  s.experts = 4;
  s.experts_per_token = 2;
  s.expert_ffn = 16;
  return s;
}

TEST_CASE("what a rank caches of a token: its heads' keys and values, or latents whole") {
  AttentionShape a;
  a.heads = 32;
  a.kv_heads = 8;
  a.head_dim = 128;
  a.v_head_dim = 64;
  CHECK(a.cached_values(1) == 8 * 192);
  CHECK(a.cached_values(4) == 2 * 192);
  CHECK(a.cached_values(16) == 192);  // a copy of one head
  a.kv_lora_rank = 512;
  a.rope_head_dim = 64;
  CHECK(a.cached_values(1) == 576);
  CHECK(a.cached_values(16) == 576);
}

TEST_CASE("experts count in full, but a token meets only its own") {
  const DecoderShape s = tiny_experts();
  const double expert = 2 * 8 * 16, router = 8 * 4;
  CHECK(parameters(s) - parameters(tiny()) == 3 * (4 * expert + router - 2 * 8 * 32));
  const Model model = make_decoder(s);
  CHECK(model.parameters() - model.active_parameters() == 3 * 2 * expert);
  CHECK(make_decoder(tiny()).active_parameters() == parameters(tiny()));
  DecoderShape all = s;
  all.experts_per_token = 4;
  CHECK(make_decoder(all).active_parameters() == parameters(all));
}

TEST_CASE("shared experts, gates and biases of a routed layer") {
  const double base = parameters(tiny_experts());
  DecoderShape s = tiny_experts();
  s.shared_experts = 2;
  CHECK(parameters(s) - base == 3 * 2 * (2 * 8 * 16));
  s.shared_ffn = 8;
  CHECK(parameters(s) - base == 3 * 2 * (2 * 8 * 8));
  s.shared_expert_gate = true;
  CHECK(parameters(s) - base == 3 * (2 * (2 * 8 * 8) + 8));
  s = tiny_experts();
  s.router_bias = true;
  CHECK(parameters(s) - base == 3 * 4);
  s = tiny_experts();
  s.expert_bias = true;
  CHECK(parameters(s) - base == 3 * 4 * (16 + 8));
}

TEST_CASE("leading dense layers and routed layers in turn") {
  DecoderShape s = tiny_experts();
  s.layers = 6;
  s.first_dense_layers = 1;
  s.moe_every = 2;
  const Model model = make_decoder(s);
  REQUIRE(model.kinds.size() == 2);
  const auto routed = [&](std::size_t layer) {
    return model.kinds[model.layer_kind[layer]].feed_forward.routed();
  };
  for (std::size_t layer = 0; layer < 6; ++layer) {
    CAPTURE(layer);
    CHECK(routed(layer) == (layer % 2 == 1));
  }
}

TEST_CASE("every n-th layer attends in full") {
  DecoderShape s = tiny();
  s.layers = 7;
  s.window = 16;
  s.full_attention_every = 3;
  const Model model = make_decoder(s);
  REQUIRE(model.layers() == 7);
  for (std::size_t layer = 0; layer < 7; ++layer) {
    CAPTURE(layer);
    const int window = model.kinds[model.layer_kind[layer]].attention.window;
    CHECK(window == ((layer + 1) % 3 == 0 ? 0 : 16));
  }
}

TEST_CASE("layers of one kind are one kind, and kinds never exceed what a stage can hold") {
  DecoderShape s = tiny_experts();
  s.layers = 48;
  CHECK(make_decoder(s).kinds.size() == 1);
  s.window = 16;
  s.full_attention_every = 3;
  s.moe_every = 2;
  s.first_dense_layers = 5;
  CHECK(make_decoder(s).kinds.size() == 4);
  CHECK(make_decoder(s).kinds.size() <= kMaxLayerKinds);
}

/// Message of the error that a shape raises.
std::string complaint(const DecoderShape& shape) {
  try {
    make_decoder(shape);
  } catch (const MalformedQuestion& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("an impossible decoder is refused by the name and value of the field") {
  const auto complains = [](const std::string& text, const auto& change,
                            DecoderShape shape = tiny()) {
    change(shape);
    CAPTURE(text);
    CHECK(complaint(shape).rfind(text, 0) == 0);
  };
  using S = DecoderShape;
  complains("head_dim=0", [](S& s) { s.head_dim = s.hidden = 0; });
  complains("kv_heads=3", [](S& s) { s.kv_heads = 3; });
  complains("kv_heads=4", [](S& s) { s.kv_heads = 4; });
  complains("ffn=0", [](S& s) { s.ffn = 0; });
  complains("positions=0", [](S& s) { s.position = Position::learned; });
  complains("kv_shared_layers=3", [](S& s) { s.layers = s.kv_shared_layers = 3; });
  complains("qk_rope_head_dim=4", [](S& s) { s.kv_lora_rank = s.qk_rope_head_dim = 4; });
  complains("qk_rope_head_dim=1: must be below window_head_dim=1",
            [](S& s) { s.kv_lora_rank = s.qk_rope_head_dim = s.window_head_dim = 1; });
  const DecoderShape experts = tiny_experts();
  complains("experts_per_token=0", [](S& s) { s.experts_per_token = 0; }, experts);
  complains("experts_per_token=5", [](S& s) { s.experts_per_token = 5; }, experts);
  complains("expert_ffn=0", [](S& s) { s.expert_ffn = s.ffn = 0; }, experts);
  complains("first_dense_layers=4", [](S& s) { s.first_dense_layers = 4; }, experts);
  complains("ffn=0", [](S& s) { s.ffn = 0, s.moe_every = 2; }, experts);
  CHECK(complaint(tiny()).empty());
  CHECK(complaint(experts).empty());
}

TEST_CASE("the widest decoders that a card may state are counted without overflow") {
  DecoderShape shape = tiny();
  shape.heads = shape.kv_heads = shape.head_dim = shape.v_head_dim = 1'000'000;
  const Unit attention = make_decoder(shape).kinds[0].units[0];
  // Queries, keys, values and the output of every head.
  CHECK(attention.saved_cut >= 4e12);
  DecoderShape experts = tiny_experts();
  experts.experts = 100'000, experts.experts_per_token = 32'768;
  CHECK(make_decoder(experts).kinds.back().feed_forward.experts_per_token == 32'768);
}

}  // namespace
}  // namespace scalemodel
