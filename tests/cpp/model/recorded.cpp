#include "scalemodel/base/error.hpp"
#include "scalemodel/model/groups.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

LayerOperator weighted(double rows, double columns, double depth) {
  LayerOperator op;
  op.name = "gemm";
  op.rows = rows;
  op.columns = columns;
  op.depth = depth;
  return op;
}

/// A block of attention as a module runs it: a product, attention of its own, a product.
std::vector<RecordedUnit> attention_block(int width, int heads) {
  LayerOperator core;
  core.kind = OperatorKind::attention;
  core.attention.heads = core.attention.kv_heads = heads;
  core.attention.head_dim = core.attention.v_head_dim = width / heads;
  core.causal = false;
  const double square = static_cast<double>(width) * width;
  return {{{weighted(1, 3 * width, width)}, 3 * square, 3.0 * width},
          {{core}, 0, 0},
          {{weighted(1, width, width)}, square, 1.0 * width}};
}

TEST_CASE("recorded layers have the parameters and operations of their operators") {
  const LayerGroup group = recorded("blocks", attention_block(64, 4), 6, 17);
  CHECK(group.parameters() == 6 * (4 * 64 * 64 + 4 * 64));
  const double products = 2.0 * 17 * 4 * 64 * 64, scores = 4.0 * 17 * 17 * 64;
  CHECK(group.forward_flop(1).base() == Approx(6 * (products + scores)));
  CHECK(group.kind == GroupKind::transformer);
  CHECK(group.width_out() == 64);
}

TEST_CASE("what is recorded of an MLP is the MLP, but for pairs nobody knows of") {
  const LayerGroup known = mlp("known", {{96, 48, 24}});
  const LayerGroup seen = recorded(
      "seen", {{{weighted(1, 48, 96)}, 96 * 48, 0}, {{weighted(1, 24, 48)}, 48 * 24, 0}}, 1, 1);
  CHECK(seen.parameters() == known.parameters());
  CHECK(seen.forward_flop(1) == known.forward_flop(1));
  for (const Unit& unit : seen.units) {
    CHECK(unit.opens);
    CHECK(unit.gathers);
    CHECK(!unit.closes);
  }
}

TEST_CASE("repeating recorded layers multiplies what they hold and do") {
  const LayerGroup once = recorded("once", attention_block(32, 2), 1, 8);
  const LayerGroup often = recorded("often", attention_block(32, 2), 12, 8);
  CHECK(often.parameters() == 12 * once.parameters());
  CHECK(testing::about_equal(often.forward_flop(1), 12 * once.forward_flop(1)));
}

TEST_CASE("impossible recordings are refused by name") {
  const std::vector<RecordedUnit> block = attention_block(32, 2);
  CHECK_THROWS_WITH_AS(recorded("x", block, 0, 8), "x: layers=0: must be at least 1",
                       MalformedQuestion);
  CHECK_THROWS_WITH_AS(recorded("x", block, 1, 0), "x: tokens=0: must be above 0, at most 1e9",
                       MalformedQuestion);
  CHECK_THROWS_WITH_AS(recorded("x", {}, 1, 8), "x: units=0: must be from 1 to 64",
                       MalformedQuestion);
  CHECK_THROWS_AS(recorded("x", {{{}, -1, 0}}, 1, 8), MalformedQuestion);
  CHECK_THROWS_AS(recorded("x", {{{}, 0, 1e16}}, 1, 8), MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
