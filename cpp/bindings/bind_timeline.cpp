#include <optional>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/interpreter.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/order_statistics.hpp"
#include "scalemodel/estimator/mixed.hpp"
#include "scalemodel/estimator/step_timeline.hpp"
#include "scalemodel/timeline/events.hpp"
#include "scalemodel/timeline/trace.hpp"

namespace scalemodel::bindings {
namespace {

/// A column of `rows`, one value of type Out per row.
template <class Out, class Row, class Get>
py::array_t<Out> column(const std::vector<Row>& rows, Get&& get) {
  check_interrupt();
  py::array_t<Out> values(static_cast<py::ssize_t>(rows.size()));
  Out* at = values.mutable_data();
  for (const Row& row : rows) *at++ = static_cast<Out>(get(row));
  return values;
}

/// Columns of events under their names, which `columns` writes.
py::dict event_table(std::size_t events, EventColumns& columns) {
  py::dict table;
  const auto add = [&]<class T>(const char* name, T*& values) {
    check_interrupt();
    py::array_t<T> column(static_cast<py::ssize_t>(events));
    values = column.mutable_data();
    table[name] = std::move(column);
  };
  add("rank", columns.rank);
  add("stream", columns.stream);
  add("kind", columns.activity);
  add("chunk", columns.chunk);
  add("micro_batch", columns.micro_batch);
  add("start_s", columns.start);
  add("duration_s", columns.duration);
  add("bytes", columns.bytes);
  return table;
}

py::dict columns_of_events(const Timeline& timeline) {
  const std::vector<std::size_t> places = listening([&] { return event_places(timeline); });
  EventColumns columns;
  py::dict table = event_table(places.back(), columns);
  listening([&] {
    write_events(timeline, places, columns);
    return true;
  });
  return table;
}

py::dict columns_of_path(const Timeline& timeline) {
  const std::vector<Event> path = listening([&] { return critical_path(timeline); });
  EventColumns columns;
  py::dict table = event_table(path.size(), columns);
  write_records(path, columns);
  return table;
}

py::dict memory_columns(const std::vector<MemorySample>& samples) {
  using Sample = MemorySample;
  py::dict columns;
  columns["rank"] = column<std::int32_t>(samples, [](const Sample& s) { return s.rank; });
  columns["time_s"] = column<double>(samples, [](const Sample& s) { return s.time.base(); });
  const auto kind = [&](const char* name, Bytes MemoryKinds::* member) {
    columns[name] =
        column<double>(samples, [&](const Sample& s) { return (s.allocated.*member).base(); });
  };
  kind("memory_weights_bytes", &MemoryKinds::weights);
  kind("memory_gradients_bytes", &MemoryKinds::gradients);
  kind("memory_optimizer_bytes", &MemoryKinds::optimizer);
  kind("memory_activations_bytes", &MemoryKinds::activations);
  kind("memory_logits_bytes", &MemoryKinds::logits);
  kind("memory_temporary_bytes", &MemoryKinds::temporary);
  kind("memory_communication_bytes", &MemoryKinds::communication);
  kind("memory_gathered_bytes", &MemoryKinds::gathered);
  kind("memory_reserve_bytes", &MemoryKinds::reserve);
  columns["memory_bytes"] =
      column<double>(samples, [](const Sample& s) { return s.allocated.total().base(); });
  return columns;
}

template <NamedEnum E>
py::list names_of() {
  py::list names;
  for (const std::string_view name : EnumNames<E>::names) {
    names.append(py::str(name.data(), name.size()));
  }
  return names;
}

py::bytes trace_of(const Timeline& timeline, const Tables& tables,
                   const std::optional<Strategy>& operators_of) {
  return {listening([&] {
    std::vector<OperatorList> operators;
    if (operators_of) operators = operators_by_kind(tables, *operators_of);
    return trace_json(timeline, operators);
  })};
}

std::vector<MixedPart> parts_of(const std::vector<Tables*>& tables,
                                const std::vector<int>& shares) {
  if (tables.empty() || tables.size() != shares.size()) {
    throw MalformedQuestion("tables, shares: must be as many, at least one");
  }
  std::vector<MixedPart> parts;
  for (std::size_t k = 0; k < tables.size(); ++k) parts.push_back({tables[k], shares[k]});
  return parts;
}

void bind_mixed(py::module_& m) {
  py::class_<MixedStep>(m, "MixedStep", "A training step on accelerators of several kinds.")
      .def_readonly("step_time_s", &MixedStep::step_time)
      .def_readonly("least_time_s", &MixedStep::least_time)
      .def_readonly("may_fit", &MixedStep::may_fit)
      .def_readonly("verdict", &MixedStep::verdict)
      .def_readonly("layers", &MixedStep::layers)
      .def_readonly("micro_batches", &MixedStep::micro_batches)
      .def_readonly("times_s", &MixedStep::times)
      .def_readonly("memory_bytes", &MixedStep::memory)
      .def_readonly("power_w", &MixedStep::power)
      .def_readonly("energy_j", &MixedStep::energy)
      .def_readonly("cost_usd", &MixedStep::cost);
  m.def(
      "mixed_by_stage",
      [](const std::vector<Tables*>& tables, const std::vector<int>& shares,
         const Strategy& strategy, MixedSplit split) {
        const std::vector<MixedPart> parts = parts_of(tables, shares);
        return listening([&] { return mixed_by_stage(parts, strategy, split); });
      },
      py::arg("tables"), py::arg("shares"), py::arg("strategy"), py::arg("split"),
      "A step of a pipeline whose stages run on several kinds.");
  m.def(
      "mixed_with_layers",
      [](const std::vector<Tables*>& tables, const std::vector<int>& shares,
         const Strategy& strategy, const std::vector<int>& layers) {
        const std::vector<MixedPart> parts = parts_of(tables, shares);
        return listening([&] { return mixed_with_layers(parts, strategy, layers); });
      },
      py::arg("tables"), py::arg("shares"), py::arg("strategy"), py::arg("layers"),
      "The same with the layers of each stage given.");
  m.def(
      "mixed_by_replica",
      [](const std::vector<Tables*>& tables, const std::vector<int>& shares,
         const Strategy& strategy, MixedSplit split) {
        const std::vector<MixedPart> parts = parts_of(tables, shares);
        return listening([&] { return mixed_by_replica(parts, strategy, split); });
      },
      py::arg("tables"), py::arg("shares"), py::arg("strategy"), py::arg("split"),
      "A step of replicas of several kinds.");
  m.def("slowest_fabric", &slowest_fabric, py::arg("a"), py::arg("b"),
        "The worse of each property of two networks.");
}

}  // namespace

void bind_timeline(py::module_& m) {
  bind_record<TimelineOptions>(m, "How traffic is ordered and what disturbs a step.");
  py::class_<Timeline>(m, "Timeline", "One step as events.")
      .def_property_readonly(
          "step_time_s", [](const Timeline& t) { return t.step_time; }, "One optimizer step.")
      .def_property_readonly(
          "period_s", [](const Timeline& t) { return t.period; },
          "From the start of a step to that of the next one.")
      .def_property_readonly(
          "stages", [](const Timeline& t) { return t.costs.stages; }, "Ranks simulated.")
      .def_property_readonly(
          "chunks_per_stage", [](const Timeline& t) { return t.costs.chunks_per_stage; },
          "Virtual stages, or DualPipe's two directions.")
      .def_property_readonly(
          "passes", [](const Timeline& t) { return t.passes.size(); }, "Passes of all ranks.")
      .def("events", &columns_of_events, "Columns of all events.")
      .def("critical_path", &columns_of_path,
           "Columns of the events that make the step as long as it is.")
      .def(
          "memory",
          [](const Timeline& t) {
            return memory_columns(listening([&] { return memory_profile(t); }));
          },
          "Columns of what every rank holds after each change.")
      .def("trace", &trace_of, py::arg("tables"), py::arg("operators_of"),
           "JSON in the Trace Event Format; with a strategy, passes broken down into operators.");
  m.def(
      "timeline",
      [](Tables& tables, const Strategy& strategy, const TimelineOptions& options,
         const std::vector<double>& slowdown) {
        return listening([&] { return step_timeline(tables, strategy, options, slowdown); });
      },
      py::arg("tables"), py::arg("strategy"), py::arg("options"), py::arg("slowdown"),
      "Simulates one step of a strategy that can run.");
  m.def("draw_slowdown",
        py::overload_cast<const Tables&, const Strategy&, std::uint64_t>(&draw_slowdown),
        py::arg("tables"), py::arg("strategy"), py::arg("seed"),
        "Factors of the stages of the slowest replica, drawn with the stack's spread.");
  m.def("expected_maximum", &expected_maximum, py::arg("draws"),
        "Expected largest of several draws from a standard normal distribution.");
  m.def("maximum_deviation", &maximum_deviation, py::arg("draws"),
        "Standard deviation of that largest draw.");
  bind_mixed(m);
  m.attr("STREAMS") = names_of<Stream>();
  m.attr("ACTIVITIES") = names_of<Activity>();
}

}  // namespace scalemodel::bindings
