// Pipelines inside a whole step: bubbles, transfers, schedules.
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::Approx;
using testing::at_most;
using testing::degrees;
using testing::estimate;

constexpr int kStages = 8;

/// A step of a 96-layer decoder on eight stages with a token embedding too small to matter, so that
/// stages are equal to well within a percent.
Estimate run(Schedule schedule, int micro_batches, int vpp = 1, int pp = kStages,
             Recompute recompute = Recompute::none, int layers = 96) {
  DecoderShape shape = testing::gpt3_shape();
  shape.layers = layers;
  shape.vocab = 64;
  Strategy s = degrees(8, pp);
  s.schedule = schedule;
  s.vpp = static_cast<std::uint8_t>(vpp);
  s.recompute = recompute;
  return estimate(shape, testing::reference_cluster(8 * pp), testing::training(micro_batches, 2048),
                  s, testing::plain_sum_stack());
}

/// Forward and backward of the slowest stage for one micro-batch.
Seconds pass(const Estimate& e) { return (e.compute + e.exposed_tp) / e.micro_batches; }

TEST_CASE("bubbles of equal stages follow the closed forms, whatever the number of batches") {
  for (const int m : {16, 64}) {
    CAPTURE(m);
    const Estimate plain = run(Schedule::one_f_one_b, m);
    const Seconds each = pass(plain);
    CHECK(plain.bubble / ((kStages - 1) * each) == Approx(1).epsilon(0.01));
    // The order of passes counts a little where the ends of the model make stages unequal.
    CHECK(run(Schedule::gpipe, m).bubble / plain.bubble == Approx(1).epsilon(2e-4));
    const Estimate zero = run(Schedule::zero_bubble, m), dual = run(Schedule::dualpipe, m);
    CHECK(zero.bubble < 0.6 * plain.bubble);
    CHECK(dual.bubble < zero.bubble);
    CHECK(about_equal(plain.bubble, run(Schedule::one_f_one_b, 2 * m).bubble));
  }
}

TEST_CASE("chunks divide the bubble of the layers, and not that of the embedding") {
  // What a layer and the two ends take, from models without a pipeline.
  const auto without = [](int layers) {
    return pass(run(Schedule::one_f_one_b, 16, 1, 1, Recompute::none, layers));
  };
  const Seconds layer = without(96) - without(95), ends = without(96) - 96 * layer;
  for (const int m : {8, 16, 64}) {
    CAPTURE(m);
    // The last stage is the busiest one, and waits for the others.
    const Estimate plain = run(Schedule::one_f_one_b, m);
    const Seconds stage = (96 / kStages) * layer, embedding = ends - (pass(plain) - stage);
    CHECK(embedding > 0.01 * layer);
    CHECK(plain.bubble / ((kStages - 1) * stage + embedding) == Approx(1).epsilon(1e-9));
    // A first stage of one chunk embeds one micro-batch before the last stage begins; one of
    // several embeds a whole group, one micro-batch of each stage, before it takes up the second
    // chunk of the first of them. So v times the bubble exceeds that of one chunk by (v p - 1)
    // embeddings: 1.2 and 1.9 % of 84 layers here, however small the embedding seems.
    for (const int vpp : {2, 3, 4, 6}) {
      CAPTURE(vpp);
      const Seconds bubble = run(Schedule::interleaved, m, vpp).bubble;
      CHECK(bubble / ((kStages - 1) * stage / vpp + kStages * embedding) ==
            Approx(1).epsilon(1e-9));
    }
  }
}

TEST_CASE("the bubble's share is (p - 1)/m") {
  for (const int p : {2, 4, 8}) {
    for (const int m : {8, 32, 128}) {
      const Estimate e = run(Schedule::one_f_one_b, m, 1, p);
      CHECK(e.bubble / (e.compute + e.exposed_tp) == Approx((p - 1.0) / m).epsilon(0.02));
    }
  }
}

TEST_CASE("1F1B with chunks is interleaving under another name") {
  CHECK(run(Schedule::one_f_one_b, 32, 2) == run(Schedule::interleaved, 32, 2));
}

TEST_CASE("interleaving multiplies the transfers between stages") {
  const Estimate one = run(Schedule::one_f_one_b, 64), two = run(Schedule::interleaved, 64, 2),
                 three = run(Schedule::interleaved, 64, 3);
  CHECK(one.exposed_pp > Seconds{});
  CHECK(two.exposed_pp > 1.4 * one.exposed_pp);
  // The slack of inner stages saves the same once.
  CHECK(at_most(two.exposed_pp - one.exposed_pp, three.exposed_pp - two.exposed_pp));
}

TEST_CASE("a transfer moves micro-batch s h bytes, twice per micro-batch") {
  const Estimate few = run(Schedule::gpipe, 16), many = run(Schedule::gpipe, 17);
  const Cluster cluster = testing::reference_cluster(64);
  GroupShape pair;
  pair.ranks = 2;
  pair.domains = 2;
  const Bytes boundary{2.0 * 2048 * 12288 / 8};  // sequence parallel: an eighth on each rank
  // Less what the stage with the head, a little slower than the others, waits for anyway.
  const Seconds both = 2 * p2p_time(boundary, pair, cluster);
  CHECK((many.exposed_pp - few.exposed_pp) / both == Approx(1).epsilon(0.03));
}

TEST_CASE("overlapped transfers leave only filling and draining") {
  DecoderShape shape = testing::gpt3_shape();
  Stack stack = testing::plain_sum_stack();
  Strategy s = degrees(8, 8);
  s.vpp = 2;
  const auto transfers = [&](bool overlap, int m) {
    stack.overlap_p2p = overlap;
    return estimate(shape, testing::reference_cluster(64), testing::training(m, 2048), s, stack)
        .exposed_pp;
  };
  CHECK(transfers(true, 64) < transfers(false, 64));
  CHECK(about_equal(transfers(true, 64), transfers(true, 128)));
}

TEST_CASE("recomputation lengthens the bubble with the backward pass") {
  const Estimate kept = run(Schedule::one_f_one_b, 64);
  const Estimate again = run(Schedule::one_f_one_b, 64, 1, kStages, Recompute::full);
  CHECK(again.bubble > kept.bubble);
  CHECK(again.bubble / kept.bubble == Approx(pass(again) / pass(kept)).epsilon(0.02));
}

TEST_CASE("a pipeline never computes faster than its share of the whole") {
  const auto compute = [](int pp) {
    return estimate(testing::grouped_70b_shape(), testing::reference_cluster(8 * pp),
                    testing::training(64, 4096), degrees(8, pp), testing::plain_sum_stack())
        .compute;
  };
  const Seconds whole = compute(1);
  for (const int pp : {2, 4, 8, 16}) CHECK(at_most(whole / pp, compute(pp)));
}

TEST_CASE("uneven stages: the slowest paces the pipeline") {
  DecoderShape shape = testing::dense_7b_shape();
  const auto step = [&](int layers) {
    shape.layers = layers;
    return estimate(shape, testing::reference_cluster(32), testing::training(64, 2048),
                    degrees(8, 4), testing::plain_sum_stack());
  };
  const Estimate even = step(32), uneven = step(33), next = step(36);
  CHECK(uneven.step_time > even.step_time);
  CHECK(uneven.step_time <= next.step_time);
}

TEST_CASE("the better schedules finish sooner where they are legal") {
  for (const int m : {16, 64}) {
    const Seconds plain = run(Schedule::one_f_one_b, m).step_time;
    CHECK(run(Schedule::zero_bubble, m).step_time < plain);
    CHECK(run(Schedule::dualpipe, m).step_time < plain);
    // Its two phases are paced one by one, and no stage has time to send what the ends do not.
    const Seconds phases = run(Schedule::gpipe, m).step_time;
    CHECK(at_most(plain, phases));
    CHECK(phases < 1.02 * plain);
  }
}

TEST_CASE("DualPipe hides the exchange of experts under the other direction") {
  Strategy s = degrees(1, 4, 1, 8);
  const auto with = [&](Schedule schedule) {
    s.schedule = schedule;
    return estimate(testing::latent_experts_shape(), testing::reference_cluster(64),
                    testing::training(256, 4096), s);
  };
  CHECK(with(Schedule::dualpipe).exposed_ep < with(Schedule::one_f_one_b).exposed_ep);
}

}  // namespace
}  // namespace scalemodel
