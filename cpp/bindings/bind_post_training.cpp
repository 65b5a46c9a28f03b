#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/post_training/answers.hpp"
#include "scalemodel/post_training/packing.hpp"
#include "scalemodel/post_training/step.hpp"
#include "scalemodel/post_training/tuning.hpp"
#include "scalemodel/post_training/weights.hpp"

namespace scalemodel::bindings {
namespace {

py::array_t<double> column(const std::vector<double>& values) {
  py::array_t<double> out(static_cast<py::ssize_t>(values.size()));
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

void bind_answers(py::module_& m) {
  m.def(
      "answer_lengths",
      [](double mean, double room, double spread, std::size_t count) {
        return column(answer_lengths({mean, room, spread}, count));
      },
      py::arg("mean"), py::arg("room"), py::arg("spread"), py::arg("count"),
      "Lengths of answers in tokens as even quantiles, the longest first.");
  m.def(
      "sequence_lengths",
      [](double prompt_tokens, const NumberColumn& answers) {
        const std::vector<double> tokens(answers.data(), answers.data() + answers.size());
        const SequenceLengths found = sequence_lengths(prompt_tokens, tokens);
        return py::make_tuple(found.mean, found.equal);
      },
      py::arg("prompt_tokens"), py::arg("answers"),
      "Mean length of whole sequences, and that of equal ones of the same attention.");
  m.def(
      "packed_batch",
      [](double mean, double equal, double sequences, double pack_tokens, int tp, int cp,
         int replicas) {
        const PackedBatch packed =
            packed_batch({mean, equal}, sequences, pack_tokens, {tp, cp, replicas});
        return py::make_tuple(packed.sequence, packed.micro_batch, packed.batch);
      },
      py::arg("mean"), py::arg("equal"), py::arg("sequences"), py::arg("pack_tokens"),
      py::arg("tp"), py::arg("cp"), py::arg("replicas"),
      "Tokens of a sequence, sequences of a pack and of a batch that stand for packed ones.");
  m.def(
      "padded_batch",
      [](const NumberColumn& lengths, double sequences, double micro_batch, double group, int tp,
         int cp, int replicas) {
        const std::vector<double> tokens(lengths.data(), lengths.data() + lengths.size());
        const PackedBatch padded =
            padded_batch(tokens, sequences, micro_batch, group, {tp, cp, replicas});
        return py::make_tuple(padded.sequence, padded.micro_batch, padded.batch);
      },
      py::arg("lengths"), py::arg("sequences"), py::arg("micro_batch"), py::arg("group"),
      py::arg("tp"), py::arg("cp"), py::arg("replicas"),
      "The same of sequences that are padded to the longest of a group, the longest first.");
}

void bind_weights(py::module_& m) {
  bind_record<WeightSet>(m, "What is moved to every replica of an engine.");
  bind_record<RefitCosts>(m, "Fixed times of new weights for an engine.");
  bind_record<SwitchCosts>(m, "What accelerators that generate and train in turn set free.");
  m.def("weight_set", &weight_set, py::arg("model"), py::arg("precision"),
        "What of a model is moved to every replica.");
  m.def(
      "refit_time_s",
      [](const WeightSet& weights, const Cluster& train, const Cluster& rollout, RefitWay way,
         int replica_ranks, const RefitCosts& costs, bool sharded) {
        return refit_time(weights, train, rollout, {way, replica_ranks, sharded}, costs).base();
      },
      py::arg("weights"), py::arg("train"), py::arg("rollout"), py::arg("way"),
      py::arg("replica_ranks"), py::arg("costs"), py::arg("sharded") = false,
      "Seconds of new weights for all replicas; `sharded`: training holds shards of all matrices.");
  m.def(
      "refit_bytes",
      [](const WeightSet& weights, RefitWay way, int replica_ranks, int train_ranks,
         int rollout_ranks) {
        const RefitBytes moved =
            refit_bytes(weights, {way, replica_ranks}, train_ranks, rollout_ranks);
        return py::make_tuple(moved.sent.base(), moved.received.base());
      },
      py::arg("weights"), py::arg("way"), py::arg("replica_ranks"), py::arg("train_ranks"),
      py::arg("rollout_ranks"), "Bytes that the busiest rank sends, and that it receives.");
  m.def(
      "switch_time_s",
      [](double parameters, const Cluster& pool, const SwitchCosts& costs) {
        return switch_time(parameters, pool, costs).base();
      },
      py::arg("parameters"), py::arg("pool"), py::arg("costs"),
      "Seconds for states to the host and back, and an engine that wakes.");
}

void bind_step(py::module_& m) {
  bind_record<DynamicSampling>(m, "Prompts that are rejected and drawn again (DAPO).");
  bind_record<RlPasses>(m, "Which passes a step of reinforcement learning makes.");
  bind_record<RlPhases>(m, "Seconds of the phases of a step of reinforcement learning.")
      .def_static("never", &RlPhases::never, "Of a step that cannot run: infinite.")
      .def_property_readonly(
          "learning_s", [](const RlPhases& phases) { return phases.learning().base(); },
          "Of the pool that trains: all passes over the answers.")
      .def_property_readonly(
          "between_s", [](const RlPhases& phases) { return phases.between().base(); },
          "Neither pool works meanwhile: new weights, sleeping and waking.");
  m.def("rl_phases", &rl_phases, py::arg("passes"), "The phases of a step from its passes.");
  m.def(
      "rl_step_time_s",
      [](const RlPhases& phases, double sustained_s, int staleness) {
        return rl_step_time(phases, Seconds{sustained_s}, staleness).base();
      },
      py::arg("phases"), py::arg("sustained_s"), py::arg("staleness"), "Seconds of a whole step.");
  m.def(
      "rl_starts_s",
      [](const RlPhases& phases, double sustained_s, int staleness) {
        std::vector<double> starts;
        for (const Seconds start : rl_starts(phases, Seconds{sustained_s}, staleness)) {
          starts.push_back(start.base());
        }
        return column(starts);
      },
      py::arg("phases"), py::arg("sustained_s"), py::arg("staleness"),
      "Seconds from the start of a step to that of each of its phases.");
  m.def(
      "rollout_period_s",
      [](double rollout_s, double sustained_s, int staleness) {
        return rollout_period(Seconds{rollout_s}, Seconds{sustained_s}, staleness).base();
      },
      py::arg("rollout_s"), py::arg("sustained_s"), py::arg("staleness"),
      "Seconds of the rollout pool from step to step.");
  m.def("sampling_rounds", &sampling_rounds, py::arg("sampling"),
        "Rounds of generation until enough prompts are accepted.");
  m.def(
      "padded_dispatch_s",
      [](double answers, double limit_tokens, double per_token_s) {
        return padded_dispatch(answers, limit_tokens, Seconds{per_token_s}).base();
      },
      py::arg("answers"), py::arg("limit_tokens"), py::arg("per_token_s"),
      "Seconds of padded answers handed to a pool and back.");
  m.def("answers_in_flight", &answers_in_flight, py::arg("answers"), py::arg("replicas"),
        py::arg("staleness"), "Answers of a replica under way at once.");
  m.def("head_factor", &head_factor, py::arg("shape"), py::arg("active_parameters"),
        "GEMMs of layers and LM head over those of the layers.");
  m.def(
      "forward_pass_time_s",
      [](const Estimate& repeated, const Estimate& saved, double head_factor) {
        return forward_pass_time(repeated, saved, head_factor).base();
      },
      py::arg("repeated"), py::arg("saved"), py::arg("head_factor"),
      "One forward pass over what two estimates hold.");
  m.def(
      "learning_memory_bytes",
      [](const Estimate& training, const std::optional<Estimate>& critic) {
        return learning_memory(training, critic ? &*critic : nullptr).base();
      },
      py::arg("training"), py::arg("critic") = py::none(),
      "Memory of an accelerator that trains, with the states of a critic.");
  m.def(
      "sustained_rollout_s",
      [](double answers, double replicas, double answers_per_s, double accepted_fraction) {
        return sustained_rollout(answers, replicas, answers_per_s, accepted_fraction).base();
      },
      py::arg("answers"), py::arg("replicas"), py::arg("answers_per_s"),
      py::arg("accepted_fraction"), "Seconds of answers of replicas that run as full as they can.");
  m.def(
      "running_sequences",
      [](double sequences, double cache_bytes, double spared_bytes) {
        return running_sequences(sequences, Bytes{cache_bytes}, Bytes{spared_bytes});
      },
      py::arg("sequences"), py::arg("cache_bytes"), py::arg("spared_bytes"),
      "Running sequences that fit where a part of the cache is given to others.");
  m.def(
      "spared_memory_bytes",
      [](double usual_share, double share, double capacity_bytes) {
        return spared_memory(usual_share, share, Bytes{capacity_bytes}).base();
      },
      py::arg("usual_share"), py::arg("share"), py::arg("capacity_bytes"),
      "Memory that the engine would take and its share leaves to others.");
}

void bind_tuning(py::module_& m) {
  bind_record<TuningPasses>(m, "Which passes a step of preference tuning or distillation makes.");
  bind_record<TuningPhases>(m, "Seconds of the phases of preference tuning or distillation.")
      .def_static("never", &TuningPhases::never, "Of a step that cannot run: infinite.")
      .def_property_readonly(
          "teaching_s", [](const TuningPhases& phases) { return phases.teaching().base(); },
          "Of a teacher beside its student, until the student has the logits.")
      .def_property_readonly(
          "learning_s", [](const TuningPhases& phases) { return phases.learning().base(); },
          "Of the accelerators of the model that learns.");
  bind_record<LogitFormat>(m, "Bytes of what a teacher says of a token.");
  m.def("tuning_phases", &tuning_phases, py::arg("passes"), "The phases of a step.");
  m.def(
      "tuning_step_time_s",
      [](const TuningPhases& phases, bool teacher_apart) {
        return tuning_step_time(phases, teacher_apart).base();
      },
      py::arg("phases"), py::arg("teacher_apart"), "Seconds of a whole step.");
  m.def(
      "tuning_starts_s",
      [](const TuningPhases& phases, bool teacher_apart) {
        std::vector<double> starts;
        for (const Seconds start : tuning_starts(phases, teacher_apart)) {
          starts.push_back(start.base());
        }
        return column(starts);
      },
      py::arg("phases"), py::arg("teacher_apart"),
      "Seconds from the start of a step to that of each of its phases.");
  m.def(
      "logit_bytes",
      [](double vocabulary, double top, const LogitFormat& format) {
        return logit_bytes(vocabulary, top, format).base();
      },
      py::arg("vocabulary"), py::arg("top"), py::arg("format"),
      "Bytes that a teacher says of a token: the largest logits, or all where `top` is 0.");
  m.def(
      "logit_time_s",
      [](double bytes, const Cluster& teacher, const Cluster& student, FrozenPlace place) {
        return logit_time(Bytes{bytes}, teacher, student, place).base();
      },
      py::arg("bytes"), py::arg("teacher"), py::arg("student"), py::arg("place"),
      "Seconds of all logits of a step from teacher to student.");
  m.def(
      "received_logits_bytes",
      [](double per_token_bytes, double tokens, bool whole, int tp, int cp) {
        return received_logits(Bytes{per_token_bytes}, tokens, whole, tp, cp).base();
      },
      py::arg("per_token_bytes"), py::arg("tokens"), py::arg("whole"), py::arg("tp"), py::arg("cp"),
      "Logits of a micro-batch on an accelerator of a student.");
  m.def(
      "node_logits_bytes",
      [](double bytes, const Cluster& pool) { return node_logits(Bytes{bytes}, pool).base(); },
      py::arg("bytes"), py::arg("pool"), "Logits of a step in the memory of a node's host.");
  m.def(
      "reference_swap_time_s",
      [](const Estimate& policy, const Cluster& pool, FrozenPlace place) {
        return reference_swap_time(policy, pool, place).base();
      },
      py::arg("policy"), py::arg("pool"), py::arg("place"),
      "Seconds over the host link so that a reference takes the policy's place and back.");
  m.def(
      "teacher_swap_time_s",
      [](const Estimate& teacher, const Estimate& student, bool states_away, const Cluster& pool,
         FrozenPlace place) {
        return teacher_swap_time(teacher, student, states_away, pool, place).base();
      },
      py::arg("teacher"), py::arg("student"), py::arg("states_away"), py::arg("pool"),
      py::arg("place"), "Seconds over the host link so that a teacher takes a turn.");
  m.def(
      "memory_beside_frozen_bytes",
      [](double own_bytes, double frozen_bytes, double received_bytes, FrozenPlace place) {
        return memory_beside_frozen(Bytes{own_bytes}, Bytes{frozen_bytes}, Bytes{received_bytes},
                                    place)
            .base();
      },
      py::arg("own_bytes"), py::arg("frozen_bytes"), py::arg("received_bytes"), py::arg("place"),
      "Memory of an accelerator beside which frozen weights stay, with logits of a micro-batch.");
  m.def(
      "teaching_memory_bytes",
      [](const Estimate& teacher, const Estimate& student, FrozenPlace place) {
        return teaching_memory(teacher, student, place).base();
      },
      py::arg("teacher"), py::arg("student"), py::arg("place"),
      "Memory of an accelerator while a teacher scores.");
}

}  // namespace

void bind_post_training(py::module_& m) {
  bind_answers(m);
  bind_weights(m);
  bind_step(m);
  bind_tuning(m);
}

}  // namespace scalemodel::bindings
