#include "scalemodel/schedule/outer_steps.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

OuterSteps islands() {
  OuterSteps outer;
  outer.islands = 4;
  outer.bandwidth = 10 * unit::GB / unit::s;
  return outer;
}

TEST_CASE("by hand: four islands of 10 GB/s exchange 1e9 values") {
  // 2 * 3/4 of 4 GB at 10 GB/s.
  CHECK(fragment_time(islands(), 1e9).base() == Approx(0.6));
  CHECK(round_time(islands(), 1e9, Seconds{1}).base() == Approx(100.6));
  CHECK(outer_state_bytes(1e9, 8) == 1 * unit::GB);
}

TEST_CASE("one island exchanges nothing, and steps that go on hide what they last") {
  OuterSteps outer = islands();
  outer.islands = 1;
  CHECK(round_time(outer, 1e12, Seconds{1}) == Seconds{100});
  outer = islands();
  outer.overlap_steps = 1;
  CHECK(round_time(outer, 1e9, Seconds{1}) == Seconds{100});
  CHECK(round_time(outer, 1e10, Seconds{1}).base() == Approx(100 + 6 - 1));
}

TEST_CASE("fragments send as many bytes, each its part of the peak; more islands send no less") {
  OuterSteps outer = islands();
  const Seconds whole = fragment_time(outer, 1e9);
  for (const int fragments : {2, 5, 20}) {
    outer.fragments = fragments;
    CHECK(fragments * fragment_time(outer, 1e9).base() == Approx(whole.base()));
    outer.overlap_steps = 3;
    CHECK(round_time(outer, 1e10, Seconds{1}) <= round_time(islands(), 1e10, Seconds{1}));
    outer.overlap_steps = 0;
  }
  Seconds before;
  for (const int count : {1, 2, 4, 16, 256}) {
    OuterSteps wide = islands();
    wide.islands = count;
    CHECK(fragment_time(wide, 1e9) >= before);
    before = fragment_time(wide, 1e9);
    CHECK(before < Seconds{0.8});
  }
}

}  // namespace
}  // namespace scalemodel
