#include <pybind11/stl.h>

#include <string>

#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/schedule/asynchronous.hpp"
#include "scalemodel/schedule/outer_steps.hpp"
#include "scalemodel/strategy/legal.hpp"
#include "scalemodel/strategy/packing.hpp"
#include "scalemodel/strategy/replicas.hpp"
#include "scalemodel/strategy/stack.hpp"
#include "scalemodel/strategy/strategy.hpp"
#include "scalemodel/strategy/task.hpp"

namespace scalemodel::bindings {

namespace {

void require_stage(int stages, int stage) {
  if (stages >= 1 && stage >= 0 && stage < stages) return;
  throw MalformedQuestion("stage=" + std::to_string(stage) + ": must be from 0 to stages - 1 of " +
                          std::to_string(stages));
}

void bind_outer_steps(py::module_& m) {
  bind_record<OuterSteps>(m, "Islands that train apart and meet every few steps.");
  m.def(
      "outer_round",
      [](const OuterSteps& outer, double parameters, double inner_step_s, double tokens_per_s) {
        const OuterRound found =
            outer_round(outer, parameters, Seconds{inner_step_s}, tokens_per_s);
        return py::make_tuple(found.exchange.base(), found.round.base(), found.step.base(),
                              found.tokens_per_s);
      },
      py::arg("outer"), py::arg("parameters"), py::arg("inner_step_s"), py::arg("tokens_per_s"),
      "Seconds of an exchange, a round and a step in the mean, and tokens of all islands a "
      "second.");
  m.def(
      "outer_state_bytes",
      [](double parameters, int accelerators) {
        return outer_state_bytes(parameters, accelerators).base();
      },
      py::arg("parameters"), py::arg("accelerators"),
      "States of the outer optimizer on an accelerator.");
}

void bind_packing(py::module_& m) {
  using Lengths = std::vector<int>;
  py::class_<Packing>(m, "Packing",
                      "Documents of unequal lengths that fill the sequences of a step.")
      .def(py::init(
               [](Lengths lengths, PackOrder order) { return Packing{std::move(lengths), order}; }),
           py::arg("lengths"), py::arg("order") = PackOrder::plain)
      .def_readonly("lengths", &Packing::lengths, "Tokens of each document.")
      .def_property_readonly("order", [](const Packing& packing) { return packing.order; })
      .def("__eq__", [](const Packing& a, const Packing& b) { return a == b; })
      .def("__hash__",
           [](const Packing& packing) {
             return py::hash(py::make_tuple(py::tuple(py::cast(packing.lengths)), packing.order));
           })
      .def(py::pickle(
          [](const Packing& packing) { return py::make_tuple(packing.lengths, packing.order); },
          [](const py::tuple& state) {
            return Packing{state[0].cast<Lengths>(), state[1].cast<PackOrder>()};
          }));
  m.def("pack_documents", &pack_documents, py::arg("lengths"), py::arg("sequence"),
        "Documents of each pack, by their place: the longest first, where it fits best.");
}

void bind_asynchronous(py::module_& m) {
  m.def(
      "weight_versions",
      [](int stages, int stage, bool double_buffered) {
        require_stage(stages, stage);
        return weight_versions(stages, stage, double_buffered);
      },
      py::arg("stages"), py::arg("stage"), py::kw_only(), py::arg("double_buffered") = false,
      "Versions of its weights that a stage of an asynchronous pipeline keeps.");
  m.def(
      "asynchronous_stage_bytes",
      [](int stages, int stage, double weight_bytes, double state_bytes, double activation_bytes,
         bool double_buffered) {
        require_stage(stages, stage);
        return asynchronous_stage_bytes(stages, stage, Bytes{weight_bytes}, Bytes{state_bytes},
                                        Bytes{activation_bytes}, double_buffered);
      },
      py::arg("stages"), py::arg("stage"), py::kw_only(), py::arg("weight_bytes"),
      py::arg("state_bytes"), py::arg("activation_bytes"), py::arg("double_buffered") = false,
      "Memory of a stage of an asynchronous pipeline: stashed weights, states, activations.");
  m.def(
      "asynchronous_s",
      [](double slowest_s, int micro_batches) {
        return asynchronous_time(Seconds{slowest_s}, micro_batches);
      },
      py::arg("slowest_s"), py::arg("micro_batches"),
      "Seconds of micro-batches in the steady state of a pipeline without flushes.");
}

void require_nodes(const ReplicaLayout& layout, const std::vector<std::int32_t>& nodes) {
  for (const std::int32_t node : nodes) {
    if (node >= 0 && node < layout.nodes()) continue;
    throw MalformedQuestion("nodes=" + std::to_string(node) + ": must be from 0 to " +
                            std::to_string(layout.nodes() - 1));
  }
}

void bind_replicas(py::module_& m) {
  py::class_<ReplicaLayout>(m, "ReplicaLayout", "Replicas of a strategy that can run, by node.")
      .def(py::init<const Strategy&, const Cluster&, const Degrees&>(), py::arg("strategy"),
           py::arg("cluster"), py::arg("degrees"))
      .def_property_readonly("replicas", &ReplicaLayout::replicas,
                             "That hold the whole state each, with no part of it elsewhere.")
      .def_property_readonly("nodes", &ReplicaLayout::nodes)
      .def_property_readonly("units", &ReplicaLayout::units,
                             "Sets of replicas of which no node holds ranks of two.")
      .def(
          "on",
          [](const ReplicaLayout& layout, const std::vector<std::int32_t>& nodes) {
            require_nodes(layout, nodes);
            return layout.on(nodes);
          },
          py::arg("nodes"), "Replicas with a rank on one of these nodes.")
      .def(
          "apart",
          [](const ReplicaLayout& layout, int count) {
            if (count < 0 || count > layout.nodes()) {
              throw MalformedQuestion("count=" + std::to_string(count) + ": must be from 0 to " +
                                      std::to_string(layout.nodes()));
            }
            return layout.apart(count);
          },
          py::arg("count"), "A number of nodes that hold ranks of as many replicas as they can.");
}

}  // namespace

void bind_strategy(py::module_& m) {
  bind_record<Strategy>(m, R"(How a model is laid out on a cluster.

Keyword arguments only; zero means derived where the field says so.

Examples
--------
>>> plan = Strategy(tp=8, pp=4)
>>> plan.replace(pp=8, vpp=2)
Strategy(tp=8, pp=8, vpp=2)
>>> plan.to_dict()["micro_batch"]
1)");
  bind_record<Task>(m, "A training step.");
  bind_record<Stack>(m, "One version of a software stack.");
  py::class_<Degrees>(m, "Degrees", "Degrees of a strategy with everything left open filled in.")
      .def_readonly("dp", &Degrees::dp)
      .def_readonly("etp", &Degrees::etp)
      .def_readonly("shard", &Degrees::shard, "Ranks over which the sharding partitions.");
  m.def("resolve_degrees", &resolve_degrees, py::arg("strategy"), py::arg("cluster"),
        py::arg("task"), "What a strategy left open, on this cluster.");
  bind_packing(m);
  bind_replicas(m);
  bind_outer_steps(m);
  bind_asynchronous(m);
}

}  // namespace scalemodel::bindings
