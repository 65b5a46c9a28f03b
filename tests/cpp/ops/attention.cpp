#include "scalemodel/ops/attention.hpp"

#include "scalemodel/ops/memory_bound.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;

AttentionWork work(double sequence, double window = 0) {
  AttentionWork w;
  w.queries = w.keys = sequence;
  w.heads = 32;
  w.kv_heads = 8;
  w.head_dim = w.v_head_dim = 128;
  w.window = window;
  return w;
}

AttentionTime time_of(const AttentionWork& w, AttentionKernel kernel,
                      const Accelerator& a = testing::reference_accelerator()) {
  return attention_time(w, kernel, a, Precision::bf16, GemmTimer(a, Precision::bf16));
}

bool same(const AttentionTime& a, const AttentionTime& b) {
  return a.forward == b.forward && a.backward == b.backward && a.recompute == b.recompute;
}

constexpr AttentionKernel kAll[] = {AttentionKernel::unfused, AttentionKernel::fused_softmax,
                                    AttentionKernel::flash1,  AttentionKernel::flash2,
                                    AttentionKernel::flash3,  AttentionKernel::flash_triton};

TEST_CASE("a causal map is half a square, and computes its diagonal blocks too") {
  for (const double s : {1024.0, 8192.0, 131072.0}) {
    CAPTURE(s);
    AttentionWork full = work(s);
    full.causal = false;
    CHECK(attention_area(full) == s * s);
    CHECK(attention_area(work(s)) > s * s / 2);
    CHECK(attention_area(work(s)) == Approx(s * s / 2).epsilon(0.13));
    const Flop causal = attention_model_flop(work(s));
    CHECK((2 * causal).base() == Approx(attention_model_flop(full).base()));
  }
}

TEST_CASE("a window at least as long as the sequence is full attention, bit for bit") {
  for (const AttentionKernel kernel : kAll) {
    for (const double window : {4096.0, 4097.0, 1e6}) {
      CHECK(attention_area(work(4096, window)) == attention_area(work(4096)));
      CHECK(attention_model_flop(work(4096, window)) == attention_model_flop(work(4096)));
      CHECK(same(time_of(work(4096, window), kernel), time_of(work(4096), kernel)));
    }
  }
}

TEST_CASE("a window joins full attention without a step, and grows in between") {
  constexpr double s = 32768;
  double before = 0;
  for (double window = 128; window < s; window *= 2) {
    CAPTURE(window);
    const double area = attention_area(work(s, window));
    CHECK(area > before);
    CHECK(area < attention_area(work(s)));
    before = area;
  }
  CHECK(attention_area(work(s, s - 1)) == Approx(attention_area(work(s))).epsilon(1e-6));
}

TEST_CASE("a sequence split in balanced parts shares out its area") {
  for (const double window : {0.0, 1024.0}) {
    AttentionWork part = work(16384, window);
    part.queries /= 4;
    CHECK(4 * attention_area(part) == Approx(attention_area(work(16384, window))));
  }
}

TEST_CASE("no kernel beats the flop of the causal map or the bytes it must touch") {
  const Accelerator a = testing::reference_accelerator();
  for (const AttentionKernel kernel : kAll) {
    for (const double s : {512.0, 4096.0, 65536.0}) {
      CAPTURE(name_of(kernel));
      CAPTURE(s);
      const AttentionWork w = work(s);
      const AttentionTime time = time_of(w, kernel);
      const Bytes touched{2 * 256 * s * (w.heads + w.kv_heads)};
      CHECK(time.forward > attention_model_flop(w) / a.peak_of(Precision::bf16));
      CHECK(time.backward > 2 * attention_model_flop(w) / a.peak_of(Precision::bf16));
      if (is_flash(kernel)) CHECK(time.forward > touched / a.memory_bandwidth);
      CHECK(time.recompute <= time.forward);
    }
  }
}

TEST_CASE("newer kernels are faster on long sequences") {
  const AttentionWork w = work(16384);
  Seconds before = time_of(w, AttentionKernel::unfused).forward;
  for (const AttentionKernel kernel : {AttentionKernel::fused_softmax, AttentionKernel::flash1,
                                       AttentionKernel::flash2, AttentionKernel::flash3}) {
    CAPTURE(name_of(kernel));
    const Seconds now = time_of(w, kernel).forward;
    CHECK(now < before);
    before = now;
  }
}

TEST_CASE("more sequence, heads or batch never takes less time") {
  for (const AttentionKernel kernel : kAll) {
    for (const double s : {256.0, 2048.0, 16384.0}) {
      AttentionWork longer = work(2 * s), more = work(s), bigger = work(s);
      more.heads *= 2;
      bigger.batch *= 2;
      for (const AttentionWork& w : {longer, more, bigger}) {
        CHECK(at_most(time_of(work(s), kernel).forward, time_of(w, kernel).forward));
        CHECK(at_most(time_of(work(s), kernel).backward, time_of(w, kernel).backward));
      }
    }
  }
}

TEST_CASE("fewer key/value heads never cost time, and save bytes where bytes decide") {
  AttentionWork few = work(64), many = work(64);
  few.batch = many.batch = 512;
  few.kv_heads = 1;
  many.kv_heads = 32;
  CHECK(time_of(few, AttentionKernel::flash3).forward <
        time_of(many, AttentionKernel::flash3).forward);
  few.keys = few.queries = many.keys = many.queries = 8192;
  CHECK(time_of(few, AttentionKernel::flash3).forward <=
        time_of(many, AttentionKernel::flash3).forward);
}

TEST_CASE("heads away from 128 lose rate, at equal flop") {
  const auto equal_flop = [](double head_dim) {
    AttentionWork w = work(16384);
    w.head_dim = w.v_head_dim = head_dim;
    w.heads = w.kv_heads = 32 * 128 / head_dim;
    return time_of(w, AttentionKernel::flash2).forward;
  };
  CHECK(equal_flop(64) > equal_flop(128));
  CHECK(equal_flop(256) > equal_flop(128));
  CHECK(equal_flop(32) > equal_flop(64));
}

TEST_CASE("exponentials bound narrow heads of flash3, forward alone") {
  AttentionWork wide = work(65536), narrow = wide;
  narrow.heads *= 2;  // equal flop
  narrow.head_dim = narrow.v_head_dim = 64;
  Accelerator a = testing::reference_accelerator();
  a.attention.flash3_narrow = 0.5;
  const auto loss = [&](AttentionKernel kernel) {
    const AttentionTime slow = time_of(narrow, kernel, a), quick = time_of(wide, kernel, a);
    return std::pair{slow.forward / quick.forward, slow.backward / quick.backward};
  };
  CHECK(loss(AttentionKernel::flash3).first == Approx(2 / 1.5).epsilon(1e-3));
  CHECK(loss(AttentionKernel::flash3).second == Approx(1.66 / 1.33).epsilon(1e-3));
  CHECK(loss(AttentionKernel::flash2).first == Approx(1.66 / 1.33).epsilon(1e-3));
  CHECK(loss(AttentionKernel::flash1).first == Approx(1).epsilon(1e-3));
}

TEST_CASE("kernels with small tiles compute less beyond the diagonal") {
  Accelerator small = testing::reference_accelerator();
  small.attention.launch = Seconds{};
  Accelerator usual = small;
  small.attention.tile = 32;
  const AttentionWork one = work(512);
  const double gain = time_of(one, AttentionKernel::flash2, usual).backward /
                      time_of(one, AttentionKernel::flash2, small).backward;
  CHECK(gain == Approx((512 + 128.0) / (512 + 32.0)));
  CHECK(attention_model_flop(one) ==
        Flop{2 * one.batch * one.heads * (one.head_dim + one.v_head_dim) * 512 * 512 / 2});
}

TEST_CASE("dropout costs time only where the score maps are stored") {
  AttentionWork dropped = work(2048);
  dropped.dropout = true;
  CHECK(time_of(dropped, AttentionKernel::unfused).forward >
        time_of(work(2048), AttentionKernel::unfused).forward);
  CHECK(same(time_of(dropped, AttentionKernel::flash2),
             time_of(work(2048), AttentionKernel::flash2)));
}

TEST_CASE("memory-bound kernels cost a launch and their bytes at the reached bandwidth") {
  const Accelerator a = testing::reference_accelerator();
  CHECK(memory_time(Bytes{}, 0.9, a) == Seconds{});
  CHECK(memory_time(Bytes{1}, 0.9, a) >= a.elementwise.launch);
  const Seconds one = memory_time(1 * unit::GB, 0.9, a), two = memory_time(2 * unit::GB, 0.9, a);
  CHECK(about_equal(two - one, 1 * unit::GB / (0.9 * a.memory_bandwidth)));
  CHECK(memory_time(1 * unit::GB, 0.5, a) > one);
  CHECK(one > 1 * unit::GB / a.memory_bandwidth);
}

TEST_CASE("host transfers cost their bytes over the host link") {
  const Accelerator a = testing::reference_accelerator();
  CHECK(host_transfer_time(Bytes{}, a) == Seconds{});
  CHECK(about_equal(host_transfer_time(a.host_bandwidth * (3 * unit::s), a), 3 * unit::s));
}

}  // namespace
}  // namespace scalemodel
