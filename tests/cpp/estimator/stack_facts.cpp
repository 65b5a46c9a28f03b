// What the yes-or-no facts of a software stack change, and what they leave alone.
#include <functional>

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;
using testing::degrees;

Estimate with(const std::function<void(Stack&)>& change, const Strategy& strategy,
              const DecoderShape& shape = testing::grouped_70b_shape(), int batch = 256) {
  Stack stack = testing::reference_stack();
  change(stack);
  Tables tables(make_decoder(shape), testing::reference_cluster(64), testing::training(batch, 4096),
                stack);
  tables.tabulate(strategy);
  return evaluate(tables, strategy);
}

Estimate unchanged(const Strategy& strategy,
                   const DecoderShape& shape = testing::grouped_70b_shape(), int batch = 256) {
  return with([](Stack&) {}, strategy, shape, batch);
}

Strategy plain(int tp, int pp = 1) {
  Strategy s = degrees(tp, pp);
  s.sequence_parallel = false;
  return s;
}

TEST_CASE("transfers that follow one another cost more where a stage has two neighbours") {
  const auto serial = [](Stack& stack) { stack.serial_p2p = true; };
  CHECK(with(serial, plain(4, 2)) == unchanged(plain(4, 2)));
  for (const int pp : {4, 8}) {
    const Estimate paired = unchanged(plain(2, pp)), one_by_one = with(serial, plain(2, pp));
    // Four in a row instead of two at once; slack of inner stages takes up to one of either.
    CHECK(one_by_one.exposed_pp > 1.4 * paired.exposed_pp);
    CHECK(one_by_one.exposed_pp < 3 * paired.exposed_pp);
    CHECK(one_by_one.bubble / paired.bubble == Approx(1).epsilon(1e-9));
  }
}

TEST_CASE("a stack that sends whole boundaries does what the strategy may ask for") {
  Strategy whole = plain(8, 4);
  whole.split_p2p = false;
  const auto sends_whole = [](Stack& stack) { stack.whole_p2p = true; };
  CHECK(with(sends_whole, plain(8, 4)) == unchanged(whole));
  // Under sequence parallelism a rank holds nothing but its part.
  CHECK(with(sends_whole, degrees(8, 4)) == unchanged(degrees(8, 4)));
}

TEST_CASE("an all-reduced gradient costs as much again as a scattered one, or more") {
  const auto all = [](Stack& stack) { stack.all_reduces_gradients = true; };
  Strategy zero1 = plain(8), ddp = plain(8);
  zero1.sharding = Sharding::zero1;
  ddp.sharding = Sharding::ddp;
  zero1.overlap_grad_reduce = zero1.overlap_param_gather = OnOff::off;
  ddp.overlap_grad_reduce = ddp.overlap_param_gather = OnOff::off;
  CHECK(with(all, zero1).exposed_dp > 1.4 * unchanged(zero1).exposed_dp);
  CHECK(with(all, zero1).exposed_dp > unchanged(ddp).exposed_dp);
  CHECK(with(all, ddp) == unchanged(ddp));
  Strategy zero3 = plain(8);
  zero3.sharding = Sharding::zero3;
  CHECK(with(all, zero3) == unchanged(zero3));
}

TEST_CASE("gradients reduced in FP32 travel twice as wide as those kept in BF16") {
  const auto narrow = [](Stack& stack) { stack.gradients_fp32 = false; };
  const auto wide = [](Stack& stack) {
    stack.gradients_fp32 = false;
    stack.reduces_fp32 = true;
  };
  Strategy s = plain(8);
  s.sharding = Sharding::ddp;
  s.overlap_grad_reduce = OnOff::off;
  CHECK(with(wide, s).exposed_dp > 1.8 * with(narrow, s).exposed_dp);
  CHECK(with(wide, s).optimizer > with(narrow, s).optimizer);
  CHECK(with(wide, s).memory_gradients == with(narrow, s).memory_gradients);
  CHECK(with([](Stack& stack) { stack.reduces_fp32 = true; }, s) == unchanged(s));
}

TEST_CASE("a loss over the gathered vocabulary costs tensor ranks time and memory") {
  const auto gathered = [](Stack& stack) { stack.whole_logits = true; };
  CHECK(with(gathered, plain(1)) == unchanged(plain(1)));
  Seconds before;
  for (const int tp : {2, 4, 8}) {
    const Estimate e = with(gathered, plain(tp)), parallel = unchanged(plain(tp));
    CHECK(e.step_time > parallel.step_time);
    CHECK(e.memory_logits > parallel.memory_logits);
    CHECK(e.step_time - parallel.step_time > before);
    before = e.step_time - parallel.step_time;
  }
}

TEST_CASE("adding gradients in a kernel of its own costs every micro-batch the same") {
  const auto separate = [](Stack& stack) {
    stack.fused_accumulation = false;
    stack.gradients_fp32 = false;
  };
  const auto fused = [](Stack& stack) { stack.gradients_fp32 = false; };
  const auto extra = [&](int micro_batch) {
    Strategy s = plain(8);
    s.micro_batch = static_cast<std::uint16_t>(micro_batch);
    return (with(separate, s).compute - with(fused, s).compute).base();
  };
  CHECK(extra(1) > 0);
  CHECK(extra(2) == Approx(extra(1) / 2).epsilon(0.02));
  CHECK(extra(4) == Approx(extra(1) / 4).epsilon(0.02));
}

TEST_CASE("a gate of its own costs a product, a sum and an all-reduce; without a gate nothing") {
  const auto split = [](Stack& stack) { stack.split_gate = true; };
  CHECK(with(split, plain(8), testing::gpt3_shape()) == unchanged(plain(8), testing::gpt3_shape()));
  CHECK(with(split, plain(8)).compute > unchanged(plain(8)).compute);
  CHECK(with(split, plain(8)).exposed_tp > 1.2 * unchanged(plain(8)).exposed_tp);
  CHECK(about_equal(with(split, degrees(8)).exposed_tp, unchanged(degrees(8)).exposed_tp));
}

TEST_CASE("a stack that keeps gathered inputs does what the strategy may ask for") {
  Strategy kept = degrees(8, 2);
  kept.regather = false;
  const auto keeps = [](Stack& stack) { stack.keep_gathered = true; };
  CHECK(with(keeps, degrees(8, 2)) == unchanged(kept));
  CHECK(with(keeps, plain(8, 2)) == unchanged(plain(8, 2)));
}

TEST_CASE("recomputation that stops early lies between none and all of it") {
  const auto early = [](Stack& stack) { stack.early_stop = true; };
  for (const int tp : {1, 2, 4, 8}) {
    CAPTURE(tp);
    Strategy s = plain(tp);
    const Estimate none = unchanged(s);
    s.recompute = Recompute::full;
    const Estimate all = unchanged(s), stopped = with(early, s);
    CHECK(none.step_time < stopped.step_time);
    CHECK(stopped.step_time < all.step_time);
    // The last GEMM has 8,192 28,672 of a layer's 855.6 million parameters, 0.27 of the GEMMs'
    // work, and less of a pass that norms and attention lengthen, the more so the thinner GEMMs
    // are cut.
    const double computed = (all.compute - stopped.compute) / (all.compute - none.compute);
    CHECK(computed < 0.2745);
    CHECK(computed > 0.19);
    if (tp == 1) continue;
    // One of two all-reduces follows it.
    const Seconds repeated = all.exposed_tp - none.exposed_tp;
    CHECK((all.exposed_tp - stopped.exposed_tp) / repeated == Approx(0.5).epsilon(1e-9));
    // A quarter of the products with half of the exchanges.
    CHECK((all.step_time - stopped.step_time) / (all.step_time - none.step_time) ==
          Approx(0.28).epsilon(0.15));
  }
}

TEST_CASE("recomputation that stops early scatters one sum less, and gathers as often") {
  const auto early = [](Stack& stack) { stack.early_stop = true; };
  Strategy s = degrees(8);
  const Cluster cluster = testing::reference_cluster(64);
  s.recompute = Recompute::full;
  const Estimate all = unchanged(s), stopped = with(early, s);
  GroupShape group;
  group.ranks = 8;
  const Bytes stream{2.0 * 4096 * 8192};
  const Seconds scatter = collective_time(Collective::reduce_scatter, stream, group, cluster);
  const double times = 80.0 * all.micro_batches;
  CHECK((all.exposed_tp - stopped.exposed_tp) / (times * scatter) == Approx(1).epsilon(1e-9));
  // Of experts that exchange tokens themselves, nothing is reduced behind the last GEMM.
  Strategy routed = degrees(2, 1, 1, 4);
  routed.recompute = Recompute::full;
  const DecoderShape experts = testing::experts_8x7b_shape();
  CHECK(
      about_equal(with(early, routed, experts).exposed_tp, unchanged(routed, experts).exposed_tp));
}

TEST_CASE("parameters gathered tensor by tensor move the same bytes in more collectives") {
  const auto tensors = [](Stack& stack) { stack.tensor_gathers = true; };
  CHECK(with(tensors, plain(8)) == unchanged(plain(8)));
  Strategy s = plain(1);
  s.sharding = Sharding::zero3;
  s.overlap_grad_reduce = s.overlap_param_gather = OnOff::off;
  const Seconds together = unchanged(s).exposed_dp, apart = with(tensors, s).exposed_dp;
  CHECK(apart > together);
  CHECK(apart < 4 * together);
  CHECK(with([&](Stack& stack) { tensors(stack), stack.host_launch = Seconds{}; }, s).exposed_dp <
        apart);
  s.recompute = Recompute::full;
  CHECK(with(tensors, s).exposed_dp > apart);
  CHECK(unchanged(s).exposed_dp == together);
}

TEST_CASE("an exchange beside the weight gradient's product exposes less and is never slower") {
  const auto beside = [](Stack& stack) {
    stack.overlap_tp = false;
    stack.async_tp = true;
  };
  const auto open = [](Stack& stack) { stack.overlap_tp = false; };
  CHECK(with(beside, plain(1)) == with(open, plain(1)));
  for (const bool sequence_parallel : {false, true}) {
    Strategy s = plain(8);
    s.sequence_parallel = sequence_parallel;
    s.overlap_grad_reduce = s.overlap_param_gather = OnOff::off;
    const Estimate hidden = with(beside, s), exposed = with(open, s);
    CHECK(hidden.exposed_tp < exposed.exposed_tp);
    CHECK(hidden.exposed_tp > 0.3 * exposed.exposed_tp);
    CHECK(at_most(hidden.step_time, exposed.step_time));
    CHECK(about_equal(hidden.hidden + hidden.exposed_tp, exposed.hidden + exposed.exposed_tp));
  }
}

}  // namespace
}  // namespace scalemodel
