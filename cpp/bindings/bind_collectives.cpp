#include <pybind11/numpy.h>

#include <string>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/base/error.hpp"
#include "scalemodel/collectives/collectives.hpp"
#include "scalemodel/collectives/custom_all_reduce.hpp"
#include "scalemodel/collectives/textbook.hpp"

namespace scalemodel::bindings {
namespace {

void require_legal(Collective op, Algorithm algorithm, const GroupShape& group,
                   const Cluster& cluster) {
  if (is_legal(op, algorithm, group, cluster)) return;
  std::string legal;
  for (std::size_t i = 0; i < EnumNames<Algorithm>::names.size(); ++i) {
    const auto other = static_cast<Algorithm>(i);
    if (!is_legal(op, other, group, cluster)) continue;
    if (!legal.empty()) legal.append(", ");
    legal.append(name_of(other));
  }
  std::string message("algorithm='");
  message.append(name_of(algorithm)).append("': must be one of ").append(legal);
  message.append(" (").append(name_of(op)).append(" on this group and cluster)");
  throw MalformedQuestion(message);
}

/// One time per size, computed without the interpreter.
template <class Time>
py::array_t<double> times_of(const NumberColumn& sizes, const Time& time) {
  py::array_t<double> times(sizes.size());
  const double* size = sizes.data();
  double* out = times.mutable_data();
  const py::ssize_t count = sizes.size();
  const py::gil_scoped_release released;
  for (py::ssize_t i = 0; i < count; ++i) out[i] = time(Bytes{size[i]}).base();
  return times;
}

void require_textbook(TextbookAlgorithm algorithm, int ranks, double latency_s,
                      double bandwidth_bytes_per_s, int groups) {
  const auto require = [](bool legal, std::string_view what, double value, std::string_view must) {
    if (legal) return;
    std::string message(what);
    message.append("=").append(py::str(py::float_(value))).append(": must be ").append(must);
    throw MalformedQuestion(message);
  };
  require(ranks >= 1, "ranks", ranks, "at least 1");
  require(latency_s >= 0, "latency_s", latency_s, "at least 0");
  require(bandwidth_bytes_per_s > 0, "bandwidth_bytes_per_s", bandwidth_bytes_per_s, "above 0");
  const bool torus = algorithm == TextbookAlgorithm::torus_all_reduce;
  require(groups >= 1 && (!torus || ranks % groups == 0), "groups", groups,
          "at least 1, and a divisor of the ranks for a torus");
}

void bind_textbook(py::module_& m) {
  bind_record<LogGP>(m, "Parameters of the LogGP model; without gap_per_byte_s, of LogP.");
  m.def(
      "textbook_collective_s",
      [](TextbookAlgorithm algorithm, double size_bytes, int ranks, double latency_s,
         double bandwidth_bytes_per_s, int groups) {
        require_textbook(algorithm, ranks, latency_s, bandwidth_bytes_per_s, groups);
        const AlphaBeta link{Seconds{latency_s}, BytesPerSecond{bandwidth_bytes_per_s}};
        return textbook_time(algorithm, Bytes{size_bytes}, ranks, link, groups);
      },
      py::kw_only(), py::arg("algorithm"), py::arg("size_bytes"), py::arg("ranks"),
      py::arg("latency_s"), py::arg("bandwidth_bytes_per_s"), py::arg("groups") = 1,
      "Seconds of a textbook algorithm where every message costs latency + size / bandwidth.");
  m.def(
      "loggp_s",
      [](double size_bytes, int messages, const LogGP& model) {
        return loggp_time(Bytes{size_bytes}, messages, model);
      },
      py::arg("size_bytes"), py::arg("messages"), py::arg("model"),
      "Seconds until the last of messages sent back to back has been received.");
  m.def(
      "logp_broadcast_s",
      [](int ranks, const LogGP& model) {
        if (ranks < 1 || ranks > (1 << 24)) {
          throw MalformedQuestion("ranks=" + std::to_string(ranks) + ": must be from 1 to 2^24");
        }
        return logp_broadcast_time(ranks, model);
      },
      py::arg("ranks"), py::arg("model"), "Seconds of the fastest broadcast of a short message.");
}

}  // namespace

void bind_collectives(py::module_& m) {
  bind_record<CustomAllReduce>(m, "Constants of an all-reduce kernel of a serving engine.");
  m.def(
      "collective_time_s",
      [](Collective op, double size_bytes, int ranks, int stride, const Cluster& cluster,
         Algorithm algorithm) {
        const GroupShape group = group_shape(cluster, ranks, stride);
        require_legal(op, algorithm, group, cluster);
        return collective_time(op, Bytes{size_bytes}, group, cluster, algorithm);
      },
      py::arg("op"), py::arg("size_bytes"), py::arg("ranks"), py::arg("stride"), py::arg("cluster"),
      py::arg("algorithm") = Algorithm::best,
      "Seconds of one collective over ranks that are `stride` apart.");
  m.def(
      "collective_times_s",
      [](Collective op, const NumberColumn& size_bytes, int ranks, int stride,
         const Cluster& cluster, Algorithm algorithm) {
        const GroupShape group = group_shape(cluster, ranks, stride);
        require_legal(op, algorithm, group, cluster);
        return times_of(size_bytes, [&](Bytes size) {
          return collective_time(op, size, group, cluster, algorithm);
        });
      },
      py::arg("op"), py::arg("size_bytes"), py::arg("ranks"), py::arg("stride"), py::arg("cluster"),
      py::arg("algorithm") = Algorithm::best,
      "Seconds of one collective for every size of an array.");
  m.def(
      "best_algorithm",
      [](Collective op, double size_bytes, int ranks, int stride, const Cluster& cluster) {
        return best_algorithm(op, Bytes{size_bytes}, group_shape(cluster, ranks, stride), cluster);
      },
      py::arg("op"), py::arg("size_bytes"), py::arg("ranks"), py::arg("stride"), py::arg("cluster"),
      "Name of the fastest algorithm that the library would consider.");
  m.def(
      "custom_all_reduce_times_s",
      [](const NumberColumn& size_bytes, int ranks, const ScaleUp& scale_up,
         const CustomAllReduce& kernel) {
        const GroupShape group{.ranks = ranks, .per_domain = ranks};
        return times_of(size_bytes, [&](Bytes size) {
          return custom_all_reduce_time(size, group, scale_up, kernel);
        });
      },
      py::arg("size_bytes"), py::arg("ranks"), py::arg("scale_up"), py::arg("kernel"),
      "Seconds of an engine's own all-reduce inside a domain, for every size of an array.");
  m.def(
      "p2p_time_s",
      [](double size_bytes, int ranks, int stride, const Cluster& cluster) {
        return p2p_time(Bytes{size_bytes}, group_shape(cluster, ranks, stride), cluster);
      },
      py::arg("size_bytes"), py::arg("ranks"), py::arg("stride"), py::arg("cluster"),
      "Seconds of one transfer between neighbours of a group.");
  bind_textbook(m);
}

}  // namespace scalemodel::bindings
