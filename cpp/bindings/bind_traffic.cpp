#include <string>
#include <string_view>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/columns.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/estimator/messages.hpp"
#include "scalemodel/traffic/strategy_flows.hpp"

namespace scalemodel::bindings {
namespace {

py::str text(std::string_view name) { return {name.data(), name.size()}; }

template <class T, class Name>
py::list names_of(const std::vector<T>& values, const Name& name) {
  py::list names;
  for (const T& value : values) names.append(text(name(value)));
  return names;
}

py::list message_rows(Tables& tables, const Strategy& strategy) {
  py::list rows;
  for (const StageMessage& each : step_messages(tables, strategy)) {
    const Message& message = each.message;
    py::dict row;
    row["stage"] = each.stage;
    row["phase"] = text(axis_of(message.communicator));
    row["communicator"] = text(name_of(message.communicator));
    row["operation"] = message.op ? text(name_of(*message.op)) : py::str("transfer");
    row["algorithm"] = text(name_of(each.algorithm));
    row["ranks"] = message.group.ranks;
    row["per_domain"] = message.group.per_domain;
    row["domains"] = message.group.domains;
    row["size_bytes"] = message.size.base();
    row["calls"] = each.calls;
    row["times_per_step"] = each.periods;
    row["port_bytes_per_s"] = fabric_bandwidth(tables.cluster().fabric, message.group).base();
    row["time_s"] = message_time(message, tables.cluster()).base();
    rows.append(row);
  }
  return rows;
}

py::dict strategy_flow_columns(Tables& tables, const Strategy& strategy, bool rails) {
  const StrategyFlows all = listening([&] {
    return strategy_flows(strategy_layout(tables, strategy, rails),
                          step_messages(tables, strategy));
  });
  py::dict columns;
  columns["phase"] = names_of(all.communicator, [](Communicator c) { return axis_of(c); });
  columns["communicator"] = names_of(all.communicator, [](Communicator c) { return name_of(c); });
  columns["pattern"] = names_of(all.pattern, [](TrafficPattern p) { return name_of(p); });
  columns["stage"] = array_of(all.stage);
  columns["group"] = array_of(all.flows.group);
  columns["source"] = array_of(all.flows.source);
  columns["destination"] = array_of(all.flows.destination);
  columns["size_bytes"] = array_of(all.flows.bytes);
  columns["times_per_step"] = array_of(all.periods);
  return columns;
}

py::dict checkpoint_columns(Tables& tables, const Strategy& strategy, std::int32_t hosts) {
  if (hosts < 1) throw MalformedQuestion("hosts=" + std::to_string(hosts) + ": must be at least 1");
  const CheckpointFlows all = listening([&] {
    return checkpoint_flows(strategy_layout(tables, strategy, true),
                            checkpoint_bytes(tables, strategy), hosts);
  });
  py::dict columns;
  columns["stage"] = array_of(all.stage);
  columns["source"] = array_of(all.flows.source);
  columns["host"] = array_of(all.flows.destination);
  columns["size_bytes"] = array_of(all.flows.bytes);
  return columns;
}

py::list groups_of(const Tables& tables, const Strategy& strategy, Communicator communicator,
                   int stage) {
  const StrategyLayout layout = strategy_layout(tables, strategy, true);
  const Reason reason =
      first_violation(strategy, layout.degrees, tables.model(), tables.cluster(), tables.task());
  if (reason != Reason::ok) throw MalformedQuestion("strategy: cannot run");
  if (stage < 0 || stage >= layout.degrees.pp) {
    throw MalformedQuestion("stage=" + std::to_string(stage) + ": must be 0 to " +
                            std::to_string(layout.degrees.pp - 1));
  }
  py::list groups;
  for (const auto& members : communicator_groups(layout, communicator, stage)) {
    groups.append(array_of(members));
  }
  return groups;
}

}  // namespace

void bind_traffic(py::module_& m) {
  m.def("step_messages", &message_rows, py::arg("tables"), py::arg("strategy"),
        "Every collective and transfer of a step, by pipeline stage.");
  m.def("strategy_flows", &strategy_flow_columns, py::arg("tables"), py::arg("strategy"),
        py::arg("rails"), "Flows between domains, one row per pair of ranks and period.");
  m.def("checkpoint_flows", &checkpoint_columns, py::arg("tables"), py::arg("strategy"),
        py::arg("hosts"), "What every rank writes of a checkpoint, and to which storage host.");
  m.def("communicator_groups", &groups_of, py::arg("tables"), py::arg("strategy"),
        py::arg("communicator"), py::arg("stage"), "Ranks of every group, in their order.");
}

}  // namespace scalemodel::bindings
