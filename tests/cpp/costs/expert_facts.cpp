// What stacks save of routed layers, of multi-token prediction and behind scans, and what they
// send.
#include <cmath>

#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/costs/operator_cost.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;

constexpr double kRoutedTokens = 4096;
constexpr auto kKept = static_cast<std::size_t>(Recompute::none);

struct RoutedCase {
  DecoderShape shape = testing::latent_experts_shape();
  Precision precision = Precision::bf16;
  Stack stack = testing::plain_sum_stack();
  Strategy strategy = testing::degrees(1, 1, 1, 8);
};

Cell routed_cell_of(const RoutedCase& c) {
  Tables tables(make_decoder(c.shape), testing::reference_cluster(64),
                testing::training(64, static_cast<int>(kRoutedTokens), c.precision), c.stack);
  tables.tabulate(c.strategy);
  const Cell* cell =
      tables.find_cell(c.strategy, resolve_degrees(c.strategy, tables.cluster(), tables.task()));
  REQUIRE(cell != nullptr);
  return *cell;
}

Bytes saved_of(const RoutedCase& c, std::size_t kind) {
  return routed_cell_of(c).layers[kind].saved[kKept];
}

constexpr std::size_t kRouted = 1;  // behind the leading dense layers

TEST_CASE("by hand: outputs of experts are saved for the router's weights, or weighted before") {
  RoutedCase c;
  const Bytes outputs = saved_of(c, kRouted);
  c.stack.weighted_activation = true;
  const double copies = kRoutedTokens * c.shape.experts_per_token;
  CHECK(about_equal(outputs - saved_of(c, kRouted), Bytes{copies * c.shape.hidden * 2}));
}

TEST_CASE("by hand: what activations read is saved in the format of the linear layers") {
  RoutedCase c;
  c.precision = Precision::fp8;
  const Bytes wide = saved_of(c, kRouted);
  c.stack.narrow_activations = true;
  const double copies = kRoutedTokens * c.shape.experts_per_token;
  const double shared = kRoutedTokens * c.shape.shared_experts;
  const double values = 2 * (copies * c.shape.expert_ffn + shared * c.shape.expert_ffn);
  CHECK(about_equal(wide - saved_of(c, kRouted), Bytes{values}));
  c.precision = Precision::bf16;
  const Bytes same = saved_of(c, kRouted);
  c.stack.narrow_activations = false;
  CHECK(saved_of(c, kRouted) == same);
}

TEST_CASE(
    "by hand: every module of multi-token prediction holds its loss until the backward pass") {
  RoutedCase c;
  c.stack.fused_loss = true;
  const auto head_of = [&](int modules) {
    c.shape.mtp_layers = modules;
    return routed_cell_of(c).head;
  };
  const EndCost none = head_of(0), two = head_of(2);
  const double logits = kRoutedTokens * c.shape.vocab;
  CHECK(about_equal(two.working - none.working, Bytes{2 * logits * 2}));
  CHECK(about_equal(two.saved - none.saved, Bytes{2 * kRoutedTokens * c.shape.hidden * 2 * 5}));
  c.stack.fused_loss = false;  // a softmax in FP32
  CHECK(about_equal(head_of(2).working - head_of(0).working, Bytes{2 * logits * 4}));
}

TEST_CASE("by hand: a state space saves what its norm and its output projection read") {
  RoutedCase c;
  c.shape = testing::dense_7b_shape();
  c.strategy = testing::degrees(1, 1, 1, 1);
  c.shape.mixers = "R";
  c.shape.recurrence = Recurrence::mamba2;
  c.shape.scan_heads = 64;
  c.shape.scan_groups = 8;
  c.shape.scan_key_dim = 128;
  c.shape.scan_value_dim = 64;
  c.shape.scan_chunk = 128;
  c.shape.conv_width = 4;
  const Bytes inside = saved_of(c, 0);
  c.stack.fused_mixer = false;
  CHECK(about_equal(saved_of(c, 0) - inside, Bytes{kRoutedTokens * 64 * 64 * (2 + 2)}));
}

TEST_CASE("by hand: a token whose experts lie in few groups reaches few nodes") {
  CHECK(dispatched_copies(8, 8, false) == 8);
  CHECK(dispatched_copies(8, 4, true) == testing::Approx(4 * (1 - 0.1001129150390625)));
  CHECK(dispatched_copies(8, 1, true) == testing::Approx(1));
  RoutedCase c;
  c.strategy = testing::degrees(1, 1, 1, 64);  // eight nodes
  c.stack.deduplicated_between = true;
  const Seconds anywhere = routed_cell_of(c).layers[kRouted].forward.ep;
  c.shape.expert_groups = 8;
  c.shape.groups_per_token = 4;
  const Seconds limited = routed_cell_of(c).layers[kRouted].forward.ep;
  CHECK(limited < anywhere);
  const int k = c.shape.experts_per_token;
  CHECK(limited >
        (dispatched_copies(k, 4, true) / dispatched_copies(k, 8, true) - 0.01) * anywhere);
  c.shape.groups_per_token = 8;
  CHECK(about_equal(routed_cell_of(c).layers[kRouted].forward.ep, anywhere));
}

TEST_CASE("by hand: a node that holds two groups is missed by tokens that visit neither") {
  RoutedCase c;
  c.strategy = testing::degrees(1, 1, 1, 32);  // four nodes
  c.stack.deduplicated_between = true;
  const Seconds anywhere = routed_cell_of(c).layers[kRouted].forward.ep;
  c.shape.expert_groups = 8;
  c.shape.groups_per_token = 4;
  const Seconds limited = routed_cell_of(c).layers[kRouted].forward.ep;
  // None, one or two of its groups are among four of eight: 15, 40 and 15 of 70 ways.
  const int k = c.shape.experts_per_token;
  const double missed = (15 + 40 * std::pow(0.75, k) + 15 * std::pow(0.5, k)) / 70;
  const double share = 4 * (1 - missed) / dispatched_copies(k, 4, true);
  CHECK(limited / anywhere == testing::Approx(share).epsilon(0.02));
  c.shape.groups_per_token = 8;  // all of them
  CHECK(routed_cell_of(c).layers[kRouted].forward.ep < 1.02 * anywhere);
}

TEST_CASE("groups of experts are some of those that there are") {
  DecoderShape shape = testing::latent_experts_shape();
  shape.expert_groups = 8;
  CHECK_THROWS_AS(make_decoder(shape), std::invalid_argument);  // a token visits none
  shape.groups_per_token = 9;
  CHECK_THROWS_AS(make_decoder(shape), std::invalid_argument);
  shape.groups_per_token = 4;
  CHECK(make_decoder(shape).routed());
  shape.expert_groups = shape.experts + 1;
  CHECK_THROWS_AS(make_decoder(shape), std::invalid_argument);
  shape.expert_groups = 0;
  CHECK_THROWS_AS(make_decoder(shape), std::invalid_argument);
}

TEST_CASE("tokens sent in eight bits, with a scale for 128 of them, are half of the exchange") {
  RoutedCase c;
  c.precision = Precision::fp8;
  c.strategy = testing::degrees(1, 1, 1, 64);
  const Seconds wide = routed_cell_of(c).layers[kRouted].forward.ep;
  c.stack.narrow_dispatch = true;
  const Seconds narrow = routed_cell_of(c).layers[kRouted].forward.ep;
  // (1 + 1/32) / 2 of the way there, all of the way back; messages have a start of their own.
  CHECK(narrow < wide);
  CHECK(narrow > (0.5 * (1 + 1.03125 / 2) - 0.001) * wide);
  c.precision = Precision::bf16;
  const Seconds same = routed_cell_of(c).layers[kRouted].forward.ep;
  c.stack.narrow_dispatch = false;
  CHECK(routed_cell_of(c).layers[kRouted].forward.ep == same);
}

}  // namespace
}  // namespace scalemodel
