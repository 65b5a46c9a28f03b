// What the stages of a step do to parameters and their states: memory, update and verdict.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/host_offload.hpp"
#include "scalemodel/estimator/shared_terms.hpp"
#include "scalemodel/estimator/stage_memory.hpp"

namespace scalemodel {

inline StageStates stage_states(const StepContext& c, const StageClass& stage) {
  const StageParameters parameters = stage_parameters(c, stage);
  return {resident_memory(c, stage, parameters), optimizer_time(c, stage, parameters),
          optimizer_transfer(c, stage, parameters)};
}

/// Calls `use(states)` for the kind of stage of this number.
template <class Use>
void with_stage_states(const StepContext& c, std::size_t number, const Use& use) {
  const auto make = [&] { return stage_states(c, c.stages.classes[number]); };
  if (c.shared == nullptr || number >= kMaxStages) {
    use(make());
    return;
  }
  // Shards of master weights are moved with the weights, not with the optimizer.
  const bool apart = c.strategy.offload_weights && keeps_masters_only(c);
  use(c.shared->of_shards->stage_states.get(number + (apart ? kMaxStages : 0), make));
}

inline PassingMemory stage_passing(const StepContext& c, std::size_t number) {
  const auto make = [&] { return passing_memory(c, c.stages.classes[number]); };
  const bool kept = c.shared != nullptr && number < kMaxStages;
  return kept ? c.shared->passing.get(number, make) : make();
}

/// Adds a kind of stage, of this number. Whether it is fuller than those before.
inline bool add_stage(FullestStage& fullest, const StepContext& c, const MemoryByKind& memory,
                      std::size_t number) {
  fullest.host = max(fullest.host, c.cluster().node_accelerators * memory.host);
  const Bytes allocated = memory.allocated(), fragments = memory.fragments(c.stack());
  const Bytes most = allocated + fragments;
  if (!(most > fullest.most)) return false;
  fullest.most = most;
  fullest.memory = allocated + (c.stack().reserve + fragments);
  fullest.number = number;
  return true;
}

inline Reason verdict_of(const FullestStage& fullest, const Cluster& cluster) {
  if (fullest.host > cluster.host_memory) return Reason::offload;
  return fullest.memory > cluster.accelerator.memory_capacity ? Reason::out_of_memory : Reason::ok;
}

/// Strategies that differ in what they offload of activations and optimizer states.
inline StatesByOffload states_by_offload(const StepContext& c) {
  StatesByOffload states;
  for (std::size_t number = 0; number < c.stages.classes.size(); ++number) {
    const PassingMemory passing = stage_passing(c, number);
    with_stage_states(c, number, [&](const StageStates& stage) {
      states.update = max(states.update, stage.update);
      states.transfer = max(states.transfer, stage.transfer);
      // Unrolled, no lane asks what it offloads.
#pragma GCC unroll 4
      for (std::size_t i = 0; i < states.fullest.size(); ++i) {
        const Offload host{c.strategy.offload_weights, (i & 1) != 0, (i & 2) != 0};
        add_stage(states.fullest[i], c, stage.memory.offloaded(host, passing), number);
      }
    });
  }
  for (std::size_t i = 0; i < states.fullest.size(); ++i) {
    states.verdicts[i] = verdict_of(states.fullest[i], c.cluster());
  }
  return states;
}

inline void set_memory(Estimate& estimate, const MemoryByKind& of_stage, const MemoryPolicy& stack,
                       int stage) {
  const MemoryByKind memory = of_stage.at_peak();
  estimate.memory_weights = memory.weights;
  estimate.memory_gradients = memory.gradients;
  estimate.memory_optimizer = memory.optimizer;
  estimate.memory_activations = memory.activations;
  estimate.memory_logits = memory.logits;
  estimate.memory_temporary = memory.temporary;
  estimate.memory_communication = memory.communication;
  estimate.memory_gathered = memory.gathered;
  estimate.memory_allocated = memory.allocated();
  estimate.memory_reserve = stack.reserve + of_stage.fragments(stack);
  estimate.fullest_stage = stage;
}

/// Sets what a step does to parameters and their states, but for the kinds of memory.
inline void set_states(Estimate& e, const StepContext& c, const FullestStage& fullest,
                       Seconds update, Seconds transfer) {
  e.dp = c.degrees.dp;
  e.memory_capacity = c.cluster().accelerator.memory_capacity;
  e.memory = fullest.memory;
  e.host_memory = fullest.host;
  e.optimizer = update;
  e.exposed_offload = c.strategy.offload_optimizer ? transfer : Seconds{};
  e.verdict = verdict_of(fullest, c.cluster());
}

/// Time and memory of what a step does to parameters and their states, and the verdict.
inline Estimate states_of(const StepContext& c) {
  FullestStage fullest;
  MemoryByKind most;
  Seconds update, transfer;
  for (std::size_t number = 0; number < c.stages.classes.size(); ++number) {
    with_stage_states(c, number, [&](const StageStates& stage) {
      const MemoryByKind memory =
          stage.memory.offloaded(offload_of(c.strategy), stage_passing(c, number));
      update = max(update, stage.update);
      transfer = max(transfer, stage.transfer);
      if (add_stage(fullest, c, memory, number)) most = memory;
    });
  }
  Estimate e;
  set_states(e, c, fullest, update, transfer);
  set_memory(e, most, c.stack(), fullest_index(c, c.stages.classes[fullest.number]));
  return e;
}

/// The same where `states_by_offload` told which stage is the fullest.
inline Estimate states_of(const StepContext& c, const StatesByOffload& states) {
  const FullestStage& fullest = states.fullest[offloaded_beside_weights(c.strategy)];
  Estimate e;
  set_states(e, c, fullest, states.update, states.transfer);
  with_stage_states(c, fullest.number, [&](const StageStates& stage) {
    set_memory(e, stage.memory.offloaded(offload_of(c.strategy), stage_passing(c, fullest.number)),
               c.stack(), fullest_index(c, c.stages.classes[fullest.number]));
  });
  return e;
}

}  // namespace scalemodel
