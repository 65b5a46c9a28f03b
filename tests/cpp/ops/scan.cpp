#include "scalemodel/ops/scan.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

/// 64 heads of 64 values, a state of 128, 8 groups, chunks of 128: Nemotron-3 Nano.
RecurrentShape state_space() {
  RecurrentShape s;
  s.kind = Recurrence::mamba2;
  s.heads = 64;
  s.groups = 8;
  s.key_dim = 128;
  s.value_dim = 64;
  s.conv_width = 4;
  s.chunk = 128;
  return s;
}

Accelerator with_scan() {
  Accelerator accelerator = testing::reference_accelerator();
  accelerator.scan = {0.5, 0.2, 2 * unit::us, 20 * unit::us, 2.5};
  return accelerator;
}

TEST_CASE("by hand: widths, saved values and states of a state-space layer") {
  const RecurrentShape s = state_space();
  CHECK(s.inner() == 4096);
  CHECK(s.keys() == 1024);
  CHECK(s.conv_channels() == 4096 + 2 * 1024);
  CHECK(s.projected() == 2 * 4096 + 2 * 1024 + 64);
  CHECK(s.saved_values() == 3 * 4096 + 2 * 1024 + 64);
  CHECK(s.state_values() == 64 * 64 * 128);
  CHECK(s.window_values() == 3 * (4096 + 2 * 1024));
}

TEST_CASE("by hand: arithmetic of a token, in whole chunks") {
  const double state = 4 * 128 * 64, inside = 2 * 128 * 64, scores = 2 * 128 * 128;
  const double token = 64 * (state + inside) + 8 * scores;
  CHECK(scan_flop({state_space(), 1, 128}).base() == 128 * token);
  CHECK(scan_flop({state_space(), 1, 129}).base() == 256 * token);
  RecurrentShape delta = state_space();
  delta.kind = Recurrence::gated_delta;
  delta.value_dim = 128;
  delta.chunk = 64;
  const double each = 6 * 128 * 128 + 64 * (6 * 128 + 4 * 128) + 64 * 64;
  CHECK(scan_flop({delta, 2, 64}).base() == 2 * 64 * 64 * each);
}

TEST_CASE("ranks share the heads, and hold a copy of one where groups are few") {
  const RecurrentShape half = state_space().sharded(2);
  CHECK(half.inner() == 2048);
  CHECK(half.groups == 4);
  RecurrentShape lone = state_space();
  lone.groups = 1;
  CHECK(lone.sharded(8).groups == 1);
  CHECK(lone.sharded(8).heads == 8);
}

TEST_CASE("a scan takes its launch, then its work or its chain of chunks") {
  const Accelerator accelerator = with_scan();
  const ScanTime many = scan_time({state_space(), 16, 1024}, accelerator, 2);
  const ScanTime one = scan_time({state_space(), 1, 16384}, accelerator, 2);
  CHECK(one.forward >= many.forward);  // the same tokens, one chain
  CHECK(scan_time({state_space(), 1, 1}, accelerator, 2).forward >= accelerator.scan.launch);
  Accelerator chained = accelerator;
  chained.scan.step = 1 * unit::ms;
  CHECK(scan_time({state_space(), 1, 1024}, chained, 2).forward.base() ==
        Approx((chained.scan.launch + 8 * unit::ms).base()));
  CHECK(many.backward > many.forward);
}

TEST_CASE("decoding reads and writes the state, whatever the context") {
  const Accelerator accelerator = with_scan();
  const Seconds one = scan_decode_time({state_space(), 64, 1}, accelerator);
  const Seconds two = scan_decode_time({state_space(), 128, 1}, accelerator);
  const Seconds start = accelerator.elementwise.launch;
  CHECK((two - start).base() == Approx(2 * (one - start).base()));
}

}  // namespace
}  // namespace scalemodel
