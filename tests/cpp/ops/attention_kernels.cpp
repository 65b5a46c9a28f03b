#include "scalemodel/ops/attention_kernels.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;

/// A prompt kernel and a decode kernel with every term of their forms switched on.
PrefillKernel prompt_kernel() {
  PrefillKernel k;
  k.launch = 10 * unit::us;
  k.compute_fraction = 0.6;
  k.diagonal = 150;
  k.step = 0.8 * unit::us;
  k.step_width = 0.4 * unit::us;
  k.wave = 2 * unit::us;
  k.wave_rounding = 0.7;
  k.io_fraction = 0.8;
  k.cache_passes = 2.5;
  k.latent_passes = 4;
  k.narrow_penalty = 0.2;
  k.wide_penalty = 0.7;
  k.resident_gain = 3;
  k.fp8_math_rate = 1.2;
  k.fp8_math_launch = 1 * unit::us;
  return k;
}

DecodeKernel cache_kernel() {
  DecodeKernel k;
  k.launch = 7 * unit::us;
  k.block = 0.7 * unit::us;
  k.wave = 2 * unit::us;
  k.split = 0.9 * unit::us;
  k.wave_rounding = 0.5;
  k.occupancy_exponent = 0.8;
  k.resident_gain = 3;
  k.partial_passes = 1;
  k.fp8_launch = 1 * unit::us;
  return k;
}

AttentionCall prompt(double batch, double sequence, double heads = 32, double kv_heads = 8) {
  AttentionCall c;
  c.work.batch = batch;
  c.work.queries = c.work.keys = sequence;
  c.work.heads = heads;
  c.work.kv_heads = kv_heads;
  c.work.head_dim = c.work.v_head_dim = 128;
  return c;
}

AttentionCall query(double batch, double keys, double heads = 32, double kv_heads = 8) {
  AttentionCall c = prompt(batch, 1, heads, kv_heads);
  c.work.keys = keys;
  return c;
}

AttentionCall latent(AttentionCall c) {
  c.latent = 512;
  c.rotary = 64;
  c.work.head_dim = 192;
  c.work.kv_heads = c.work.heads;
  return c;
}

const Accelerator kAccelerator = testing::reference_accelerator();

Seconds prefill(const AttentionCall& c, const PrefillKernel& k = prompt_kernel()) {
  return prefill_time(c, k, kAccelerator);
}

Seconds decode(const AttentionCall& c, const DecodeKernel& k = cache_kernel()) {
  return decode_time(c, k, kAccelerator);
}

TEST_CASE("no prompt beats the flop of its map or the bytes it must touch") {
  PrefillKernel best = prompt_kernel();
  best.compute_fraction = best.io_fraction = 1;
  for (const double sequence : {1.0, 128.0, 1000.0, 16384.0}) {
    for (const double batch : {1.0, 7.0, 64.0}) {
      CAPTURE(sequence);
      CAPTURE(batch);
      const AttentionCall c = prompt(batch, sequence);
      const Seconds t = prefill(c, best);
      CHECK(t > attention_model_flop(c.work) / kAccelerator.peak_of(Precision::bf16));
      const Bytes moved{2.0 * 256 * batch * sequence * (c.work.heads + c.work.kv_heads)};
      CHECK(t > moved / kAccelerator.memory_bandwidth);
    }
  }
}

TEST_CASE("a long prompt costs its flop at the fitted rate and little else") {
  PrefillKernel k = prompt_kernel();
  k.diagonal = k.wave_rounding = k.narrow_penalty = 0;
  const AttentionCall c = prompt(1, 131072, 64, 8);
  const Seconds bound =
      attention_model_flop(c.work) / (k.compute_fraction * kAccelerator.peak_of(Precision::bf16));
  CHECK(prefill(c, k) / bound == Approx(1).epsilon(0.02));
}

TEST_CASE("an empty device is never faster: more batch, sequence or heads takes no less time") {
  for (const double sequence : {1.0, 100.0, 512.0, 5000.0}) {
    for (const double batch : {1.0, 3.0, 16.0, 200.0}) {
      CAPTURE(sequence);
      CAPTURE(batch);
      const AttentionCall c = prompt(batch, sequence), q = query(batch, sequence);
      CHECK(at_most(prefill(c), prefill(prompt(batch + 1, sequence))));
      CHECK(at_most(prefill(c), prefill(prompt(batch, sequence + 64))));
      CHECK(at_most(prefill(c), prefill(prompt(batch, sequence, 64))));
      CHECK(at_most(decode(q), decode(query(batch, 2 * sequence + 128))));
      CHECK(at_most(decode(q), decode(query(batch, sequence, 64))));
    }
  }
}

TEST_CASE("decoding a full device is bound by its cache, and grows with it") {
  const DecodeKernel k = cache_kernel();
  for (const double keys : {32768.0, 131072.0}) {
    CAPTURE(keys);
    const AttentionCall c = query(256, keys);
    const Bytes cache{2.0 * 256 * 256 * keys * 8};
    const Seconds bound = cache / (k.memory_fraction * kAccelerator.memory_bandwidth);
    CHECK(decode(c) > bound);
    CHECK(decode(c) / bound == Approx(1).epsilon(0.05));
  }
}

TEST_CASE("decode never reads its cache faster than memory allows") {
  for (const double batch : {1.0, 5.0, 40.0, 500.0}) {
    for (const double keys : {1.0, 300.0, 4096.0, 100000.0}) {
      const AttentionCall c = query(batch, keys);
      const Bytes cache{2.0 * 256 * batch * keys * 8};
      CHECK(decode(c) > cache / kAccelerator.memory_bandwidth);
    }
  }
}

TEST_CASE("an infinitely fast device leaves the fixed time") {
  Accelerator ideal = kAccelerator;
  for (FlopPerSecond& peak : ideal.peak) peak = FlopPerSecond{1e30};
  ideal.memory_bandwidth = BytesPerSecond{1e30};
  PrefillKernel p = prompt_kernel();
  p.step = p.step_width = p.wave = Seconds{};
  DecodeKernel d = cache_kernel();
  d.block = d.wave = d.split = Seconds{};
  for (const double size : {1.0, 512.0, 65536.0}) {
    CHECK(about_equal(prefill_time(prompt(4, size), p, ideal), p.launch));
    CHECK(about_equal(decode_time(query(4, size), d, ideal), d.launch));
  }
}

TEST_CASE("a window bounds what decode reads and what a skipping prompt kernel computes") {
  AttentionCall wide = query(32, 65536), narrow = wide, same = query(32, 1024);
  narrow.work.window = 1024;
  CHECK(decode(narrow) == decode(same));
  CHECK(decode(narrow) < decode(wide));
  wide.work.window = 65536;
  CHECK(decode(wide) == decode(query(32, 65536)));

  AttentionCall full = prompt(2, 16384), windowed = full;
  windowed.work.window = 1024;
  CHECK(prefill(windowed) < prefill(full));
  PrefillKernel blind = prompt_kernel();
  blind.skips_window = false;
  CHECK(prefill(windowed, blind) == prefill(full, blind));
}

TEST_CASE("a cache of half the bytes is read in at most the same time where bytes decide") {
  AttentionCall wide = query(256, 16384), narrow = wide;
  narrow.cache = Precision::fp8;
  const Seconds saved = decode(wide) - decode(narrow);
  CHECK(saved > 0.4 * decode(wide));
  CHECK(saved < 0.5 * decode(wide));
}

TEST_CASE("a tile of 64 query rows takes as long for one head as for 64") {
  DecodeKernel k = cache_kernel();
  k.tensor_fraction = 0.01;  // bound by its GEMMs
  const auto by_heads = [&](double heads) { return decode(query(256, 16384, heads, 1), k); };
  CHECK(by_heads(64) > 3.5 * by_heads(16));
  k.tile_rows = 64;
  CHECK(by_heads(64) / by_heads(1) == Approx(1).epsilon(0.01));
  CHECK(by_heads(65) > 1.9 * by_heads(64));
}

TEST_CASE("GEMMs of an 8-bit cache are as many times as fast as they are said to be") {
  DecodeKernel k = cache_kernel();
  k.tensor_fraction = 0.001;
  k.launch = k.wave = k.split = k.block = k.fp8_launch = Seconds{};
  k.partial_passes = 0;
  const AttentionCall wide = query(256, 16384, 64, 1);
  AttentionCall narrow = wide;
  narrow.cache = Precision::fp8;
  CHECK(decode(narrow, k) / decode(wide, k) == Approx(1).epsilon(1e-6));
  k.fp8_math = 1.6;
  CHECK(decode(wide, k) / decode(narrow, k) == Approx(1.6).epsilon(1e-3));
  // What else is done for the rows does not get faster: by hand, 16 rows at a time over two waves.
  k.fp8_rows = 1 * unit::ms;
  const double waves = std::ceil(256.0 / kAccelerator.multiprocessors);
  CHECK(decode(narrow, k) > 128 * 4 * (0.5 + 0.5 * waves) * unit::ms * 0.9);
}

TEST_CASE("only a repeated call finds its operands in the last-level cache, if they fit") {
  const auto repeated = [](AttentionCall c) {
    c.resident = true;
    return c;
  };
  const AttentionCall small = query(64, 256), large = query(256, 65536);
  CHECK(decode(repeated(small)) < decode(small));
  CHECK(decode(repeated(large)) / decode(large) == Approx(1).epsilon(1e-6));
  CHECK(prefill(repeated(prompt(1, 2048))) < prefill(prompt(1, 2048)));
  CHECK(prefill(repeated(prompt(64, 8192))) / prefill(prompt(64, 8192)) == Approx(1).epsilon(1e-6));
}

TEST_CASE("splitting a long sequence pays when few tiles are at work") {
  DecodeKernel whole = cache_kernel();
  whole.max_splits = 1;
  CHECK(decode(query(1, 131072)) < 0.2 * decode(query(1, 131072), whole));
  CHECK(decode(query(512, 2048)) == decode(query(512, 2048), whole));
}

TEST_CASE("a tile that serves fewer heads of a group needs more tiles") {
  DecodeKernel single = cache_kernel();
  single.max_heads = 1;
  CHECK(decode(query(64, 4096, 64, 1)) < decode(query(64, 4096, 64, 1), single));
  CHECK(decode(query(64, 4096, 8, 8)) == decode(query(64, 4096, 8, 8), single));
}

TEST_CASE("latent attention reads one latent, whatever the number of heads") {
  DecodeKernel k = cache_kernel();
  k.tensor_fraction = 100;
  k.partial_passes = 0;
  const Seconds few = decode(latent(query(256, 65536, 1, 1)), k);
  const Seconds many = decode(latent(query(256, 65536, 16, 16)), k);
  CHECK(many / few == Approx(1).epsilon(0.01));
  const Bytes cache{2.0 * 256 * 65536 * 576};
  CHECK(few > cache / (k.memory_fraction * kAccelerator.memory_bandwidth));
  PrefillKernel absorbed = prompt_kernel();
  absorbed.absorbed = true;
  absorbed.step = absorbed.step_width = Seconds{};
  const AttentionCall c = latent(prompt(1, 16384, 16, 16));
  CHECK(prefill(c, absorbed) / prefill(c) > 2);  // 1088 wide instead of 320
}

TEST_CASE("the host's share hides behind a long kernel and decides a short one") {
  PrefillKernel k = prompt_kernel();
  k.host = 1 * unit::ms;
  CHECK(prefill(prompt(1, 128), k) / k.host == Approx(1).epsilon(0.01));
  CHECK(prefill(prompt(8, 65536), k) / prefill(prompt(8, 65536)) == Approx(1).epsilon(1e-3));
}

TEST_CASE("a backward pass costs its multiple of the work") {
  PrefillKernel forward = prompt_kernel(), backward = forward;
  backward.flop_factor = 2.5;
  const AttentionCall c = prompt(4, 32768);
  CHECK(prefill(c, backward) / prefill(c, forward) == Approx(2.5).epsilon(0.02));
}

TEST_CASE("an accelerator without BF16 runs attention at its FP16, else FP32 rate") {
  Accelerator old = kAccelerator;
  const auto index = [](Precision p) { return static_cast<std::size_t>(p); };
  old.peak[index(Precision::bf16)] = FlopPerSecond{};
  CHECK(prefill_time(prompt(4, 8192), prompt_kernel(), old) == prefill(prompt(4, 8192)));
  old.peak[index(Precision::fp16)] = old.peak[index(Precision::tf32)] = FlopPerSecond{};
  CHECK(prefill_time(prompt(4, 8192), prompt_kernel(), old) > 5 * prefill(prompt(4, 8192)));
}

}  // namespace
}  // namespace scalemodel
