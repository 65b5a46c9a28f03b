#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "scalemodel/costs/tables.hpp"
#include "scalemodel/estimator/estimate.hpp"
#include "scalemodel/estimator/fit_stack.hpp"

namespace scalemodel::bindings {
namespace {

py::list operator_rows(const Tables& tables, const Strategy& strategy, std::size_t kind) {
  py::list rows;
  for (const OperatorCost& cost : tables.operators(strategy, kind)) {
    py::dict row;
    row["operator"] = py::str(cost.name.data(), cost.name.size());
    row["m"] = cost.m;
    row["n"] = cost.n;
    row["k"] = cost.k;
    row["batch"] = cost.batch;
    row["bytes"] = cost.bytes.base();
    row["forward_s"] = cost.forward.base();
    row["backward_s"] = cost.backward.base();
    rows.append(row);
  }
  return rows;
}

py::tuple fit_stack_to(const Stack& start, const std::vector<MeasuredRun>& runs, double pull) {
  const StackFit fit = listening([&] { return fit_stack(start, runs, pull); });
  return py::make_tuple(fit.stack, fit.standard_errors, fit.predicted);
}

}  // namespace

void bind_estimator(py::module_& m) {
  bind_record<Estimate>(m, "One step by cause and kind.");
  py::class_<MeasuredRun>(m, "MeasuredRun", "A measured training step.")
      .def(py::init([](const Model& model, const Cluster& cluster, const Task& task,
                       const std::vector<Strategy>& strategies, double step_time_s, double weight,
                       const std::optional<Stack>& facts, bool own_launch) {
             const bool usable = std::isfinite(step_time_s) && step_time_s > 0 &&
                                 std::isfinite(weight) && weight > 0 && !strategies.empty();
             if (!usable) {
               throw MalformedQuestion(
                   "step_time_s, weight, strategies: must be positive and not empty");
             }
             Tables tables(model, cluster, task, facts.value_or(Stack{}));
             for (const Strategy& strategy : strategies) {
               if (is_illegal(evaluate(tables, strategy).verdict)) {
                 throw MalformedQuestion("strategies: one of them cannot run");
               }
             }
             return MeasuredRun{model,  cluster, task,      strategies, Seconds{step_time_s},
                                weight, facts,   own_launch};
           }),
           py::arg("model"), py::arg("cluster"), py::arg("task"), py::arg("strategies"),
           py::arg("step_time_s"), py::arg("weight") = 1.0, py::arg("facts") = py::none(),
           py::arg("own_launch") = false);
  m.def("fit_stack", &fit_stack_to, py::arg("start"), py::arg("runs"), py::arg("pull") = 0.0,
        "Fitted stack, standard errors of its four constants, predicted seconds of the runs.");
  py::class_<Tables>(m, "Tables", "Costs of a (model, cluster, task, stack) on small axes.")
      .def(py::init<Model, Cluster, Task, Stack, Packing>(), py::arg("model"), py::arg("cluster"),
           py::arg("task"), py::arg("stack"), py::arg_v("packing", Packing{}, "..."))
      .def(
          "estimate",
          [](Tables& tables, const Strategy& strategy) {
            tables.tabulate(strategy);
            return evaluate(tables, strategy);
          },
          py::arg("strategy"), "The estimate of one strategy.")
      .def(
          "at_step_time",
          [](Tables& tables, const Strategy& strategy, const Estimate& estimate,
             double step_time_s) {
            tables.tabulate(strategy);
            return at_step_time(tables, strategy, estimate, step_time_s * unit::s);
          },
          py::arg("strategy"), py::arg("estimate"), py::arg("step_time_s"),
          "The estimate of a strategy whose step is known to take this long.")
      .def(
          "reported_memory_bytes",
          [](Tables& tables, const Strategy& strategy, const Estimate& estimate) {
            tables.tabulate(strategy);
            return reported_memory(tables, strategy, estimate).base();
          },
          py::arg("strategy"), py::arg("estimate"),
          "Memory of a strategy's estimate as the log of the stack states it.")
      .def("operators", &operator_rows, py::arg("strategy"), py::arg("kind"),
           "Operators of one layer of a kind; kind = number of kinds: the head.")
      .def_property_readonly("cells", &Tables::cells, "Tabulated degrees.")
      .def(
          "model_flop",
          [](const Tables& tables) {
            return py::make_tuple(tables.flop().forward.base(), tables.flop().attention.base());
          },
          "Forward flop of one sequence, and the attention part of it.");
}

}  // namespace scalemodel::bindings
