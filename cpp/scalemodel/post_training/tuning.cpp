#include "scalemodel/post_training/tuning.hpp"

#include "scalemodel/post_training/weights.hpp"

namespace scalemodel {

TuningPhases tuning_phases(const TuningPasses& passes) {
  const auto paced = [&](Seconds seconds) { return seconds / passes.learning_fraction; };
  TuningPhases phases;
  phases.rollout = passes.rollout;
  phases.swap = passes.swap;
  phases.reference = passes.reference_passes * paced(passes.forward);
  phases.logprob = passes.policy_passes * paced(passes.forward);
  phases.teacher = paced(passes.teacher_forward);
  phases.logits = passes.logits;
  phases.train = passes.optimizer_steps * paced(passes.optimizer_step);
  phases.refit = passes.refit;
  phases.switching = passes.switching;
  return phases;
}

std::array<Seconds, 9> tuning_starts(const TuningPhases& phases, bool teacher_apart) {
  const std::array lengths{phases.rollout, phases.swap,    phases.reference,
                           phases.logprob, phases.teacher, phases.logits,
                           phases.train,   phases.refit,   phases.switching};
  constexpr std::size_t kTeacher = 4, kLogits = 5;
  std::array<Seconds, 9> starts;
  Seconds now;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i] = now;
    const bool beside = teacher_apart && (i == kTeacher || i == kLogits);
    if (!beside) now += lengths[i];
  }
  if (teacher_apart) {
    starts[kTeacher] = Seconds{0};
    starts[kLogits] = phases.teacher;
  }
  return starts;
}

Seconds logit_time(Bytes all, const Cluster& teacher, const Cluster& student, FrozenPlace place) {
  const auto share = [&](const Cluster& pool) { return all / pool.accelerators; };
  switch (place) {
    case FrozenPlace::apart: {
      const bool one_domain =
          student.scale_up.domain >= teacher.accelerators + student.accelerators;
      return max(share(teacher) / link_rate(teacher, one_domain, false),
                 share(student) / link_rate(student, one_domain, false));
    }
    case FrozenPlace::host:
      return host_copy_time(2 * share(student), student);
    case FrozenPlace::shared:
    case FrozenPlace::resident:
      return 2 * share(student) / student.accelerator.memory_bandwidth;
  }
  return {};
}

Seconds reference_swap_time(const Estimate& policy, const Cluster& pool, FrozenPlace place) {
  return place == FrozenPlace::host ? host_copy_time(3 * policy.memory_weights, pool) : Seconds{};
}

Seconds teacher_swap_time(const Estimate& teacher, const Estimate& student, bool states_away,
                          const Cluster& pool, FrozenPlace place) {
  if (place != FrozenPlace::host) return {};
  const Bytes states = states_away ? Bytes{} : student.memory_gradients + student.memory_optimizer;
  return host_copy_time(teacher.memory_weights + 2 * states, pool);
}

Bytes scoring_memory(const Estimate& frozen) {
  return frozen.memory_weights + frozen.memory_logits + frozen.memory_temporary +
         frozen.memory_communication + frozen.memory_gathered + frozen.memory_reserve;
}

Bytes teaching_memory(const Estimate& teacher, const Estimate& student, FrozenPlace place) {
  const Bytes scoring = scoring_memory(teacher);
  switch (place) {
    case FrozenPlace::apart:
      return scoring;
    case FrozenPlace::host:
      return scoring + student.memory_weights;
    case FrozenPlace::shared:
    case FrozenPlace::resident:
      return scoring + student.memory_weights + student.memory_gradients + student.memory_optimizer;
  }
  return {};
}

}  // namespace scalemodel
