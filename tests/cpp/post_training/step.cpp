// A step of reinforcement learning: sums by hand, and laws of one pool and of two.
#include "scalemodel/post_training/step.hpp"

#include "scalemodel/post_training/weights.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

RlPasses plain() {
  RlPasses passes;
  passes.round = Seconds{60};
  passes.forward = Seconds{5};
  passes.optimizer_step = Seconds{8};
  passes.optimizer_steps = 4;
  passes.refit = Seconds{1};
  passes.switching = Seconds{3};
  return passes;
}

TEST_CASE("by hand: phases of a step in turn") {
  RlPasses passes = plain();
  const RlPhases phases = rl_phases(passes);
  CHECK(phases.learning() == Seconds{5 + 4 * 8});
  CHECK(rl_step_time(phases, phases.rollout, 0) == Seconds{60 + 37 + 4});
  CHECK(rl_step_time(phases, phases.rollout, 1) == Seconds{60 + 4});
  passes.reference = true;
  CHECK(rl_phases(passes).learning() == Seconds{37 + 5});
  passes.critic_forward = Seconds{3};
  passes.critic_step = Seconds{4};
  CHECK(rl_phases(passes).learning() == Seconds{42 + 3 + 4 * 4});
  passes.reward_forward = Seconds{2};
  CHECK(rl_phases(passes).reward == Seconds{2});
  passes.logprob = false;
  CHECK(rl_phases(passes).learning() == Seconds{61 + 2 - 5});
}

TEST_CASE("law: phases follow one another, or those of training run beside the rollout") {
  RlPasses passes = plain();
  passes.reference = true;
  const RlPhases phases = rl_phases(passes);
  for (const int staleness : {0, 1, 4}) {
    const auto starts = rl_starts(phases, Seconds{20}, staleness);
    CHECK(starts[0] == Seconds{0});
    CHECK(starts[1] == (staleness > 0 ? Seconds{0} : phases.rollout));
    CHECK(starts[4] == starts[3] + phases.logprob);
    CHECK(starts[6] + phases.train <= starts[7]);
    CHECK((starts[8] + phases.switching).base() ==
          Approx(rl_step_time(phases, Seconds{20}, staleness).base()));
  }
}

TEST_CASE("law: slower learning stretches every pass of it by the same and no other phase") {
  RlPasses passes = plain();
  passes.reference = true;
  passes.critic_forward = passes.critic_step = passes.reward_forward = Seconds{2};
  const RlPhases before = rl_phases(passes);
  passes.learning_fraction = 0.5;
  const RlPhases after = rl_phases(passes);
  CHECK(after.learning() == 2 * before.learning());
  CHECK(after.rollout == before.rollout);
  CHECK(after.between() == before.between());
}

TEST_CASE("law: both pools at once take no longer than in turn, and no less than either") {
  for (const double rollout : {1.0, 37.0, 500.0}) {
    RlPasses passes = plain();
    passes.round = Seconds{rollout};
    const RlPhases phases = rl_phases(passes);
    const Seconds once = rl_step_time(phases, phases.rollout, 1);
    CHECK(once <= rl_step_time(phases, phases.rollout, 0));
    CHECK(once >= phases.rollout);
    CHECK(once >= phases.learning());
  }
}

TEST_CASE("by hand: rounds of dynamic sampling") {
  CHECK(sampling_rounds({1, 1}) == 1);
  CHECK(sampling_rounds({0.5, 1}) == 2);
  CHECK(sampling_rounds({0.5, 2}) == 1);
  CHECK(sampling_rounds({0.3, 1}) == 4);
  CHECK(sampling_rounds({0.3, 3}) == 2);
  CHECK(sampling_rounds({0.1, 10}) == 1);
  RlPasses passes = plain();
  passes.reward_forward = Seconds{2};
  passes.sampling = {0.3, 3};
  // Two rounds of thrice the answers are generated and scored; training sees those of one step.
  CHECK(rl_phases(passes).rollout == Seconds{120});
  CHECK(rl_phases(passes).reward == Seconds{12});
  CHECK(rl_phases(passes).train == rl_phases(plain()).train);
  // Partial rollouts draw no whole rounds: 2 s of scores over 0.3.
  passes.partial = true;
  passes.sustained = Seconds{40};
  CHECK(rl_phases(passes).rollout == Seconds{40});
  CHECK(rl_phases(passes).reward.base() == Approx(2 / 0.3));
}

TEST_CASE("by hand: answers handed by one controller") {
  CHECK(padded_dispatch(8192, 30000, Seconds{1e-7}).base() == Approx(24.576));
  CHECK(answers_in_flight(512, 8, 0) == 64);
  CHECK(answers_in_flight(500, 8, 1) == 125);
  RlPasses passes = plain();
  passes.reference = true;
  const RlPhases before = rl_phases(passes);
  passes.dispatch = Seconds{2};
  const RlPhases after = rl_phases(passes);
  // Generation, two passes of scores and training are a call each; no model, no call.
  CHECK(after.rollout == before.rollout + Seconds{2});
  CHECK(after.learning() == before.learning() + Seconds{6});
  CHECK(after.reward == Seconds{0});
  CHECK(after.critic == Seconds{0});
  CHECK(after.collect == Seconds{0});
  // Streamed answers are gathered by the pool that trains, not handed over by the one before.
  passes.partial = true;
  passes.sustained = Seconds{40};
  CHECK(rl_phases(passes).rollout == Seconds{40});
  CHECK(rl_phases(passes).collect == Seconds{2});
}

TEST_CASE("law: more staleness never slows a step, down to what the pools can sustain") {
  const RlPhases phases = rl_phases(plain());
  CHECK(rollout_period(Seconds{60}, Seconds{25}, 2) == Seconds{30});
  CHECK(rollout_period(Seconds{60}, Seconds{25}, 3) == Seconds{25});
  CHECK(rollout_period(Seconds{60}, Seconds{80}, 3) == Seconds{60});
  Seconds before = rl_step_time(phases, Seconds{20}, 0);
  for (int staleness = 1; staleness < 9; ++staleness) {
    const Seconds here = rl_step_time(phases, Seconds{20}, staleness);
    CHECK(here <= before);
    CHECK(here >= phases.learning());
    before = here;
  }
  CHECK(before == phases.learning() + phases.between());
}

TEST_CASE("law: a forward pass is what repeating adds, wherever it is exposed") {
  Estimate saved, repeated;
  saved.compute = Seconds{6};
  saved.exposed_dp = Seconds{9};
  repeated = saved;
  repeated.compute = Seconds{8};
  repeated.exposed_tp = Seconds{0.5};
  repeated.bubble = Seconds{0.25};
  CHECK(forward_pass_time(repeated, saved, 1) == Seconds{2.75});
  CHECK(forward_pass_time(repeated, saved, 1.25) == 1.25 * Seconds{2.75});
  // 1,000 rows of 100: 1e5 parameters of the head beside 4e5 of the layers.
  DecoderShape shape;
  shape.vocab = 1000;
  shape.hidden = 100;
  CHECK(head_factor(shape, 6e5) == Approx(1.25));
  shape.tied_embeddings = true;
  CHECK(head_factor(shape, 5e5) == Approx(1.25));
}

TEST_CASE("by hand: memory of a critic, of a share, and answers in a steady state") {
  Estimate training;
  training.memory = 50 * unit::GB;
  training.memory_weights = 10 * unit::GB;
  training.memory_gradients = 5 * unit::GB;
  training.memory_optimizer = 15 * unit::GB;
  CHECK(learning_memory(training, nullptr) == 50 * unit::GB);
  CHECK(learning_memory(training, &training) == 80 * unit::GB);
  CHECK(spared_memory(0.9, 0.6, 80 * unit::GB).base() == Approx(24e9));
  CHECK(spared_memory(0.9, 0.95, 80 * unit::GB) == 0 * unit::GB);
  CHECK(running_sequences(100, 40 * unit::GB, 10 * unit::GB) == 75);
  CHECK(running_sequences(100, 40 * unit::GB, 40 * unit::GB) == 1);
  CHECK(sustained_rollout(2048, 16, 4, 0.5) == Seconds{64});
}

TEST_CASE("by hand: new weights over links, and states to the host and back") {
  Cluster pool;
  pool.accelerators = 16;
  pool.scale_up.domain = 8;
  pool.scale_up.bandwidth = 400 * unit::GB / unit::s;
  pool.scale_up.p2p_fraction = 0.5;
  pool.fabric.bandwidth = 50 * unit::GB / unit::s;
  pool.fabric.p2p_fraction = 0.8;
  pool.accelerator.memory_bandwidth = 2000 * unit::GB / unit::s;
  pool.accelerator.host_bandwidth = 32 * unit::GB / unit::s;
  const WeightSet weights{8e9, 0, 1000, Precision::bf16};
  const RefitCosts costs{Seconds{0.1}, 100 * unit::us, 200 * unit::us, {}};
  const auto refit = [&](RefitWay way, int ranks) {
    return refit_time(weights, pool, pool, {way, ranks}, costs).base();
  };
  // Each receives a quarter of 16 GB over 40 GB/s; one pool of two domains all of it.
  CHECK(refit(RefitWay::reshard, 4) == Approx(0.1 + 0.1 + 0.1));
  CHECK(refit(RefitWay::ipc, 4) == Approx(0.1 + 0.1 + 0.4));
  // Whole matrices: over every link of a node at once, no faster than inside; or over one's own.
  pool.node_accelerators = 4;
  CHECK(refit(RefitWay::broadcast, 4) == Approx(0.1 + 0.2 + 0.1));
  pool.node_accelerators = 8;
  CHECK(refit(RefitWay::broadcast, 4) == Approx(0.1 + 0.2 + 0.08));
  CHECK(refit(RefitWay::rdma_whole, 4) == Approx(0.1 + 0.2 + 0.4));
  pool.accelerators = 8;
  CHECK(refit(RefitWay::ipc, 4) == Approx(0.1 + 0.1 + 0.08));
  pool.scale_up.bandwidth = pool.fabric.bandwidth = BytesPerSecond{0};
  CHECK(refit(RefitWay::ipc, 1) == Approx(0.1 + 0.1 + 0.016));
  // 16 bytes of 8e9 parameters over 8 accelerators, there and back at 32 GB/s.
  CHECK(switch_time(8e9, pool, {Bytes{16}, Seconds{2}}).base() == Approx(1 + 2));
}

TEST_CASE("sharded training gathers whole matrices before they are handed on, or meanwhile") {
  Cluster pool;
  pool.accelerators = 8;
  pool.scale_up.domain = 16;
  pool.scale_up.bandwidth = 400 * unit::GB / unit::s;
  pool.scale_up.p2p_fraction = 0.5;
  const WeightSet weights{8e9, 0, 1000, Precision::bf16};
  RefitCosts costs{Seconds{0.1}, 100 * unit::us, 200 * unit::us, 8 * unit::GB / unit::s};
  const auto refit = [&](RefitWay way, bool sharded) {
    return refit_time(weights, pool, pool, {way, 4, sharded}, costs).base();
  };
  // 16 GB at 8 GB/s: in turns with what follows inside one pool, beside it between two.
  CHECK(refit(RefitWay::ipc, true) == Approx(refit(RefitWay::ipc, false) + 2));
  CHECK(refit(RefitWay::broadcast, false) == Approx(0.1 + 0.2 + 0.08));
  CHECK(refit(RefitWay::broadcast, true) == Approx(0.1 + 2));
  CHECK(refit(RefitWay::rdma, true) == Approx(0.1 + 2));
  // A rank's own part is cut from shards.
  CHECK(refit(RefitWay::reshard, true) == refit(RefitWay::reshard, false));
  costs.gather = 100 * unit::GB / unit::s;
  CHECK(refit(RefitWay::broadcast, true) == Approx(0.1 + 0.2 + 0.08));
  costs.gather = BytesPerSecond{0};
  CHECK(refit(RefitWay::ipc, true) == refit(RefitWay::ipc, false));
}

TEST_CASE("every replica gets a whole model: what is sent is what is received") {
  const WeightSet weights{8e9, 6e9, 1000, Precision::bf16};
  for (const int train : {4, 16, 256}) {
    for (const int replicas : {1, 2, 8}) {
      for (const int ranks : {1, 4, 8}) {
        const int rollout = replicas * ranks;
        const RefitBytes own = refit_bytes(weights, {RefitWay::reshard, ranks}, train, rollout);
        CHECK(train * own.sent.base() == Approx(rollout * own.received.base()));
        CHECK(rollout * own.received.base() == Approx(replicas * 16e9));
        const RefitBytes experts = refit_bytes(weights, {RefitWay::rdma, ranks}, train, rollout);
        CHECK(experts.received.base() == Approx(4e9 + 12e9 / ranks));
        const RefitBytes whole =
            refit_bytes(weights, {RefitWay::rdma_whole, ranks}, train, rollout);
        CHECK(own.received <= experts.received);
        CHECK(experts.received <= whole.received);
        CHECK(whole.received == Bytes{16e9});
      }
    }
  }
}

TEST_CASE("answers of the newest weights: older ones are learned from meanwhile") {
  CHECK(wait_for_fresh(Seconds{100}, 0, Seconds{80}) == Seconds{100});
  CHECK(wait_for_fresh(Seconds{100}, 0.5, Seconds{80}) == Seconds{60});
  CHECK(wait_for_fresh(Seconds{30}, 0.5, Seconds{80}) == Seconds{0});
  RlPasses passes;
  passes.optimizer_step = Seconds{80};
  passes.dispatch = Seconds{5};
  passes.fresh = Seconds{100};
  CHECK(rl_phases(passes).collect == Seconds{0});
  passes.partial = true;
  passes.stale_fraction = 0;
  passes.logprob = false;
  CHECK(rl_phases(passes).collect == Seconds{105});
  passes.stale_fraction = 1;
  CHECK(rl_phases(passes).collect == Seconds{5 + 100 - 85});
}

}  // namespace
}  // namespace scalemodel
