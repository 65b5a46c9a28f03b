#include <pybind11/numpy.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/fabric/builders.hpp"

namespace scalemodel::bindings {
namespace {

void require_node(const LinkGraph& graph, std::int32_t node) {
  if (node >= 0 && node < graph.nodes()) return;
  throw MalformedQuestion("node=" + std::to_string(node) + ": must be 0 to " +
                          std::to_string(graph.nodes() - 1));
}

void require_link(const LinkGraph& graph, std::int32_t link) {
  if (link >= 0 && link < graph.links()) return;
  throw MalformedQuestion("link=" + std::to_string(link) + ": must be 0 to " +
                          std::to_string(graph.links() - 1));
}

py::dict link_columns(const LinkGraph& graph) {
  const py::ssize_t count = graph.links();
  py::array_t<std::int32_t> from(count), to(count);
  py::array_t<double> capacity(count), latency(count);
  for (std::int32_t link = 0; link < graph.links(); ++link) {
    from.mutable_at(link) = graph.from(link);
    to.mutable_at(link) = graph.to(link);
    capacity.mutable_at(link) = graph.capacity(link).base();
    latency.mutable_at(link) = graph.latency(link).base();
  }
  py::dict columns;
  columns["source"] = from;
  columns["destination"] = to;
  columns["bandwidth_bytes_per_s"] = capacity;
  columns["latency_s"] = latency;
  return columns;
}

py::list node_kinds(const LinkGraph& graph) {
  py::list kinds;
  for (std::int32_t node = 0; node < graph.nodes(); ++node)
    kinds.append(py::cast(graph.kind(node)));
  return kinds;
}

std::vector<std::int32_t> nic_nodes(const LinkGraph& graph) {
  std::vector<std::int32_t> nodes;
  for (std::int32_t nic = 0; nic < graph.nics(); ++nic) nodes.push_back(graph.nic_node(nic));
  return nodes;
}

using EdgeRow = std::tuple<std::int32_t, std::int32_t, double, double>;

LinkGraph fabric_of_edges(std::int32_t nics, std::int32_t switches,
                          const std::vector<EdgeRow>& rows) {
  std::vector<Edge> edges;
  for (const auto& [a, b, bandwidth, latency] : rows) {
    edges.push_back({a, b, BytesPerSecond{bandwidth}, Seconds{latency}});
  }
  return custom_fabric(nics, switches, edges);
}

/// What a graph holds as a tuple of Python, and a graph from such a tuple.
py::tuple stored(const LinkGraph& graph) { return py::cast(LinkGraph::contents(graph)); }

LinkGraph restored(const py::tuple& state) {
  LinkGraph graph;
  auto contents = LinkGraph::contents(graph);
  std::apply(
      [&state](auto&... members) {
        if (state.size() != sizeof...(members)) throw py::value_error("no state of a LinkGraph");
        std::size_t i = 0;
        ((members = state[i++].cast<std::remove_reference_t<decltype(members)>>()), ...);
      },
      contents);
  return graph;
}

}  // namespace

void bind_fabric(py::module_& m) {
  bind_record<Cable>(m, "A kind of cable.");
  bind_record<LeafSpine>(m, "Two tiers of switches.");
  bind_record<FatTree>(m, "Three tiers of equal switches.");
  bind_record<Rails>(m, "One leaf per accelerator of a server.");
  bind_record<Dragonfly>(m, "Fully joined groups of fully joined routers.");
  bind_record<Torus>(m, "A torus of up to three dimensions.");
  py::class_<LinkGraph>(m, "LinkGraph", "A network as a directed graph of links.")
      .def(py::init(&leaf_spine), py::arg("spec"))
      .def(py::init(&fat_tree), py::arg("spec"))
      .def(py::init(&rails), py::arg("spec"))
      .def(py::init(&dragonfly), py::arg("spec"))
      .def(py::init(&torus), py::arg("spec"))
      .def(py::init(&scale_up_domain), py::arg("nics"), py::arg("cable"))
      .def(py::init(&fabric_of_edges), py::arg("nics"), py::arg("switches"), py::arg("edges"))
      .def_property_readonly("nodes", &LinkGraph::nodes, "Switches and NICs.")
      .def_property_readonly("links", &LinkGraph::links, "Directed links, two per cable.")
      .def_property_readonly("nics", &LinkGraph::nics, "NICs.")
      .def_property_readonly(
          "leaves", [](const LinkGraph& graph) { return graph.two_tier().leaves; },
          "Leaves of a two-tier fabric, otherwise 0.")
      .def_property_readonly(
          "planes", [](const LinkGraph& graph) { return graph.two_tier().planes; },
          "Paths between two leaves of a two-tier fabric, otherwise 0.")
      .def("columns", &link_columns, "Source, destination, bandwidth and latency of every link.")
      .def("kinds", &node_kinds, "Kind of every node.")
      .def("nic_nodes", &nic_nodes, "Node of every NIC.")
      .def(
          "__eq__", [](const LinkGraph& a, const LinkGraph& b) { return a == b; },
          py::is_operator())
      .def(py::pickle(&stored, &restored))
      .def(
          "copy", [](const LinkGraph& graph) { return LinkGraph(graph); }, "An equal graph.")
      .def(
          "fail_node",
          [](LinkGraph& graph, std::int32_t node) {
            require_node(graph, node);
            graph.fail_node(node);
          },
          py::arg("node"), "Takes down every cable of a node.")
      .def(
          "scale_cable",
          [](LinkGraph& graph, std::int32_t link, double factor) {
            require_link(graph, link);
            graph.scale_cable(link, factor);
          },
          py::arg("link"), py::arg("factor"),
          "Gives both directions of a cable this fraction of their capacity as built.");
}

}  // namespace scalemodel::bindings
