// A step of preference tuning and of distillation: sums by hand, limits of frozen models.
#include "scalemodel/post_training/tuning.hpp"

#include "scalemodel/model/scalar_head.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TuningPasses plain_passes() {
  TuningPasses passes;
  passes.forward = Seconds{4};
  passes.optimizer_step = Seconds{12};
  return passes;
}

TEST_CASE("by hand: a reference adds a forward pass to forward and backward of twice its length") {
  TuningPasses passes = plain_passes();
  const Seconds tuned = tuning_step_time(tuning_phases(passes), false);
  CHECK(tuned == Seconds{12});
  passes.reference_passes = 1;
  CHECK(tuning_step_time(tuning_phases(passes), false) == Seconds{16});
  // KTO: mismatched answers pass both models once more.
  passes.reference_passes = 2;
  passes.policy_passes = 1;
  const TuningPhases phases = tuning_phases(passes);
  CHECK(phases.reference == Seconds{8});
  CHECK(phases.logprob == Seconds{4});
  CHECK(tuning_step_time(phases, false) == Seconds{24});
}

TEST_CASE("law: without frozen models and rollout a step is what its updates take") {
  for (const double updates : {1.0, 4.0}) {
    TuningPasses passes = plain_passes();
    passes.optimizer_steps = updates;
    for (const bool apart : {false, true}) {
      CHECK(tuning_step_time(tuning_phases(passes), apart) == updates * Seconds{12});
    }
  }
}

TEST_CASE("law: a teacher beside its student hides the shorter of both") {
  for (const double teaching : {0.0, 3.0, 40.0}) {
    TuningPasses passes = plain_passes();
    passes.rollout = Seconds{20};
    passes.teacher_forward = Seconds{teaching};
    passes.logits = Seconds{0.5};
    const TuningPhases phases = tuning_phases(passes);
    const Seconds turns = tuning_step_time(phases, false), beside = tuning_step_time(phases, true);
    CHECK(turns == Seconds{32.5 + teaching});
    CHECK(beside == max(Seconds{32}, Seconds{teaching + 0.5}));
    const auto in_turn = tuning_starts(phases, false), at_once = tuning_starts(phases, true);
    CHECK(in_turn[6] == Seconds{20.5 + teaching});  // training
    CHECK(at_once[6] == Seconds{20});
    CHECK(at_once[4] == Seconds{0});  // the teacher
    CHECK(at_once[5] == Seconds{teaching});
  }
}

TEST_CASE("law: slower learning stretches passes and no other phase") {
  TuningPasses passes = plain_passes();
  passes.reference_passes = 1;
  passes.policy_passes = 1;
  passes.teacher_forward = Seconds{2};
  passes.rollout = passes.swap = passes.logits = passes.refit = passes.switching = Seconds{1};
  const TuningPhases before = tuning_phases(passes);
  passes.learning_fraction = 0.5;
  const TuningPhases after = tuning_phases(passes);
  CHECK(after.reference + after.logprob == 2 * (before.reference + before.logprob));
  CHECK(after.teaching() == 2 * before.teacher + before.logits);
  CHECK(after.train == 2 * before.train);
  CHECK(after.rollout + after.swap + after.refit + after.switching == Seconds{4});
}

TEST_CASE("by hand: what a teacher says of a token") {
  const LogitFormat format{Bytes{4}, Bytes{4}};
  CHECK(logit_bytes(151936, 0, format) == Bytes{607744});  // 0.6 MB
  CHECK(logit_bytes(151936, 64, format) == Bytes{512});
  // Of a micro-batch of 8,192 tokens: cut by context ranks, whole vocabularies by tensor ranks too.
  CHECK(received_logits(Bytes{600}, 8192, true, 4, 2) == Bytes{600 * 8192 / 8});
  CHECK(received_logits(Bytes{600}, 8192, false, 4, 2) == Bytes{600 * 8192 / 2});
}

TEST_CASE("by hand: logits on their way") {
  Cluster pool = testing::reference_cluster(16);
  pool.accelerators = 16;
  pool.node_accelerators = 8;
  pool.scale_up.domain = 8;
  pool.scale_up.bandwidth = 400 * (unit::GB / unit::s);
  pool.scale_up.p2p_fraction = pool.fabric.p2p_fraction = 1;
  pool.fabric.bandwidth = 50 * (unit::GB / unit::s);
  pool.accelerator.host_bandwidth = 60 * (unit::GB / unit::s);
  pool.accelerator.memory_bandwidth = 3000 * (unit::GB / unit::s);
  const Bytes all = 4800 * unit::GB;
  // 300 GB an accelerator: over its link, out to the host and back, or written and read.
  CHECK(logit_time(all, pool, pool, FrozenPlace::apart).base() == Approx(6));
  CHECK(logit_time(all, pool, pool, FrozenPlace::host).base() == Approx(10));
  CHECK(logit_time(all, pool, pool, FrozenPlace::resident).base() == Approx(0.2));
  // The smaller pool is the one that waits.
  Cluster few = pool;
  few.accelerators = 8;
  CHECK(logit_time(all, few, pool, FrozenPlace::apart).base() == Approx(12));
  CHECK(logit_time(all, pool, few, FrozenPlace::apart).base() == Approx(12));
  CHECK(node_logits(all, pool) == 2400 * unit::GB);
  CHECK(node_logits(all, few) == all);
}

TEST_CASE("by hand: weights that take turns, and memory beside them") {
  Cluster pool = testing::reference_cluster(16);
  pool.accelerator.host_bandwidth = 60 * (unit::GB / unit::s);
  Estimate policy;
  policy.memory_weights = 12 * unit::GB;
  policy.memory_gradients = 6 * unit::GB;
  policy.memory_optimizer = 24 * unit::GB;
  policy.memory_activations = 9 * unit::GB;
  policy.memory = 60 * unit::GB;
  Estimate teacher;
  teacher.memory_weights = 30 * unit::GB;
  teacher.memory_activations = 100 * unit::GB;  // saved for a backward pass that there is not
  teacher.memory_temporary = 2 * unit::GB;
  CHECK(reference_swap_time(policy, pool, FrozenPlace::host).base() == Approx(36.0 / 60));
  CHECK(reference_swap_time(policy, pool, FrozenPlace::resident) == Seconds{0});
  CHECK(reference_swap_time(policy, pool, FrozenPlace::shared) == Seconds{0});
  const auto swap = [&](bool away, FrozenPlace place) {
    return teacher_swap_time(teacher, policy, away, pool, place).base();
  };
  CHECK(swap(false, FrozenPlace::host) == Approx((30 + 2 * 30) / 60.0));
  CHECK(swap(true, FrozenPlace::host) == Approx(0.5));
  CHECK(swap(false, FrozenPlace::apart) == 0);
  CHECK(scoring_memory(teacher) == 32 * unit::GB);
  CHECK(teaching_memory(teacher, policy, FrozenPlace::apart) == 32 * unit::GB);
  CHECK(teaching_memory(teacher, policy, FrozenPlace::host) == 44 * unit::GB);
  CHECK(teaching_memory(teacher, policy, FrozenPlace::resident) == 74 * unit::GB);
  const auto beside = [&](FrozenPlace place) {
    return memory_beside_frozen(policy.memory, teacher.memory_weights, unit::GB, place);
  };
  CHECK(beside(FrozenPlace::resident) == 91 * unit::GB);
  CHECK(beside(FrozenPlace::host) == 61 * unit::GB);
}

TEST_CASE("by hand: one score in place of words") {
  DecoderShape shape = testing::grouped_70b_shape();
  shape.mtp_layers = 0;
  for (const bool tied : {false, true}) {
    shape.tied_embeddings = tied;
    const Model words = make_decoder(shape), scores = with_scalar_head(words);
    const double rows = tied ? 0 : shape.vocab;
    CHECK(words.parameters() - scores.parameters() ==
          Approx((rows - 1) * shape.hidden + (shape.head_bias ? shape.vocab : 0)));
    CHECK(scores.embedding_parameters == words.embedding_parameters);
  }
}

}  // namespace
}  // namespace scalemodel
