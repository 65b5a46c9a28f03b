// Layer groups of click and vision models, by hand.
#include "scalemodel/base/error.hpp"
#include "scalemodel/model/groups.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

TEST_CASE("by hand: a dot interaction hands on each pair once, beside the dense vector") {
  const LayerGroup dot = interaction("dot", {Interaction::dot, 27, 128});
  CHECK(dot.width_out() == 27 * 26 / 2 + 128);
  CHECK(dot.parameters() == 0);
  // All pairs are multiplied; the half that is kept is picked afterwards.
  CHECK(dot.forward_flop(1) >= Flop{2.0 * 27 * 27 * 128});
  const LayerGroup concat = interaction("concat", {Interaction::concat, 27, 128});
  CHECK(concat.width_out() == 27 * 128);
  CHECK(concat.parameters() == 0);
}

TEST_CASE("by hand: a cross layer multiplies in full width or through its rank") {
  const double width = 10 * 64;
  const LayerGroup full = interaction("cross", {Interaction::cross, 10, 64, 3});
  CHECK(full.repeat == 3);
  CHECK(full.parameters() == 3 * (width * width + width));
  const LayerGroup low = interaction("cross", {Interaction::cross, 10, 64, 3, 16});
  CHECK(low.parameters() == 3 * (2 * width * 16 + width));
  CHECK(full.forward_flop(1) - low.forward_flop(1) ==
        Flop{3 * 2 * (width * width - 2 * width * 16)});
}

TEST_CASE("by hand: patches become tokens with a place each") {
  const LayerGroup patches = patch_embedding("patches", 3 * 14 * 14, 1024, 257);
  CHECK(patches.parameters() == 588.0 * 1024 + 1024 + 257.0 * 1024);
  CHECK(patches.tokens == 257);
  CHECK(patches.width_out() == 1024);
}

TEST_CASE("by hand: look-ups touch as many rows as they pool") {
  TableSet tables;
  tables.classes = {{26, 1e6, 1}, {4, 1e4, 20}};
  tables.dim = 64;
  CHECK(tables.tables() == 30);
  CHECK(tables.lookups() == 26 + 4 * 20);
  const LayerGroup group = embedding_tables("tables", tables);
  CHECK(group.parameters() == (26e6 + 4e4) * 64);
  CHECK(group.active_parameters() == 106.0 * 64);
  CHECK(group.width_out() == 30 * 64);
}

TEST_CASE("a group without what it needs names itself and what it lacks") {
  CHECK_THROWS_WITH_AS(interaction("i", {Interaction::dot, 0, 8}), doctest::Contains("features"),
                       MalformedQuestion);
  CHECK_THROWS_WITH_AS(interaction("i", {Interaction::dot, 8, 0}), doctest::Contains("dim"),
                       MalformedQuestion);
  CHECK_THROWS_WITH_AS(interaction("i", {Interaction::cross, 8, 8, 0}), doctest::Contains("layers"),
                       MalformedQuestion);
  CHECK_THROWS_WITH_AS(patch_embedding("p", 0, 8, 1), doctest::Contains("patch_values"),
                       MalformedQuestion);
}

}  // namespace
}  // namespace scalemodel
