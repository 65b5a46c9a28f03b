#include "scalemodel/ops/scan.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;

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
  accelerator.scan = {0.5, 0.2, 2 * unit::us, 20 * unit::us, 2.5, 1};
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

TEST_CASE("by hand: RWKV-7 has no convolution, and a decay and a rate of every channel") {
  RecurrentShape s = state_space();
  s.kind = Recurrence::rwkv7;
  s.groups = 64;
  s.key_dim = 64;
  s.conv_width = 0;
  s.chunk = 16;
  CHECK(s.conv_channels() == 0);
  CHECK(s.window_values() == 0);
  CHECK(s.state_values() == 64 * 64 * 64);
  CHECK(s.projected() == 6 * 4096);
  CHECK(s.saved_values() == 6 * 4096 + 2 * 64 * 16);
  RecurrentShape delta = s;
  delta.kind = Recurrence::kimi_delta;
  CHECK(scan_flop({s, 1, 64}) == scan_flop({delta, 1, 64}));
}

TEST_CASE(
    "by hand: Jet-Nemotron scans as a gated delta rule does, and keeps weights for the way back") {
  RecurrentShape s = state_space();
  s.kind = Recurrence::jet;
  s.rank = 100;
  RecurrentShape delta = s;
  delta.kind = Recurrence::gated_delta;
  CHECK(scan_flop({s, 1, 256}) == scan_flop({delta, 1, 256}));
  CHECK(scan_bytes({s, 1, 256}, 2) == scan_bytes({delta, 1, 256}, 2));
  CHECK(s.conv_channels() == 4096);
  // Weights of a convolution of four tokens, and what they are made of, beside the rest.
  CHECK(s.saved_values() == 4 * 4096 + 4 * 1024 + 64 * 128 + 2 * 64 + 4 * 4096 + 2 * 100);
}

TEST_CASE("by hand: RG-LRU keeps a number of every channel, token by token") {
  RecurrentShape s;
  s.kind = Recurrence::rg_lru;
  s.heads = s.groups = 10;
  s.key_dim = 1;
  s.value_dim = 256;
  s.conv_width = 4;
  CHECK(s.state_values() == 2560);
  CHECK(s.window_values() == 3 * 2560);
  CHECK(s.projected() == 2 * 2560);
  CHECK(scan_flop({s, 2, 100}).base() == 2 * 100 * 10 * 2560);
  CHECK(scan_bytes({s, 1, 100}, 2).base() == 100 * 4 * 2560 * 2);
}

RecurrentShape recurrence(Recurrence kind, int key_dim, int chunk) {
  RecurrentShape s;
  s.kind = kind;
  s.heads = s.groups = 8;
  s.key_dim = key_dim;
  s.value_dim = 64;
  s.chunk = chunk;
  return s;
}

TEST_CASE("by hand: linear attention behind a gate, and with forget gates for keys") {
  const RecurrentShape gated = recurrence(Recurrence::gla, 32, 64);
  CHECK(gated.projected() == 2 * 512 + 2 * 256);
  RecurrentShape decaying = gated;
  decaying.rank = 16;
  CHECK(decaying.projected() == 2 * 512 + 3 * 256);
  CHECK(gated.state_values() == 8 * 32 * 64);
  CHECK(gated.conv_channels() == 0);
  CHECK(scan_flop({gated, 1, 64}).base() == 64.0 * 8 * (4 * 32 * 64 + 2 * 64 * (32 + 64)));
  CHECK(scan_bytes({decaying, 1, 64}, 2).base() - scan_bytes({gated, 1, 64}, 2).base() ==
        64 * 256 * 4);  // a decay of every channel
  const RecurrentShape forgetting = recurrence(Recurrence::hgrn, 32, 64);
  CHECK(forgetting.projected() == 512 + 2 * 256);
  CHECK(scan_flop({forgetting, 1, 64}) == scan_flop({gated, 1, 64}));
}

TEST_CASE("by hand: a delta rule without decay works as one with it") {
  RecurrentShape delta = recurrence(Recurrence::delta, 64, 64);
  RecurrentShape gated = delta;
  gated.kind = Recurrence::gated_delta;
  gated.conv_width = delta.conv_width = 4;
  CHECK(scan_flop({delta, 1, 256}) == scan_flop({gated, 1, 256}));
  CHECK(delta.window_values() == gated.window_values());
  CHECK(scan_bytes({gated, 1, 64}, 2).base() - scan_bytes({delta, 1, 64}, 2).base() == 64 * 8 * 4);
  delta.conv_width = 0;
  CHECK(delta.window_values() == 0);
}

TEST_CASE("by hand: what a gated delta net saves, whose value heads share keys or have their own") {
  RecurrentShape shared = recurrence(Recurrence::gated_delta, 128, 64);
  shared.heads = 48;
  shared.groups = 16;
  shared.conv_width = 4;
  shared.chunk = 64;
  const double keys = 16 * 128, values = 48 * 64, repeated = 48 * 128;
  CHECK(shared.saved_values() ==
        (2 * keys + values) + 2 * keys + 2 * repeated + 5 * values + 48 * 64 + 2 * 48);
  RecurrentShape own = shared;
  own.groups = 48;
  CHECK(own.saved_values() ==
        (2 * repeated + values) + 2 * repeated + 5 * values + 48 * 64 + 2 * 48);
}

TEST_CASE("by hand: RWKV-4 keeps three numbers of every channel, RWKV-6 a matrix of every head") {
  RecurrentShape fourth = recurrence(Recurrence::rwkv4, 3, 0);
  fourth.heads = fourth.groups = 512;
  fourth.value_dim = 1;
  CHECK(fourth.state_values() == 3 * 512);
  CHECK(fourth.projected() == 3 * 512);
  CHECK(scan_flop({fourth, 2, 100}).base() == 2 * 100 * 23 * 512);
  const RecurrentShape sixth = recurrence(Recurrence::rwkv6, 64, 32);
  CHECK(sixth.state_values() == 8 * 64 * 64);
  CHECK(sixth.projected() == 5 * 512);
}

TEST_CASE("by hand: time steps of what is convolved leave the convolution to values") {
  RecurrentShape s = state_space();
  const double whole = s.conv_channels();
  s.rank = 64;
  CHECK(s.conv_channels() == s.inner());
  CHECK(whole == s.inner() + 2 * s.keys());
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

/// The same with a decay and a step size per head: values of 128, chunks of 64.
RecurrentShape delta_rule(Recurrence kind) {
  RecurrentShape s = state_space();
  s.kind = kind;
  s.value_dim = 128;
  s.chunk = 64;
  return s;
}

TEST_CASE("by hand: bytes of a token, and states of chunks") {
  // Two chunks of gate, input, state projections and steps, and the output; states in FP32, written
  // and read back.
  CHECK(scan_bytes({state_space(), 1, 256}, 2).base() ==
        256 * (3 * 4096 + 2 * 1024 + 64) * 2.0 + 2 * 2 * 64 * 64 * 128 * 4.0);
  // Queries, keys, values and output, two FP32 numbers of every head; states in 16 bits.
  const double each = 2 * (2 * 8192 + 2 * 1024) + 2 * 64 * 4, states = 64 * 128 * 128 * 4.0;
  CHECK(scan_bytes({delta_rule(Recurrence::gated_delta), 2, 128}, 2).base() ==
        2 * (128 * each + 2 * states));
  CHECK(scan_bytes({delta_rule(Recurrence::kimi_delta), 1, 64}, 2).base() ==
        64 * (each + 4 * 1024) + states);
  const KernelWork update = update_work({delta_rule(Recurrence::gated_delta), 3, 2}, 2, false);
  CHECK(update.bytes == 6 * each + 2 * 3 * states);
  const KernelWork verified = update_work({delta_rule(Recurrence::gated_delta), 3, 2}, 2, true);
  CHECK(verified.bytes - update.bytes == 2 * 3 * states);
}

TEST_CASE("by hand: launch, eight chunks, arithmetic and traffic of a scan, each way") {
  const Accelerator accelerator = with_scan();
  const ScanWork work{state_space(), 1, 1024};
  const double arithmetic = scan_flop(work).base() / (0.5 * 990e12);
  const double traffic = scan_bytes(work, 2).base() / (0.2 * 3.35e12);
  const ScanTime time = scan_time(work, accelerator, 2);
  const double start = 20e-6 + 8 * 2e-6, busy = arithmetic + traffic;
  CHECK(about_equal(time.forward, Seconds{start + busy}));
  CHECK(about_equal(time.backward, Seconds{2 * start + 2.5 * busy}));
}

TEST_CASE("a scan takes its launch and its chain of chunks, or its work") {
  const Accelerator accelerator = with_scan();
  const ScanTime many = scan_time({state_space(), 16, 1024}, accelerator, 2);
  const ScanTime one = scan_time({state_space(), 1, 16384}, accelerator, 2);
  CHECK(one.forward >= many.forward);  // the same tokens, one chain
  CHECK(scan_time({state_space(), 1, 1}, accelerator, 2).forward >= accelerator.scan.launch);
  Accelerator chained = accelerator;
  chained.scan.step = 1 * unit::ms;
  chained.scan.blend = 100;  // whichever is longer
  CHECK(about_equal(scan_time({state_space(), 1, 1024}, chained, 2).forward,
                    chained.scan.launch + 8 * unit::ms));
  CHECK(many.backward > many.forward);
}

TEST_CASE("an accelerator without BF16 scans at its FP16 rate") {
  const ScanWork work{state_space(), 1, 1024};
  Accelerator older = with_scan();
  older.peak[static_cast<std::size_t>(Precision::bf16)] = FlopPerSecond{};
  CHECK(scan_time(work, older, 2).forward == scan_time(work, with_scan(), 2).forward);
}

TEST_CASE("decoding reads and writes the state, whatever the context") {
  const Accelerator accelerator = with_scan();
  const Seconds one = scan_decode_time({state_space(), 64, 1}, accelerator);
  const Seconds two = scan_decode_time({state_space(), 128, 1}, accelerator);
  const Seconds start = accelerator.elementwise.launch;
  CHECK(about_equal(two - start, 2 * (one - start)));
}

}  // namespace
}  // namespace scalemodel
