#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/ops/dispatch.hpp"
#include "scalemodel/ops/moe.hpp"

namespace scalemodel::bindings {
namespace {

constexpr py::ssize_t kLoadColumns = 3;
constexpr double kLargestCount = 1e15;

/// Names a column in messages, and bounds what it may hold.
struct Named {
  const char* name;
  const NumberColumn& values;
  double low;
  bool whole = false;
};

/// Rows that all columns share, after checking every value.
std::size_t checked_rows(const std::vector<Named>& columns) {
  const py::ssize_t rows = columns.front().values.size();
  for (const Named& column : columns) {
    const std::string name(column.name);
    if (column.values.ndim() != 1 || column.values.size() != rows) {
      throw MalformedQuestion(name + ": must have one dimension of " + std::to_string(rows) +
                              " values");
    }
    const double* const data = column.values.data();
    for (py::ssize_t i = 0; i < rows; ++i) {
      const double value = data[i];
      if (!(value >= column.low && value <= kLargestCount) ||
          (column.whole && value != std::floor(value))) {
        throw MalformedQuestion(name + "[" + std::to_string(i) + "]=" + text_of(value) +
                                ": must be a " + (column.whole ? "whole " : "") + "number from " +
                                text_of(column.low));
      }
    }
  }
  return static_cast<std::size_t>(rows);
}

template <class TimeOf>
py::array_t<double> seconds(std::size_t rows, const TimeOf& time_of) {
  py::array_t<double> out(static_cast<py::ssize_t>(rows));
  double* const values = out.mutable_data();
  {
    const py::gil_scoped_release released;
    for (std::size_t i = 0; i < rows; ++i) values[i] = time_of(i).base();
  }
  return out;
}

py::array_t<double> expert_loads(const NumberColumn& tokens, const NumberColumn& experts,
                                 const NumberColumn& topk, const NumberColumn& ranks,
                                 const NumberColumn& skew) {
  const std::size_t rows = checked_rows({{"tokens", tokens, 1, true},
                                         {"experts", experts, 1, true},
                                         {"topk", topk, 1, true},
                                         {"ranks", ranks, 1, true},
                                         {"skew", skew, 0}});
  const double *t = tokens.data(), *e = experts.data(), *k = topk.data(), *r = ranks.data(),
               *s = skew.data();
  for (std::size_t i = 0; i < rows; ++i) {
    const std::string row = "[" + std::to_string(i) + "]";
    if (e[i] > 1e6) throw MalformedQuestion("experts" + row + ": must be at most 1e6");
    if (k[i] > e[i]) throw MalformedQuestion("topk" + row + ": must not exceed experts");
    if (r[i] > e[i] || std::fmod(e[i], r[i]) != 0) {
      throw MalformedQuestion("ranks" + row + ": must divide experts");
    }
  }
  py::array_t<double> out(std::vector<py::ssize_t>{static_cast<py::ssize_t>(rows), kLoadColumns});
  double* values = out.mutable_data();
  {
    const py::gil_scoped_release released;
    ExpertLoads known;
    for (std::size_t i = 0; i < rows; ++i, values += kLoadColumns) {
      const ExpertLoad& load = known.of(
          {t[i], static_cast<int>(e[i]), static_cast<int>(k[i]), static_cast<int>(r[i]), s[i]});
      const std::array<double, kLoadColumns> row{load.pairs, load.active, load.touched};
      std::copy(row.begin(), row.end(), values);
    }
  }
  return out;
}

py::array_t<double> expert_layer(const Accelerator& accelerator, const GroupedGemmKernel& kernel,
                                 const NumberColumn& loads, const NumberColumn& tokens,
                                 const NumberColumn& topk, const NumberColumn& experts,
                                 const NumberColumn& expert_ranks, const NumberColumn& hidden,
                                 const NumberColumn& intermediate, const NumberColumn& tensor_ranks,
                                 const NumberColumn& matrices) {
  const std::size_t rows = checked_rows({{"tokens", tokens, 0},
                                         {"topk", topk, 1},
                                         {"experts", experts, 1},
                                         {"expert_ranks", expert_ranks, 1},
                                         {"hidden", hidden, 1},
                                         {"intermediate", intermediate, 1},
                                         {"tensor_ranks", tensor_ranks, 1},
                                         {"matrices", matrices, 2}});
  if (loads.ndim() != 2 || static_cast<std::size_t>(loads.shape(0)) != rows ||
      loads.shape(1) != kLoadColumns) {
    throw MalformedQuestion("loads: must be the array that expert_loads returns");
  }
  const double *load = loads.data(), *t = tokens.data(), *k = topk.data(), *e = experts.data(),
               *r = expert_ranks.data(), *h = hidden.data(), *n = intermediate.data(),
               *p = tensor_ranks.data(), *g = matrices.data();
  return seconds(rows, [&](std::size_t i) {
    const double* const l = load + static_cast<py::ssize_t>(i) * kLoadColumns;
    const ExpertLayer layer{{l[0], l[1], l[2]}, t[i], k[i], e[i], r[i], h[i], n[i], p[i], g[i]};
    return expert_layer_time(layer, kernel, accelerator);
  });
}

py::array_t<double> grouped_call(const Accelerator& accelerator, const GroupedGemmKernel& kernel,
                                 const NumberColumn& rows_of_all, const NumberColumn& groups,
                                 const NumberColumn& columns, const NumberColumn& depth) {
  const std::size_t rows = checked_rows({{"rows", rows_of_all, 0},
                                         {"groups", groups, 0},
                                         {"columns", columns, 1},
                                         {"depth", depth, 1}});
  const double *m = rows_of_all.data(), *g = groups.data(), *n = columns.data(), *k = depth.data();
  return seconds(rows, [&](std::size_t i) {
    return grouped_call_time({m[i], g[i], n[i], k[i]}, kernel, accelerator);
  });
}

py::array_t<double> dispatch(const Accelerator& accelerator, const DispatchKernel& kernel,
                             const NumberColumn& tokens, const NumberColumn& hidden,
                             const NumberColumn& topk, const NumberColumn& experts,
                             const NumberColumn& ranks, const NumberColumn& nodes,
                             const NumberColumn& communication_blocks) {
  const std::size_t rows = checked_rows({{"tokens", tokens, 0},
                                         {"hidden", hidden, 1},
                                         {"topk", topk, 1},
                                         {"experts", experts, 1},
                                         {"ranks", ranks, 1},
                                         {"nodes", nodes, 1},
                                         {"communication_blocks", communication_blocks, 0}});
  const double *t = tokens.data(), *h = hidden.data(), *k = topk.data(), *e = experts.data(),
               *r = ranks.data(), *n = nodes.data(), *c = communication_blocks.data();
  const double blocks = accelerator.multiprocessors;
  return seconds(rows, [&](std::size_t i) {
    return dispatch_time({t[i], h[i], k[i], e[i], r[i], n[i], c[i], blocks}, kernel);
  });
}

}  // namespace

void bind_moe(py::module_& m) {
  bind_record<GroupedGemmKernel>(m, "Constants of a grouped GEMM kernel.");
  bind_record<DispatchKernel>(m, "Constants of one direction of token dispatch.");
  m.def("expert_loads", &expert_loads, py::arg("tokens"), py::arg("experts"), py::arg("topk"),
        py::arg("ranks"), py::arg("skew"),
        "What the busiest expert-parallel rank receives, one row each: pairs, experts with rows, "
        "distinct tokens. skew 0: balanced.");
  m.def("expert_layer_time_s", &expert_layer, py::arg("accelerator"), py::arg("kernel"),
        py::arg("loads"), py::arg("tokens"), py::arg("topk"), py::arg("experts"),
        py::arg("expert_ranks"), py::arg("hidden"), py::arg("intermediate"),
        py::arg("tensor_ranks"), py::arg("matrices"),
        "Seconds of an expert layer on its busiest rank, one per row of the columns.");
  m.def("grouped_call_time_s", &grouped_call, py::arg("accelerator"), py::arg("kernel"),
        py::arg("rows"), py::arg("groups"), py::arg("columns"), py::arg("depth"),
        "Seconds of GEMMs over groups of rows, one per row of the columns.");
  m.def("moved_kernel", &moved_kernel, py::arg("kernel"), py::arg("timed_on"),
        py::arg("accelerator"),
        "A grouped GEMM kernel on another accelerator of the architecture that it was timed on.");
  m.def("dispatch_time_s", &dispatch, py::arg("accelerator"), py::arg("kernel"), py::arg("tokens"),
        py::arg("hidden"), py::arg("topk"), py::arg("experts"), py::arg("ranks"), py::arg("nodes"),
        py::arg("communication_blocks"),
        "Seconds of sending tokens to their experts or back, one per row of the columns.");
}

}  // namespace scalemodel::bindings
