#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/collectives/collectives.hpp"

namespace scalemodel::bindings {

void bind_collectives(py::module_& m) {
  m.def(
      "collective_time_s",
      [](Collective op, double size_bytes, int ranks, int stride, const Cluster& cluster) {
        return collective_time(op, Bytes{size_bytes}, group_shape(cluster, ranks, stride), cluster);
      },
      py::arg("op"), py::arg("size_bytes"), py::arg("ranks"), py::arg("stride"), py::arg("cluster"),
      "Seconds of one collective over ranks that are `stride` apart.");
  m.def(
      "p2p_time_s",
      [](double size_bytes, int ranks, int stride, const Cluster& cluster) {
        return p2p_time(Bytes{size_bytes}, group_shape(cluster, ranks, stride), cluster);
      },
      py::arg("size_bytes"), py::arg("ranks"), py::arg("stride"), py::arg("cluster"),
      "Seconds of one transfer between neighbours of a group.");
}

}  // namespace scalemodel::bindings
